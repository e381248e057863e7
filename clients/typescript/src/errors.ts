import type { Result } from "./answers.js";
import type { Code } from "./tables.js";
import type { StoreObject } from "./values.js";

/** Base of the errors of this client, beside those of wrong arguments. */
export abstract class StoreError extends Error {
  abstract readonly code: string;
}

/** Fields of a refusal. */
export interface RefusalFields {
  code: Code | (string & {});
  message: string;
  status: number;
  retry: boolean;
  detail: StoreObject;
  request?: string | undefined;
  statement?: number | undefined;
  line?: number | undefined;
  column?: number | undefined;
  results: Result[];
}

/** A refusal of the node. `code` says which. */
export class Refused extends StoreError {
  override readonly name = "Refused";
  /** Stable name of the refusal. A newer node may send others than this client knows. */
  readonly code: Code | (string & {});
  /** HTTP status of the same error. */
  readonly status: number;
  /** True if the same request may succeed later. */
  readonly retry: boolean;
  /** Facts for programs, with keys that are stable for a code. */
  readonly detail: StoreObject;
  /** Name of the request in the node's log. */
  readonly request: string | undefined;
  /** Place of the refusal in the script, from 1. */
  readonly statement: number | undefined;
  readonly line: number | undefined;
  readonly column: number | undefined;
  /** Results of the statements before the refused one that were kept. */
  readonly results: Result[];

  constructor(fields: RefusalFields, options?: ErrorOptions) {
    const { code, message, statement, line, column } = fields;
    const place = line ? ` (statement ${statement}, line ${line}, column ${column})` : "";
    super(`${code}: ${line ? message.split("\n", 1)[0] : message}${place}`, options);
    this.code = code;
    this.status = fields.status;
    this.retry = fields.retry;
    this.detail = fields.detail;
    this.request = fields.request;
    this.statement = statement;
    this.line = line;
    this.column = column;
    this.results = fields.results;
    this.#message = message;
  }

  readonly #message: string;

  /** The same refusal with some fields replaced. */
  with(fields: Partial<RefusalFields>): Refused {
    return new Refused({ ...this, message: this.#message, ...fields }, { cause: this.cause });
  }

  /** The node's message, without code and place. */
  get text(): string {
    return this.#message;
  }

  /** Newest sequence that the script committed before it was refused; 0: it changed nothing. */
  get committed(): number {
    const seq = this.detail.committed;
    return typeof seq === "number" ? seq : 0;
  }
}

/**
 * A request was sent and its answer will not come: it may have been done in full, in part or not at all.
 * The node's own `UnknownOutcome` is an instance of this class too.
 */
export class OutcomeUnknown extends StoreError {
  override readonly name: string = "OutcomeUnknown";
  readonly code: "OutcomeUnknown" | "UnknownOutcome" = "OutcomeUnknown";

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (value instanceof Refused) return value.code === "UnknownOutcome";
    return Function.prototype[Symbol.hasInstance].call(OutcomeUnknown, value);
  }
}

/** No connection could be made in time. Nothing was sent. */
export class Unreachable extends StoreError {
  override readonly name = "Unreachable";
  readonly code = "Unreachable";
}

/** The peer does not speak the wire protocol. */
export class ProtocolBroken extends StoreError {
  override readonly name = "ProtocolBroken";
  readonly code = "ProtocolBroken";
}

/** The client, or the handle, was closed. */
export class Closed extends StoreError {
  override readonly name = "Closed";
  readonly code = "Closed";

  constructor(message = "the client has been closed") {
    super(message);
  }
}

/** True if the error is a refusal of that code. */
export function isRefused(error: unknown, code: Code | (string & {})): error is Refused {
  return error instanceof Refused && error.code === code;
}

/** Ends a request of which nothing was written: it is sent on another connection. */
export class NotSent extends Error {}

/** True if a node did not show in time what the request was to come after. */
export function isBehind(error: Refused): boolean {
  return error.code === "StatementTimeout" && "after" in error.detail;
}

/** True if the error goes away with time: a node that is away, stops, is full, only reads, or is behind. */
export function isOutage(error: unknown): boolean {
  if (error instanceof OutcomeUnknown) return true;
  if (error instanceof Refused) return error.retry || isBehind(error) || error.code === "NotWritable";
  return error instanceof Unreachable;
}
