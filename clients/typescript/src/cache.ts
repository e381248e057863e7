import { randomBytes } from "node:crypto";
import { needed, optional, strings } from "./answers.js";
import type { Client, Database } from "./client.js";
import type { Request } from "./connection.js";
import { Closed } from "./errors.js";
import { type Body, Kind } from "./frames.js";
import { type CallOptions, defined, hide, positive } from "./runner.js";
import { checkName, type DateTime, type Duration, type DurationLike, type StoreObject, type Value } from "./values.js";
import { sleep } from "./waits.js";

/** Keys in one listing. */
const KEYS_MOST = 1000;
/** Renewals of a lease within its time. */
const RENEWALS = 3;

export interface SetOptions extends CallOptions {
  /** Time to live. Without it a key does not expire, or gets the default of its space. */
  ttl?: DurationLike | undefined;
  /** Keep the key's expiry, which `set` clears otherwise. */
  keepTtl?: boolean;
}

export interface KeysOptions extends CallOptions {
  prefix?: string;
  /** Key behind which the listing goes on. */
  after?: string;
  /** At most 1000, the default. */
  limit?: number;
}

export interface LockOptions extends CallOptions {
  /** Name of the holder, random by default. The same holder extends its lease by locking again. */
  holder?: string;
  /** Extend the lease by itself until it is released or lost. */
  renew?: boolean;
}

/** A handle on the keys of one cache space. Calls made at one time travel together and share a commit. */
export class Cache {
  private readonly client: Client;
  private readonly ns: string;
  private readonly db: string;
  private readonly space: string;

  /** @internal */
  constructor(db: Database, space: string) {
    this.client = db.client;
    this.ns = db.ns;
    this.db = db.db;
    this.space = checkName(space);
    hide(this, "client");
  }

  private request(op: string, fields: Body): Request {
    const { client, ns, db, space } = this;
    const timeout = client.timeout && client.timeout.toMilliseconds() + client.grace;
    return { kind: Kind.KV, body: { op, ns, db, space, ...fields }, timeout };
  }

  private async read(op: string, fields: Body, options: CallOptions): Promise<StoreObject> {
    return (await this.client.ask(this.request(op, fields), { repeatable: true, signal: options.signal })) as StoreObject;
  }

  /** @internal */
  write(op: string, fields: Body, options: CallOptions): Promise<StoreObject> {
    return this.client.change(this.request(op, fields), { signal: options.signal });
  }

  /** Returns the value of a key; undefined: there is no such key. */
  async get<T = Value>(key: string, options: CallOptions = {}): Promise<T | undefined> {
    return (await this.read("get", { key }, options)).value as T | undefined;
  }

  /** Sets a key. */
  async set(key: string, value: unknown, options: SetOptions = {}): Promise<void> {
    await this.write("set", { key, value: defined(value, "value"), ...expiry(options) }, options);
  }

  /** Sets a key that does not exist, and returns true if it was set. */
  async setIfAbsent(key: string, value: unknown, options: SetOptions = {}): Promise<boolean> {
    const fields = { key, value: defined(value, "value"), if: "absent", ...expiry(options) };
    return needed(await this.write("set", fields, options), "written", "boolean");
  }

  /** Sets a key that exists, and returns true if it was set. */
  async setIfPresent(key: string, value: unknown, options: SetOptions = {}): Promise<boolean> {
    const fields = { key, value: defined(value, "value"), if: "present", ...expiry(options) };
    return needed(await this.write("set", fields, options), "written", "boolean");
  }

  /**
   * Sets a key that holds `expect`, in type and value, and returns true if it was set. An `expect` of NONE
   * means that the key does not exist.
   */
  async compareAndSet(key: string, expect: unknown, value: unknown, options: SetOptions = {}): Promise<boolean> {
    const fields = { key, expect: defined(expect, "expect"), value: defined(value, "value"), ...expiry(options) };
    return needed(await this.write("swap", fields, options), "written", "boolean");
  }

  /** Deletes a key, and returns true if it existed. */
  async delete(key: string, options: CallOptions = {}): Promise<boolean> {
    return needed(await this.write("delete", { key }, options), "deleted", "boolean");
  }

  /** Adds to a counter, which starts at 0, and returns the new value: a bigint beyond 2^53. */
  async incr(key: string, by: number | bigint = 1, options: CallOptions = {}): Promise<number | bigint> {
    const found = await this.write("incr", { key, by }, options);
    return typeof found.value === "bigint" ? found.value : needed(found, "value", "int");
  }

  /** Returns the time to live of a key; null: it does not expire; undefined: there is no such key. */
  async ttl(key: string, options: CallOptions = {}): Promise<Duration | null | undefined> {
    const found = await this.read("get", { key }, options);
    return found.value === undefined ? undefined : (optional(found, "ttl", "duration") ?? null);
  }

  /** Sets the expiry of a key, and returns true if it exists. */
  async expire(key: string, ttl: DurationLike, options: CallOptions = {}): Promise<boolean> {
    return needed(await this.write("expire", { key, expire: positive(ttl, "ttl") }, options), "found", "boolean");
  }

  /** Removes the expiry of a key, and returns true if it exists. */
  async persist(key: string, options: CallOptions = {}): Promise<boolean> {
    return needed(await this.write("persist", { key }, options), "found", "boolean");
  }

  /** Returns keys in the order of their bytes. */
  async keys(options: KeysOptions = {}): Promise<string[]> {
    const { prefix = "", after = "", limit = KEYS_MOST } = options;
    return strings(await this.read("keys", { prefix, after, limit }, options), "keys");
  }

  /** Iterates over all keys with a prefix in the order of their bytes. */
  async *allKeys(prefix = "", options: CallOptions = {}): AsyncGenerator<string, void, undefined> {
    let after = "";
    for (;;) {
      const page = await this.keys({ ...options, prefix, after });
      yield* page;
      after = page.at(-1) ?? after;
      if (page.length < KEYS_MOST) return;
    }
  }

  /**
   * Returns the value of a key. Without one it calls `load` and stores the result. Racing callers each call
   * `load`; the first to store wins, and all return its value. Without `ttl` the default of the space applies.
   */
  async getOrSet<T>(key: string, ttl: DurationLike | undefined, load: () => T | Promise<T>, options: CallOptions = {}): Promise<T> {
    const found = await this.get<T>(key, options);
    if (found !== undefined) return found;
    const made = await load();
    for (;;) {
      if (await this.setIfAbsent(key, made, { ...options, ttl })) return made;
      const theirs = await this.get<T>(key, options);
      if (theirs !== undefined) return theirs;
    }
  }

  /** Acquires a lease on a key; undefined: another holder has it. */
  async lock(key: string, ttl: DurationLike, options: LockOptions = {}): Promise<Lease | undefined> {
    const holder = options.holder ?? randomBytes(16).toString("hex");
    const expire = positive(ttl, "ttl");
    const found = await this.write("lock", { key, holder, expire }, options);
    if (!needed(found, "held", "boolean")) return undefined;
    const lease = new Lease(this, key, holder, expire, needed(found, "fence", "int"), needed(found, "until", "datetime"));
    if (options.renew) void lease.keepRenewing(this.client.nodes.closing.signal);
    return lease;
  }
}

/**
 * A lock that is held until it is released or expires. It is a lease and no mutex: pass `fence` to the
 * resource that it protects.
 */
export class Lease {
  readonly key: string;
  readonly holder: string;
  /** Fencing token: it grows with each holder of the key. */
  readonly fence: number;
  private readonly cache: Cache;
  private readonly ttl: Duration;
  private end: DateTime;
  private readonly over = new AbortController();
  private readonly released = new AbortController();
  private renewing: Promise<void> | undefined;

  /** @internal */
  constructor(cache: Cache, key: string, holder: string, ttl: Duration, fence: number, until: DateTime) {
    this.cache = cache;
    this.key = key;
    this.holder = holder;
    this.ttl = ttl;
    this.fence = fence;
    this.end = until;
  }

  /** Time at which the lease ends, by the node's clock. */
  get until(): DateTime {
    return this.end;
  }

  /** Aborted once the lease is known to be over: it was released, or an extension found that it had expired. */
  get lost(): AbortSignal {
    return this.over.signal;
  }

  /** Makes the lease last `ttl` from now, and returns true if it is held. */
  async extend(ttl?: DurationLike, options: CallOptions = {}): Promise<boolean> {
    if (this.lost.aborted) return false;
    const expire = ttl === undefined ? this.ttl : positive(ttl, "ttl");
    const { key, holder, fence } = this;
    const found = await this.cache.write("lock", { key, holder, fence, expire }, options);
    if (needed(found, "held", "boolean")) {
      this.end = needed(found, "until", "datetime");
      return true;
    }
    this.over.abort();
    return false;
  }

  /** Releases the lease, and returns true if it was still held. */
  async release(options: CallOptions = {}): Promise<boolean> {
    this.released.abort();
    await this.renewing;
    if (this.lost.aborted) return false;
    const { key, holder, fence } = this;
    const found = await this.cache.write("unlock", { key, holder, fence }, options);
    this.over.abort(); // nothing of it is left to be extended, whatever the answer
    return needed(found, "released", "boolean");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @internal */
  keepRenewing(closing: AbortSignal): Promise<void> {
    this.renewing = this.renew(AbortSignal.any([closing, this.released.signal]));
    return this.renewing;
  }

  private async renew(stop: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(this.ttl.toMilliseconds() / RENEWALS, undefined, stop);
      if (stop.aborted) return;
      try {
        if (!(await this.extend())) return;
      } catch (error) {
        if (error instanceof Closed) return;
        // Any other error may pass before the lease ends, and the next extension tells.
      }
    }
  }
}

function expiry(options: SetOptions): Body {
  const { ttl, keepTtl } = options;
  return { expire: ttl === undefined ? undefined : positive(ttl, "ttl"), keep: keepTtl || undefined };
}
