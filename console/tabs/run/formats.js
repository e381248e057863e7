/** Results as tables, CSV and JSON. */
import { isDeep, kind, shown, written } from '../../values.js';

/** Whether all are objects. */
export const areObjects = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((row) => kind(row) === 'object');

/** Whether a value is records that share one flat field set: those are drawn as a table by themselves. */
export function isTable(value) {
  if (!areObjects(value)) return false;
  const names = Object.keys(value[0]);
  return value.every((row) => {
    const own = Object.keys(row);
    return own.length === names.length && own.every((name) => Object.hasOwn(value[0], name) && !isDeep(row[name]));
  });
}

/** The names of all fields, in the order in which they are met. */
export function fieldsOf(rows) {
  const found = new Set();
  for (const row of rows) for (const name of Object.keys(row)) found.add(name);
  return [...found];
}

/** What a row has under a name; undefined where it has nothing: `constructor` is a name like any other. */
export const field = (row, name) => (Object.hasOwn(row, name) ? row[name] : undefined);

const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Rows as CSV (RFC 4180). What is absent or NULL is empty; strings are as they are. */
export function csv(rows) {
  const names = fieldsOf(rows);
  const line = (row) => names.map((name) => {
    const value = field(row, name);
    return value === undefined || value === null ? '' : cell(shown(value));
  }).join(',');
  return [names.map(cell).join(','), ...rows.map(line)].join('\r\n') + '\r\n';
}

/** A value as JSON with the tags of docs/http.md: what the node itself would read again. */
export const json = (value) => (Array.isArray(value) ? `[${value.map(written).join(',\n ')}]` : written(value));
