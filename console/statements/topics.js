/** Statements on topics, their readers and groups. */
import { microseconds, Tagged } from '../values.js';
import { name, statement, string } from '../statements.js';

/** @typedef {{at: 'START'|'END'|'TIME'|'AFTER', value?: number | Tagged}} Position of a reader or a group */

const SIZE = /^\d+([KMGT]i?B)?$/;

/** Whether a text is a duration that a topic, a group or a key may be given: longer than nothing. */
export const isLasting = (text) => microseconds(text) > 0;

/** Whether a text is a size as BYTES and LARGEST take it: `10MiB`, `500KB`, `4096`. */
export const isSize = (text) => SIZE.test(text);

/** Whether a text is what BACKOFF takes: pauses with commas between them. */
export const isPauses = (text) => text.split(',').every((pause) => microseconds(pause.trim()) >= 0);

const checked = (text, holds) => {
  if (!holds(text)) throw new RangeError(`${JSON.stringify(text)} can't stand in the statement`);
  return text;
};

/** How a topic's settings stand in a statement, in the order in which they are shown. */
const OF_TOPIC = [
  ['keep', (text) => `KEEP ${checked(text, isLasting)}`, 'KEEP NONE'],
  ['max_bytes', (text) => `BYTES ${checked(text, isSize)}`, 'BYTES NONE'],
  ['largest', (text) => `LARGEST ${checked(text, isSize)}`, 'LARGEST NONE'],
  ['dedup', (text) => `DEDUP ${checked(text, isLasting)}`, 'DEDUP NONE'],
  ['full', (text) => `FULL ${checked(text, (word) => ['DROP', 'REFUSE'].includes(word))}`, 'FULL DROP'],
  ['comment', (text) => `COMMENT ${string(text)}`, 'COMMENT NONE'],
];

const count = (text) => checked(String(text), (digits) => /^\d+$/.test(digits));

/** How a group's settings stand in a statement. */
const OF_GROUP = [
  ['deadline', (text) => `DEADLINE ${checked(text, isLasting)}`, null],
  ['max_in_flight', (text) => `IN FLIGHT ${count(text)}`, 'IN FLIGHT NONE'],
  ['deliveries', (text) => `DELIVERIES ${count(text)}`, 'DELIVERIES NONE'],
  ['dead_letter', (text) => `DEAD LETTER ${name(text)}`, 'DEAD LETTER NONE'],
  ['backoff', (text) => `BACKOFF ${checked(text, isPauses)}`, 'BACKOFF NONE'],
];

const given = (settings, table) => table
  .filter(([key]) => settings[key]).map(([key, write]) => ` ${write(settings[key])}`).join('');

const changes = (settings, table) => table
  .filter(([key]) => key in settings)
  .map(([key, write, none]) => (settings[key] ? write(settings[key]) : none)).join(', ');

/**
 * Where a reader or a group is to stand, with its parameter.
 * @param {Position} position
 */
function placed({ at, value }) {
  if (at === 'START' || at === 'END') return [at, {}];
  return [at === 'TIME' ? 'TIME $position' : '$position', { position: value }];
}

/**
 * @param {string} topic
 * @param {object} settings texts; what is empty or absent is left out: `keep`, `max_bytes`, `largest`, `dedup`, `full`,
 *   `comment`
 */
export const define = (topic, settings) => statement(`DEFINE TOPIC ${name(topic)}${given(settings, OF_TOPIC)}`);

/** @param {object} settings as of `define`, only what changes; what is empty is taken away */
export const alter = (topic, settings) =>
  statement(`ALTER TOPIC ${name(topic)} SET ${changes(settings, OF_TOPIC)}`);

export const drop = (topic) => statement(`DROP TOPIC ${name(topic)}`);

/** @param {number} before the first position that stays */
export const trim = (topic, before) => statement(`TRIM TOPIC ${name(topic)} BEFORE $before`, { before });

/**
 * @param {string} topic @param {any} value
 * @param {object} more `key`, `id`, `headers` (an object), `delay` (a duration's text), `expect` (a position)
 */
export function publish(topic, value, { key, id, headers, delay, expect } = {}) {
  const params = { value };
  let text = `PUBLISH INTO ${name(topic)} VALUE $value`;
  const add = (words, called, one) => {
    if (one === undefined) return;
    text += ` ${words} $${called}`;
    params[called] = one;
  };
  add('KEY', 'key', key);
  add('ID', 'id', id);
  add('HEADERS', 'headers', headers);
  add('DELAY', 'delay', delay === undefined ? undefined : new Tagged('dur', delay));
  add('EXPECT', 'expect', expect);
  return statement(text, params);
}

/** Messages behind a position; nobody is moved. @param {object} options `limit`, `wait` (a duration's text) */
export function read(topic, after, { limit = 100, wait } = {}) {
  const params = { after, limit };
  const text = `READ FROM ${name(topic)} AFTER $after LIMIT $limit`;
  if (wait === undefined) return statement(text, params);
  return statement(`${text} WAIT $wait`, { ...params, wait: new Tagged('dur', wait) });
}

/** Whether the first message behind a position is of a time or later: true, false, or none without one. */
export const since = (topic, after, time) => statement(
  `LET $found = READ FROM ${name(topic)} AFTER $after LIMIT 1;\nRETURN IF array::len($found) > 0 { $found[0].at >= $time } ELSE { NONE }`,
  { after, time },
);

/** Headers of the oldest message, or none. */
export const oldest = (topic) => statement(`LET $found = READ FROM ${name(topic)} AFTER 0 LIMIT 1;\nRETURN $found[0].headers`);

/** @param {Position} position */
export function defineReader(reader, topic, position) {
  const [words, params] = placed(position);
  return statement(`DEFINE READER ${name(reader)} ON ${name(topic)} AT ${words}`, params);
}

/** @param {Position} position */
export function moveReader(reader, topic, position) {
  const [words, params] = placed(position);
  return statement(`ALTER READER ${name(reader)} ON ${name(topic)} SET POSITION ${words}`, params);
}

export const dropReader = (reader, topic) => statement(`DROP READER ${name(reader)} ON ${name(topic)}`);

/**
 * @param {object} settings texts: `deadline`, and where they are not empty `max_in_flight`, `deliveries`,
 *   `dead_letter`, `backoff`; `ordered` (boolean)
 * @param {Position} position
 */
export function defineGroup(group, topic, settings, position) {
  const [words, params] = placed(position);
  const ordered = settings.ordered ? ' ORDERED BY KEY' : '';
  return statement(
    `DEFINE GROUP ${name(group)} ON ${name(topic)}${given(settings, OF_GROUP)}${ordered} AT ${words}`, params,
  );
}

/** @param {object} settings as of `defineGroup`, only what changes; what is empty is taken away */
export const alterGroup = (group, topic, settings) =>
  statement(`ALTER GROUP ${name(group)} ON ${name(topic)} SET ${changes(settings, OF_GROUP)}`);

/** @param {Position} position */
export function moveGroup(group, topic, position) {
  const [words, params] = placed(position);
  return statement(`ALTER GROUP ${name(group)} ON ${name(topic)} SET POSITION ${words}`, params);
}

export const dropGroup = (group, topic) => statement(`DROP GROUP ${name(group)} ON ${name(topic)}`);

/** Move the oldest messages of a topic to the end of another. @param {number} limit at most 1000 */
export const redrive = (from, to, limit) =>
  statement(`REDRIVE FROM ${name(from)} TO ${name(to)} LIMIT $limit`, { limit });
