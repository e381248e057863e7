import type { Database } from "./client.js";
import { Closed, isOutage, isRefused, ProtocolBroken } from "./errors.js";
import type { Commit } from "./feeds.js";
import { type CallOptions, hide } from "./runner.js";
import type { Position } from "./seen.js";
import { checkName, quoteName, RecordId, type StoreObject } from "./values.js";
import { News, retryBackoff } from "./waits.js";

/** A mirror was read in full. */
export interface Copied {
  /** Sequence that the mirror shows. */
  seq: number;
  rows: number;
  /** Cause of reading again; undefined of the first time. */
  why: unknown;
}

export interface MirrorOptions extends CallOptions {
  /** Limits the mirror to records that meet a condition. */
  where?: string;
  /** Rows in one request while the table is read in full; 1000 by default. */
  page?: number;
  /** Called each time the table was read in full. */
  onCopy?: (copied: Copied) => void;
}

/**
 * A copy of a table, kept in step with it. It is read in full at one moment of the store and followed from
 * there. Where the log no longer holds what follows, the table is read again; until that is done, and while the
 * node is away, the mirror shows its last state. It changes by whole commits. It iterates over its records.
 */
export class Mirror<T = StoreObject> implements Iterable<T>, AsyncDisposable {
  private readonly db: Database;
  private readonly table: string;
  private readonly options: MirrorOptions;
  private readonly stopping = new AbortController();
  private readonly news = new News();
  private rows = new Map<string, T>();
  private position: Position = { seq: 0 };
  private failure: { error: unknown } | undefined;
  private work: Promise<void> | undefined;

  private constructor(db: Database, table: string, options: MirrorOptions) {
    this.db = db;
    this.table = table;
    this.options = options;
    hide(this, "db");
  }

  /** @internal */
  static async open<T>(db: Database, table: string, options: MirrorOptions): Promise<Mirror<T>> {
    const mirror = new Mirror<T>(db, checkName(table), options);
    await mirror.copy(undefined, options.signal);
    const stop = AbortSignal.any([mirror.stopping.signal, db.client.nodes.closing.signal]);
    mirror.work = mirror.keep(stop);
    return mirror;
  }

  private async keep(stop: AbortSignal): Promise<void> {
    try {
      while (!stop.aborted) {
        try {
          await this.follow(stop);
        } catch (error) {
          if (stop.aborted || !["LogPruned", "Diverged", "Unknown"].some((code) => isRefused(error, code))) throw error;
          await this.copy(error, stop);
        }
      }
    } catch (error) {
      this.failure = { error };
    }
    if (stop.aborted) this.failure = { error: new Closed("the mirror, or its client, has been closed") };
    this.news.announce();
  }

  private async follow(stop: AbortSignal): Promise<void> {
    const watch = this.db.watch<T>(this.table, { from: this.position, where: this.options.where, signal: stop });
    watch.isPatient = true; // the table was read a moment ago: a node that is away comes back
    watch.onMove = (position) => this.apply({ changes: [], position });
    for await (const commit of watch) this.apply(commit);
  }

  /** Reads all of it. If it was read before, a node that is away is waited for. */
  private async copy(why: unknown, signal: AbortSignal | undefined): Promise<void> {
    const pause = retryBackoff();
    for (;;) {
      try {
        await this.read(signal);
        this.options.onCopy?.({ seq: this.position.seq, rows: this.rows.size, why });
        return;
      } catch (error) {
        const hasLostMoment = isRefused(error, "Unknown") && "moment" in error.detail;
        if (!hasLostMoment && !(why !== undefined && isOutage(error))) throw error;
      }
      await pause.wait(signal);
    }
  }

  private async read(signal: AbortSignal | undefined): Promise<void> {
    const { where, page } = this.options;
    const moment = await this.db.moment({ signal });
    const rows = new Map<string, T>();
    const select = `SELECT * FROM ${quoteName(this.table)}${where ? ` WHERE ${where}` : ""}`;
    try {
      for await (const row of moment.rows<StoreObject>(select, undefined, { signal, ...(page ? { page } : {}) })) {
        if (!(row.id instanceof RecordId)) throw new ProtocolBroken(`the node sent a row of ${this.table} without its id`);
        rows.set(row.id.toString(), row as T);
      }
    } finally {
      await moment.close({ signal }).catch(() => {}); // it ends by itself where the node cannot be told
    }
    this.rows = rows;
    this.position = moment.position;
    this.news.announce();
  }

  private apply(commit: Pick<Commit<T>, "changes" | "position">): void {
    for (const change of commit.changes) {
      if (change.value === undefined) this.rows.delete(change.id.toString());
      else this.rows.set(change.id.toString(), change.value);
    }
    this.position = commit.position;
    this.news.announce();
  }

  /** Sequence that the mirror shows. It advances with commits elsewhere too, every 15 seconds. */
  get seq(): number {
    return this.position.seq;
  }

  /** Number of records. */
  get size(): number {
    return this.rows.size;
  }

  /** Error that ended the mirror; undefined while it is kept in step. */
  get error(): unknown {
    return this.failure?.error;
  }

  /** Returns a record, which must not be modified. */
  get(id: RecordId): T | undefined {
    return this.rows.get(id.toString());
  }

  /** Iterates over the records, in no order. They are of one commit if the loop awaits nothing. */
  [Symbol.iterator](): Iterator<T> {
    return this.rows.values();
  }

  /** Waits until the mirror shows another sequence than `since`. */
  changed(since: number, options: CallOptions = {}): Promise<void> {
    return this.until(() => this.position.seq !== since, options);
  }

  /** Waits until the mirror shows a sequence, such as the `seq` of an answer. */
  reached(seq: number, options: CallOptions = {}): Promise<void> {
    return this.until(() => this.position.seq >= seq, options);
  }

  private async until(isMet: () => boolean, { signal }: CallOptions): Promise<void> {
    while (!isMet()) {
      if (this.failure) throw this.failure.error;
      await this.news.wait(signal);
    }
  }

  /** Stops following the table. The records of the mirror stay. */
  async close(): Promise<void> {
    this.stopping.abort();
    await this.work;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
