import type { Answer } from "./answers.js";
import type { Database } from "./client.js";
import { isRefused } from "./errors.js";
import { type CallOptions, hide, type Params, Runner, type ScriptOptions } from "./runner.js";
import type { Position } from "./seen.js";
import { Duration, type DurationLike } from "./values.js";

export interface MomentOptions extends CallOptions {
  /** Time for which the node keeps the moment after each read, at most 10 minutes; 1 minute by default. */
  keep?: DurationLike;
}

/**
 * A snapshot of the store to read in. Reads are refused with `Unknown` once the node has restarted, a user or
 * grant has changed, or nothing has read for as long as the moment is kept.
 */
export class Moment extends Runner {
  /** Position of the moment, to follow a table from. */
  readonly position: Position;
  private readonly db: Database;
  private readonly name: string;
  private readonly keep: Duration;

  /** @internal */
  constructor(db: Database, name: string, keep: Duration, position: Position) {
    super();
    this.db = db;
    this.name = name;
    this.keep = keep;
    this.position = position;
    hide(this, "db");
  }

  /** @internal */
  override script(text: string, params: Params | undefined, options: ScriptOptions = {}): Promise<Answer> {
    return this.db.script(text, params, { ...options, moment: this.name, keep: this.keep, repeatable: true });
  }

  /** Ends the moment. Where the node cannot be reached it ends by itself. */
  async close(options: CallOptions = {}): Promise<void> {
    try {
      await this.db.script("", undefined, { moment: this.name, keep: new Duration(0n), repeatable: true, signal: options.signal });
    } catch (error) {
      if (!isRefused(error, "Unknown")) throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
