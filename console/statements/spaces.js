/** Statements on cache spaces and their keys. */
import { Tagged } from '../values.js';
import { name, statement } from '../statements.js';

const lasting = (text) => new Tagged('dur', text);

/** @param {object} options `prefix`, `after` (the key that was last), `limit` (at most 1000) */
export function keys(space, { prefix, after, limit = 1000 } = {}) {
  const params = { limit };
  let text = `KEYS FROM ${name(space)}`;
  if (prefix) {
    text += ' PREFIX $prefix';
    params.prefix = prefix;
  }
  if (after !== undefined) {
    text += ' AFTER $after';
    params.after = after;
  }
  return statement(`${text} LIMIT $limit`, params);
}

export const get = (space, key) => statement(`GET $key FROM ${name(space)}`, { key });

/**
 * @param {any} value
 * @param {object} options `expire`: a duration's text, 'keep' (as it is), or nothing (none, or the space's own);
 *   `only`: 'ABSENT', 'PRESENT', or nothing
 */
export function put(space, key, value, { expire = '', only = '' } = {}) {
  const params = { key, value };
  let text = `SET $key IN ${name(space)} VALUE $value`;
  if (expire === 'keep') text += ' KEEP';
  else if (expire) {
    text += ' EXPIRE $expire';
    params.expire = lasting(expire);
  }
  return statement(only ? `${text} IF ${only}` : text, params);
}

export const expire = (space, key, duration) =>
  statement(`EXPIRE $key IN ${name(space)} $expire`, { key, expire: lasting(duration) });

export const persist = (space, key) => statement(`PERSIST $key IN ${name(space)}`, { key });

export const remove = (space, key) => statement(`DELETE $key FROM ${name(space)}`, { key });

/** Free a key that is the lock of this holder; of any other key it changes nothing. */
export const unlock = (space, key, holder) =>
  statement(`UNLOCK $key IN ${name(space)} HOLDER $holder`, { key, holder });
