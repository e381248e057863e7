import { isObject, needed, optional } from "./answers.js";
import type { Database } from "./client.js";
import { isOutage, ProtocolBroken, Refused } from "./errors.js";
import { type Body, Kind } from "./frames.js";
import { Group } from "./groups.js";
import { type CallOptions, defined, hide, type Params, waitOf } from "./runner.js";
import { DateTime, Duration, type DurationLike, quoteName, type StoreObject, type Value } from "./values.js";
import { retryBackoff } from "./waits.js";

/** Messages that a reader asks for at once; the most a node gives. */
const READ_PAGE = 1000;
/** Time for which one read of a reader that follows waits. */
const LONGEST_WAIT = new Duration(60_000_000n);

const NO_OPTIONS = {};

/** A message of a topic. */
export interface Message<T = Value> {
  position: number;
  /** Time of its commit. */
  at: DateTime;
  key: string | undefined;
  id: string | undefined;
  headers: Record<string, string>;
  value: T;
  /** Size in the store. */
  bytes: number;
  /** Earliest delivery to groups, of a delayed message. */
  due: DateTime | undefined;
}

export interface PublishManyOptions extends CallOptions {
  /** Groups ordered by key deliver messages of one key in order. */
  key?: string;
  headers?: Record<string, string>;
  /** Time before the delivery to groups. */
  delay?: DurationLike;
  /** Time of the delivery to groups. */
  at?: DateTime | Date;
  /** Refuse with `AssertFailed` unless this is the position of the topic's last message. */
  expect?: number;
}

export interface PublishOptions extends PublishManyOptions {
  /** A second message with that id within the topic's DEDUP window is not appended. */
  id?: string;
}

export interface ReadOptions extends CallOptions {
  /** Position behind which to read; 0: the start. */
  after?: number;
  /** 1 to 1000, the default. */
  limit?: number;
  /** Time to wait for the first message, at most five minutes. */
  wait?: DurationLike;
}

export interface MessagesOptions extends CallOptions {
  /** Position behind which to begin; 0: the start. */
  after?: number;
  /** Go on for ever, through outages, in the place of ending with the topic's last message. */
  follow?: boolean;
}

/** A handle on a topic. */
export class Topic {
  /** @internal */
  readonly database: Database;
  readonly name: string;
  /** @internal */
  readonly quoted: string;

  /** @internal */
  constructor(db: Database, name: string) {
    this.database = db;
    this.name = name;
    this.quoted = quoteName(name);
    hide(this, "database");
  }

  /** @internal */
  ask(op: string, fields: Body, options: CallOptions, wait?: Duration, stop?: AbortSignal): Promise<StoreObject> {
    const { client, ns, db } = this.database;
    const body: Body = { op, ns, db, topic: this.name, ...fields };
    const timeout = client.timeout && new Duration(client.timeout.microseconds + (wait?.microseconds ?? 0n));
    if (timeout) body.timeout = timeout;
    const request = {
      kind: Kind.TOPIC,
      body,
      waits: wait !== undefined,
      stop,
      timeout: timeout && timeout.toMilliseconds() + client.grace,
    };
    return client.change(request, { stop, signal: options.signal });
  }

  /** @internal */
  async value(text: string, params: Params, repeatable: boolean, options: CallOptions, wait?: Duration): Promise<Value> {
    const limit = this.database.client.timeout;
    const timeout = limit && new Duration(limit.microseconds + (wait?.microseconds ?? 0n));
    const given = { repeatable, waits: wait !== undefined, signal: options.signal, ...(timeout ? { timeout } : {}) };
    return (await this.database.script(text, params, given)).value;
  }

  /** @internal */
  async page<T>(text: string, params: Params, options: CallOptions & { wait?: DurationLike | undefined }): Promise<Message<T>[]> {
    const wait = waitOf(options.wait);
    const found = wait
      ? await this.value(`${text} WAIT $wait`, { ...params, wait }, true, options, wait)
      : await this.value(text, params, true, options);
    if (!Array.isArray(found)) throw new ProtocolBroken("the node answered READ with no messages");
    return found.map((one) => readMessage<T>(one));
  }

  /** Appends a message. It is durable when the promise resolves. */
  async publish(value: unknown, options: PublishOptions = NO_OPTIONS): Promise<{ position: number; duplicate: boolean }> {
    const fields: Body = { value: defined(value, "value") };
    if (options !== NO_OPTIONS) Object.assign(fields, { id: options.id }, publishing(options));
    const found = await this.ask("publish", fields, options);
    return { position: needed(found, "position", "int"), duplicate: optional(found, "duplicate", "boolean") ?? false };
  }

  /** Appends messages in one commit, all or none. */
  async publishMany(values: readonly unknown[], options: PublishManyOptions = {}): Promise<{ first: number; last: number }> {
    const found = await this.ask("publish", { values, ...publishing(options) }, options);
    return { first: needed(found, "first", "int"), last: needed(found, "last", "int") };
  }

  /** Returns messages behind a position, oldest first. The node also ends a page at 8 MiB. */
  read<T = Value>(options: ReadOptions = {}): Promise<Message<T>[]> {
    const { after = 0, limit = READ_PAGE } = options;
    return this.page<T>(`READ FROM ${this.quoted} AFTER $after LIMIT $limit`, { after, limit }, options);
  }

  /** Iterates over messages, to the end of the topic or for ever. */
  messages<T = Value>(options: MessagesOptions = {}): AsyncGenerator<Message<T>, void, undefined> {
    let { after = 0 } = options;
    const read = (wait: Duration | undefined) => this.read<T>({ after, signal: options.signal, ...(wait ? { wait } : {}) });
    return each(options, read, async (done) => {
      after = done;
    });
  }

  /** Returns a handle on a reader: a position in the topic that the node keeps. */
  reader(name: string): Reader {
    return new Reader(this, name);
  }

  /** Returns a handle on a consumer group. */
  group(name: string): Group {
    return new Group(this, name);
  }

  /** Returns the answer of INFO FOR TOPIC. */
  async info(options: CallOptions = {}): Promise<StoreObject> {
    return (await this.value(`INFO FOR TOPIC ${this.quoted}`, {}, true, options)) as StoreObject;
  }
}

/** A place in a topic: a position, which counts as read; a time; or behind the last message. */
export type Place = number | DateTime | Date | "end";

/** A named position in a topic, which the node keeps. */
export class Reader {
  private readonly topic: Topic;
  private readonly quoted: string;

  /** @internal */
  constructor(topic: Topic, name: string) {
    this.topic = topic;
    this.quoted = quoteName(name);
    hide(this, "topic");
  }

  private async do(text: string, options: CallOptions, place?: Place): Promise<void> {
    const clause = place === undefined ? "" : typeof place === "number" ? "$at" : place === "end" ? "END" : "TIME $at";
    await this.topic.value(text + clause, place === undefined || place === "end" ? {} : { at: place }, false, options);
  }

  private get on(): string {
    return `${this.quoted} ON ${this.topic.quoted}`;
  }

  /** Declares the reader if it does not exist: at the start of the topic, or at a place. */
  define(at?: Place, options: CallOptions = {}): Promise<void> {
    return this.do(`DEFINE READER IF NOT EXISTS ${this.on}${at === undefined ? "" : " AT "}`, options, at);
  }

  /** Returns messages behind the reader's position, without moving it. */
  read<T = Value>(options: Omit<ReadOptions, "after"> = {}): Promise<Message<T>[]> {
    const text = `READ FROM ${this.topic.quoted} AS ${this.quoted} LIMIT $limit`;
    return this.topic.page<T>(text, { limit: options.limit ?? READ_PAGE }, options);
  }

  /** Moves the reader behind a position. */
  commit(position: number, options: CallOptions = {}): Promise<void> {
    return this.do(`COMMIT READER ${this.on} AT `, options, position);
  }

  /** Moves the reader to a place. */
  move(to: Place, options: CallOptions = {}): Promise<void> {
    return this.do(`ALTER READER ${this.on} SET POSITION `, options, to);
  }

  /**
   * Iterates over the messages behind the reader's position. The position is committed after each page and
   * when the loop ends, so an interrupted reader gets messages of its last page again.
   */
  messages<T = Value>(options: Omit<MessagesOptions, "after"> = {}): AsyncGenerator<Message<T>, void, undefined> {
    const read = (wait: Duration | undefined) => this.read<T>({ signal: options.signal, ...(wait ? { wait } : {}) });
    return each(options, read, (done) => this.commit(done, options));
  }

  /** Drops the reader. */
  drop(options: CallOptions = {}): Promise<void> {
    return this.do(`DROP READER ${this.on}`, options);
  }
}

/** Iterates over pages, and calls `onDone` with each position behind a page, or where the loop is left. */
async function* each<T>(
  options: MessagesOptions,
  read: (wait: Duration | undefined) => Promise<Message<T>[]>,
  onDone: (position: number) => Promise<void>,
): AsyncGenerator<Message<T>, void, undefined> {
  const { follow = false, signal } = options;
  const pause = retryBackoff();
  let hasRead = false;
  const throughOutages = async <R>(call: () => Promise<R>): Promise<R> => {
    for (;;) {
      try {
        const found = await call();
        pause.reset();
        return found;
      } catch (error) {
        const isPatient = hasRead || (error instanceof Refused && error.retry);
        if (!follow || !isPatient || signal?.aborted || !isOutage(error)) throw error;
      }
      await pause.wait(signal);
    }
  };
  for (;;) {
    const page = await throughOutages(() => read(follow ? LONGEST_WAIT : undefined));
    hasRead = true;
    if (page.length === 0 && !follow) return;
    let done = 0;
    let isWhole = false;
    try {
      for (const one of page) {
        yield one;
        done = one.position;
      }
      isWhole = true;
    } finally {
      if (!isWhole && done > 0) await onDone(done).catch(() => {}); // what is read again was read before
    }
    if (page.length > 0) await throughOutages(() => onDone(done));
  }
}

function publishing(options: PublishManyOptions): Body {
  const { key, headers, delay, at, expect } = options;
  return {
    key,
    headers,
    delay: delay === undefined ? undefined : Duration.from(delay),
    at: at instanceof Date ? DateTime.from(at) : at,
    expect,
  };
}

export function readMessage<T>(found: Value): Message<T> {
  if (!isObject(found) || found.value === undefined) throw new ProtocolBroken("the node sent what is no message of a topic");
  return {
    position: needed(found, "position", "int"),
    at: needed(found, "at", "datetime"),
    key: optional(found, "key", "string"),
    id: optional(found, "id", "string"),
    headers: needed(found, "headers", "object") as Record<string, string>,
    value: found.value as T,
    bytes: needed(found, "bytes", "int"),
    due: optional(found, "due", "datetime"),
  };
}
