import type { Buffer } from "node:buffer";
import { connect as connectPlain, isIP, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { type Answer, needed, optional, readAnswer, readError, strings } from "./answers.js";
import { Writer } from "./codec.js";
import { NotSent, OutcomeUnknown, ProtocolBroken, Refused, Unreachable } from "./errors.js";
import { type Body, FRAME_MOST, Frames, Kind, kindName, type Message, writeFrame } from "./frames.js";
import { VERSION } from "./tables.js";
import { type StoreObject, ValueError } from "./values.js";

/** Newest minor of the wire that this client speaks. */
export const MINOR = 10;
export const MINOR_OF_FEEDS = 1;
export const MINOR_OF_STREAMS = 5;
export const MINOR_OF_VAULTS = 6;
export const MINOR_OF_AFTER = 7;
export const MINOR_OF_SEQUENCES = 8;

/** Time past a request's own timeout for the node's answer about it to arrive, in ms. */
const GRACE = 5_000;
/** Size of a frame beside which a node may hear no PING. */
const LARGE_FRAME = 4 << 10;
/** Bytes that wait to be written; past them requests wait. */
const OUT_MOST = 1 << 20;

/** Times of a connection that may have been lost without a word, in ms. */
export interface Pulse {
  /** Without a byte while something is open; then the peer is asked. */
  quiet: number;
  /** For anything to come of that. */
  answer: number;
  /** Likewise, of a node that has said BYE and cannot be asked. */
  leaving: number;
  /** For an AUTH to be answered, and for a node to close that has answered all. */
  grace: number;
}

export const USUAL_PULSE: Pulse = { quiet: 20_000, answer: 20_000, leaving: 60_000, grace: GRACE };

/** Options of TLS, in the forms that `node:tls` takes. The host name is always checked. */
export interface TlsOptions {
  /** Certificate authorities to trust, in PEM, in the place of the system's. */
  ca?: string | Uint8Array | (string | Uint8Array)[];
  /** Certificate and key of this client. */
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  passphrase?: string;
  /** Name that the certificate must have, in the place of the address's host. */
  servername?: string;
}

/** Credential, never printed. */
export interface Credential {
  user?: string | undefined;
  password?: string | undefined;
  token?: string | undefined;
}

export interface Settings {
  credential: Credential;
  tls: TlsOptions | undefined;
  pulse: Pulse;
}

/** What a node reports of itself and of the signed-in user. */
export interface Welcome {
  version: string;
  node: string;
  minor: number;
  limits: StoreObject;
  /** `name`, `role` and `space`; undefined without a sign-in. */
  user: StoreObject | undefined;
  /** True if the node takes changes, and of nodes before minor 7. */
  writable: boolean;
  /** Addresses of the node that takes changes if this one does not. */
  leader: string[];
}

/** Receives what comes of a WATCH or a stream. */
export interface Sink {
  onMessage(body: StoreObject, size: number): void;
  /** The request is over: by an answer, by an error, or as it was asked (neither). */
  onEnd(error: unknown, answer: Answer | undefined): void;
}

export type Reply = Answer | StoreObject | Welcome | undefined;

/** A request under way. */
export interface Call {
  kind: Kind;
  id: number;
  /** True if it waits for something to come: the end of the client ends it. */
  waits: boolean;
  sink: Sink | undefined;
  resolve: (reply: Reply) => void;
  reject: (error: unknown) => void;
  /** Place of its frame in what is to be written. */
  start: number;
  end: number;
}

export interface Request {
  kind: Kind;
  body: Body | null;
  /** Time after which it is given up, in ms; the node has its own. */
  timeout?: number | undefined;
  waits?: boolean | undefined;
  /** Has the node end the request. Its answer is waited for all the same. */
  stop?: AbortSignal | undefined;
}

export class Connection {
  welcome: Welcome = undefined as unknown as Welcome;
  /** Number of AUTHs that were answered. */
  session = 0;
  /** True if nothing new begins: the node has said BYE, or the client closes. */
  isLeaving = false;
  /** Resolves when the connection has ended. */
  readonly ended: Promise<void>;
  /** Cause of the end. */
  cause: unknown;
  /** True if what comes of a backup is not taken, so that nothing is read. */
  isStalled = false;

  private over = false;
  private saidBye = false;
  private out = new Writer(4096);
  private spare = new Writer(4096);
  private isWriting = false;
  private isScheduled = false;
  /** Requests with this id and later ones were not handed to the operating system. */
  private unsentFrom = 1;
  private last = 0;
  private readonly calls = new Map<number, Call>();
  private readonly large = new Set<number>();
  /** Requests that wait for room, without an id. */
  private waiting: { request: Request; call: Call }[] = [];
  private quiet: (() => void)[] = [];
  private heard = performance.now();
  private pingedAt = 0;
  private timer: NodeJS.Timeout | undefined;
  private signing: Promise<void> | undefined;
  private signInError: Refused | undefined;
  private readonly frames = new Frames();
  private greeting: { resolve: () => void; reject: (error: unknown) => void } | undefined;
  private resolveEnded!: () => void;

  private constructor(
    private readonly socket: Socket,
    private readonly pulse: Pulse,
    private readonly onEnd: ((cause: unknown) => void) | undefined,
  ) {
    this.ended = new Promise((resolve) => {
      this.resolveEnded = resolve;
    });
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 30_000);
    socket.on("data", (chunk: Buffer) => this.onData(chunk));
    socket.on("error", (error) => this.end(error));
    socket.on("end", () => this.end(undefined));
    socket.on("close", () => this.end(undefined));
  }

  /** Makes a connection that has been welcomed. */
  static async dial(
    host: string,
    port: number,
    settings: Settings,
    within: number,
    signal: AbortSignal,
    onEnd?: (cause: unknown) => void,
  ): Promise<Connection> {
    signal.throwIfAborted();
    const { tls } = settings;
    const socket = tls ? connectTls({ servername: isIP(host) ? "" : host, ...tls, host, port } as object) : connectPlain({ host, port });
    let isWelcome = false;
    const conn = new Connection(socket, settings.pulse, (cause) => isWelcome && onEnd?.(cause));
    const timer = setTimeout(() => conn.end(new Error(`no welcome within ${Math.round(within)} ms`)), within);
    const abort = () => conn.end(signal.reason);
    signal.addEventListener("abort", abort);
    try {
      await new Promise<void>((resolve, reject) => {
        conn.greeting = { resolve, reject };
        socket.once(tls ? "secureConnect" : "connect", () => {
          const client = `storeclient-ts/${VERSION}`;
          conn.send(Kind.HELLO, 0, { magic: "STORE", major: 1, minor: [0, MINOR], client, ...settings.credential });
        });
      });
      isWelcome = true;
      return conn;
    } catch (error) {
      conn.end(error);
      const why = (socket as TLSSocket).authorizationError;
      throw why ? new UntrustedError(String(why), { cause: error }) : error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
    }
  }

  get isUsable(): boolean {
    return !this.over && !this.isLeaving;
  }

  // --- asking ----------------------------------------------------------------------------------------

  /** Sends a request and waits for its reply. */
  ask(request: Request, signal?: AbortSignal): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const { kind, timeout, stop } = request;
      const call: Call = { kind, id: 0, waits: request.waits === true, sink: undefined, resolve, reject, start: 0, end: 0 };
      this.begin(request, call);
      if (signal || timeout !== undefined || stop) this.guard(call, timeout, signal, stop);
    });
  }

  /** Ends a request with its signal or its time. */
  private guard(call: Call, timeout: number | undefined, signal: AbortSignal | undefined, stop: AbortSignal | undefined): void {
    const { resolve, reject } = call;
    const ends = () => {
      const was = this.giveUp(call);
      if (was === "answered") return;
      const { reason } = signal?.aborted ? signal : { reason: new Error(`no answer within ${timeout} ms`) };
      if (was === "written") call.reject(new OutcomeUnknown("the request was given up", { cause: reason }));
      else call.reject(signal?.aborted ? reason : new Unreachable(`the connection took nothing within ${timeout} ms`));
    };
    const stops = () => {
      if (call.id > 0) this.sendEnd(call);
      else if (this.giveUp(call) === "waiting") call.reject(cancelled());
    };
    const timer = timeout === undefined ? undefined : setTimeout(ends, timeout);
    const settled = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", ends);
      stop?.removeEventListener("abort", stops);
    };
    call.resolve = (reply) => {
      settled();
      resolve(reply);
    };
    call.reject = (error) => {
      settled();
      reject(error);
    };
    signal?.addEventListener("abort", ends);
    stop?.addEventListener("abort", stops);
    if (signal?.aborted) ends();
    else if (stop?.aborted) stops();
  }

  /** Sends a request, or has it wait for room. What comes of it goes to the call. */
  begin(request: Request, call: Call): void {
    if (!this.isUsable) throw new NotSent();
    if (this.out.length > OUT_MOST || this.waiting.length > 0) this.waiting.push({ request, call });
    else this.write(request, call);
  }

  private write(request: Request, call: Call): void {
    const { out } = this;
    const start = out.length;
    const id = this.last + 1;
    writeFrame(out, request.kind, id, request.body);
    const size = out.length - start - 4;
    if (size > FRAME_MOST) {
      out.length = start;
      throw new ValueError("", `a request has at most ${FRAME_MOST} bytes, this one has ${size}`);
    }
    this.last = id;
    call.id = id;
    call.start = start;
    call.end = out.length;
    this.calls.set(id, call);
    if (size > LARGE_FRAME) this.large.add(id);
    this.timer ??= setTimeout(this.look, this.pulse.quiet).unref();
    this.schedule();
  }

  private send(kind: Kind, id: number, body: Body | null): void {
    writeFrame(this.out, kind, id, body);
    this.schedule();
  }

  /** Has everything that is asked in this turn of the loop leave in one write. */
  private schedule(): void {
    if (this.isScheduled || this.isWriting) return;
    this.isScheduled = true;
    setImmediate(this.flush);
  }

  private readonly flush = (): void => {
    this.isScheduled = false;
    const written = this.out;
    if (this.over || this.isWriting || written.length === 0) return;
    this.out = this.spare;
    this.out.length = 0;
    this.spare = written;
    this.unsentFrom = this.last + 1;
    this.isWriting = true;
    this.socket.write(written.bytes.subarray(0, written.length), this.onWritten);
    this.fill();
  };

  private readonly onWritten = (): void => {
    this.isWriting = false;
    if (this.spare.bytes.length > 2 * OUT_MOST) this.spare = new Writer(4096);
    this.flush();
  };

  /** Writes requests that have waited for room. */
  private fill(): void {
    while (this.waiting.length > 0 && this.out.length <= OUT_MOST) {
      const { request, call } = this.waiting.shift() as { request: Request; call: Call };
      try {
        this.write(request, call);
      } catch (error) {
        settle(call, error, undefined);
      }
    }
  }

  /** Asks the node to end a request early. Its answer is waited for. */
  sendEnd(call: Call): void {
    if (this.over || this.saidBye || this.calls.get(call.id) !== call) return;
    if (call.kind === Kind.RUN || call.kind === Kind.TOPIC) this.send(Kind.CANCEL, call.id, null);
    else if (call.kind === Kind.WATCH) this.send(Kind.UNWATCH, call.id, null);
  }

  /** Ends a request that nobody waits for any more. Its answer is dropped. */
  giveUp(call: Call): "waiting" | "unsent" | "written" | "answered" {
    const at = this.waiting.findIndex((one) => one.call === call);
    if (at >= 0) {
      this.waiting.splice(at, 1);
      return "waiting";
    }
    if (this.calls.get(call.id) !== call) return "answered";
    const isUnsent = call.id >= this.unsentFrom;
    if (isUnsent) this.takeBack(call);
    else this.sendEnd(call);
    this.forget(call.id);
    return isUnsent ? "unsent" : "written";
  }

  private takeBack(call: Call): void {
    const { out } = this;
    const size = call.end - call.start;
    out.bytes.copyWithin(call.start, call.end, out.length);
    out.length -= size;
    for (const [id, one] of this.calls) {
      if (id > call.id) {
        one.start -= size;
        one.end -= size;
      }
    }
  }

  private forget(id: number): void {
    this.calls.delete(id);
    if (this.large.size > 0) this.large.delete(id);
    if (this.calls.size === 0) this.wakeQuiet();
  }

  /** Opens another session with a password: one AUTH for all requests that found the same session ended. */
  signInAgain(credential: Credential, endedSession: number): Promise<void> {
    if (this.session !== endedSession) return this.signInError ? Promise.reject(this.signInError) : Promise.resolve();
    this.signing ??= this.authenticate(credential).finally(() => {
      this.signing = undefined;
    });
    return this.signing;
  }

  private async authenticate(credential: Credential): Promise<void> {
    try {
      await this.ask({ kind: Kind.AUTH, body: { ...credential }, timeout: this.pulse.grace });
      this.signInError = undefined;
    } catch (error) {
      if (!(error instanceof Refused)) return; // the connection has gone, and the next one signs in by itself
      this.signInError = error;
    }
    this.session++;
    if (this.signInError) throw this.signInError;
  }

  // --- reading ---------------------------------------------------------------------------------------

  private onData(chunk: Buffer): void {
    this.heard = performance.now();
    this.frames.add(chunk);
    try {
      for (let message = this.frames.next(); message && !this.over; message = this.frames.next()) {
        if (this.greeting) this.onGreeting(message);
        else this.onMessage(message);
      }
    } catch (error) {
      this.end(error);
    }
  }

  private onGreeting(message: Message): void {
    if (message.kind === Kind.WELCOME) {
      this.welcome = readWelcome(message.body);
      this.greeting?.resolve();
      this.greeting = undefined;
    } else if (message.kind === Kind.REFUSED || message.kind === Kind.ERROR) throw readError(message.body);
    else throw new ProtocolBroken(`the node answered HELLO with ${kindName(message.kind)}`);
  }

  private onMessage(message: Message): void {
    const { kind, id, body } = message;
    const call = this.calls.get(id);
    if (kind === Kind.BYE) {
      this.isLeaving = true;
      this.rejectWaiting();
      this.sayBye();
      void this.part();
    } else if (id === 0 && (kind === Kind.ERROR || kind === Kind.REFUSED)) throw readError(body);
    else if (call === undefined)
      return; // it was given up, and its answer has crossed that
    else if (kind === Kind.CHANGE || kind === Kind.PART) {
      if (!call.sink || (call.kind === Kind.WATCH) !== (kind === Kind.CHANGE)) {
        throw new ProtocolBroken(`the node sent ${kindName(kind)} to ${kindName(call.kind)}`);
      }
      call.sink.onMessage(body, message.size);
    } else {
      this.forget(id);
      this.reply(call, kind, body);
    }
  }

  private reply(call: Call, kind: Kind, body: StoreObject): void {
    let reply: Reply;
    try {
      reply = readReply(call.kind, kind, body);
    } catch (error) {
      settle(call, error, undefined);
      return;
    }
    settle(call, undefined, reply);
  }

  // --- liveness --------------------------------------------------------------------------------------

  /** Judges a peer that says nothing while something is open. */
  private readonly look = (): void => {
    const now = performance.now();
    if (this.over) return;
    if (this.calls.size === 0) {
      this.timer = undefined;
      this.pingedAt = 0;
    } else if (this.pingedAt > 0 && this.heard < this.pingedAt) {
      this.end(
        new Error(this.saidBye ? "nothing came any more behind the node's BYE" : "nothing came any more, not in answer to a PING either"),
      );
    } else this.timer = setTimeout(this.look, this.nextLook(now)).unref();
  };

  /** @internal */
  nextLook(now: number): number {
    this.pingedAt = 0;
    const left = this.heard + this.pulse.quiet - now;
    if (left > 0) return left;
    // A node may read on only once a large request is answered, and hears no PING meanwhile.
    if (this.isStalled || (this.large.size > 0 && !this.saidBye)) return this.pulse.quiet;
    this.pingedAt = now;
    if (this.saidBye) return this.pulse.leaving;
    const ignore = () => {};
    const ping: Call = { kind: Kind.PING, id: 0, waits: false, sink: undefined, resolve: ignore, reject: ignore, start: 0, end: 0 };
    this.write({ kind: Kind.PING, body: null }, ping);
    return this.pulse.answer;
  }

  // --- the end ---------------------------------------------------------------------------------------

  private sayBye(): void {
    if (this.saidBye || this.over) return;
    this.saidBye = true;
    this.send(Kind.BYE, 0, null);
  }

  private wakeQuiet(): void {
    for (const wake of this.quiet) wake();
    this.quiet = [];
  }

  private whenQuiet(): Promise<void> {
    return this.calls.size === 0 ? Promise.resolve() : new Promise((resolve) => this.quiet.push(resolve));
  }

  /** Waits until the node has answered what is open and has closed. One that does not close is left. */
  private async part(): Promise<void> {
    await this.whenQuiet();
    const timer = setTimeout(() => this.end(undefined), this.pulse.grace);
    await this.ended;
    clearTimeout(timer);
  }

  /** Ends what only waits for something to come, waits for all answers, says BYE, and ends the connection. */
  async close(): Promise<void> {
    this.isLeaving = true;
    this.rejectWaiting();
    for (const call of this.calls.values()) {
      if (call.waits || call.kind === Kind.WATCH) this.sendEnd(call);
    }
    await this.whenQuiet();
    this.sayBye();
    await this.part();
  }

  private rejectWaiting(): void {
    const waiting = this.waiting;
    this.waiting = [];
    for (const { call } of waiting) settle(call, new NotSent(), undefined);
  }

  pause(): void {
    this.isStalled = true;
    this.socket.pause();
  }

  resume(): void {
    this.isStalled = false;
    this.heard = performance.now();
    this.socket.resume();
  }

  /** Ends the connection now. What is open and was written has an unknown outcome. */
  end(cause: unknown): void {
    if (this.over) return;
    this.over = true;
    this.cause = cause;
    clearTimeout(this.timer);
    this.socket.destroy();
    this.greeting?.reject(cause ?? new Error("the peer closed the connection before its welcome"));
    this.greeting = undefined;
    this.onEnd?.(cause);
    this.rejectWaiting();
    const calls = [...this.calls.values()];
    this.calls.clear();
    for (const call of calls) {
      const said = `the connection ended before ${kindName(call.kind)} was answered`;
      settle(call, call.id >= this.unsentFrom ? new NotSent() : new OutcomeUnknown(said, { cause }), undefined);
    }
    this.wakeQuiet();
    this.resolveEnded();
  }
}

/** The certificate of the peer is not trusted, or is of another host. */
export class UntrustedError extends Error {}

function cancelled(): Refused {
  const message = "it was ended before it was sent";
  return new Refused({ code: "Cancelled", message, status: 408, retry: false, detail: {}, results: [] });
}

function settle(call: Call, error: unknown, reply: Reply): void {
  if (call.sink) call.sink.onEnd(error, reply as Answer | undefined);
  else if (error !== undefined) call.reject(error);
  else call.resolve(reply);
}

function readWelcome(body: StoreObject): Welcome {
  return {
    version: needed(body, "version", "string"),
    node: needed(body, "node", "string"),
    minor: needed(body, "minor", "int"),
    limits: needed(body, "limits", "object"),
    user: optional(body, "user", "object"),
    writable: optional(body, "writable", "boolean") ?? true,
    leader: optional(body, "leader", "array") === undefined ? [] : strings(body, "leader"),
  };
}

function readReply(asked: Kind, kind: Kind, body: StoreObject): Reply {
  if (kind === Kind.VALUE && (asked === Kind.KV || asked === Kind.TOPIC || asked === Kind.VAULT)) return body;
  if (kind === Kind.ANSWER && asked === Kind.RUN) return readAnswer(body);
  if (kind === Kind.ANSWER && asked === Kind.WATCH) return undefined;
  if (kind === Kind.ERROR) throw readError(body);
  if (kind === Kind.WELCOME && asked === Kind.AUTH) return readWelcome(body);
  if (kind === Kind.PONG && asked === Kind.PING) return undefined;
  throw new ProtocolBroken(`the node answered ${kindName(asked)} with ${kindName(kind)}`);
}
