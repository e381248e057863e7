import * as search from "../src/search.js";
import { DateTime, Decimal, Duration, Float, NONE, None, RecordId, type RecordKey, Uuid } from "../src/values.js";

/** The language cannot express it. */
export class Unsupported extends Error {}

/** A value with the tags of the suite. */
export type Tagged = null | boolean | string | Tagged[] | { [name: string]: Tagged };

function deep(): unknown[] {
  let found: unknown[] = [];
  for (let n = 0; n < 2000; n++) found = [found];
  return found;
}

/** Makes objects that are no values. */
const BAD: Record<string, () => unknown> = {
  nan: () => Number.NaN,
  infinity: () => Number.POSITIVE_INFINITY,
  int: () => 2n ** 63n,
  year: () => new Date(253_402_387_200_000),
  object: () => Symbol("no value"),
  deep,
  naive: () => {
    throw new Unsupported("a time is a point in time");
  },
};

function readInt(text: string): number | bigint {
  const found = BigInt(text);
  return found >= Number.MIN_SAFE_INTEGER && found <= Number.MAX_SAFE_INTEGER ? Number(found) : found;
}

// biome-ignore lint/suspicious/noExplicitAny: a case says which arguments a function takes
const SEARCH: Record<keyof typeof search, (...given: any[]) => unknown> = { ...search };

// biome-ignore lint/suspicious/noExplicitAny: a tag says which type is inside
const READERS: Record<string, (inner: any) => unknown> = {
  $int: readInt,
  $float: (text: string) => new Float(Number(text)),
  $none: () => NONE,
  $dt: (text: string) => DateTime.parse(text),
  $dec: (text: string) => new Decimal(text),
  $rec: ([table, id]: [string, Tagged]) => new RecordId(table, read(id) as RecordKey),
  $dur: (text: string) => new Duration(BigInt(text)),
  $bytes: (text: string) => new Uint8Array(Buffer.from(text, "base64")),
  $uuid: (text: string) => new Uuid(text),
  $obj: (inner: Record<string, Tagged>) => readObject(inner),
  $bad: (name: string) => BAD[name]?.(),
  $search: ([name, ...given]: [keyof typeof search, ...Tagged[]]) => SEARCH[name](...given.map(read)),
  $vector: (texts: string[]) => Float32Array.from(texts, Number),
};

/** Returns the value of a tagged one. */
export function read(given: Tagged): unknown {
  if (given === null || typeof given !== "object") return given;
  if (Array.isArray(given)) return given.map(read);
  const [name, ...more] = Object.keys(given);
  const reader = name !== undefined && more.length === 0 ? READERS[name] : undefined;
  return reader && name !== undefined ? reader(given[name]) : readObject(given);
}

export function readObject(given: Record<string, Tagged>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(given).map(([name, one]) => [name, read(one)]));
}

function writeFloat(value: number): Tagged {
  return { $float: Object.is(value, -0) ? "-0.0" : String(value) };
}

/** Returns the tagged form of a value. */
export function write(value: unknown): Tagged {
  if (value === null || value === undefined || typeof value === "boolean" || typeof value === "string") return value ?? null;
  if (typeof value === "bigint") return { $int: String(value) };
  if (typeof value === "number") return Number.isInteger(value) && !Object.is(value, -0) ? { $int: String(value) } : writeFloat(value);
  if (Array.isArray(value)) return value.map(write);
  if (value instanceof Float) return writeFloat(Number(value));
  if (value instanceof None) return { $none: true };
  if (value instanceof DateTime) return { $dt: value.toString() };
  if (value instanceof Decimal) return { $dec: value.toString() };
  if (value instanceof RecordId) return { $rec: [value.table, write(value.id)] };
  if (value instanceof Duration) return { $dur: String(value.microseconds) };
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  if (value instanceof Uuid) return { $uuid: value.toString() };
  const entries = Object.entries(value as object).map(([name, one]): [string, Tagged] => [name, write(one)]);
  const found = Object.fromEntries(entries);
  return entries.length === 1 && entries[0]?.[0].startsWith("$") ? { $obj: found } : found;
}
