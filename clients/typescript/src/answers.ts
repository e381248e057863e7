import { ProtocolBroken, Refused } from "./errors.js";
import type { Position } from "./seen.js";
import { DateTime, Duration, kindOf, type StoreObject, type Value } from "./values.js";

/** Result of one statement. */
export interface Result {
  value: Value;
  kind: "rows" | "value" | "none" | "info" | (string & {});
  /** Number of rows in `value`. */
  rows: number;
  took: Duration;
  /** Number of records created, changed or deleted; undefined of a statement that writes no records. */
  changed: number | undefined;
}

/** Results of a script, one for each statement. */
export class Answer<T = Value> {
  readonly results: Result[];
  /** Sequence of the script's last commit, or the one that it read at. */
  readonly seq: number;
  /** History of `seq`. */
  readonly store: string | undefined;
  readonly epoch: number | undefined;
  /** @internal */
  readonly moment: string | undefined;

  constructor(results: Result[], seq: number, store?: string, epoch?: number, moment?: string) {
    this.results = results;
    this.seq = seq;
    this.store = store;
    this.epoch = epoch;
    this.moment = moment;
  }

  /** Value of the last statement; null of an empty script. */
  get value(): T {
    return (this.results.at(-1)?.value ?? null) as T;
  }

  /** Position behind this answer, to follow a table from. */
  get position(): Position {
    return { seq: this.seq, store: this.store, epoch: this.epoch };
  }

  /** @internal */
  withResults(results: Result[]): Answer<T> {
    return new Answer(results, this.seq, this.store, this.epoch, this.moment);
  }
}

type Types = {
  int: number;
  string: string;
  boolean: boolean;
  array: Value[];
  object: StoreObject;
  bytes: Uint8Array;
  datetime: DateTime;
  duration: Duration;
};

const CHECKS: { [name in keyof Types]: (value: Value) => boolean } = {
  int: (value) => Number.isSafeInteger(value),
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  array: Array.isArray,
  object: isObject,
  bytes: (value) => value instanceof Uint8Array,
  datetime: (value) => value instanceof DateTime,
  duration: (value) => value instanceof Duration,
};

export function isObject(value: Value | undefined): value is StoreObject {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** Returns a field of a body that must be there. */
export function needed<K extends keyof Types>(body: StoreObject, name: string, type: K): Types[K] {
  const found = body[name];
  if (found === undefined || !CHECKS[type](found)) throw misfit(name, found, type);
  return found as unknown as Types[K];
}

/** Returns a field of a body that may be absent. */
export function optional<K extends keyof Types>(body: StoreObject, name: string, type: K): Types[K] | undefined {
  return body[name] === undefined || body[name] === null ? undefined : needed(body, name, type);
}

/** Returns an array of strings of a body. */
export function strings(body: StoreObject, name: string): string[] {
  const found = needed(body, name, "array");
  if (!found.every((one) => typeof one === "string")) throw misfit(name, found, "array of strings");
  return found as string[];
}

function misfit(name: string, found: Value | undefined, wanted: string): ProtocolBroken {
  const sent = found === undefined ? `no ${name}` : `${name} as ${kindOf(found)}`;
  return new ProtocolBroken(`the node sent ${sent}, not as ${wanted}`);
}

function readResults(found: Value | undefined): Result[] {
  if (found === null || found === undefined) return [];
  if (!Array.isArray(found)) throw misfit("results", found, "array");
  return found.map((one) => {
    if (!isObject(one) || one.value === undefined) throw misfit("a result", one, "object with a value");
    return {
      value: one.value,
      kind: needed(one, "kind", "string"),
      rows: needed(one, "rows", "int"),
      took: needed(one, "took", "duration"),
      changed: optional(one, "changed", "int"),
    };
  });
}

export function readAnswer(body: StoreObject): Answer {
  return new Answer(
    readResults(body.results),
    needed(body, "seq", "int"),
    optional(body, "store", "string"),
    optional(body, "epoch", "int"),
    optional(body, "moment", "string"),
  );
}

/** Returns the error of a refusal, or the one that it is no refusal. */
export function readError(body: StoreObject): Refused | ProtocolBroken {
  try {
    const error = needed(body, "error", "object");
    return new Refused({
      code: needed(error, "code", "string"),
      message: needed(error, "message", "string"),
      status: needed(error, "status", "int"),
      retry: needed(error, "retry", "boolean"),
      detail: optional(error, "detail", "object") ?? {},
      request: optional(error, "request", "string"),
      statement: optional(error, "statement", "int"),
      line: optional(error, "line", "int"),
      column: optional(error, "column", "int"),
      results: readResults(body.results),
    });
  } catch (error) {
    return error as ProtocolBroken;
  }
}

/** Returns the results of what stood between what a client put before and behind it. */
export function within(results: Result[], before: number): Result[] {
  const found = results.slice(before);
  // A RETURN in it has ended it before its COMMIT was answered.
  return found.at(-1)?.kind === "none" ? found.slice(0, -1) : found;
}
