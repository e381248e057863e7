import type { Answer } from "./answers.js";
import { ProtocolBroken } from "./errors.js";
import { Pages } from "./pages.js";
import { Duration, type DurationLike, RecordId, type StoreObject, type Value, ValueError } from "./values.js";

/** Values of `$name` in a script. They are bound, never part of its text. */
export type Params = Record<string, unknown>;

/** Options of every call. */
export interface CallOptions {
  /** Ends the wait. The node is asked to cancel the request. */
  signal?: AbortSignal | undefined;
}

export interface RunOptions extends CallOptions {
  /** Limit of the script at the node, in the place of the client's. */
  timeout?: DurationLike;
  /** Kept with the statements in the statement log. */
  reason?: string;
  /** Running the script twice does no harm: it is sent again after a broken connection. */
  repeatable?: boolean;
  /** Keep a script that only reads in the statement log too. */
  record?: boolean;
  /** Sequence that the node has to show, such as the `seq` of another client's answer. */
  after?: number;
  /** See every commit of any node made before: a linearizable read. */
  current?: boolean;
}

export interface PlacedRunOptions extends RunOptions {
  ns?: string;
  db?: string;
}

export interface RowsOptions extends CallOptions {
  /** Rows in one request; 1000 by default. */
  page?: number;
}

/** @internal */
export interface ScriptOptions extends PlacedRunOptions {
  moment?: string;
  keep?: Duration;
  waits?: boolean;
}

/** Runs scripts: a client, a database or a moment. */
export abstract class Runner {
  /** @internal */
  abstract script(text: string, params: Params | undefined, options: ScriptOptions | undefined): Promise<Answer>;

  /**
   * Runs a script and returns the results of all its statements. A script that is one `BEGIN … COMMIT` is a
   * transaction.
   */
  run<T = Value>(script: string, params?: Params, options?: PlacedRunOptions): Promise<Answer<T>> {
    return this.script(script, params, options) as Promise<Answer<unknown>> as Promise<Answer<T>>;
  }

  /** Runs a script and returns the value of its last statement. */
  async query<T = Value>(script: string, params?: Params, options?: PlacedRunOptions): Promise<T> {
    return (await this.script(script, params, options)).value as T;
  }

  /**
   * Iterates over the rows of a SELECT from one table in the order of their ids, page by page. The fields
   * must include `id`, and the text has no VALUE, SPLIT, GROUP, ORDER, LIMIT, START, FETCH or TIMEOUT. Each
   * page shows what is committed when it is read; of a moment all show the same.
   */
  async *rows<T = StoreObject>(select: string, params?: Params, options: RowsOptions = {}): AsyncGenerator<T, void, undefined> {
    const pages = new Pages(select, params, options.page ?? 1000);
    let after: Value | undefined;
    for (;;) {
      const { text, params: given } = pages.script(after);
      const { value } = await this.script(text, given, { repeatable: true, signal: options.signal });
      if (!Array.isArray(value)) throw new ProtocolBroken("the node answered a SELECT with no rows");
      after = (value.at(-1) as StoreObject | undefined)?.id;
      if (value.length > 0 && !(after instanceof RecordId)) {
        throw new ValueError("", "a SELECT that is read page by page has `id` among its fields");
      }
      yield* value as T[];
      if (value.length < pages.page) return;
    }
  }
}

/** Keeps a member out of what is printed of an object. */
export function hide(object: object, name: string): void {
  Object.defineProperty(object, name, { enumerable: false });
}

export function positive(given: DurationLike, name: string): Duration {
  const found = Duration.from(given);
  if (found.microseconds <= 0n) throw new ValueError(name, `a time is longer than nothing, not ${found}`);
  return found;
}

/** Refuses undefined in the place of a value. */
export function defined(value: unknown, name: string): unknown {
  if (value === undefined) throw new ValueError(name, "undefined is no value: give null or NONE");
  return value;
}

/** Returns a wait that is longer than nothing; undefined: none was given. */
export function waitOf(wait: DurationLike | undefined): Duration | undefined {
  return wait === undefined || wait === 0 ? undefined : positive(wait, "wait");
}
