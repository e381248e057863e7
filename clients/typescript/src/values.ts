/** A value of the language. */
export type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | None
  | Float
  | Decimal
  | DateTime
  | Duration
  | Uuid
  | RecordId
  | Value[]
  | { [name: string]: Value };

/** An object or a record, by its fields. */
export type StoreObject = { [name: string]: Value };

/** The type of {@link NONE}. */
export class None {
  toString(): string {
    return "NONE";
  }
}

/** The value NONE, an absent value; `null` is null. */
export const NONE: None = Object.freeze(new None());

/**
 * A float without a fraction, such as 1.0. A `number` without a fraction is an int, so a float of that
 * value has a type of its own, in both directions. It computes, compares and prints as its number;
 * `===` needs {@link Float.valueOf}.
 */
export class Float extends Number {
  constructor(value: number) {
    if (!Number.isFinite(value)) throw new RangeError(`${value} is no number of the language`);
    super(value);
  }
}

const DECIMAL = /^([+-]?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$/;
const DECIMAL_DIGITS = 34;
const DECIMAL_EXPONENT = 6143;

/** An exact decimal number of at most 34 digits. It keeps its scale: 12.30 prints as 12.30. */
export class Decimal {
  readonly #text: string;

  /** Reads digits with an optional point and exponent, such as `12.30` or `1E+3`. */
  constructor(text: string | number | bigint) {
    const given = String(text);
    const found = DECIMAL.exec(given);
    if (!found) throw new RangeError(`${JSON.stringify(given.slice(0, 40))} is no decimal`);
    if (`${found[2]}${found[3] ?? ""}`.replace(/^0+/, "").length > DECIMAL_DIGITS) {
      throw new RangeError(`${given.slice(0, 40)} has more than ${DECIMAL_DIGITS} digits`);
    }
    if (Math.abs(Number(found[4] ?? 0)) > 2 * DECIMAL_EXPONENT) {
      throw new RangeError(`the exponent of ${given.slice(0, 40)} is beyond ${DECIMAL_EXPONENT}`);
    }
    this.#text = given;
  }

  /** The digits without the point, and the number of digits behind it: 12.30 is 1230 and 2. */
  parts(): { unscaled: bigint; scale: number } {
    const [, sign, whole, fraction = "", exponent = "0"] = DECIMAL.exec(this.#text) as unknown as string[];
    const digits = BigInt(`${whole}${fraction}`);
    return { unscaled: sign === "-" ? -digits : digits, scale: fraction.length - Number(exponent) };
  }

  /** Compares by value: 12.30 equals 12.3. */
  compare(other: Decimal): number {
    const [one, two] = [this.parts(), other.parts()];
    const scale = Math.max(one.scale, two.scale);
    const left = one.unscaled * 10n ** BigInt(scale - one.scale);
    const right = two.unscaled * 10n ** BigInt(scale - two.scale);
    return left < right ? -1 : left > right ? 1 : 0;
  }

  /** The nearest number. */
  toNumber(): number {
    return Number(this.#text);
  }

  toString(): string {
    return this.#text;
  }

  toJSON(): string {
    return this.#text;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Decimal(${this.#text})`;
  }
}

const UNITS: readonly (readonly [string, bigint])[] = [
  ["w", 604_800_000_000n],
  ["d", 86_400_000_000n],
  ["h", 3_600_000_000n],
  ["m", 60_000_000n],
  ["s", 1_000_000n],
  ["ms", 1_000n],
  ["us", 1n],
];
const DURATION = /^-?(?:\d+(?:us|µs|ms|[wdhms]))+$/;

/** A duration in microseconds. */
export class Duration {
  readonly microseconds: bigint;

  constructor(microseconds: bigint) {
    this.microseconds = within64(microseconds);
  }

  /** Takes a duration, a number of milliseconds, or text of the language such as `1h30m`. */
  static from(given: DurationLike): Duration {
    if (given instanceof Duration) return given;
    if (typeof given === "number") {
      if (!Number.isFinite(given)) throw new RangeError(`${given} milliseconds are no duration`);
      return new Duration(BigInt(Math.round(given * 1000)));
    }
    if (!DURATION.test(given)) {
      throw new RangeError(`${JSON.stringify(String(given).slice(0, 40))} is no duration: write 1h30m, 250ms and the like`);
    }
    let sum = 0n;
    for (const [, count, unit] of given.matchAll(/(\d+)(us|µs|ms|[wdhms])/g)) {
      const size = UNITS.find(([name]) => name === (unit === "µs" ? "us" : unit));
      sum += BigInt(count as string) * (size as readonly [string, bigint])[1];
    }
    return new Duration(given.startsWith("-") ? -sum : sum);
  }

  toMilliseconds(): number {
    return Number(this.microseconds) / 1000;
  }

  toString(): string {
    let rest = this.microseconds < 0n ? -this.microseconds : this.microseconds;
    if (rest === 0n) return "0s";
    let text = this.microseconds < 0n ? "-" : "";
    for (const [unit, size] of UNITS) {
      if (rest >= size) text += `${rest / size}${unit}`;
      rest %= size;
    }
    return text;
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Duration(${this})`;
  }
}

/** A duration, a number of milliseconds, or text such as `1h30m`. */
export type DurationLike = Duration | number | string;

const EARLIEST = -62_135_596_800_000_000n;
const LATEST = 253_402_300_799_999_999n;

/** A point in time, to the microsecond, in UTC. */
export class DateTime {
  /** Since 1970. */
  readonly microseconds: bigint;

  constructor(microseconds: bigint) {
    if (microseconds < EARLIEST || microseconds > LATEST) {
      throw new RangeError("a datetime is within the years 1 to 9999");
    }
    this.microseconds = microseconds;
  }

  static from(at: Date): DateTime {
    const milliseconds = at.getTime();
    if (Number.isNaN(milliseconds)) throw new RangeError("an invalid Date is no datetime");
    return new DateTime(BigInt(milliseconds) * 1000n);
  }

  static now(): DateTime {
    return DateTime.from(new Date());
  }

  /** Reads ISO 8601 in UTC, such as `2026-01-31T12:00:00.000001Z`. */
  static parse(text: string): DateTime {
    const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/.exec(text);
    const seconds = found ? Date.parse(`${found[1]}Z`) : Number.NaN;
    if (Number.isNaN(seconds)) throw new RangeError(`${JSON.stringify(text.slice(0, 40))} is no datetime in UTC`);
    return new DateTime(BigInt(seconds) * 1000n + BigInt((found?.[2] ?? "").padEnd(6, "0")));
  }

  /** The same time to the millisecond. */
  toDate(): Date {
    return new Date(Number(floorDivide(this.microseconds, 1000n)));
  }

  toString(): string {
    const seconds = floorDivide(this.microseconds, 1_000_000n);
    const micro = this.microseconds - seconds * 1_000_000n;
    const text = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
    return micro === 0n ? `${text}Z` : `${text}.${String(micro).padStart(6, "0")}Z`;
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `DateTime(${this})`;
  }
}

/** A uuid. */
export class Uuid {
  readonly #text: string;

  /** Takes 32 hexadecimal digits, with or without hyphens, or 16 bytes. */
  constructor(from: string | Uint8Array) {
    const digits =
      typeof from === "string"
        ? from.replace(/^(.{8})-(.{4})-(.{4})-(.{4})-(.{12})$/, "$1$2$3$4$5").toLowerCase()
        : Array.from(from, (one) => one.toString(16).padStart(2, "0")).join("");
    if (!/^[0-9a-f]{32}$/.test(digits)) throw new RangeError(`${JSON.stringify(String(from).slice(0, 40))} is no uuid`);
    this.#text = digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  }

  bytes(): Uint8Array {
    const digits = this.#text.replaceAll("-", "");
    return Uint8Array.from({ length: 16 }, (_, n) => Number.parseInt(digits.slice(2 * n, 2 * n + 2), 16));
  }

  toString(): string {
    return this.#text;
  }

  toJSON(): string {
    return this.#text;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Uuid(${this.#text})`;
  }
}

/** The id of a record within its table: a string, an int, a uuid, or an array of these. */
export type RecordKey = string | number | bigint | Uuid | RecordKey[];

/** The id of a record. */
export class RecordId {
  readonly table: string;
  readonly id: RecordKey;

  constructor(table: string, id: RecordKey) {
    this.table = table;
    this.id = id;
  }

  equals(other: RecordId): boolean {
    return this.toString() === other.toString();
  }

  /** The form of the language, such as `` person:1 `` or `` person:`any text` ``. */
  toString(): string {
    return `${bare(this.table)}:${typeof this.id === "string" ? bare(this.id) : keyText(this.id)}`;
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `RecordId(${this})`;
  }
}

function bare(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `\`${name.replace(/[\\`]/g, "\\$&")}\``;
}

const ESCAPES: Record<string, string> = {
  "\n": "\\n",
  "\t": "\\t",
  "\r": "\\r",
  "\\": "\\\\",
  "'": "\\'",
  "\0": "\\u{0}",
};

function keyText(key: RecordKey): string {
  if (typeof key === "string") return `'${key.replace(/[\n\t\r\\'\0]/g, (one) => ESCAPES[one] as string)}'`;
  if (key instanceof Uuid) return `u'${key}'`;
  return Array.isArray(key) ? `[${key.map(keyText).join(", ")}]` : String(key);
}

/** An argument that is no value of the language, or that an operation does not take. Nothing was sent. */
export class ValueError extends TypeError {
  override readonly name = "ValueError";
  readonly code = "ValueError";
  /** Location of the value, such as `$item.sizes[2]`; empty if it is the whole argument. */
  readonly path: string;
  readonly reason: string;

  constructor(path: string, reason: string) {
    super(path ? `${path}: ${reason}` : reason);
    this.path = path;
    this.reason = reason;
  }
}

const NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;

/** Checks a name of the store. */
export function checkName(name: string): string {
  if (typeof name !== "string" || !NAME.test(name)) {
    throw new ValueError("", `${JSON.stringify(String(name).slice(0, 80))} is no name: it must match ${NAME.source}`);
  }
  return name;
}

/** Returns a name quoted for a statement. Values are params and never quoted. */
export function quoteName(name: string): string {
  return `\`${checkName(name)}\``;
}

export function within64(value: bigint): bigint {
  if (BigInt.asIntN(64, value) !== value) throw new RangeError(`${value} is beyond 64 bits with a sign`);
  return value;
}

export function floorDivide(value: bigint, by: bigint): bigint {
  const found = value / by;
  return value < 0n && found * by !== value ? found - 1n : found;
}

/** Name of the type of a value, for messages. */
export function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (typeof value !== "object") return typeof value === "number" ? "number" : typeof value;
  return Array.isArray(value) ? "array" : (value.constructor?.name ?? "object");
}
