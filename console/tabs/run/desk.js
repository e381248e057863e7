/**
 * The scripts that are open, what they answered, and what has been run in this browser session. All of it is in
 * memory only: a script may hold a password.
 *
 * @typedef {object} Script
 * @property {number} id
 * @property {string} text
 * @property {string} params JSON
 * @property {string} reason
 * @property {string} timeout
 * @property {boolean} record
 * @property {?Answer} answer
 * @property {?{over: AbortController, since: Date}} running
 * @property {Array<{from: number, to: number, message: string}>} marks
 *
 * @typedef {object} Answer
 * @property {Array<{value: any, kind: string, rows: number, took: string, changed: (number|undefined)}>} results
 * @property {string[]} texts of the statements, in the order of the results
 * @property {?Error} error
 * @property {?number} seq
 * @property {{ns: string, db: string}} place @property {Date} at @property {number} ms
 */
import { begin } from '../../components/places.js';
import * as node from '../../node.js';
import { current, forgotten, set } from '../../state.js';
import { extent, offset, statements } from '../../storeql.js';
import { parse } from '../../values.js';
import { useEffect, useState } from '../../vendor/preact.js';

const KEPT = 200;
/** A script with one of these words may have changed what there is, or how much. */
const CHANGES = /\b(DEFINE|DROP|ALTER|CREATE|INSERT|UPSERT|DELETE|PUBLISH|TRIM|REDRIVE|RESTORE|REBUILD)\b/i;
let counted = 0;
const blank = (text = '') => ({
  id: (counted += 1), text, params: '', reason: '', timeout: '', record: false, answer: null, running: null, marks: [],
});
const empty = () => {
  const first = blank();
  return { scripts: [first], current: first.id, history: [] };
};
let desk = empty();
const listeners = new Set();
forgotten(() => {
  for (const { running } of desk.scripts) running?.over.abort();
  put(empty());
});

function put(patch) {
  desk = { ...desk, ...patch };
  for (const listener of [...listeners]) listener(desk);
}

/** What is on the desk, for a component. */
export function useDesk() {
  const [now, listener] = useState(desk);
  useEffect(() => {
    listeners.add(listener);
    listener(desk);
    return () => listeners.delete(listener);
  }, []);
  return now;
}

/** The script that is looked at. @returns {Script} */
export const currentOf = ({ scripts, current }) => scripts.find(({ id }) => id === current);

/** Change a script. @param {number} id @param {Partial<Script>} patch */
export const change = (id, patch) => put({
  scripts: desk.scripts.map((script) => (script.id === id ? { ...script, ...patch } : script)),
});

/** Look at a script. */
export const choose = (id) => put({ current: id });

/** Begin a script; one that is empty is taken. @returns {number} its id */
export function open(text = '', params = '') {
  const empty = text && desk.scripts.find((script) => !script.text.trim() && !script.running);
  if (empty) {
    change(empty.id, { text, params });
    choose(empty.id);
    return empty.id;
  }
  const script = { ...blank(text), params };
  put({ scripts: [...desk.scripts, script], current: script.id });
  return script.id;
}

/** Put a script away. What was typed and never run stands in the history. */
export function close(id) {
  const at = desk.scripts.findIndex((script) => script.id === id);
  const script = desk.scripts[at];
  script.running?.over.abort();
  if (script.text.trim() && desk.history[0]?.text !== script.text) remember({ text: script.text, at: new Date(), said: 'put away' });
  const left = desk.scripts.filter((one) => one !== script);
  if (!left.length) left.push(blank());
  const current = desk.current === id ? left[Math.min(at, left.length - 1)].id : desk.current;
  put({ scripts: left, current });
}

const remember = (entry) => put({ history: [{ ...entry, id: (counted += 1) }, ...desk.history].slice(0, KEPT) });

/** What a script is called: its first words. */
export const title = (script) => script.text.trim().split('\n')[0].slice(0, 24) || 'Empty';

/** What is wrong with parameters, or null. */
export function wrong(text) {
  if (!text.trim()) return null;
  try {
    const value = JSON.parse(text);
    if (!value || typeof value !== 'object' || Array.isArray(value)) return 'An object: {"name": value}';
    parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
}

/**
 * Run a script, or what is selected of it.
 * @param {number} id @param {?{text: string, at: number}} selected @param {?{ns: string, db: string}} place
 */
export async function run(id, selected, place) {
  const script = desk.scripts.find((one) => one.id === id);
  const text = selected?.text ?? script.text;
  if (script.running || !text.trim() || wrong(script.params)) return;
  const over = new AbortController();
  const since = new Date();
  change(id, { running: { over, since }, marks: [] });
  const answer = { results: [], texts: [], error: null, seq: null, place, at: since, ms: 0 };
  const marks = [];
  try {
    const found = await node.script(text, {
      place, signal: over.signal, params: script.params.trim() ? parse(script.params) : undefined,
      reason: script.reason.trim() || undefined, timeout: script.timeout.trim() || undefined,
      record: script.record || undefined,
    });
    answer.results = found.results;
    answer.seq = found.seq;
  } catch (error) {
    answer.error = error;
    if (error.name !== 'AbortError' && !('code' in error)) throw error;
    answer.results = error.results ?? [];
    if (error.line) marks.push(marked(error, text, selected?.at ?? 0));
  } finally {
    answer.at = new Date();
    answer.ms = answer.at - since;
    const parts = statements(text);
    // Behind a brace the semicolon may be left out: then there are more results than were counted here.
    answer.texts = parts.length >= answer.results.length + (answer.error ? 1 : 0) ? parts.map((part) => part.text) : [];
    change(id, { running: null, answer, marks });
    if (answer.results.length && CHANGES.test(text)) {
      set({ round: current().round + 1 });
      begin(); // it may have made the first database there is
    }
    remember({ text, at: answer.at, place, ms: answer.ms, said: !answer.error ? 'done' : answer.error.name === 'AbortError' ? 'stopped' : answer.error.code ?? answer.error.name });
  }
}

function marked(error, text, base) {
  const at = offset(text, error.line, error.column);
  return { from: base + at, to: base + at + extent(text, at), message: error.message.split('\n')[0] };
}
