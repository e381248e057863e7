import { type Answer, needed, optional, strings, within } from "./answers.js";
import { isOutage, isRefused, OutcomeUnknown, Refused } from "./errors.js";
import type { Body } from "./frames.js";
import { type CallOptions, hide, type Params, positive, waitOf } from "./runner.js";
import { type Message, readMessage, type Topic } from "./topics.js";
import { type DateTime, Duration, type DurationLike, quoteName, type StoreObject, type Value, ValueError } from "./values.js";
import { News, retryBackoff, sleep } from "./waits.js";

/** Time for which one TAKE of a consumer waits at the node. */
const TAKE_WAIT = new Duration(60_000_000n);
/** Messages of one TAKE. */
const TAKE_MOST = 1000;
/** Receipts in one request. */
const RECEIPTS_MOST = 250;
/** Extensions within a deadline. */
const EXTENSIONS = 3;
/** Pause between two extensions, however short the group's deadline is, in ms. */
const LEAST_PAUSE = 50;

const RECEIPT = "storeclient_receipt";
const STALE = "storeclient: the receipt is stale";
const GIVEN_BACK = "given back: its consumer stopped before it was worked on";

export interface TakeOptions extends CallOptions {
  /** 1 to 1000 messages; 1 by default. */
  count?: number;
  /** Name of the consumer in INFO FOR GROUP. */
  member?: string;
  /** Time to wait for the first message, at most five minutes. */
  wait?: DurationLike;
}

export interface ConsumerOptions extends CallOptions {
  member?: string;
  /** Messages to take ahead; 32 by default. The deadline of a message starts when it is taken. */
  prefetch?: number;
  /** Extend the deadlines of messages until they are settled, for work that takes longer than these. */
  extend?: boolean;
}

export interface NackOptions extends CallOptions {
  /** Time before the next delivery, in the place of the group's backoff. */
  delay?: DurationLike;
  /** Kept with the message, and in the headers of its dead letter. */
  error?: string;
}

/** Result of settling messages by their receipts. */
export interface Settled {
  /** Number of messages that were settled. */
  done: number;
  /** Receipts that came too late: the message was delivered again, settled before, or is gone. */
  stale: string[];
}

/** Settles deliveries, one by one or with others. */
interface Owner {
  ack(receipt: string, options: CallOptions): Promise<boolean>;
  done(receipt: string, script: string, params: Params, options: CallOptions): Promise<Answer | undefined>;
  settle(op: Settling, receipt: string, fields: Body, options: CallOptions): Promise<boolean>;
}

type Settling = "nack" | "extend" | "give_up";

const DONE = { ack: "acked", nack: "nacked", extend: "extended", give_up: "given_up" } as const;

/** A message that was delivered to a member of a group. */
export class Delivery<T = Value> implements Message<T> {
  readonly position: number;
  readonly at: DateTime;
  readonly key: string | undefined;
  readonly id: string | undefined;
  readonly headers: Record<string, string>;
  readonly value: T;
  readonly bytes: number;
  readonly due: DateTime | undefined;
  readonly receipt: string;
  /** Number of deliveries, this one included. */
  readonly attempt: number;
  /** Time from which another member may get the message, by the node's log time. */
  readonly deadline: DateTime;
  readonly member: string | undefined;
  private readonly owner: Owner;

  /** @internal */
  constructor(found: Value, owner: Owner) {
    const message = readMessage<T>(found);
    const body = found as StoreObject;
    this.position = message.position;
    this.at = message.at;
    this.key = message.key;
    this.id = message.id;
    this.headers = message.headers;
    this.value = message.value;
    this.bytes = message.bytes;
    this.due = message.due;
    this.receipt = needed(body, "receipt", "string");
    this.attempt = needed(body, "attempt", "int");
    this.deadline = needed(body, "deadline", "datetime");
    this.member = optional(body, "member", "string");
    this.owner = owner;
    hide(this, "owner");
  }

  /**
   * Acknowledges the message, durably. False: it came too late, and another member may have the message. Of a
   * consumer, acknowledgements travel together and go through outages; `OutcomeUnknown` means that the
   * connection broke and the message is settled, by this acknowledgement or by its deadline.
   */
  ack(options: CallOptions = {}): Promise<boolean> {
    return this.owner.ack(this.receipt, options);
  }

  /**
   * Runs a script and acknowledges the message in one transaction: the message takes effect exactly once. The
   * script has no BEGIN, COMMIT or CANCEL. Undefined: it came too late, and nothing was changed.
   */
  done(script: string, params: Params = {}, options: CallOptions = {}): Promise<Answer | undefined> {
    return this.owner.done(this.receipt, script, params, options);
  }

  /** Returns the message to the group. False: it came too late. */
  nack(options: NackOptions = {}): Promise<boolean> {
    return this.owner.settle("nack", this.receipt, nacking(options), options);
  }

  /** Sets the deadline to `by` from now. False: it came too late. */
  extend(by: DurationLike, options: CallOptions = {}): Promise<boolean> {
    return this.owner.settle("extend", this.receipt, { by: positive(by, "by") }, options);
  }

  /** Makes the message a dead letter. False: it came too late. */
  giveUp(error?: string, options: CallOptions = {}): Promise<boolean> {
    return this.owner.settle("give_up", this.receipt, { error }, options);
  }
}

function nacking({ delay, error }: NackOptions): Body {
  return { delay: delay === undefined ? undefined : Duration.from(delay), error };
}

/**
 * A handle on a consumer group: its members share the messages of a topic. A message is delivered again if it
 * is not acknowledged before its deadline.
 */
export class Group {
  /** @internal */
  readonly topic: Topic;
  readonly name: string;
  private readonly quoted: string;

  /** @internal */
  constructor(topic: Topic, name: string) {
    this.topic = topic;
    this.name = name;
    this.quoted = quoteName(name);
    hide(this, "topic");
  }

  /** Takes messages. */
  take<T = Value>(options: TakeOptions = {}): Promise<Delivery<T>[]> {
    const owner: Owner = {
      ack: async (receipt, how) => (await this.ack([receipt], how)).done > 0,
      done: (receipt, script, params, how) => this.done(receipt, script, params, how),
      settle: async (op, receipt, fields, how) => (await this.settle(op, [receipt], fields, how)).done > 0,
    };
    return this.takeFor(owner, options);
  }

  /** @internal */
  async takeFor<T>(owner: Owner, options: TakeOptions, stop?: AbortSignal): Promise<Delivery<T>[]> {
    const wait = waitOf(options.wait);
    const fields = { group: this.name, count: options.count ?? 1, member: options.member, wait };
    const found = await this.topic.ask("take", fields, options, wait, stop);
    return needed(found, "messages", "array").map((one) => new Delivery<T>(one, owner));
  }

  /** @internal */
  async settle(op: keyof typeof DONE, receipts: readonly string[], fields: Body, options: CallOptions): Promise<Settled> {
    const found = await this.topic.ask(op, { group: this.name, receipts, ...fields }, options);
    return { done: needed(found, DONE[op], "int"), stale: strings(found, "stale_receipts") };
  }

  /** Acknowledges messages by their receipts. */
  ack(receipts: readonly string[], options: CallOptions = {}): Promise<Settled> {
    return this.settle("ack", receipts, {}, options);
  }

  /** Returns messages to the group. */
  nack(receipts: readonly string[], options: NackOptions = {}): Promise<Settled> {
    return this.settle("nack", receipts, nacking(options), options);
  }

  /** Sets the deadlines of messages to `by` from now. */
  async extend(receipts: readonly string[], by: DurationLike, options: CallOptions = {}): Promise<Settled> {
    return this.settle("extend", receipts, { by: positive(by, "by") }, options);
  }

  /** Makes messages dead letters. */
  giveUp(receipts: readonly string[], error?: string, options: CallOptions = {}): Promise<Settled> {
    return this.settle("give_up", receipts, { error }, options);
  }

  /** Runs a script and acknowledges a message in one transaction; see {@link Delivery.done}. */
  async done(receipt: string, script: string, params: Params = {}, options: CallOptions = {}): Promise<Answer | undefined> {
    if (RECEIPT in params) throw new ValueError(`$${RECEIPT}`, "the client names its own parameter so");
    // On the line where the script begins, so that its lines keep their numbers.
    const before =
      `BEGIN; LET $${RECEIPT}_ack = ACK ${this.topic.quoted} AS ${this.quoted} RECEIPTS [$${RECEIPT}]; ` +
      `IF $${RECEIPT}_ack.stale > 0 { THROW '${STALE}' }; `;
    const given = { ...params, [RECEIPT]: receipt };
    try {
      const answer = await this.topic.database.script(`${before}${script}\n;COMMIT`, given, { repeatable: true, signal: options.signal });
      return answer.withResults(within(answer.results, 3));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.code === "Thrown" && error.detail.value === STALE) return undefined;
      const { statement, line, column } = error;
      throw error.with({
        statement: statement && Math.max(statement - 3, 1),
        column: line === 1 && column ? Math.max(column - before.length, 1) : column,
      });
    }
  }

  /**
   * Returns a consumer, which iterates over messages as they arrive. It takes nothing before its first message
   * is asked for.
   */
  messages<T = Value>(options: ConsumerOptions = {}): Consumer<T> {
    return new Consumer<T>(this, options);
  }

  /** Returns the answer of INFO FOR GROUP. */
  async info(options: CallOptions = {}): Promise<StoreObject> {
    const text = `INFO FOR GROUP ${this.quoted} ON ${this.topic.quoted}`;
    return (await this.topic.value(text, {}, true, options)) as StoreObject;
  }
}

interface PendingAck {
  receipt: string;
  resolve: (inTime: boolean) => void;
  reject: (error: unknown) => void;
}

/**
 * Iterates over the messages of a group as they arrive, for ever. It prefetches, and goes through outages once
 * the node has answered; a message whose delivery was lost is delivered again after its deadline. Any number of
 * loops and {@link Consumer.next} share a consumer. Leaving a loop stops it.
 */
export class Consumer<T = Value> implements AsyncIterable<Delivery<T>>, AsyncDisposable {
  private readonly group: Group;
  private readonly options: ConsumerOptions;
  private readonly prefetch: number;
  private readonly stopping = new AbortController();
  private readonly news = new News();
  private readonly owner: Owner;
  private ready: Delivery<T>[] = [];
  /** Messages that were given out and not settled, with the time until which each was extended by hand. */
  private readonly held = new Map<string, number>();
  private work: Promise<unknown> | undefined;
  private stopped: Promise<void> | undefined;
  private failure: { error: unknown } | undefined;
  private hasTaken = false;
  private acks: PendingAck[] = [];
  private acking: Promise<void> | undefined;
  private staleAcks = 0;

  /** @internal */
  constructor(group: Group, options: ConsumerOptions) {
    this.group = group;
    this.options = options;
    this.prefetch = options.prefetch ?? 32;
    if (!Number.isInteger(this.prefetch) || this.prefetch < 1)
      throw new ValueError("prefetch", "a consumer takes at least one message ahead");
    this.owner = {
      ack: (receipt, how) => this.ack(receipt, how),
      done: (receipt, script, params, how) => this.done(receipt, script, params, how),
      settle: (op, receipt, fields, how) => this.settle(op, receipt, fields, how),
    };
    hide(this, "group");
  }

  /** Number of acknowledgements that came too late. */
  get stale(): number {
    return this.staleAcks;
  }

  /** Waits for the next message; undefined: the consumer was stopped. */
  async next(options: CallOptions = {}): Promise<Delivery<T> | undefined> {
    const signal = options.signal ?? this.options.signal;
    if (!this.stopped && !this.work) {
      const works = this.options.extend ? [this.takeAhead(), this.keepExtending()] : [this.takeAhead()];
      this.work = Promise.all(works.map((one) => one.catch((error) => this.fail(error))));
    }
    for (;;) {
      signal?.throwIfAborted();
      if (this.stopped) return undefined;
      const found = this.ready.shift();
      if (found) {
        if (this.options.extend) this.held.set(found.receipt, 0);
        this.news.announce();
        return found;
      }
      if (this.failure) throw this.failure.error;
      await this.news.wait(signal);
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Delivery<T>, void, undefined> {
    try {
      for (let found = await this.next(); found; found = await this.next()) yield found;
    } finally {
      await this.stop();
    }
  }

  private fail(error: unknown): void {
    this.failure ??= { error };
    this.news.announce();
  }

  private async takeAhead(): Promise<void> {
    const { signal: stop } = this.stopping;
    const { member } = this.options;
    const pause = retryBackoff();
    while (!stop.aborted) {
      const missing = this.prefetch - this.ready.length;
      if (missing < Math.floor((this.prefetch + 1) / 2)) {
        await this.news.wait(undefined, stop); // few large requests rather than one for each message
        continue;
      }
      const options = { count: Math.min(missing, TAKE_MOST), wait: TAKE_WAIT, ...(member === undefined ? {} : { member }) };
      try {
        this.ready.push(...(await this.group.takeFor<T>(this.owner, options, stop)));
      } catch (error) {
        if (stop.aborted && isRefused(error, "Cancelled")) return;
        const isPatient = this.hasTaken || (error instanceof Refused && error.retry);
        if (!isPatient || !isOutage(error)) throw error;
        await pause.wait(undefined, stop);
        continue;
      }
      pause.reset();
      this.hasTaken = true;
      this.news.announce();
    }
  }

  private async keepExtending(): Promise<void> {
    const { client } = this.group.topic.database;
    const stop = AbortSignal.any([this.stopping.signal, client.nodes.closing.signal]);
    const pause = retryBackoff();
    let deadline: Duration | undefined;
    while (!stop.aborted) {
      try {
        if (deadline) await this.extendAll(deadline);
        deadline ??= needed(await this.group.info(), "deadline", "duration");
      } catch (error) {
        if (stop.aborted) return;
        if (!isOutage(error)) throw error;
        await pause.wait(undefined, stop);
        continue;
      }
      pause.reset();
      await sleep(Math.max(deadline.toMilliseconds() / EXTENSIONS, LEAST_PAUSE), undefined, stop);
    }
  }

  /** Extends what is held, and forgets what is not this consumer's any more. */
  private async extendAll(deadline: Duration): Promise<void> {
    const until = performance.now() + deadline.toMilliseconds();
    const receipts = [...this.held].filter(([, byHand]) => byHand < until).map(([receipt]) => receipt);
    receipts.push(...this.ready.map((one) => one.receipt));
    for (const some of chunks(receipts)) {
      const stale = new Set((await this.group.extend(some, deadline)).stale);
      this.ready = this.ready.filter((one) => !stale.has(one.receipt));
      for (const gone of stale) this.held.delete(gone);
      this.news.announce();
    }
  }

  /** Calls until the node has answered. `unsure`: an attempt broke off, and may have been done. */
  private async throughOutages<R>(signal: AbortSignal | undefined, call: () => Promise<R>): Promise<{ found: R; unsure: boolean }> {
    const { signal: stop } = this.stopping;
    const pause = retryBackoff();
    let unsure = false;
    for (;;) {
      try {
        return { found: await call(), unsure };
      } catch (error) {
        if (stop.aborted || signal?.aborted || !isOutage(error)) throw error;
        unsure ||= error instanceof OutcomeUnknown;
      }
      await pause.wait(signal, stop);
    }
  }

  private ack(receipt: string, { signal }: CallOptions): Promise<boolean> {
    this.held.delete(receipt);
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const pending: PendingAck = { receipt, resolve, reject };
      this.acks.push(pending);
      this.acking ??= this.sendAcks();
      if (!signal) return;
      const abort = () => {
        const at = this.acks.indexOf(pending);
        if (at >= 0) this.acks.splice(at, 1);
        reject(at >= 0 ? signal.reason : new OutcomeUnknown("the acknowledgement is on its way", { cause: signal.reason }));
      };
      signal.addEventListener("abort", abort);
      pending.resolve = (inTime) => {
        signal.removeEventListener("abort", abort);
        resolve(inTime);
      };
    });
  }

  /** Sends acknowledgements, one request after the other, until none is left. */
  private async sendAcks(): Promise<void> {
    while (this.acks.length > 0) {
      const batch = this.acks.splice(0, RECEIPTS_MOST);
      const receipts = batch.map((one) => one.receipt);
      try {
        const { found, unsure } = await this.throughOutages(undefined, () => this.group.ack(receipts));
        this.settleAcks(batch, found.stale, unsure);
      } catch (error) {
        for (const one of batch) one.reject(error);
      }
    }
    this.acking = undefined;
  }

  private settleAcks(batch: PendingAck[], stale: string[], unsure: boolean): void {
    const left = new Map<string, number>();
    for (const receipt of stale) left.set(receipt, (left.get(receipt) ?? 0) + 1);
    for (const one of batch.reverse()) {
      // Of a receipt that stands there twice the first was in time.
      const count = left.get(one.receipt) ?? 0;
      if (count === 0) one.resolve(true);
      else if (unsure) {
        const said =
          "the connection broke under the acknowledgement, and the node no longer has the message: it was in time, or it was not";
        one.reject(new OutcomeUnknown(said));
      } else {
        this.staleAcks++;
        one.resolve(false);
      }
      left.set(one.receipt, Math.max(count - 1, 0));
    }
  }

  private async done(receipt: string, script: string, params: Params, options: CallOptions): Promise<Answer | undefined> {
    const { found } = await this.throughOutages(options.signal, () => this.group.done(receipt, script, params, options));
    this.held.delete(receipt);
    return found;
  }

  private async settle(op: Settling, receipt: string, fields: Body, options: CallOptions): Promise<boolean> {
    if (op !== "extend") this.held.delete(receipt);
    else if (this.held.has(receipt)) this.held.set(receipt, performance.now() + (fields.by as Duration).toMilliseconds());
    try {
      return (await this.group.settle(op, [receipt], fields, options)).done > 0;
    } catch (error) {
      if (this.held.has(receipt)) this.held.set(receipt, 0); // it may not have been extended
      throw error;
    }
  }

  /**
   * Stops taking messages, waits for the acknowledgements in flight, and returns prefetched messages to the
   * group, which counts as an attempt of these. Iterations end. A second stop does nothing more.
   */
  stop(): Promise<void> {
    this.stopped ??= this.giveBack();
    return this.stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  private async giveBack(): Promise<void> {
    this.stopping.abort();
    this.news.announce();
    await this.work;
    await this.acking;
    const receipts = this.ready.map((one) => one.receipt);
    this.ready = [];
    if (this.failure) return; // the error is the caller's; the messages come again after their deadline
    for (const some of chunks(receipts)) await this.group.nack(some, { delay: 0, error: GIVEN_BACK });
  }
}

function* chunks(receipts: string[]): Generator<string[]> {
  for (let n = 0; n < receipts.length; n += RECEIPTS_MOST) yield receipts.slice(n, n + RECEIPTS_MOST);
}
