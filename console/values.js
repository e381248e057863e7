/**
 * Values of the language, as JSON of docs/http.md brings them and as the language writes them.
 *
 * | value | here |
 * |---|---|
 * | none, null, bool, string | `NONE`, null, boolean, string |
 * | int | a number where that is exact, else a BigInt |
 * | float | a number; one that is whole is a `Whole`, since 1.0 is not 1 |
 * | decimal, datetime, duration, record, bytes, uuid | a `Tagged` with the text that the node wrote |
 * | array, object | Array, plain object |
 */

/** What is absent. */
export const NONE = Object.freeze({ toString: () => 'NONE' });

/** A value that JSON has no type for: its tag without `$`, and its text. */
export class Tagged {
  /** @param {'dec'|'dt'|'dur'|'rec'|'bytes'|'uuid'} tag @param {string} text */
  constructor(tag, text) {
    this.tag = tag;
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

/** A float without a fraction. */
export class Whole {
  /** @param {number} number @param {string} text as the node wrote it */
  constructor(number, text) {
    this.number = number;
    this.text = text;
  }

  valueOf() {
    return this.number;
  }
}

/** What a value of the language is called. */
const CALLED = {
  dec: 'decimal', dt: 'datetime', dur: 'duration', rec: 'record', bytes: 'bytes', uuid: 'uuid',
};

// A float that is whole, or an int of many digits, where it could be one: in a string it is a false alarm that costs time only.
const MAYBE_INEXACT = /\d(\.0+|[eE][+-]?\d+|\d{15})\s*(?:[,\]}]|$)/;
const DIGITS = /^-?\d+$/;

/**
 * The value that a JSON text stands for, or an answer that holds values. Each number stays the one that is
 * written, also where a person wrote what the node would not: an int beyond 2^53 without its tag.
 * @param {string} text
 */
export const parse = (text) => untagged(MAYBE_INEXACT.test(text) ? JSON.parse(text, exactly) : JSON.parse(text));

function exactly(_name, value, context) {
  if (typeof value !== 'number' || !context || Number.isSafeInteger(value) && DIGITS.test(context.source)) return value;
  if (DIGITS.test(context.source)) return BigInt(context.source);
  // One that is too large for a float is left to the node to refuse.
  return Number.isInteger(value) || !Number.isFinite(value) ? new Whole(value, context.source) : value;
}

function untagged(plain) {
  if (plain === null || typeof plain !== 'object' || plain instanceof Whole) return plain;
  if (Array.isArray(plain)) {
    for (let at = 0; at < plain.length; at += 1) {
      const item = plain[at];
      if (item !== null && typeof item === 'object') plain[at] = untagged(item);
    }
    return plain;
  }
  const names = Object.keys(plain);
  if (names.length === 1 && names[0][0] === '$') return untag(names[0], plain[names[0]], plain);
  return fields(plain, names);
}

function fields(plain, names) {
  for (const name of names) {
    const item = plain[name];
    if (item !== null && typeof item === 'object') plain[name] = untagged(item);
  }
  return plain;
}

function untag(tag, content, plain) {
  if (tag === '$none') return NONE;
  if (tag === '$int') return BigInt(content);
  if (tag === '$obj') return fields(content, Object.keys(content));
  const called = tag.slice(1);
  return Object.hasOwn(CALLED, called) ? new Tagged(called, content) : plain;
}

/**
 * Values as JSON text: parameters, and bodies of requests. By hand, since JSON.stringify has no form
 * for a float that is whole. An object's fields that are undefined or NONE are left out.
 */
export function written(value) {
  if (value === undefined || value === NONE) return '{"$none":true}';
  if (typeof value === 'bigint') return `{"$int":"${value}"}`;
  if (value instanceof Tagged) return `{"$${value.tag}":${JSON.stringify(value.text)}}`;
  if (value instanceof Whole) return /[.e]/i.test(value.text) ? value.text : `${value.text}.0`;
  if (Array.isArray(value)) return `[${value.map(written).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const there = Object.entries(value).filter(([, item]) => item !== undefined && item !== NONE);
  const made = there.map(([name, item]) => `${JSON.stringify(name)}:${written(item)}`).join(',');
  return there.length === 1 && there[0][0][0] === '$' ? `{"$obj":{${made}}}` : `{${made}}`;
}

/** A record's id, such as `person:1`, as a value. @param {string} text */
export const record = (text) => new Tagged('rec', text);

/** What a value is called in the language: `int`, `record`, `array` … */
export function kind(value) {
  if (value === NONE || value === undefined) return 'none';
  if (value === null) return 'null';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'string') return 'string';
  if (typeof value === 'bigint') return 'int';
  if (typeof value === 'number') return Number.isInteger(value) ? 'int' : 'float';
  if (value instanceof Whole) return 'float';
  if (value instanceof Tagged) return CALLED[value.tag];
  return Array.isArray(value) ? 'array' : 'object';
}

/** Whether a value has parts. */
export const isDeep = (value) => ['array', 'object'].includes(kind(value));

const ESCAPES = {
  '\n': '\\n', '\t': '\\t', '\r': '\\r', '\\': '\\\\', "'": "\\'", '\0': '\\u{0}',
};

/** A string as the language writes it. @param {string} text */
export const quoted = (text) => `'${text.replace(/[\n\t\r\\'\0]/g, (sign) => ESCAPES[sign])}'`;

const PLAIN_KEY = /^[A-Za-z_][A-Za-z0-9_]*$/;
const LITERALS = {
  dec: (text) => `${text}dec`,
  dt: (text) => `d'${text}'`,
  dur: (text) => text,
  rec: (text) => text,
  bytes: (text) => `b'${text}'`,
  uuid: (text) => `u'${text}'`,
};

/**
 * A value as the language writes it.
 * @param {number} [room] characters after which it may end with `…`
 */
export function literal(value, room = Infinity) {
  const parts = [];
  let left = room;
  const add = (text) => {
    parts.push(text);
    left -= text.length;
  };
  const write = (one) => {
    if (left < 0) return;
    if (one === NONE || one === undefined) add('NONE');
    else if (one === null) add('NULL');
    else if (typeof one === 'string') add(quoted(one.length > left ? one.slice(0, left + 1) : one));
    else if (one instanceof Tagged) add(LITERALS[one.tag](one.text));
    else if (one instanceof Whole) add(one.text);
    else if (Array.isArray(one)) many('[', one, write, ']');
    else if (typeof one === 'object') many('{ ', Object.entries(one), entry, ' }');
    else add(String(one));
  };
  const entry = ([name, item]) => {
    add(`${PLAIN_KEY.test(name) ? name : quoted(name)}: `);
    write(item);
  };
  const many = (begin, items, each, end) => {
    if (!items.length) return add(begin.trim() + end.trim());
    add(begin);
    for (let at = 0; at < items.length && left >= 0; at += 1) {
      if (at) add(', ');
      each(items[at]);
    }
    return add(end);
  };
  write(value);
  const text = parts.join('');
  return text.length > room ? `${text.slice(0, room)}…` : text;
}

/** A value as people read it in a cell: strings and datetimes without quotes. */
export function shown(value, room = Infinity) {
  if (typeof value === 'string') return value.length > room ? `${value.slice(0, room)}…` : value;
  if (value instanceof Tagged && value.tag !== 'bytes') return value.text;
  return literal(value, room);
}

const RANKS = [
  'none', 'null', 'bool', 'number', 'string', 'bytes', 'duration', 'datetime', 'uuid', 'array',
  'object', 'record',
];
const rank = (value) => {
  const called = kind(value);
  return RANKS.indexOf(['int', 'float', 'decimal'].includes(called) ? 'number' : called);
};

const UNITS = { w: 604_800_000_000, d: 86_400_000_000, h: 3_600_000_000, m: 60_000_000, s: 1_000_000,
  ms: 1000, us: 1 };

/** Microseconds of a duration's text, such as `1h30m`; NaN: it is none. */
export function microseconds(text) {
  if (!/^-?(\d+(w|d|h|ms|m|us|s))+$/.test(text)) return NaN;
  let sum = 0;
  for (const [, count, unit] of text.matchAll(/(\d+)(w|d|h|ms|m|us|s)/g)) sum += count * UNITS[unit];
  return text.startsWith('-') ? -sum : sum;
}

/** A number to sort by: decimals and durations too, as nearly as a float tells them apart. */
const worth = (value) => {
  if (value instanceof Tagged) return value.tag === 'dur' ? microseconds(value.text) : Number(value.text);
  return value;
};

/** Which of two values sorts first, by the one order over all values. */
export function compare(one, two) {
  const by = rank(one) - rank(two);
  if (by) return by;
  const called = RANKS[rank(one)];
  if (called === 'number' || called === 'duration') {
    const [left, right] = [worth(one), worth(two)];
    return left < right ? -1 : Number(left > right);
  }
  if (called === 'record') return byRecord(one.text, two.text);
  if (called === 'array') return byParts(one, two);
  if (called === 'object') return byParts(...[one, two].map((each) => Object.keys(each).sort(byPoints).flatMap((name) => [name, each[name]])));
  if (called === 'string') return byPoints(one, two);
  const [left, right] = [comparable(one), comparable(two)];
  return left < right ? -1 : Number(left > right);
}

/** What a value that is no text compares by: of a datetime its text without the end, which may stand behind a fraction. */
function comparable(value) {
  if (!(value instanceof Tagged)) return String(value);
  if (value.tag === 'dt') return value.text.slice(0, -1);
  return value.tag === 'bytes' ? atob(value.text) : value.text;
}

/** Part by part, then by how many there are. */
function byParts(one, two) {
  for (let at = 0; at < Math.min(one.length, two.length); at += 1) {
    const found = compare(one[at], two[at]);
    if (found) return found;
  }
  return Math.sign(one.length - two.length);
}

/** Texts by their characters: the halves of one beyond U+FFFF stand behind all that have no halves. */
function byPoints(one, two) {
  const least = Math.min(one.length, two.length);
  let at = 0;
  while (at < least && one[at] === two[at]) at += 1;
  if (at === least) return Math.sign(one.length - two.length);
  const [left, right] = [one, two].map((text) => {
    const unit = text.charCodeAt(at);
    return unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x10000 : unit;
  });
  return left < right ? -1 : 1;
}

const RECORD = /^(`(?:[^`\\]|\\.)*`|[^:]*):([^]*)$/;

/** Records sort by their table, then by their ids: numbers, strings, uuids, arrays. */
function byRecord(one, two) {
  const [left, right] = [one, two].map((text) => {
    const [, table, id] = RECORD.exec(text);
    if (/^-?\d+$/.test(id)) return [table, 0, BigInt(id)];
    if (id.startsWith('[')) return [table, 3, id];
    return /^u['"]/.test(id) ? [table, 2, id] : [table, 1, id.replace(/^`([^]*)`$/, '$1').replace(/\\([^])/g, '$1')];
  });
  for (let at = 0; at < 3; at += 1) {
    if (left[at] === right[at]) continue;
    return typeof left[at] === 'string' ? byPoints(left[at], right[at]) : left[at] < right[at] ? -1 : 1;
  }
  return 0;
}
