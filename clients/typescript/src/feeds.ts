import { isObject, needed } from "./answers.js";
import { Attempts } from "./attempts.js";
import { type Client, checkKnown } from "./client.js";
import { type Call, type Connection, MINOR_OF_AFTER, MINOR_OF_SEQUENCES, type Sink } from "./connection.js";
import { isRefused, OutcomeUnknown, ProtocolBroken } from "./errors.js";
import { type Body, Kind } from "./frames.js";
import type { Position } from "./seen.js";
import { type DateTime, RecordId, type StoreObject } from "./values.js";
import { News } from "./waits.js";

/** Bytes of whole commits that have come and were not asked for: with more the feed is ended and opened again. */
const BEHIND_MOST = 4 << 20;

/** A WATCH on one connection, until it is over. */
export class Feed implements Sink {
  /** True once the node was asked to end the feed since nobody reads it. @internal */
  isEnding = false;
  private readonly call: Call;
  private messages: { body: StoreObject; size: number }[] = [];
  private bytes = 0;
  /** Bytes up to the end of the last whole commit. */
  private whole = 0;
  private over: { error: unknown } | undefined;
  private readonly news = new News();

  constructor(
    private readonly conn: Connection,
    body: Body,
    private readonly onSeq: (seq: number, epoch: number | undefined) => void,
  ) {
    const ignore = () => {};
    this.call = { kind: Kind.WATCH, id: 0, waits: true, sink: this, resolve: ignore, reject: ignore, start: 0, end: 0 };
    conn.begin({ kind: Kind.WATCH, body }, this.call);
  }

  onMessage(body: StoreObject, size: number): void {
    this.messages.push({ body, size });
    this.bytes += size;
    if (isWhole(body)) {
      this.whole = this.bytes;
      if (typeof body.seq === "number") this.onSeq(body.seq, typeof body.epoch === "number" ? body.epoch : undefined);
    }
    if (this.whole > BEHIND_MOST && !this.isEnding) {
      this.isEnding = true;
      this.conn.sendEnd(this.call);
    }
    this.news.announce();
  }

  onEnd(error: unknown): void {
    this.over = { error };
    this.news.announce();
  }

  /** Returns the next message of the feed; undefined: it is over as it was asked, or `stop` is aborted. */
  async next(signal?: AbortSignal, stop?: AbortSignal): Promise<StoreObject | undefined> {
    for (;;) {
      signal?.throwIfAborted();
      if (stop?.aborted) return undefined;
      const found = this.messages.shift();
      if (found) {
        this.bytes -= found.size;
        this.whole = Math.max(this.whole - found.size, 0);
        return found.body;
      }
      if (this.over) {
        if (this.over.error !== undefined) throw this.over.error;
        return undefined;
      }
      await this.news.wait(signal, stop);
    }
  }

  /** Ends a feed that nobody reads any more. */
  close(): void {
    this.conn.giveUp(this.call);
  }
}

/** True if a message ends a commit: it is all of it, or its last part. */
export function isWhole(body: StoreObject): boolean {
  return body.part === body.of;
}

/** Opens a feed, and returns it with its first message. Asking twice does no harm. */
export function openFeed(client: Client, body: Body, signal: AbortSignal | undefined): Promise<{ feed: Feed; opened: StoreObject }> {
  const tries = new Attempts(client, { repeatable: true, spread: client.readsAnywhere, signal });
  const { nodes, seen } = client;
  return tries.do(async (node, conn) => {
    checkKnown(conn, { kind: Kind.WATCH, body });
    const { after } = seen;
    const isHome = nodes.home === node;
    let sent = body;
    if (nodes.areSeveral && conn.welcome.minor >= MINOR_OF_SEQUENCES) {
      if (after > 0 && !isHome) sent = { ...body, after };
    } else if (nodes.areSeveral && conn.welcome.minor >= MINOR_OF_AFTER) {
      await reach(conn, Math.max(after, (body.from as number | undefined) ?? 0), isHome, signal);
    }
    const feed = new Feed(conn, sent, (seq, epoch) => seen.reach(seq, epoch));
    const late = client.timeout && AbortSignal.timeout(client.timeout.toMilliseconds() + client.grace);
    const limits = [signal, late].filter((one) => one !== undefined);
    try {
      const opened = await feed.next(limits.length > 0 ? AbortSignal.any(limits) : undefined);
      if (opened === undefined) throw new ProtocolBroken("a feed of the node ended before it began");
      return { feed, opened };
    } catch (error) {
      feed.close();
      if (late?.aborted && !signal?.aborted) throw new OutcomeUnknown("the feed did not begin in time", { cause: error });
      throw error;
    }
  });
}

/** Waits until a node before minor 8 shows a position: its feeds do not wait for it. */
async function reach(conn: Connection, seq: number, isHome: boolean, signal: AbortSignal | undefined): Promise<void> {
  if (seq === 0) return;
  try {
    await conn.ask({ kind: Kind.RUN, body: { script: "", after: seq } }, signal);
  } catch (error) {
    if (!isHome || !isRefused(error, "StatementTimeout")) throw error; // WATCH has words for another history
  }
}

/** The change of one record by a commit. */
export interface Change<T = StoreObject> {
  action: "create" | "update" | "delete";
  id: RecordId;
  /** The record after the commit; undefined if it was deleted. */
  value: T | undefined;
  /** The record before the commit; undefined without `before`, if it did not exist, or if it is missing. */
  before: T | undefined;
  /** Cause of a missing `before`: no longer in the log, or too large. */
  missing: "pruned" | "omitted" | undefined;
}

/** All that one commit changed in a table. */
export interface Commit<T = StoreObject> {
  seq: number;
  at: DateTime;
  /** User; undefined if the reader may not see it. */
  by: string | undefined;
  reason: string | undefined;
  changes: Change<T>[];
  /** Position behind the commit. Store it together with the effect of the commit. */
  position: Position;
}

/** Reads a commit of all its parts. */
export function readCommit<T>(parts: StoreObject[], position: Position): Commit<T> {
  const head = parts[0] as StoreObject;
  const changes: Change<T>[] = [];
  for (const [n, part] of parts.entries()) {
    const isAlone = parts.length === 1 && (part.of === undefined || part.of === null);
    if (!isAlone && (part.of !== parts.length || part.part !== n + 1 || part.seq !== position.seq)) {
      throw new ProtocolBroken("the parts of a commit do not belong together");
    }
    for (const one of needed(part, "changes", "array")) {
      if (!isObject(one) || !(one.id instanceof RecordId)) throw new ProtocolBroken("a feed of the node sent what is no change");
      changes.push({
        action: needed(one, "action", "string") as Change["action"],
        id: one.id,
        value: (isObject(one.value) ? one.value : undefined) as T | undefined,
        before: (isObject(one.before) ? one.before : undefined) as T | undefined,
        missing: one.before_pruned === true ? "pruned" : one.before_omitted === true ? "omitted" : undefined,
      });
    }
  }
  const text = (name: string) => (typeof head[name] === "string" ? (head[name] as string) : undefined);
  return { seq: position.seq, at: needed(head, "at", "datetime"), by: text("by"), reason: text("reason"), changes, position };
}
