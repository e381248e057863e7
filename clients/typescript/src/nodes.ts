import { isIPv6 } from "node:net";
import { Connection, MINOR_OF_AFTER, type Settings, UntrustedError } from "./connection.js";
import { Closed, ProtocolBroken, Refused, Unreachable } from "./errors.js";
import { Backoff, leaving, sleep } from "./waits.js";

const DEFAULT_PORT = 8001;
/** Time for which a node is left alone that could not be reached, or was too far behind, in ms. */
const AWAY = 5_000;
/** Nodes that a client knows. */
const NODES_MOST = 64;

/** A connection was made, made again, or lost. */
export interface ConnectionEvent {
  change: "connected" | "reconnected" | "lost";
  address: string;
  /** Version of the node, once connected. */
  version?: string;
  /** Cause of the loss; undefined if a side closed the connection. */
  cause?: unknown;
}

/** One node of a store: its address, and the connection to it. */
export class StoreNode {
  conn: Connection | undefined;
  /** Undefined: not known. */
  takesChanges: boolean | undefined;
  isForeign = false;
  restsUntil = 0;
  wasConnected = false;
  opening: Promise<Connection> | undefined;

  constructor(
    readonly host: string,
    readonly port: number,
  ) {}

  get address(): string {
    return isIPv6(this.host) ? `[${this.host}]:${this.port}` : `${this.host}:${this.port}`;
  }

  get usable(): Connection | undefined {
    return this.conn?.isUsable ? this.conn : undefined;
  }
}

/** Reads `host:port`, `host`, `:port` or `[::1]:port`. */
export function splitAddress(address: string): { host: string; port: number } {
  const found = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::(\d*))?$/.exec(address);
  const port = Number(found?.[3] || DEFAULT_PORT);
  if (!found || port < 1 || port > 65_535) {
    throw new TypeError(`${JSON.stringify(address.slice(0, 80))} is no address: write host:port or [host]:port`);
  }
  return { host: found[1] || found[2] || "127.0.0.1", port };
}

/** All nodes of a store. One is home: everything goes there that does not go elsewhere on purpose. */
export class Nodes {
  all: StoreNode[] = [];
  home: StoreNode | undefined;
  isClosed = false;
  /** Aborted when the client closes. */
  readonly closing = new AbortController();
  readonly given: string;

  private named: StoreNode[] = [];
  private search: Promise<StoreNode> | undefined;
  private turn = 0;
  private readonly work = new Set<Promise<unknown>>();

  constructor(
    addresses: string | readonly string[],
    readonly settings: Settings,
    readonly connectTimeout: number,
    private readonly onConnection: ((event: ConnectionEvent) => void) | undefined,
  ) {
    for (const one of [addresses].flat().flatMap((text) => text.split(","))) {
      const { host, port } = splitAddress(one.trim());
      if (!this.at(host, port)) this.all.push(new StoreNode(host, port));
    }
    if (this.all.length > NODES_MOST) throw new TypeError(`a client knows at most ${NODES_MOST} nodes, not ${this.all.length}`);
    if (this.all.length === 0) throw new TypeError("a client needs an address");
    if (settings.credential.token !== undefined && this.all.length > 1) {
      throw new TypeError("a token is of one node: with several addresses, give user and password");
    }
    this.given = this.all.map((one) => one.address).join(", ");
  }

  private at(host: string, port: number): StoreNode | undefined {
    return this.all.find((one) => one.host === host && one.port === port);
  }

  get areSeveral(): boolean {
    return this.all.length > 1;
  }

  /** Has the end of the client wait for some work. */
  track<T>(work: Promise<T>): Promise<T> {
    const done: Promise<void> = work.then(
      () => void this.work.delete(done),
      () => void this.work.delete(done),
    );
    this.work.add(done);
    return work;
  }

  // --- home ------------------------------------------------------------------------------------------

  /** Returns the node to ask, connected. All that need one share a search. */
  findHome(signal?: AbortSignal): Promise<StoreNode> {
    if (this.isClosed) return Promise.reject(new Closed());
    if (this.home?.usable) return Promise.resolve(this.home);
    this.search ??= this.track(
      this.find().then(
        (found) => {
          this.search = undefined;
          this.home = found;
          return found;
        },
        (error) => {
          this.search = undefined;
          throw this.isClosed ? new Closed() : error;
        },
      ),
    );
    return leaving(this.search, signal);
  }

  private async find(): Promise<StoreNode> {
    const deadline = performance.now() + this.connectTimeout;
    const pause = new Backoff(20, 500);
    for (;;) {
      const errors: unknown[] = [];
      const found = await this.askRound(deadline, errors);
      if (found) return found;
      const last = errors.at(-1);
      if (!errors.some(mayGoAway)) throw this.endOfSearch(last);
      const step = pause.step();
      if (deadline - performance.now() <= step || this.isClosed) {
        throw new Unreachable(`no connection to ${this.given} in ${this.connectTimeout} ms: ${message(last)}`, { cause: last });
      }
      await sleep(step, undefined, this.closing.signal);
    }
  }

  private endOfSearch(last: unknown): unknown {
    if (last instanceof Refused) return last;
    const said =
      last instanceof UntrustedError
        ? `the certificate of ${this.given} is not trusted`
        : speaksNoTls(last)
          ? `no TLS is spoken at ${this.given}: connect without it, or to another port`
          : `no connection to ${this.given}`;
    return new Unreachable(`${said}: ${message(last)}`, { cause: last });
  }

  /** Returns the node that takes changes, or else the first that answers. */
  private async askRound(deadline: number, errors: unknown[]): Promise<StoreNode | undefined> {
    const waiting = this.inOrder();
    const asked = new Set<StoreNode>();
    let second: StoreNode | undefined;
    for (let one = waiting.shift(); one; one = waiting.shift()) {
      if (asked.has(one)) continue;
      asked.add(one);
      const share = Math.max(deadline - performance.now(), 0) / (1 + waiting.length);
      let conn: Connection;
      try {
        conn = await this.open(one, share);
      } catch (error) {
        errors.push(error);
        continue;
      }
      if (one.takesChanges !== false) {
        this.named = [];
        return one;
      }
      waiting.unshift(...this.nodesAt(conn.welcome.leader));
      second ??= one;
    }
    return second;
  }

  /** Returns the named nodes, those that take changes or may, and the others. */
  private inOrder(): StoreNode[] {
    const reads = this.all.filter((one) => one.takesChanges === false);
    const writes = this.all.filter((one) => one.takesChanges !== false);
    return [...new Set([...this.named, ...writes, ...reads])];
  }

  /** Returns the nodes at addresses that a node has named. What is no address is passed over. */
  private nodesAt(endpoints: readonly string[]): StoreNode[] {
    if (!this.areSeveral) return [];
    const found: StoreNode[] = [];
    for (const endpoint of endpoints) {
      let known: StoreNode | undefined;
      try {
        const { host, port } = splitAddress(endpoint);
        known = this.at(host, port);
        if (!known && this.all.length < NODES_MOST) {
          known = new StoreNode(host, port);
          this.all.push(known);
        }
      } catch {
        continue;
      }
      if (known) found.push(known);
    }
    return found;
  }

  // --- connections -----------------------------------------------------------------------------------

  /** Returns the connection of a node. Without one a single attempt is made. */
  private open(node: StoreNode, within: number): Promise<Connection> {
    if (node.usable) return Promise.resolve(node.usable);
    if (this.isClosed) return Promise.reject(new Closed());
    node.opening ??= this.track(this.connect(node, within));
    const late = AbortSignal.timeout(Math.max(1, Math.ceil(within)));
    return leaving(node.opening, late);
  }

  private async connect(node: StoreNode, within: number): Promise<Connection> {
    const { address } = node;
    const lost = (cause: unknown) => {
      if (!this.isClosed) this.report({ change: "lost", address, ...(cause === undefined ? {} : { cause }) });
    };
    let conn: Connection;
    try {
      conn = await Connection.dial(node.host, node.port, this.settings, within, this.closing.signal, lost);
    } catch (error) {
      node.restsUntil = performance.now() + AWAY;
      throw error;
    } finally {
      node.opening = undefined;
    }
    if (node.conn) this.track(node.conn.ended); // it parts: what is open there is answered
    node.conn = conn;
    node.takesChanges = conn.welcome.writable;
    node.restsUntil = 0;
    const { version } = conn.welcome;
    this.report({ change: node.wasConnected ? "reconnected" : "connected", address, version });
    node.wasConnected = true;
    if (this.isClosed) this.track(conn.close());
    return conn;
  }

  /** Reports an event in a turn of its own, so that it holds up no request. */
  private report(event: ConnectionEvent): void {
    if (this.onConnection) setImmediate(this.onConnection, event);
  }

  /** Returns a node to read from, connected: each in its turn. The others are connected meanwhile. */
  async near(signal?: AbortSignal): Promise<StoreNode> {
    const home = await this.findHome(signal);
    const now = performance.now();
    const ready: StoreNode[] = [];
    for (const one of this.all) {
      if (one === home) ready.push(one);
      else if (one.isForeign || one.restsUntil > now) continue;
      else if (one.usable) {
        if (one.usable.welcome.minor >= MINOR_OF_AFTER) ready.push(one);
      } else if (!one.opening && !this.isClosed) {
        one.opening = this.track(this.connect(one, this.connectTimeout));
        one.opening.catch(() => {}); // the node rests, and home is asked meanwhile
      }
    }
    return ready[++this.turn % ready.length] as StoreNode;
  }

  /** Leaves a node alone for a while. */
  rest(node: StoreNode): void {
    node.restsUntil = performance.now() + AWAY;
  }

  /** Has another home looked for: a node took no change. */
  onRefusedBy(node: StoreNode, leader: unknown): void {
    node.takesChanges = false;
    this.all = [...this.all.filter((one) => one !== node), node];
    const endpoints = Array.isArray(leader) ? leader.filter((one) => typeof one === "string") : [];
    this.named = this.nodesAt(endpoints).filter((one) => one !== node);
    for (const one of this.named) one.takesChanges = undefined;
    if (this.home === node) this.home = undefined;
  }

  /** Works on a connection to home that nothing else uses. The client closes only behind that. */
  async withOwn<T>(signal: AbortSignal | undefined, work: (conn: Connection) => Promise<T>): Promise<T> {
    const home = await this.findHome(signal);
    if (this.isClosed) throw new Closed();
    return this.track(this.onOwn(home, signal, work));
  }

  private async onOwn<T>(home: StoreNode, signal: AbortSignal | undefined, work: (conn: Connection) => Promise<T>): Promise<T> {
    let conn: Connection;
    try {
      const never = new AbortController().signal;
      conn = await Connection.dial(home.host, home.port, this.settings, this.connectTimeout, signal ?? never);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      throw error instanceof Refused ? error : new Unreachable(`no connection to ${home.address}: ${message(error)}`, { cause: error });
    }
    const abort = () => conn.end(signal?.reason);
    signal?.addEventListener("abort", abort);
    try {
      return await work(conn);
    } catch (error) {
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener("abort", abort);
      conn.end(undefined);
    }
  }

  /** Waits for what is under way, then ends all connections. */
  async close(): Promise<void> {
    this.isClosed = true;
    this.closing.abort(new Closed());
    await Promise.all(this.all.map((one) => one.conn?.close()));
    while (this.work.size > 0) await Promise.all(this.work);
  }
}

/** True if another attempt may help. */
function mayGoAway(error: unknown): boolean {
  if (error instanceof Refused) return error.retry;
  return !(error instanceof UntrustedError || error instanceof ProtocolBroken || speaksNoTls(error));
}

function speaksNoTls(error: unknown): boolean {
  const code = String((error as { code?: unknown } | undefined)?.code);
  return /^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST|UNKNOWN_PROTOCOL)/.test(code);
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
