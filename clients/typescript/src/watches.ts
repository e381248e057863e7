import { needed, optional } from "./answers.js";
import type { Client, Database } from "./client.js";
import { isBehind, isOutage, ProtocolBroken, Refused } from "./errors.js";
import { type Change, type Commit, type Feed, isWhole, openFeed, readCommit } from "./feeds.js";
import type { Body } from "./frames.js";
import { type CallOptions, hide } from "./runner.js";
import type { Position } from "./seen.js";
import { checkName, type StoreObject } from "./values.js";
import { retryBackoff } from "./waits.js";

const COPY_AGAIN = "read the table again, and watch it from the position of that answer";

/** Advice about what ends a watch. */
const ADVICE: Record<string, string> = {
  LogPruned: COPY_AGAIN,
  Diverged: COPY_AGAIN,
  Unknown: `its name stands for another table now: ${COPY_AGAIN}`,
  NotAllowed: "once READ is granted again, go on from the position",
  SessionEnded: "with a client of another token, go on from the position",
};

export interface WatchOptions extends CallOptions {
  /** Position to begin behind: of an answer, or of another watch. The newest commit by default. */
  from?: Position | undefined;
  /** A condition on the record. One that begins to meet it is a create, one that ceases to is a delete. */
  where?: string | undefined;
  /** Limits the watch to some actions. */
  actions?: ("create" | "update" | "delete")[];
  /** Add the record before the commit to each change. */
  before?: boolean;
}

/**
 * Follows the changes of a table. It resumes by itself after a broken connection, with a node that restarts or
 * is busy, and after falling behind: it skips no commit and repeats none. An error that ends it says what to do.
 * It iterates over commits.
 */
export class Watch<T = StoreObject> implements AsyncIterable<Commit<T>> {
  /** Called when nothing has changed up to a position. @internal */
  onMove: ((position: Position) => void) | undefined;
  /** True if a node that is away is waited for: once the feed has begun. @internal */
  isPatient = false;
  private at: Position | undefined;
  private readonly client: Client;
  private readonly body: Body;
  private readonly signal: AbortSignal | undefined;
  private readonly stopping = new AbortController();

  /** @internal */
  constructor(db: Database, table: string, options: WatchOptions) {
    this.client = db.client;
    const { where, actions, before } = options;
    this.body = { ns: db.ns, db: db.db, table: checkName(table), where, actions, before };
    this.at = options.from;
    this.signal = options.signal;
    hide(this, "client");
  }

  /**
   * Position to resume from; undefined if the watch has not begun. It moves past a commit when the next one is
   * asked for: a reader that is killed while it handles a commit gets that commit again.
   */
  get position(): Position | undefined {
    return this.at;
  }

  /** Ends the iteration after the current commit. */
  stop(): void {
    this.stopping.abort();
  }

  /** Iterates over the changes of the table one by one. */
  async *changes(): AsyncGenerator<Change<T>, void, undefined> {
    for await (const commit of this) yield* commit.changes;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Commit<T>, void, undefined> {
    const following = new Following<T>(this, this.at);
    try {
      for (;;) {
        const commit = await following.next(this.signal, this.stopping.signal);
        if (!commit) return;
        yield commit;
        this.move(commit.position, false);
      }
    } finally {
      following.leave();
    }
  }

  /** @internal */
  move(to: Position, isReported: boolean): void {
    this.at = to;
    if (isReported) this.onMove?.(to);
  }

  /** @internal */
  open(at: Position | undefined, signal: AbortSignal | undefined): Promise<{ feed: Feed; opened: StoreObject }> {
    const from = at && { from: at.seq, store: at.store, epoch: at.epoch || undefined };
    return openFeed(this.client, { ...this.body, ...from }, signal);
  }
}

/** One iteration of a watch: the feed, opened again wherever it ended. */
class Following<T> {
  private feed: Feed | undefined;
  private opened: StoreObject = {};
  private parts: StoreObject[] = [];
  private readonly pause = retryBackoff();
  /** True if the feed has sent something since it began. */
  private hasHeard = true;

  constructor(
    private readonly watch: Watch<T>,
    private at: Position | undefined,
  ) {}

  /** Returns the next commit; undefined: the watch was stopped. */
  async next(signal: AbortSignal | undefined, stop: AbortSignal): Promise<Commit<T> | undefined> {
    while (!stop.aborted) {
      try {
        if (!this.feed) await this.open(signal, stop);
        else {
          const body = await this.feed.next(signal, stop);
          const commit = body && this.take(body);
          if (commit) return commit;
          if (!body) this.leave();
        }
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!stop.aborted) await this.onError(error, signal, stop);
      }
    }
    return undefined;
  }

  /** Leaves the feed. Parts of a commit that is not whole come again. */
  leave(): void {
    this.feed?.close();
    this.feed = undefined;
    this.parts = [];
  }

  private async open(signal: AbortSignal | undefined, stop: AbortSignal): Promise<void> {
    if (!this.hasHeard) await this.pause.wait(signal, stop);
    if (stop.aborted) return;
    this.hasHeard = false;
    const { feed, opened } = await this.watch.open(this.at, signal ? AbortSignal.any([signal, stop]) : stop);
    this.feed = feed;
    this.opened = opened;
    if (opened.type !== "open") throw new ProtocolBroken("a feed of the node does not say how it begins");
    needed(opened, "store", "string");
    needed(opened, "seq", "int");
    this.at = this.place(needed(opened, "start", "int"), optional(opened, "start_epoch", "int"));
    this.watch.isPatient = true;
    this.watch.move(this.at, true);
  }

  /** The feed is over, or did not begin. Throws what cannot go on by itself. */
  private async onError(error: unknown, signal: AbortSignal | undefined, stop: AbortSignal): Promise<void> {
    const hadBegun = this.feed !== undefined;
    this.leave();
    const isRefusal = error instanceof Refused;
    if (hadBegun && isRefusal && (error.code === "TooSlow" || error.code === "SessionEnded")) return;
    const passes = isRefusal && (error.retry || isBehind(error));
    if (!(this.watch.isPatient || passes) || !isOutage(error)) throw isRefusal ? advised(error, this.watch.isPatient) : error;
    if (hadBegun) return;
    this.hasHeard = true;
    await this.pause.wait(signal, stop);
  }

  private take(body: StoreObject): Commit<T> | undefined {
    const at = this.place(needed(body, "seq", "int"), optional(body, "epoch", "int"));
    this.hasHeard = true;
    this.pause.reset();
    if (body.type !== "commit") {
      // `caught_up` or `beat`: the caller has asked for more, so everything before is handled.
      this.at = at;
      this.watch.move(at, true);
      return undefined;
    }
    this.parts.push(body);
    if (!isWhole(body)) return undefined;
    const commit = readCommit<T>(this.parts, at);
    this.parts = [];
    this.at = at;
    return commit;
  }

  /** Returns the position at a sequence. A node before minor 9 sends no epochs. */
  private place(seq: number, epoch: number | undefined): Position {
    const store = this.opened.store as string | undefined;
    if (epoch !== undefined) return { seq, store, epoch };
    const newest = optional(this.opened, "epoch", "int");
    const upTo = this.opened.seq as number;
    const before = this.at;
    if (before?.seq === seq && before.epoch) return { seq, store, epoch: before.epoch };
    const isKnown = seq === upTo || (before?.epoch !== undefined && before.epoch === newest && seq <= upTo);
    return { seq, store, epoch: isKnown ? newest : undefined };
  }
}

function advised(error: Refused, isKnown: boolean): Refused {
  const advice = ADVICE[error.code];
  const isSure = isKnown || error.code === "LogPruned" || error.code === "Diverged" || "created" in error.detail;
  if (advice === undefined || !isSure) return error;
  return error.with({ message: `${error.text.replace(/: (?:copy anew|sign in again)$/, "")}: ${advice}` });
}
