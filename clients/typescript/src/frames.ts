import { Buffer } from "node:buffer";
import { isObject } from "./answers.js";
import { MalformedError, readFrameValue, under, type Writer, writeGiven } from "./codec.js";
import { ProtocolBroken } from "./errors.js";
import type { StoreObject } from "./values.js";

/** Longest frame that either side takes. */
export const FRAME_MOST = 16 << 20;

export const Kind = {
  HELLO: 1,
  AUTH: 2,
  RUN: 3,
  CANCEL: 4,
  PING: 5,
  BYE: 6,
  KV: 7,
  TOPIC: 8,
  WATCH: 9,
  UNWATCH: 10,
  VAULT: 11,
  WELCOME: 32,
  REFUSED: 33,
  ANSWER: 34,
  ERROR: 35,
  PONG: 36,
  VALUE: 37,
  CHANGE: 38,
  PART: 39,
} as const;
export type Kind = (typeof Kind)[keyof typeof Kind];

const NAMES = new Map<number, string>(Object.entries(Kind).map(([name, number]) => [number, name]));

export function kindName(kind: number): string {
  return NAMES.get(kind) ?? `kind ${kind}`;
}

/** Fields of a body, in the order in which they are sent. Those that are undefined are left out. */
export type Body = { [name: string]: unknown };

export interface Message {
  kind: Kind;
  id: number;
  body: StoreObject;
  size: number;
}

/** Writes the frame of a message. What was written of one that is refused is taken back. */
export function writeFrame(to: Writer, kind: Kind, id: number, body: Body | null): void {
  const start = to.room(4);
  try {
    to.array(3);
    to.int(kind);
    to.int(id);
    if (body === null) to.byte(0xc0);
    else writeBody(to, body);
  } catch (error) {
    to.length = start;
    throw error;
  }
  to.bytes.writeUInt32BE(to.length - start - 4, start);
}

function writeBody(to: Writer, body: Body): void {
  let count = 0;
  for (const name in body) if (body[name] !== undefined) count++;
  to.map(count);
  for (const name in body) {
    const value = body[name];
    if (value === undefined) continue;
    to.string(name);
    try {
      if (name === "params") writeParams(to, value as Body);
      else if (name === "values") writeValues(to, value as unknown[]);
      else writeGiven(to, value);
    } catch (error) {
      throw name === "params" || name === "values" ? error : under(name, error);
    }
  }
}

function writeParams(to: Writer, params: Body): void {
  const names = Object.keys(params);
  to.map(names.length);
  for (const name of names) {
    try {
      writeGiven(to, name);
      writeGiven(to, params[name]);
    } catch (error) {
      throw under(`$${name}`, error);
    }
  }
}

function writeValues(to: Writer, values: unknown[]): void {
  to.array(values.length);
  for (const [n, value] of values.entries()) {
    try {
      writeGiven(to, value);
    } catch (error) {
      throw under(`values[${n}]`, error);
    }
  }
}

/** Cuts what comes into messages. */
export class Frames {
  private chunks: Buffer[] = [];
  private length = 0;
  /** Bytes that have to be there before another frame is whole. */
  private wanted = 4;

  add(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.length += chunk.length;
  }

  /** Returns the next message; undefined: more has to come. */
  next(): Message | undefined {
    if (this.length < this.wanted) return undefined;
    const [first] = this.chunks;
    let bytes = first as Buffer;
    if (bytes.length < this.wanted) {
      bytes = Buffer.concat(this.chunks, this.length);
      this.chunks = [bytes];
    }
    const size = bytes.readUInt32BE(0);
    if (size > FRAME_MOST) throw tooLarge(bytes, size);
    if (this.length < 4 + size) {
      this.wanted = 4 + size;
      return undefined;
    }
    if (bytes.length < 4 + size) {
      bytes = Buffer.concat(this.chunks, this.length);
      this.chunks = [bytes];
    }
    const message = readMessage(bytes, 4, 4 + size);
    this.length -= 4 + size;
    this.wanted = 4;
    if (bytes.length > 4 + size) this.chunks[0] = bytes.subarray(4 + size);
    else this.chunks.shift();
    return message;
  }
}

function tooLarge(bytes: Buffer, size: number): ProtocolBroken {
  if (bytes.toString("latin1", 0, 4) === "HTTP") {
    return new ProtocolBroken("HTTP is spoken there: the wire protocol has a port of its own, that of the node's --serve");
  }
  if (bytes[0] === 0x15 && bytes[1] === 0x03) return new ProtocolBroken("TLS is spoken there: connect with tls");
  return new ProtocolBroken(`the node sent a frame of ${size} bytes`);
}

function readMessage(bytes: Buffer, at: number, end: number): Message {
  let parts: unknown;
  try {
    parts = readFrameValue(bytes, at, end);
  } catch (error) {
    if (!(error instanceof MalformedError)) throw error;
    throw new ProtocolBroken(`the node sent what is no message: ${error.message}`);
  }
  if (Array.isArray(parts) && parts.length === 3) {
    const [kind, id, body] = parts;
    if (Number.isInteger(kind) && Number.isSafeInteger(id) && (body === null || isObject(body))) {
      if (!NAMES.has(kind) || (kind < Kind.WELCOME && kind !== Kind.BYE)) {
        throw new ProtocolBroken(`the node sent a message of kind ${kind}`);
      }
      return { kind, id, body: body ?? {}, size: end - at };
    }
  }
  throw new ProtocolBroken("the node sent what is no message");
}
