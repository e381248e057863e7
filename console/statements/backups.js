/** Statements on backups. */
import { name, statement, string } from '../statements.js';

/** A place as BACKUP names it: a database `shop.main`, a namespace `shop`. */
const part = (text) => {
  const names = text.split('.').map(name);
  return names.length === 1 ? `NAMESPACE ${names[0]}` : names.join('.');
};

/**
 * Take a backup.
 * @param {object} asked `form` (snapshot, log, script), `places` (none: the whole store), `from` (the commit that
 *   a log begins at), `to` (its name in the backup folder; without it the answer is the backup)
 */
export function backup({ form, places = [], from, to }) {
  const words = ['BACKUP'];
  if (form !== 'snapshot') words.push(form.toUpperCase());
  if (from !== undefined) words.push('FROM', BigInt(from));
  if (places.length) words.push('OF', places.map(part).join(', '));
  if (to !== undefined) words.push('TO', string(to));
  return statement(words.join(' '));
}

/** Make the places of a script of the backup folder. @param {{check?: boolean}} options say what it would be */
export const restore = (from, { check = false } = {}) =>
  statement(`RESTORE SCRIPT FROM ${string(from)}${check ? ' CHECK' : ''}`);
