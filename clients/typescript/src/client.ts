import type { Answer } from "./answers.js";
import { Attempts, type How } from "./attempts.js";
import { type BackupFile, type BackupOptions, type BackupSink, backup, backupFile } from "./backups.js";
import { Cache } from "./cache.js";
import {
  type Connection,
  MINOR_OF_AFTER,
  MINOR_OF_FEEDS,
  MINOR_OF_SEQUENCES,
  MINOR_OF_VAULTS,
  type Pulse,
  type Reply,
  type Request,
  type TlsOptions,
  USUAL_PULSE,
  type Welcome,
} from "./connection.js";
import { Closed, isRefused, OutcomeUnknown, ProtocolBroken, Refused } from "./errors.js";
import { type Body, Kind, kindName } from "./frames.js";
import { Mirror, type MirrorOptions } from "./mirrors.js";
import { Moment, type MomentOptions } from "./moments.js";
import { type ConnectionEvent, Nodes, type StoreNode } from "./nodes.js";
import { type CallOptions, hide, type Params, positive, Runner, type ScriptOptions } from "./runner.js";
import { Seen, seemsToRead } from "./seen.js";
import { Topic } from "./topics.js";
import { Transaction } from "./transactions.js";
import { checkName, Duration, type DurationLike, type StoreObject, ValueError } from "./values.js";
import { Seal, Vault } from "./vaults.js";
import { Watch, type WatchOptions } from "./watches.js";

export interface ClientOptions {
  user?: string;
  password?: string;
  /** A token of `POST /session`, in the place of user and password. It is valid at one node. */
  token?: string;
  /** Secures the connections; `true` trusts the certificate authorities of the system. */
  tls?: boolean | TlsOptions;
  /** Limit of each script and operation at the node. */
  timeout?: DurationLike;
  /** Limit of making a connection, all attempts together; 10 s by default. */
  connectTimeout?: DurationLike;
  /** `any`: scripts that only read, and feeds, go to all nodes in turn. */
  reads?: "leader" | "any";
  onConnection?: (event: ConnectionEvent) => void;
  /** Called at the start of each call with its name, such as `KV get`. What it returns is called at the end. */
  trace?: (call: string) => ((error?: unknown) => void) | undefined;
}

/**
 * A handle on a store: one for a whole program. All calls share one connection to each node. It connects
 * with the first call and reconnects by itself.
 */
export class Client extends Runner {
  /** @internal */
  readonly nodes: Nodes;
  /** @internal */
  readonly seen = new Seen();
  /** @internal */
  readonly timeout: Duration | undefined;
  /** Time for the node's own answer behind a deadline, in ms. @internal */
  readonly grace: number;
  private readonly reads: "leader" | "any";
  private readonly trace: ClientOptions["trace"];
  /** Nodes that have made moments: others know nothing of them. */
  private readonly makers = new Map<string, StoreNode>();

  /** @internal */
  constructor(addresses: string | readonly string[], options: ClientOptions = {}, pulse: Pulse = USUAL_PULSE) {
    super();
    const { user, password, token, tls } = options;
    if (user !== undefined && token !== undefined) throw new TypeError("sign in with user and password, or with a token, not with both");
    const connectTimeout = Duration.from(options.connectTimeout ?? 10_000).toMilliseconds();
    if (connectTimeout <= 0) throw new RangeError(`connectTimeout is longer than nothing, not ${connectTimeout} ms`);
    const settings = {
      credential: token !== undefined ? { token } : user !== undefined ? { user, password: password ?? "" } : {},
      tls: tls === true ? {} : tls || undefined,
      pulse,
    };
    this.nodes = new Nodes(addresses, settings, connectTimeout, options.onConnection);
    for (const name of ["nodes", "seen", "makers"]) hide(this, name);
    this.timeout = options.timeout === undefined ? undefined : positive(options.timeout, "timeout");
    this.grace = pulse.grace;
    this.reads = options.reads ?? "leader";
    this.trace = options.trace;
  }

  /** Connects if the client is not connected yet, and returns the node's welcome. */
  async connect(options: CallOptions = {}): Promise<Welcome> {
    options.signal?.throwIfAborted();
    const home = await this.nodes.findHome(options.signal);
    return (home.conn as Connection).welcome;
  }

  /** Sends a round trip to the node. */
  async ping(options: CallOptions = {}): Promise<void> {
    await this.ask({ kind: Kind.PING, body: null, timeout: this.nodes.connectTimeout }, { repeatable: true, ...options });
  }

  /** Returns a handle on a database. It sends nothing. */
  database(ns: string, db: string): Database {
    return new Database(this, ns, db);
  }

  /** Returns the seal of the vaults without a passphrase of their own. */
  get storeSeal(): Seal {
    return new Seal(this, {});
  }

  /** Writes a snapshot of the node to a stream or a function, no faster than it takes the data. */
  backup(to: BackupSink, options: BackupOptions = {}): Promise<BackupFile> {
    return backup(this, to, options);
  }

  /** Writes a snapshot to a new file, which gets its name once it is complete and synced. */
  backupFile(path: string, options: BackupOptions = {}): Promise<BackupFile> {
    return backupFile(this, path, options);
  }

  /**
   * Waits for the calls in flight and closes the connections. Calls that only wait for messages or changes
   * end with `Closed`, and so does every later call.
   */
  close(): Promise<void> {
    return this.nodes.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  override toString(): string {
    return `storeclient to ${this.nodes.given}`;
  }

  // --- requests --------------------------------------------------------------------------------------

  /** @internal */
  override async script(text: string, params: Params | undefined, options: ScriptOptions = {}): Promise<Answer> {
    if (typeof text !== "string") throw new ValueError("script", "a script is a string");
    const { moment, signal, repeatable, reason, record, current } = options;
    const timeout = options.timeout === undefined ? this.timeout : positive(options.timeout, "timeout");
    const body: Body = {
      script: text,
      params: params && Object.keys(params).length > 0 ? params : undefined,
      ns: options.ns,
      db: options.db,
      timeout,
      reason,
      moment,
      keep: options.keep,
      record: record || undefined,
      current: current || undefined,
      after: options.after || undefined,
    };
    const request: Request = { kind: Kind.RUN, body, waits: options.waits, timeout: timeout && timeout.toMilliseconds() + this.grace };
    const isRead = this.readsAnywhere && seemsToRead(text) && !moment && reason === undefined && !record && !current;
    const how: How = { repeatable: repeatable === true, spread: isRead, at: moment ? this.makers.get(moment) : undefined, signal };
    try {
      return (await this.ask(request, how)) as Answer;
    } catch (error) {
      if (error instanceof Refused && error.committed !== 0) this.seen.reach(error.committed);
      else if (error instanceof OutcomeUnknown || signal?.aborted) this.seen.miss();
      throw error;
    }
  }

  /** @internal */
  ask(request: Request, how: How): Promise<Reply> {
    return this.trace || request.waits ? this.askTraced(request, how) : this.attempt(request, how);
  }

  private async askTraced(request: Request, how: How): Promise<Reply> {
    const op = request.body?.op;
    const onEnd = this.trace?.(op ? `${kindName(request.kind)} ${op}` : kindName(request.kind));
    try {
      const reply = await this.attempt(request, how);
      onEnd?.();
      return reply;
    } catch (error) {
      const ended = request.waits && this.nodes.isClosed && isRefused(error, "Cancelled") ? new Closed() : error;
      onEnd?.(ended);
      throw ended;
    }
  }

  private attempt(request: Request, how: How): Promise<Reply> {
    const tries = new Attempts(this, how);
    return tries.do((node, conn) => {
      if (request.kind !== Kind.RUN) {
        checkKnown(conn, request);
        return conn.ask(request, how.signal);
      }
      return this.askScript(node, conn, tries.spread ? this.behindSeen(request, conn) : request, how);
    });
  }

  private async askScript(node: StoreNode, conn: Connection, request: Request, how: How): Promise<Reply> {
    checkKnown(conn, request);
    const asked = this.seen.mark();
    const answer = (await conn.ask(request, how.signal)) as Answer;
    const { nodes, seen } = this;
    if (answer.moment !== undefined && nodes.areSeveral) this.rememberMaker(answer.moment, node);
    const isHome = nodes.home === node;
    if (isHome && node.takesChanges !== false) seen.onAnswer(answer.position, asked);
    else if (!isHome && seen.isForeign(answer.store)) {
      node.isForeign = true;
      throw new ProtocolBroken(`${node.address} is a node of another store, ${answer.store}: it is not read any more`);
    } else seen.onAnswer(answer.position);
    return answer;
  }

  /** Returns the request of a read for a node that may be behind. */
  private behindSeen(request: Request, conn: Connection): Request {
    const { after } = this.seen;
    if (after === 0 || conn.welcome.minor < MINOR_OF_AFTER) return request;
    const given = request.body?.after;
    return { ...request, body: { ...request.body, after: typeof given === "number" ? Math.max(given, after) : after } };
  }

  /** Asks for an operation that may change something. @internal */
  async change(request: Request, how: How): Promise<StoreObject> {
    let found: StoreObject;
    try {
      found = (await this.ask(request, how)) as StoreObject;
    } catch (error) {
      if (error instanceof OutcomeUnknown || how.signal?.aborted) this.seen.miss();
      throw error;
    }
    if (typeof found.seq === "number") this.seen.reach(found.seq);
    else if (request.kind === Kind.VAULT || (this.nodes.home?.conn?.welcome.minor ?? 0) < MINOR_OF_SEQUENCES) this.seen.miss();
    return found;
  }

  /** @internal */
  get readsAnywhere(): boolean {
    return this.reads === "any" && this.nodes.areSeveral && this.seen.isWhole;
  }

  private rememberMaker(moment: string, node: StoreNode): void {
    this.makers.delete(moment);
    if (this.makers.size >= 1024) this.makers.delete(this.makers.keys().next().value as string);
    this.makers.set(moment, node);
  }
}

/** Returns a client of the node at an address, or of the nodes of one store. It connects with its first call. */
export function open(addresses: string | readonly string[], options: ClientOptions = {}): Client {
  return new Client(addresses, options);
}

/** A handle on one database of a client. */
export class Database extends Runner {
  /** @internal */
  readonly client: Client;
  readonly ns: string;
  readonly db: string;

  /** @internal */
  constructor(client: Client, ns: string, db: string) {
    super();
    this.client = client;
    this.ns = checkName(ns);
    this.db = checkName(db);
    hide(this, "client");
  }

  /** @internal */
  override script(text: string, params: Params | undefined, options: ScriptOptions = {}): Promise<Answer> {
    return this.client.script(text, params, { ...options, ns: this.ns, db: this.db });
  }

  /** Returns a transaction to add statements to. It sends nothing before its `run`. */
  transaction(): Transaction {
    return new Transaction(this);
  }

  /** Takes a snapshot of the store to read in. The caller closes it. */
  async moment(options: MomentOptions = {}): Promise<Moment> {
    const keep = Duration.from(options.keep ?? "1m");
    const answer = await this.script("", undefined, { moment: "new", keep, repeatable: true, signal: options.signal });
    if (answer.moment === undefined) throw new ProtocolBroken("the node names no moment");
    return new Moment(this, answer.moment, keep, answer.position);
  }

  /** Returns a handle on the keys of a cache space. */
  cache(space: string): Cache {
    return new Cache(this, space);
  }

  /** Returns a handle on a topic. */
  topic(name: string): Topic {
    return new Topic(this, name);
  }

  /** Returns a watch, which follows the changes of a table. */
  watch<T = StoreObject>(table: string, options: WatchOptions = {}): Watch<T> {
    return new Watch<T>(this, table, options);
  }

  /** Reads a table in full and returns a copy that is kept in step until it is closed. */
  mirror<T = StoreObject>(table: string, options: MirrorOptions = {}): Promise<Mirror<T>> {
    return Mirror.open<T>(this, table, options);
  }

  /** Returns a handle on a vault. */
  vault(name: string): Vault {
    return new Vault(this, name);
  }
}

/** Refuses what the node is too old for. */
export function checkKnown(conn: Connection, request: Request): void {
  const { kind, body } = request;
  if (kind === Kind.RUN) {
    if (body?.after !== undefined) checkMinor(conn, MINOR_OF_AFTER, "requests that come after a sequence");
    if (body?.current !== undefined) checkMinor(conn, MINOR_OF_SEQUENCES, "linearizable reads");
  } else if (kind === Kind.WATCH) checkMinor(conn, MINOR_OF_FEEDS, "feeds");
  else if (kind === Kind.VAULT) checkMinor(conn, MINOR_OF_VAULTS, "vaults");
}

export function checkMinor(conn: Connection, minor: number, what: string): void {
  const { welcome } = conn;
  if (welcome.minor >= minor) return;
  const message = `node ${welcome.node} of version ${welcome.version} speaks minor ${welcome.minor} of the wire, which has no ${what}: they came with ${minor}`;
  throw new Refused({ code: "VersionNotSupported", message, status: 505, retry: false, detail: {}, results: [] });
}
