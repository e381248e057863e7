import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createServer, type Server, type Socket } from "node:net";
import { test as nodeTest } from "node:test";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";
import { Client, type ClientOptions } from "../src/client.js";
import { readFrameValue, Writer } from "../src/codec.js";
import { type Pulse, USUAL_PULSE } from "../src/connection.js";
import { type Body, Kind, kindName, writeFrame } from "../src/frames.js";
import { Duration, type StoreObject, type Value } from "../src/values.js";

/** Time that a test waits for what has to come, in ms: a failure, and never a measure. */
export const PATIENCE = 120_000;

export function test(name: string, body: () => Promise<void> | void): void {
  nodeTest(name, { timeout: PATIENCE }, body);
}

export interface Asked {
  kind: Kind;
  id: number;
  body: StoreObject;
}

/** A node that does what the test says. */
export class Peer {
  writable = true;
  leader: string[] = [];
  minor = 10;
  address = "";
  private readonly accepted: Spoken[] = [];
  private readonly waiting: ((one: Spoken) => void)[] = [];

  private constructor(private readonly server: Server) {
    server.on(server.listenerCount("secureConnection") > 0 ? "secureConnection" : "connection", (socket: Socket) => {
      const one = new Spoken(socket, this);
      const wake = this.waiting.shift();
      if (wake) wake(one);
      else this.accepted.push(one);
    });
  }

  static async listen(tls?: TlsOptions): Promise<Peer> {
    const server = tls ? createTlsServer(tls, () => {}) : createServer();
    const peer = new Peer(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    server.unref();
    peer.address = `127.0.0.1:${(server.address() as { port: number }).port}`;
    return peer;
  }

  accept(): Promise<Spoken> {
    const one = this.accepted.shift();
    return one ? Promise.resolve(one) : new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Accepts a connection and welcomes it. */
  async greet(): Promise<Spoken> {
    const one = await this.accept();
    const hello = await one.wants(Kind.HELLO);
    assert.equal(hello.body.magic, "STORE");
    assert.equal(hello.body.user, "root");
    one.welcome(0);
    return one;
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.server.close(() => resolve()));
  }
}

/** One connection to a peer. */
export class Spoken {
  private bytes: Buffer = Buffer.alloc(0);
  private wake: () => void = () => {};
  private isOver = false;
  /** Chunks that have come. */
  reads = 0;

  constructor(
    readonly socket: Socket,
    private readonly peer: Peer,
  ) {
    socket.on("data", (chunk: Buffer) => {
      this.reads++;
      this.bytes = Buffer.concat([this.bytes, chunk]);
      this.wake();
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      this.isOver = true;
      this.wake();
    });
  }

  /** Returns the next message; undefined: the client has closed. */
  async read(): Promise<Asked | undefined> {
    for (;;) {
      const size = this.bytes.length >= 4 ? this.bytes.readUInt32BE(0) : Number.POSITIVE_INFINITY;
      if (this.bytes.length >= 4 + size) {
        const [kind, id, body] = readFrameValue(this.bytes, 4, 4 + size) as [Kind, number, StoreObject | null];
        this.bytes = this.bytes.subarray(4 + size);
        return { kind, id, body: body ?? {} };
      }
      if (this.isOver) return undefined;
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  async next(): Promise<Asked> {
    const found = await this.read();
    assert.ok(found, "the client has closed");
    return found;
  }

  async wants(kind: Kind): Promise<Asked> {
    const found = await this.next();
    assert.equal(kindName(found.kind), kindName(kind));
    return found;
  }

  say(kind: Kind, id: number, body: Body | null): void {
    const writer = new Writer();
    writeFrame(writer, kind, id, body);
    this.socket.write(writer.bytes.subarray(0, writer.length));
  }

  welcome(id: number): void {
    const { writable, leader, minor, address } = this.peer;
    this.say(Kind.WELCOME, id, { major: 1, minor, version: "0", node: address, limits: {}, user: { name: "root" }, writable, leader });
  }

  refuse(id: number, code: string, detail: StoreObject = {}, retry = false): void {
    this.say(Kind.ERROR, id, { error: { code, message: "no", status: 409, retry, detail }, results: [] });
  }

  answer(id: number, value: unknown, seq: number): void {
    this.say(Kind.ANSWER, id, { results: [result("value", value)], seq, store: "s", epoch: 1 });
  }

  /** Answers everything until the client leaves. */
  async serve(value: Value): Promise<void> {
    for (let found = await this.read(); found && found.kind !== Kind.BYE; found = await this.read()) {
      if (found.kind === Kind.RUN) this.answer(found.id, value, 7);
      else if (found.kind === Kind.PING) this.say(Kind.PONG, found.id, null);
      else if (found.kind === Kind.CANCEL) this.refuse(found.id, "Cancelled");
      else if (found.kind === Kind.UNWATCH) this.say(Kind.ANSWER, found.id, { seq: 9, epoch: 1 });
    }
    this.socket.end();
  }

  /** Ends the connection, and waits until the client has ended it too. */
  async cut(): Promise<void> {
    this.socket.destroy();
    while (!this.isOver) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }
}

export function result(kind: string, value: unknown = null): Body {
  return { value, kind, rows: 0, took: new Duration(1n) };
}

export function clientOf(address: string, options: ClientOptions = {}, pulse: Partial<Pulse> = {}): Client {
  const given = { user: "root", password: "secret", connectTimeout: PATIENCE, ...options };
  return new Client(address, given, { ...USUAL_PULSE, grace: PATIENCE, ...pulse });
}

/** Closes a client behind a peer that answers what is left. */
export async function ends(client: Client, ...spoken: Spoken[]): Promise<void> {
  for (const one of spoken) void one.serve(null);
  await client.close();
}

/** Returns what a promise is rejected with. A test may wait for it later. */
export function failure(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    (value) => assert.fail(`it has come to ${value}`),
    (error) => error as Error,
  );
}

/** Waits for a condition that others bring about. */
export async function until(isMet: () => boolean): Promise<void> {
  while (!isMet()) await new Promise((resolve) => setTimeout(resolve, 1));
}
