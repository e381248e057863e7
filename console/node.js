/**
 * The only file that speaks to the node. It holds the session's token, and tells by events:
 *
 * | event | when |
 * |---|---|
 * | `session` | somebody has signed in, or out: `who()` says whom |
 * | `ended` | the session ended while it was used |
 * | `away` | the node does not answer; it is looked for until it does |
 * | `back` | it answers again |
 * | `drained` | it answered that it answers no clients |
 *
 * Nothing is sent a second time by itself.
 */
import { parse, written } from './values.js';

const KEPT = 'store.session';
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
const PROBE_MS = 5_000;

/** What the node refused, in its own words. */
export class Refusal extends Error {
  /** @param {object} error as the node says it @param {object[]} results what ran before it */
  constructor(error, results = []) {
    super(error.message);
    this.code = error.code;
    this.status = error.status;
    this.detail = error.detail ?? {};
    this.retry = error.retry ?? false;
    this.request = error.request ?? null;
    this.statement = error.statement ?? null;
    this.line = error.line ?? null;
    this.column = error.column ?? null;
    this.results = results;
    this.at = new Date();
  }
}

/** Nobody answered: it is not known whether what was asked for has been done. */
export class Away extends Error {
  constructor(cause) {
    super('The node did not answer.', { cause });
    this.code = 'Away';
    this.status = 0;
    this.at = new Date();
  }
}

const events = new EventTarget();
let token = null;
let user = null;
let looking = false;

/** Hear of an event; the answer ends that. @returns {() => void} */
export function on(name, listener) {
  const told = (event) => listener(event.detail);
  events.addEventListener(name, told);
  return () => events.removeEventListener(name, told);
}

const emit = (name, detail) => events.dispatchEvent(new CustomEvent(name, { detail }));

/** Who is signed in: `{name, role, space}`, or null. */
export const who = () => user;

/** Whether the node is being looked for. */
export const isAway = () => looking;

/**
 * Exchange a password for a token.
 * @param {{keep?: boolean}} options `keep`: in sessionStorage, so that loading anew asks for no password
 */
export async function signIn(name, password, { keep = false } = {}) {
  const answer = await asked('POST', '/session', { body: { user: name, password }, token: null });
  const session = answer.value;
  begin(session.token, session.user);
  if (keep) sessionStorage.setItem(KEPT, JSON.stringify({ token, user }));
  else sessionStorage.removeItem(KEPT);
}

/** Go on with a session that was kept, if there is one. Whether it is still good shows when asked. */
export function resume() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    if (kept?.token && kept.user) begin(kept.token, kept.user);
  } catch {
    sessionStorage.removeItem(KEPT);
  }
}

/** End the session on the node too. Here it is over even when that fails. */
export async function signOut() {
  const given = token;
  forget();
  emit('session', null);
  if (given !== null) await asked('DELETE', '/session', { token: given });
}

function begin(given, named) {
  token = given;
  user = named;
  emit('session', user);
}

function forget() {
  token = null;
  user = null;
  sessionStorage.removeItem(KEPT);
}

/**
 * Run a script.
 * @param {string} text
 * @param {object} options `params` (values), `place` ({ns, db}), `reason`, `record` (kept in the
 *   statement log though it only reads), `timeout` ('5s'), `moment`, `keep`, `signal`
 * @returns {Promise<{results: object[], seq: number, ns: ?string, db: ?string, at: Date}>}
 * @throws {Refusal | Away}
 */
export async function script(text, { params, place, signal, ...more } = {}) {
  const body = { script: text, ns: place?.ns, db: place?.db, ...more };
  if (params && Object.keys(params).length) body.params = params;
  const { value, at } = await asked('POST', '/script', { body, signal });
  return { ...value, at };
}

/**
 * One statement of `statements.js`: what its last result holds.
 * @param {{text: string, params?: object}} statement
 * @returns {Promise<any>}
 * @throws {Refusal | Away}
 */
export async function run(statement, options = {}) {
  const answer = await script(statement.text, { ...options, params: statement.params });
  return answer.results[answer.results.length - 1].value;
}

/**
 * One request to a route.
 * @param {string} method @param {string} path
 * @param {object} options `query` (an object; what is undefined is left out), `body` (values), `signal`,
 *   `raw` (the answer as a Response: figures, files)
 * @returns {Promise<any>} what the answer's JSON says; undefined where it has no body
 * @throws {Refusal | Away}
 */
export async function request(method, path, options = {}) {
  return (await asked(method, path, options)).value;
}

/** A WebSocket of a route, with the session's token. */
export function socket(path, query, protocol) {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  return new WebSocket(`${scheme}://${location.host}${path}${queried(query)}`, [
    protocol, `store.bearer.${token}`,
  ]);
}

/**
 * How the node stands, by its probes, which answer whoever asks.
 * @returns {Promise<{health: object, ready: object, at: Date}>} @throws {Away}
 */
export async function probe() {
  const look = async (path) => {
    const answer = await reached('GET', path, { signal: AbortSignal.timeout(PROBE_MS) });
    return JSON.parse(await whole(answer));
  };
  const [health, ready] = await Promise.all([look('/health'), look('/ready')]);
  return { health, ready, at: new Date() };
}

function queried(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  return given.length ? `?${new URLSearchParams(given)}` : '';
}

async function asked(method, path, { query, body, signal, raw, token: given = token } = {}) {
  const headers = {};
  if (given !== null) headers.Authorization = `Bearer ${given}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const text = body === undefined ? undefined : written(body);
  const answer = await reached(method, path + queried(query), { headers, body: text, signal });
  if (answer.ok && raw) return { value: answer, at: new Date() };
  const said = await whole(answer);
  if (answer.ok) return { value: said ? parse(said) : undefined, at: new Date() };
  throw refused(answer, said, given);
}

async function reached(method, path, options) {
  try {
    const answer = await fetch(path, {
      method, cache: 'no-store', credentials: 'omit', redirect: 'error', ...options,
    });
    found();
    return answer;
  } catch (cause) {
    if (options.signal?.aborted && cause.name === 'AbortError') throw cause;
    throw lost(cause);
  }
}

async function whole(answer) {
  try {
    return await answer.text();
  } catch (cause) {
    if (cause.name === 'AbortError') throw cause;
    throw lost(cause);
  }
}

function refused(answer, said, given) {
  let told;
  try {
    told = parse(said);
  } catch {
    told = null;
  }
  const error = told?.error ?? {
    code: 'Failed', status: answer.status, message: `The answer ${answer.status} has no error in it.`,
  };
  const refusal = new Refusal(error, told?.results);
  if (refusal.code === 'SessionEnded' && given !== null && given === token) {
    forget();
    emit('ended', refusal);
  }
  if (refusal.code === 'Draining') emit('drained');
  return refusal;
}

function lost(cause) {
  if (!looking) {
    looking = true;
    emit('away');
    look(FIRST_PAUSE_MS);
  }
  return new Away(cause);
}

function found() {
  if (!looking) return;
  looking = false;
  emit('back');
}

/** Ask for the node's health until somebody answers, ever less often. */
function look(pause) {
  setTimeout(async () => {
    if (!looking) return;
    try {
      await reached('GET', '/health', { signal: AbortSignal.timeout(PROBE_MS) });
    } catch {
      look(Math.min(pause * 1.6, LONGEST_PAUSE_MS));
    }
  }, pause);
}

/** Ask at once whether the node is back. */
export const lookNow = () => probe().catch(() => undefined);
