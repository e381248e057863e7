import { Buffer, isUtf8 } from "node:buffer";
import {
  DateTime,
  Decimal,
  Duration,
  Float,
  floorDivide,
  kindOf,
  NONE,
  None,
  RecordId,
  type RecordKey,
  Uuid,
  type Value,
  ValueError,
} from "./values.js";

/** Levels that a value may have. */
export const DEPTH = 64;
/** Levels of a frame of the node: a value, and at most sixteen around it. */
const FRAME_DEPTH = DEPTH + 16;

const TIMESTAMP = -1;
const DECIMAL = 1;
const DURATION = 2;
const UUID = 3;
const RECORD = 4;
const NOTHING = 5;

const MILLION = 1_000_000n;

/** A buffer that values are written to. */
export class Writer {
  bytes: Buffer;
  length = 0;

  constructor(size = 1024) {
    this.bytes = Buffer.allocUnsafe(size);
  }

  /** Makes room for so many bytes, and returns where they begin. */
  room(count: number): number {
    const at = this.length;
    this.length = at + count;
    if (this.length > this.bytes.length) {
      const grown = Buffer.allocUnsafe(Math.max(this.length, 2 * this.bytes.length));
      this.bytes.copy(grown, 0, 0, at);
      this.bytes = grown;
    }
    return at;
  }

  byte(value: number): void {
    const at = this.room(1);
    this.bytes[at] = value;
  }

  head(fix: number, most: number, codes: readonly [number, number, number], count: number): void {
    if (count <= most) this.byte(fix | count);
    else if (codes[0] && count <= 0xff) this.sized(codes[0], 1, count);
    else if (count <= 0xffff) this.sized(codes[1], 2, count);
    else this.sized(codes[2], 4, count);
  }

  private sized(code: number, width: number, value: number): void {
    const at = this.room(1 + width);
    this.bytes[at] = code;
    this.bytes.writeUIntBE(value, at + 1, width);
  }

  array(count: number): void {
    this.head(0x90, 15, [0, 0xdc, 0xdd], count);
  }

  map(count: number): void {
    this.head(0x80, 15, [0, 0xde, 0xdf], count);
  }

  int(value: number): void {
    if (value >= 0) {
      if (value < 0x80) this.byte(value);
      else if (value <= 0xff) this.sized(0xcc, 1, value);
      else if (value <= 0xffff) this.sized(0xcd, 2, value);
      else if (value <= 0xffffffff) this.sized(0xce, 4, value);
      else this.long(0xcf, BigInt(value));
    } else if (value >= -32) this.byte(value & 0xff);
    else if (value >= -0x80) this.sized(0xd0, 1, value & 0xff);
    else if (value >= -0x8000) this.sized(0xd1, 2, value & 0xffff);
    else if (value >= -0x80000000) this.sized(0xd2, 4, value >>> 0);
    else this.long(0xd3, BigInt(value));
  }

  /** Writes a code, and returns where so many bytes behind it begin. */
  private coded(code: number, width: number): number {
    const at = this.room(1 + width);
    this.bytes[at] = code;
    return at + 1;
  }

  long(code: number, value: bigint): void {
    const at = this.coded(code, 8);
    this.bytes.writeBigInt64BE(value, at);
  }

  float(value: number): void {
    const at = this.coded(0xcb, 8);
    this.bytes.writeDoubleBE(value, at);
  }

  string(text: string): void {
    const count = text.length;
    if (count < 32) {
      const start = this.room(1 + count);
      const bytes = this.bytes;
      let n = 0;
      for (; n < count; n++) {
        const code = text.charCodeAt(n);
        if (code > 0x7f) break;
        bytes[start + 1 + n] = code;
      }
      if (n === count) {
        bytes[start] = 0xa0 | count;
        return;
      }
      this.length = start;
    }
    const size = Buffer.byteLength(text);
    this.head(0xa0, 31, [0xd9, 0xda, 0xdb], size);
    const at = this.room(size);
    this.bytes.write(text, at, size, "utf8");
  }

  raw(data: Uint8Array): void {
    const at = this.room(data.length);
    this.bytes.set(data, at);
  }

  extension(code: number, data: Uint8Array): void {
    const n = data.length;
    if (n > 0 && n <= 16 && (n & (n - 1)) === 0) this.byte(0xd4 + Math.log2(n));
    else this.head(0, -1, [0xc7, 0xc8, 0xc9], n);
    this.byte(code & 0xff);
    this.raw(data);
  }
}

// --- encoding ----------------------------------------------------------------------------------------

/**
 * Writes a value of a request: a parameter, a message, the value of a key. Items of an array are values by
 * themselves: the node says if they are rows.
 */
export function writeGiven(to: Writer, value: unknown): void {
  writeValue(to, value, Array.isArray(value) ? -1 : 0);
}

function writeValue(to: Writer, value: unknown, depth: number): void {
  switch (typeof value) {
    case "string":
      if (!isWellFormed(value)) throw new ValueError("", "a string has no lone surrogates: bytes go as a Uint8Array");
      to.string(value);
      return;
    case "number":
      if (Number.isSafeInteger(value) && !Object.is(value, -0)) to.int(value);
      else writeFloat(to, value);
      return;
    case "boolean":
      to.byte(value ? 0xc3 : 0xc2);
      return;
    case "bigint":
      if (BigInt.asIntN(64, value) !== value) throw new ValueError("", `${value} is beyond 64 bits with a sign`);
      if (value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER) to.int(Number(value));
      else to.long(value >= 0n ? 0xcf : 0xd3, value);
      return;
    case "object":
      if (value === null) to.byte(0xc0);
      else writeObject(to, value, depth);
      return;
    case "undefined":
      throw new ValueError("", "undefined is no value: leave it out, or give null or NONE");
    default:
      throw new ValueError("", `a ${typeof value} is no value of the language`);
  }
}

/** Writes a number that has a fraction. One that may have been an int and lost digits is refused. */
function writeFloat(to: Writer, value: number): void {
  if (!Number.isFinite(value)) throw new ValueError("", `${value} is no number of the language`);
  if (Number.isInteger(value) && value !== 0 && Math.abs(value) < 2 ** 63) {
    throw new ValueError("", `${value} may have lost digits: give a bigint, or a Float`);
  }
  to.float(value);
}

function writeObject(to: Writer, value: object, depth: number): void {
  if (Array.isArray(value)) writeArray(to, value, depth);
  else if (Object.getPrototypeOf(value) === Object.prototype) writeFields(to, Object.entries(value), depth);
  else if (value instanceof Uint8Array) {
    to.head(0, -1, [0xc4, 0xc5, 0xc6], value.length);
    to.raw(value);
  } else if (value instanceof Float32Array || value instanceof Float64Array) writeVector(to, value, depth);
  else if (value instanceof Float) to.float(value.valueOf());
  else if (value instanceof Decimal) to.extension(DECIMAL, Buffer.from(value.toString(), "latin1"));
  else if (value instanceof DateTime) writeTime(to, value);
  else if (value instanceof Date) writeTime(to, timeOf(value));
  else if (value instanceof Duration) writeDuration(to, value);
  else if (value instanceof Uuid) to.extension(UUID, value.bytes());
  else if (value instanceof RecordId) writeRecord(to, value);
  else if (value instanceof None) to.extension(NOTHING, Buffer.alloc(0));
  else if (value instanceof Map) writeFields(to, [...value], depth);
  else if (Object.prototype.toString.call(value) === "[object Object]") writeFields(to, Object.entries(value), depth);
  else throw new ValueError("", `a ${kindOf(value)} is no value of the language`);
}

/** Returns an error with the place of what it is about. */
export function under(place: string, error: unknown): unknown {
  return error instanceof ValueError ? new ValueError(place + error.path, error.reason) : error;
}

function writeArray(to: Writer, items: unknown[], depth: number): void {
  if (depth >= DEPTH) throw new ValueError("", `it nests deeper than ${DEPTH}`);
  to.array(items.length);
  let n = 0;
  try {
    for (; n < items.length; n++) writeValue(to, items[n], depth + 1);
  } catch (error) {
    throw under(`[${n}]`, error);
  }
}

/** Writes a vector: its numbers are floats, with a fraction or without. */
function writeVector(to: Writer, vector: Float32Array | Float64Array, depth: number): void {
  if (depth >= DEPTH) throw new ValueError("", `it nests deeper than ${DEPTH}`);
  to.array(vector.length);
  for (const [n, number] of vector.entries()) {
    if (!Number.isFinite(number)) throw new ValueError(`[${n}]`, `${number} is no number of the language`);
    to.float(number);
  }
}

/** Writes an object. Fields that are undefined are left out, as in JSON. */
function writeFields(to: Writer, fields: [unknown, unknown][], depth: number): void {
  if (depth >= DEPTH) throw new ValueError("", `it nests deeper than ${DEPTH}`);
  const there = fields.some(([, item]) => item === undefined) ? fields.filter(([, item]) => item !== undefined) : fields;
  to.map(there.length);
  let at: unknown;
  try {
    for (const [name, item] of there) {
      if (typeof name !== "string" || !isWellFormed(name)) break;
      at = name;
      to.string(name);
      writeValue(to, item, depth + 1);
    }
  } catch (error) {
    throw under(`.${at}`, error);
  }
  if (there.length > 0 && at !== there.at(-1)?.[0]) throw new ValueError("", "the names of fields are strings without lone surrogates");
}

function timeOf(at: Date): DateTime {
  try {
    return DateTime.from(at);
  } catch (error) {
    throw new ValueError("", (error as Error).message);
  }
}

function writeDuration(to: Writer, value: Duration): void {
  to.byte(0xd7);
  to.long(DURATION, value.microseconds);
}

function writeTime(to: Writer, at: DateTime): void {
  const seconds = floorDivide(at.microseconds, MILLION);
  const nanos = (at.microseconds - seconds * MILLION) * 1000n;
  if (nanos === 0n && seconds >= 0n && seconds <= 0xffffffffn) {
    const start = to.room(6);
    to.bytes[start] = 0xd6;
    to.bytes[start + 1] = TIMESTAMP & 0xff;
    to.bytes.writeUInt32BE(Number(seconds), start + 2);
  } else if (seconds >= 0n && seconds < 1n << 34n) {
    to.byte(0xd7);
    to.long(TIMESTAMP & 0xff, BigInt.asIntN(64, (nanos << 34n) | seconds));
  } else {
    const start = to.room(15);
    to.bytes.set([0xc7, 12, TIMESTAMP & 0xff], start);
    to.bytes.writeUInt32BE(Number(nanos), start + 3);
    to.bytes.writeBigInt64BE(seconds, start + 7);
  }
}

function writeRecord(to: Writer, record: RecordId): void {
  if (typeof record.table !== "string" || !isWellFormed(record.table)) throw new ValueError("", "the table of a record is a string");
  const inner = new Writer(64);
  inner.array(2);
  inner.string(record.table);
  writeKey(inner, record.id, 0);
  to.extension(RECORD, inner.bytes.subarray(0, inner.length));
}

function writeKey(to: Writer, key: unknown, depth: number): void {
  if (Array.isArray(key)) {
    if (depth >= DEPTH) throw new ValueError("", `it nests deeper than ${DEPTH}`);
    to.array(key.length);
    for (const item of key) writeKey(to, item, depth + 1);
  } else if (typeof key === "string" || typeof key === "bigint" || Number.isSafeInteger(key) || key instanceof Uuid) {
    writeValue(to, key, 0);
  } else throw new ValueError("", `the id of a record is a string, an int, a Uuid or an array of these, not a ${kindOf(key)}`);
}

function isWellFormed(text: string): boolean {
  return (text as unknown as { isWellFormed(): boolean }).isWellFormed();
}

// --- decoding ----------------------------------------------------------------------------------------

/** The bytes are no value. */
export class MalformedError extends Error {}

/** Names of fields that were read, by a hash of their bytes: most are read again and again. */
const NAMES_MOST = 1024;
const names: (string | undefined)[] = new Array(NAMES_MOST).fill(undefined);

/** Reads one value. It holds nothing of the buffer. */
class Reader {
  private readonly bytes: Buffer;
  private at: number;
  private readonly end: number;
  private readonly inKey: boolean;

  constructor(bytes: Buffer, at: number, end: number, inKey: boolean) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
    this.inKey = inKey;
  }

  /** Moves behind so many bytes, and returns where they begin. */
  private take(count: number): number {
    const at = this.at;
    if (count > this.end - at) throw new MalformedError("it ends too early");
    this.at = at + count;
    return at;
  }

  private length(width: number): number {
    const count = this.bytes.readUIntBE(this.take(width), width);
    if (count > this.end - this.at) throw new MalformedError("it ends too early");
    return count;
  }

  whole(): Value {
    const value = this.value(0);
    if (this.at !== this.end) throw new MalformedError(`${this.end - this.at} bytes stand behind it`);
    return value;
  }

  value(depth: number): Value {
    const head = this.bytes[this.take(1)] as number;
    if (head < 0x80) return head;
    if (head < 0x90) return this.object(head & 0x0f, depth);
    if (head < 0xa0) return this.array(head & 0x0f, depth);
    if (head < 0xc0) return this.text(head & 0x1f);
    if (head >= 0xe0) return head - 0x100;
    switch (head) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.raw(this.length(1 << (head - 0xc4)));
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return this.extension(this.length(1 << (head - 0xc7)));
      case 0xca:
        return float(this.bytes.readFloatBE(this.take(4)));
      case 0xcb:
        return float(this.bytes.readDoubleBE(this.take(8)));
      case 0xcc:
        return this.bytes[this.take(1)] as number;
      case 0xcd:
        return this.bytes.readUInt16BE(this.take(2));
      case 0xce:
        return this.bytes.readUInt32BE(this.take(4));
      case 0xcf: {
        const value = this.bytes.readBigInt64BE(this.take(8));
        if (value < 0n) throw new MalformedError("an integer has 64 bits with a sign");
        return int(value);
      }
      case 0xd0:
        return this.bytes.readInt8(this.take(1));
      case 0xd1:
        return this.bytes.readInt16BE(this.take(2));
      case 0xd2:
        return this.bytes.readInt32BE(this.take(4));
      case 0xd3:
        return int(this.bytes.readBigInt64BE(this.take(8)));
      case 0xd4:
      case 0xd5:
      case 0xd6:
      case 0xd7:
      case 0xd8:
        return this.extension(1 << (head - 0xd4));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.text(this.length(1 << (head - 0xd9)));
      case 0xdc:
      case 0xdd:
        return this.array(this.length(2 << (head - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return this.object(this.length(2 << (head - 0xde)), depth);
      default:
        throw new MalformedError(`0x${head.toString(16)} begins no value`);
    }
  }

  private raw(count: number): Uint8Array {
    const at = this.take(count);
    return new Uint8Array(this.bytes.subarray(at, at + count));
  }

  private text(count: number): string {
    const at = this.take(count);
    const { bytes } = this;
    if (count < 16) {
      let text = "";
      let n = at;
      for (const end = at + count; n < end; n++) {
        const code = bytes[n] as number;
        if (code > 0x7f) break;
        text += String.fromCharCode(code);
      }
      if (n === at + count) return text;
    }
    const text = bytes.toString("utf8", at, at + count);
    if (text.includes("\ufffd") && !isUtf8(bytes.subarray(at, at + count))) throw new MalformedError("a string is UTF-8");
    return text;
  }

  private array(count: number, depth: number): Value[] {
    if (depth >= FRAME_DEPTH) throw new MalformedError(`it nests deeper than ${FRAME_DEPTH}`);
    if (count > this.end - this.at) throw new MalformedError("it ends too early");
    const found: Value[] = [];
    for (let n = 0; n < count; n++) found.push(this.value(depth + 1));
    return found;
  }

  private object(count: number, depth: number): Value {
    if (depth >= FRAME_DEPTH) throw new MalformedError(`it nests deeper than ${FRAME_DEPTH}`);
    if (2 * count > this.end - this.at) throw new MalformedError("it ends too early");
    const found: { [name: string]: Value } = {};
    for (let n = 0; n < count; n++) {
      const name = this.name(depth + 1);
      const value = this.value(depth + 1);
      if (name === "__proto__") Object.defineProperty(found, name, { value, enumerable: true, configurable: true, writable: true });
      else found[name] = value;
    }
    return found;
  }

  /** Reads the name of a field. Short ones are kept. */
  private name(depth: number): string {
    const { bytes, at } = this;
    const head = at < this.end ? (bytes[at] as number) : 0;
    if (head < 0xa0 || head > 0xbf) {
      const name = this.value(depth);
      if (typeof name !== "string") throw new MalformedError("the keys of an object are strings");
      return name;
    }
    const start = at + 1;
    const end = start + (head & 0x1f);
    if (end > this.end) throw new MalformedError("it ends too early");
    let hash = head;
    for (let n = start; n < end; n++) hash = (31 * hash + (bytes[n] as number)) | 0;
    const slot = hash & (NAMES_MOST - 1);
    const known = names[slot];
    this.at = end;
    if (known !== undefined && isWritten(known, bytes, start, end)) return known;
    this.at = start;
    const name = this.text(end - start);
    if (isWritten(name, bytes, start, end)) names[slot] = name;
    return name;
  }

  private extension(count: number): Value {
    const code = this.bytes.readInt8(this.take(1));
    const at = this.take(count);
    if (code === TIMESTAMP) return this.time(at, count);
    if (code === DECIMAL) return wellFormed(() => new Decimal(this.bytes.toString("latin1", at, at + count)));
    if (code === DURATION && count === 8) return new Duration(this.bytes.readBigInt64BE(at));
    if (code === UUID && count === 16) return new Uuid(this.bytes.subarray(at, at + 16));
    if (code === NOTHING && count === 0) return NONE;
    if (code === RECORD && !this.inKey) return readRecord(new Reader(this.bytes, at, at + count, true).whole());
    throw new MalformedError(`an extension ${code} of ${count} bytes is not known to this version of the client`);
  }

  private time(at: number, count: number): DateTime {
    let seconds: bigint;
    let nanos = 0n;
    if (count === 4) seconds = BigInt(this.bytes.readUInt32BE(at));
    else if (count === 8) {
      const both = this.bytes.readBigUInt64BE(at);
      seconds = both & ((1n << 34n) - 1n);
      nanos = both >> 34n;
    } else if (count === 12) {
      nanos = BigInt(this.bytes.readUInt32BE(at));
      seconds = this.bytes.readBigInt64BE(at + 4);
    } else throw new MalformedError("a timestamp has 4, 8 or 12 bytes");
    if (nanos >= 1000n * MILLION) throw new MalformedError("a timestamp has less than a second of nanoseconds");
    return wellFormed(() => new DateTime(seconds * MILLION + nanos / 1000n));
  }
}

function wellFormed<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new MalformedError((error as Error).message);
  }
}

/** Returns true if a text is ASCII, and these bytes are its own. */
function isWritten(text: string, bytes: Buffer, start: number, end: number): boolean {
  if (text.length !== end - start) return false;
  for (let n = start; n < end; n++) {
    const byte = bytes[n] as number;
    if (byte > 0x7f || text.charCodeAt(n - start) !== byte) return false;
  }
  return true;
}

function float(value: number): Value {
  return Number.isInteger(value) ? new Float(value) : value;
}

function int(value: bigint): number | bigint {
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

function readRecord(value: Value): RecordId {
  if (Array.isArray(value) && value.length === 2) {
    const [table, id] = value;
    if (typeof table === "string" && isKey(id as Value)) return new RecordId(table, id as RecordKey);
  }
  throw new MalformedError("a record is a table and an id");
}

function isKey(id: Value): id is RecordKey {
  if (Array.isArray(id)) return id.every(isKey);
  return typeof id === "string" || typeof id === "bigint" || Number.isInteger(id) || id instanceof Uuid;
}

/** Reads the one value that a part of a buffer is. */
export function readFrameValue(bytes: Buffer, at: number, end: number): Value {
  return new Reader(bytes, at, end, false).whole();
}
