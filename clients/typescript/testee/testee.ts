/** The testee of this client for the conformance suite: clients/conformance/README.md. */

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { inspect } from "node:util";
import type { Answer, Result } from "../src/answers.js";
import type { Cache, Lease } from "../src/cache.js";
import { Client, type ClientOptions, type Database } from "../src/client.js";
import { USUAL_PULSE } from "../src/connection.js";
import { Closed, OutcomeUnknown, ProtocolBroken, Refused, Unreachable } from "../src/errors.js";
import type { Commit } from "../src/feeds.js";
import type { Delivery, Group, Settled } from "../src/groups.js";
import { Mirror } from "../src/mirrors.js";
import type { Moment } from "../src/moments.js";
import type { ConnectionEvent } from "../src/nodes.js";
import type { Params, PlacedRunOptions, Runner } from "../src/runner.js";
import type { Position } from "../src/seen.js";
import { VERSION } from "../src/tables.js";
import type { Message, Place, PublishOptions, Reader, Topic } from "../src/topics.js";
import type { Seal, Vault } from "../src/vaults.js";
import type { Watch } from "../src/watches.js";
import { read, readObject, type Tagged, Unsupported, write } from "./values.js";

// biome-ignore lint/suspicious/noExplicitAny: a call has the arguments of its name
type Call = { id: number; call: string; [name: string]: any };
// biome-ignore lint/suspicious/noExplicitAny: options have the types of the client, which checks them
type Options = any;

/** The suite asked for something that this program does not know. */
class Misuse extends Error {}

/** A loader failed, as the suite has asked for. */
class LoaderFailed extends Error {}

/** What goes on for ever, one item after the other. */
interface Iteration {
  next(signal: AbortSignal): Promise<IteratorResult<unknown, unknown>>;
  stop(): Promise<void> | void;
  watch?: Watch;
}

const names = new Map<string, unknown>();
const events = new Map<string, ConnectionEvent[]>();
const copies = new Map<string, { rows: number; why: unknown }[]>();
const deliveries = new Map<string, Delivery>();
const running = new Map<number, { abort: AbortController; done: Promise<void> }>();
const lets = new Map<string, { wait: Promise<void>; go: () => void }>();

/** Returns those arguments that a call has, under the names of this client. */
function given(call: Call, ...wanted: (string | [string, string])[]): Options {
  const found: Options = {};
  for (const one of wanted) {
    const [name, own] = typeof one === "string" ? [one, one] : one;
    if (call[name] !== undefined && call[name] !== null) found[own] = call[name];
  }
  return found;
}

// --- answers

function positionOf(position: Position | undefined): unknown {
  return position && { seq: position.seq, store: position.store, epoch: position.epoch };
}

function resultOf({ value, kind, rows, took, changed }: Result): unknown {
  return { value, kind, rows, took, changed };
}

function answerOf(answer: Answer): unknown {
  return { results: answer.results.map(resultOf), ...(positionOf(answer.position) as object) };
}

function messageOf({ position, at, key, id, headers, value, bytes }: Message): object {
  return { position, at, key, id, headers, value, bytes };
}

function deliveryOf(delivery: Delivery): object {
  const { receipt, attempt, deadline, member } = delivery;
  deliveries.set(receipt, delivery);
  return { ...messageOf(delivery), receipt, attempt, deadline, member };
}

function settledOf({ done, stale }: Settled): object {
  return { done, stale: stale.length, stale_receipts: stale };
}

function commitOf({ seq, at, by, reason, changes, position }: Commit): object {
  const found = changes.map(({ action, id, value, before, missing }) => ({ action, id, value, before, missing }));
  return { seq, at, by, reason, changes: found, position: positionOf(position) };
}

function errorOf(error: unknown): Record<string, Tagged | number> {
  const chain: unknown[] = [];
  for (let at: unknown = error; at instanceof Error && !chain.includes(at); at = at.cause) chain.push(at);
  const cause = chain.slice(1).find((one) => one instanceof Refused) as Refused | undefined;
  const found: Record<string, Tagged | number> = {
    kind: kindOf(error),
    text: `${inspect(error, { depth: 9, showHidden: true })} ${error}`,
    cause: cause?.code ?? null,
  };
  if (found.kind === "Testee") process.stderr.write(`${inspect(error)}\n`);
  if (found.kind === "Invalid") found.path = (error as { path?: string }).path ?? null;
  if (error instanceof Refused) {
    Object.assign(found, { code: error.code, message: error.text, status: error.status, retry: error.retry });
    Object.assign(found, { request: error.request ?? null, detail: write(error.detail), results: write(error.results.map(resultOf)) });
    Object.assign(found, { statement: error.statement ?? null, line: error.line ?? null, column: error.column ?? null });
  }
  return found;
}

function kindOf(error: unknown): string {
  if (error instanceof Error && [error, error.cause].some((one) => one instanceof Error && one.name === "AbortError")) return "Cancelled";
  if (error instanceof Closed) return "Closed";
  if (error instanceof OutcomeUnknown) return "OutcomeUnknown";
  if (error instanceof Refused) return "Refused";
  if (error instanceof Unreachable) return "Unreachable";
  if (error instanceof ProtocolBroken) return "ProtocolBroken";
  if (error instanceof LoaderFailed) return "Loader";
  if (error instanceof Misuse) return "Testee";
  if ((error as { code?: string }).code === "EEXIST") return "Exists";
  return error instanceof TypeError || error instanceof RangeError ? "Invalid" : "Testee";
}

// --- handles

function named<T>(call: Call): T {
  const found = names.get(call.on);
  if (found === undefined) throw new Misuse(`nothing is named ${call.on}`);
  return found as T;
}

const clientOf = (call: Call): Client => named<Client>(call);
const databaseOf = (call: Call): Database => clientOf(call).database(call.ns, call.db);
const cacheOf = (call: Call): Cache => databaseOf(call).cache(call.space);
const topicOf = (call: Call): Topic => databaseOf(call).topic(call.topic);
const readerOf = (call: Call): Reader => topicOf(call).reader(call.reader);
const groupOf = (call: Call): Group => topicOf(call).group(call.group);
const vaultOf = (call: Call): Vault => databaseOf(call).vault(call.vault);
const sealOf = (call: Call): Seal => (call.vault ? vaultOf(call) : clientOf(call).storeSeal);
const paramsOf = (call: Pick<Call, string>): Params => readObject(call.params ?? {});

function deliveryOn(call: Call): Delivery {
  const found = deliveries.get(call.receipt);
  if (!found) throw new Misuse(`no delivery has the receipt ${call.receipt}`);
  return found;
}

function letOf(name: string): { wait: Promise<void>; go: () => void } {
  let found = lets.get(name);
  if (!found) {
    let go = () => {};
    const wait = new Promise<void>((resolve) => {
      go = resolve;
    });
    found = { wait, go };
    lets.set(name, found);
  }
  return found;
}

/** Names an iteration over an async iterator, whose `signal` ends it. */
function iterate<T>(call: Call, over: (signal: AbortSignal) => AsyncIterator<T, unknown>, of: (item: T) => unknown): Iteration {
  const abort = new AbortController();
  const iterator = over(abort.signal);
  const found: Iteration = {
    async next(signal) {
      const end = () => abort.abort();
      signal.addEventListener("abort", end);
      try {
        const { value, done } = await iterator.next();
        return done ? { done: true, value: undefined } : { done: false, value: of(value) };
      } finally {
        signal.removeEventListener("abort", end);
      }
    },
    stop: () => abort.abort(),
  };
  names.set(call.as, found);
  return found;
}

// --- calls

async function reset(): Promise<void> {
  const others = [...running.values()];
  for (const { abort } of others) abort.abort();
  for (const { go } of lets.values()) go();
  const ends: Promise<unknown>[] = others.map(({ done }) => done);
  for (const one of names.values()) {
    if (one instanceof Client) {
      for (const node of one.nodes.all) node.conn?.end(undefined);
      ends.push(one.close());
    } else if (one instanceof Mirror) ends.push(one.close());
  }
  await Promise.allSettled(ends);
  for (const kept of [names, events, copies, deliveries, lets]) kept.clear();
}

function open(call: Call): void {
  const told: ConnectionEvent[] = [];
  const options: ClientOptions = {
    ...given(call, "user", "password", "token", "timeout", ["connect_timeout", "connectTimeout"], "reads"),
    onConnection: (event) => told.push(event),
  };
  if (call.tls) options.tls = { ca: readFileSync(call.tls.ca) };
  names.set(call.as, new Client(call.addresses, options, { ...USUAL_PULSE, ...call.times }));
  events.set(call.as, told);
}

function runOptions(call: Call): PlacedRunOptions {
  return given(call, "ns", "db", "timeout", "reason", "repeatable", "record", "after", "current");
}

async function getOrSet(call: Call, signal: AbortSignal): Promise<unknown> {
  let loads = 0;
  const load = async () => {
    loads++;
    if (call.load.after) await letOf(call.load.after).wait;
    if (call.load.fail) throw new LoaderFailed("the loader failed");
    return read(call.load.value);
  };
  const value = await cacheOf(call).getOrSet(call.key, call.ttl ?? undefined, load, { signal });
  return { value, loads };
}

async function lock(call: Call, signal: AbortSignal): Promise<unknown> {
  const lease = await cacheOf(call).lock(call.key, call.ttl, { ...given(call, "holder", "renew"), signal });
  if (!lease) return null;
  names.set(call.as, lease);
  return { fence: lease.fence, until: lease.until };
}

function publishOptions(call: Call): PublishOptions {
  const at = call.at ? { at: read(call.at) } : {};
  return { ...given(call, "key", ["message_id", "id"], "headers", "delay", "expect"), ...at };
}

function placeOf(call: Call): Place | undefined {
  return call.at === undefined || call.at === null ? undefined : (read(call.at) as Place);
}

async function openMirror(call: Call, signal: AbortSignal): Promise<void> {
  const told: { rows: number; why: unknown }[] = [];
  const mirror = await databaseOf(call).mirror(call.table, {
    ...given(call, "where", "page"),
    onCopy: ({ rows, why }) => told.push({ rows, why: why instanceof Refused ? why.code : null }),
    signal,
  });
  names.set(call.as, mirror);
  copies.set(call.as, told);
}

function watch(call: Call): void {
  const from = typeof call.from === "number" ? { seq: call.from } : call.from;
  const opened: { watch?: Watch } = {};
  const begin = (signal: AbortSignal) => {
    opened.watch = databaseOf(call).watch(call.table, { ...given(call, "actions", "where", "before"), ...(from ? { from } : {}), signal });
    return opened.watch[Symbol.asyncIterator]();
  };
  const found = iterate(call, begin, commitOf);
  const { watch: made } = opened;
  if (made) {
    found.watch = made;
    found.stop = () => made.stop();
  }
}

function consume(call: Call): void {
  const consumer = groupOf(call).messages(given(call, "prefetch", "member", "extend"));
  names.set(call.as, {
    async next(signal: AbortSignal) {
      const found = await consumer.next({ signal });
      return found ? { done: false, value: deliveryOf(found) } : { done: true, value: undefined };
    },
    stop: () => consumer.stop(),
  } satisfies Iteration);
}

async function backup(call: Call, signal: AbortSignal): Promise<unknown> {
  const progress: number[] = [];
  const onProgress = (done: number) => progress.push(done);
  const found = await clientOf(call).backupFile(call.path, { ...given(call, "ns", "db", "reason"), onProgress, signal });
  return { ...found, progress };
}

async function load(call: Call): Promise<void> {
  const [cache, topic] = [cacheOf(call), topicOf(call)];
  const operations: Record<string, (n: number) => Promise<unknown>> = {
    get: (n) => cache.get(`k${n % 1000}`),
    set: (n) => cache.set(`k${n % 1000}`, n),
    publish: (n) => topic.publish(n),
  };
  const operation = operations[call.operation];
  let next = 0;
  const worker = async () => {
    while (next < call.count) await operation?.(next++);
  };
  if (operation) await Promise.all(Array.from({ length: call.depth }, worker));
  else for await (const _ of databaseOf(call).rows(`SELECT * FROM ${call.table}`)) next++;
  if (next !== call.count) throw new Misuse(`there are ${next} rows`);
}

type Work = (call: Call, signal: AbortSignal) => unknown;

const calls: Record<string, Work> = {
  hello: () => ({ language: "typescript", version: VERSION, minor: 10 }),
  reset,
  cancel: (call) => running.get(call.of)?.abort.abort(),
  let: (call) => letOf(call.name).go(),

  open,
  connect: async (call, signal) => {
    const { node, version, minor, user } = await clientOf(call).connect({ signal });
    return { node, version, minor, user: user?.name };
  },
  ping: (call, signal) => clientOf(call).ping({ signal }),
  close: (call) => clientOf(call).close(),
  describe: (call) => `${clientOf(call)} ${inspect(clientOf(call), { depth: 9 })} ${JSON.stringify(clientOf(call))}`,
  events: (call) =>
    (events.get(call.on) ?? []).map(({ change, address, cause }) => ({
      change,
      address,
      cause: cause === undefined ? null : `${inspect(cause)}`,
    })),

  run: async (call, signal) => answerOf(await named<Runner>(call).run(call.script, paramsOf(call), { ...runOptions(call), signal })),
  transaction: async (call, signal) => {
    const transaction = databaseOf(call).transaction();
    for (const one of call.statements) transaction.add(one.script, paramsOf(one));
    return answerOf(await transaction.run({ ...given(call, "timeout", "reason", "repeatable", "current"), signal }));
  },
  query: (call, signal) => named<Runner>(call).query(call.script, paramsOf(call), { ...runOptions(call), signal }),
  rows: async (call, signal) => {
    const on = named<Runner>(call);
    const runner = on instanceof Client ? databaseOf(call) : on;
    const found: unknown[] = [];
    for await (const row of runner.rows(call.select, paramsOf(call), { ...given(call, "page"), signal })) found.push(row);
    return found;
  },
  "moment.open": async (call, signal) => {
    const moment = await databaseOf(call).moment({ ...given(call, "keep"), signal });
    names.set(call.as, moment);
    return positionOf(moment.position);
  },
  "moment.close": (call, signal) => named<Moment>(call).close({ signal }),

  "cache.get": async (call, signal) => {
    const value = await cacheOf(call).get(call.key, { signal });
    return { found: value !== undefined, value };
  },
  "cache.set": (call, signal) => cacheOf(call).set(call.key, read(call.value), { ...given(call, "ttl", ["keep_ttl", "keepTtl"]), signal }),
  "cache.set_if_absent": (call, signal) => cacheOf(call).setIfAbsent(call.key, read(call.value), { ...given(call, "ttl"), signal }),
  "cache.set_if_present": (call, signal) => cacheOf(call).setIfPresent(call.key, read(call.value), { ...given(call, "ttl"), signal }),
  "cache.compare_and_set": (call, signal) =>
    cacheOf(call).compareAndSet(call.key, read(call.expect), read(call.value), { ...given(call, "ttl"), signal }),
  "cache.incr": (call, signal) => cacheOf(call).incr(call.key, call.by ? (read(call.by) as number) : 1, { signal }),
  "cache.delete": (call, signal) => cacheOf(call).delete(call.key, { signal }),
  "cache.persist": (call, signal) => cacheOf(call).persist(call.key, { signal }),
  "cache.expire": (call, signal) => cacheOf(call).expire(call.key, call.ttl, { signal }),
  "cache.ttl": async (call, signal) => {
    const left = await cacheOf(call).ttl(call.key, { signal });
    return left === null ? "never" : left;
  },
  "cache.keys": (call, signal) => cacheOf(call).keys({ ...given(call, "prefix", "after", "limit"), signal }),
  "cache.all_keys": async (call, signal) => {
    const keys: string[] = [];
    for await (const key of cacheOf(call).allKeys(call.prefix ?? "", { signal })) keys.push(key);
    return keys;
  },
  "cache.get_or_set": getOrSet,
  "cache.lock": lock,
  "lease.extend": (call, signal) => named<Lease>(call).extend(call.ttl ?? undefined, { signal }),
  "lease.release": (call, signal) => named<Lease>(call).release({ signal }),
  "lease.state": (call) => {
    const { lost, fence, until } = named<Lease>(call);
    return { lost: lost.aborted, fence, until };
  },
  "lease.lost": async (call) => {
    const { lost } = named<Lease>(call);
    if (!lost.aborted) await new Promise((resolve) => lost.addEventListener("abort", resolve));
  },

  next: async (call, signal) => {
    const { done, value } = await named<Iteration>(call).next(signal);
    return done ? { end: true } : { item: value };
  },
  stop: (call) => {
    const found = named<Iteration | Mirror>(call);
    return found instanceof Mirror ? found.close() : found.stop();
  },

  "topic.publish": (call, signal) => topicOf(call).publish(read(call.value), { ...publishOptions(call), signal }),
  "topic.publish_many": (call, signal) => topicOf(call).publishMany(read(call.values) as unknown[], { ...publishOptions(call), signal }),
  "publisher.publish": () => {
    throw new Unsupported("this client has no publisher that gathers messages");
  },
  "topic.read": async (call, signal) => (await topicOf(call).read({ ...given(call, "after", "limit", "wait"), signal })).map(messageOf),
  "topic.messages": (call) =>
    void iterate(call, (signal) => topicOf(call).messages({ ...given(call, "after", "follow"), signal }), messageOf),
  "reader.define": (call, signal) => readerOf(call).define(placeOf(call), { signal }),
  "reader.read": async (call, signal) => (await readerOf(call).read({ ...given(call, "limit", "wait"), signal })).map(messageOf),
  "reader.commit": (call, signal) => readerOf(call).commit(call.position, { signal }),
  "reader.move": (call, signal) => readerOf(call).move(placeOf(call) as Place, { signal }),
  "reader.messages": (call) => void iterate(call, (signal) => readerOf(call).messages({ ...given(call, "follow"), signal }), messageOf),
  "reader.drop": (call, signal) => readerOf(call).drop({ signal }),

  "group.take": async (call, signal) => (await groupOf(call).take({ ...given(call, "count", "member", "wait"), signal })).map(deliveryOf),
  "group.ack": async (call, signal) => settledOf(await groupOf(call).ack(call.receipts, { signal })),
  "group.nack": async (call, signal) => settledOf(await groupOf(call).nack(call.receipts, { ...given(call, "delay", "error"), signal })),
  "group.extend": async (call, signal) => settledOf(await groupOf(call).extend(call.receipts, call.by, { signal })),
  "group.give_up": async (call, signal) => settledOf(await groupOf(call).giveUp(call.receipts, call.error, { signal })),
  "group.messages": consume,
  "delivery.ack": (call, signal) => deliveryOn(call).ack({ signal }),
  "delivery.nack": (call, signal) => deliveryOn(call).nack({ ...given(call, "delay", "error"), signal }),
  "delivery.extend": (call, signal) => deliveryOn(call).extend(call.by, { signal }),
  "delivery.give_up": (call, signal) => deliveryOn(call).giveUp(call.error, { signal }),
  "delivery.done": async (call, signal) => {
    const answer = await deliveryOn(call).done(call.script, paramsOf(call), { signal });
    return answer && answerOf(answer);
  },

  watch,
  "watch.position": (call) => positionOf(named<Iteration>(call).watch?.position),
  "mirror.open": openMirror,
  "mirror.rows": (call) => [...named<Mirror>(call)],
  "mirror.seq": (call) => named<Mirror>(call).seq,
  "mirror.reached": (call, signal) => named<Mirror>(call).reached(call.seq, { signal }),
  "mirror.copies": (call) => copies.get(call.on),

  "seal.unseal": (call, signal) => sealOf(call).unseal(call.passphrase, { signal }),
  "seal.seal": (call, signal) => sealOf(call).seal({ signal }),
  "seal.change": (call, signal) => {
    const seal = sealOf(call);
    return call.rekey ? seal.rekey(call.old, call.new, { signal }) : seal.changePassphrase(call.old ?? undefined, call.new, { signal });
  },
  "vault.write": (call, signal) => {
    const options = given(call, ["if_absent", "ifAbsent"], ["expect", "expectVersion"], "reason");
    return vaultOf(call).write(call.record, read(call.value), { ...options, signal });
  },
  "vault.reveal": async (call, signal) => {
    const found = await vaultOf(call).reveal(call.record, { ...given(call, "version", "reason"), signal });
    const { id, value, version, at } = found;
    return { id, value, version, at, text: `${inspect(found)} ${found} ${JSON.stringify(found)}` };
  },
  "vault.list": (call, signal) => vaultOf(call).list({ ...given(call, "prefix", "after", "limit"), signal }),
  "vault.erase": (call, signal) => vaultOf(call).erase(call.record, { ...given(call, "reason"), signal }),

  "backup.file": backup,
  load,
};

async function answer(call: Call, signal: AbortSignal): Promise<void> {
  const found: Record<string, unknown> = { id: call.id };
  try {
    const work = calls[call.call];
    if (!work) throw new Misuse(`no such call: ${call.call}`);
    found.value = write(await work(call, signal));
  } catch (error) {
    if (error instanceof Unsupported) found.skip = error.message;
    else found.error = errorOf(error);
  }
  process.stdout.write(`${JSON.stringify(found)}\n`);
}

function begin(call: Call): void {
  const abort = new AbortController();
  const done = answer(call, abort.signal).finally(() => running.delete(call.id));
  if (call.call !== "reset") running.set(call.id, { abort, done });
}

for await (const line of createInterface({ input: process.stdin })) {
  for (const call of [JSON.parse(line)].flat() as Call[]) begin(call);
}
await reset();
