/**
 * What all pages share, and how components hear of it.
 *
 * @typedef {object} Shared
 * @property {?{name: string, role: string, space: ?string}} who is signed in
 * @property {boolean} ended the session ended while it was used
 * @property {?{ns: string, db: string}} place the database that is looked at
 * @property {?{health: object, ready: object, at: Date}} condition of the node
 * @property {boolean} away the node does not answer
 * @property {number} round counts whenever all that is shown is to be read anew
 * @property {number} person counts whenever somebody else sits at the page, or nobody
 * @property {'system'|'light'|'dark'} theme
 */
import { useCallback, useEffect, useRef, useState } from './vendor/preact.js';
import * as node from './node.js';

const THEME = 'store.theme';
const EVERY_MS = 5_000;
/** Refusals that asking again does not change: a grant, or who signs in, does. */
const FOR_GOOD = new Set(['NotAllowed', 'SessionEnded', 'SignInRefused']);

/** @type {Shared} */
let shared = {
  who: null, ended: false, place: null, condition: null, away: false, round: 0, person: 0, theme: 'system',
};
const listeners = new Set();

/** @returns {Shared} */
export const current = () => shared;

/** Change what is shared. @param {Partial<Shared>} patch */
export function set(patch) {
  shared = { ...shared, ...patch };
  for (const hear of [...listeners]) hear(shared);
}

const secrets = new Set();

/** What somebody has read or typed goes with who signs out, and before another one signs in. @param {() => void} forget */
export const forgotten = (forget) => secrets.add(forget);

/** Somebody has signed in, or out. */
function seat(who) {
  const other = who?.name !== shared.who?.name;
  if (other) for (const forget of secrets) forget();
  set({
    who, ended: false, ...(other && { person: shared.person + 1, place: null }), ...(who && { round: shared.round + 1 }),
  });
}

/** What is shared, for a component. @returns {Shared} */
export function useShared() {
  const [now, hear] = useState(shared);
  useEffect(() => {
    listeners.add(hear);
    hear(shared);
    return () => listeners.delete(hear);
  }, []);
  return now;
}

/**
 * What the node answers to a question, for a component. It is asked again when `deps` change, when
 * somebody signs in, when the node is back, and by `again()`. The last answer stays until the next one is there.
 *
 * @param {(signal: AbortSignal) => Promise<any>} ask null: there is nothing to ask
 * @param {any[]} deps
 * @param {{every?: number}} options milliseconds between two questions while the page is looked at
 * @returns {{value: any, error: ?Error, at: ?Date, loading: boolean, again: () => void}}
 */
export function useQuery(ask, deps, { every = 0 } = {}) {
  const { round } = useShared();
  const [found, put] = useState({ value: undefined, error: null, at: null });
  const [loading, load] = useState(ask !== null);
  const [turn, take] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  const key = useRef(deps);
  if (!same(key.current, deps)) {
    key.current = deps;
    found.stale = true; // of another question: not to be shown as the answer to this one
  }
  useEffect(() => {
    if (latest.current === null) return undefined;
    const over = new AbortController();
    let timer = 0;
    let refused = false; // for good: each further one would be kept in the node's logs
    const go = async () => {
      load(true);
      try {
        const value = await latest.current(over.signal);
        if (!over.signal.aborted) put({ value, error: null, at: new Date() });
      } catch (error) {
        if (over.signal.aborted) return;
        if (!('code' in error)) console.error(error);
        refused = FOR_GOOD.has(error.code);
        put((before) => ({ ...before, stale: false, error,
          value: before.stale ? undefined : before.value, at: before.stale ? null : before.at }));
      }
      load(false);
      if (every && !refused) timer = setTimeout(next, every);
    };
    const next = () => {
      if (document.visibilityState === 'visible') go();
      else timer = setTimeout(next, every);
    };
    go();
    return () => {
      over.abort();
      clearTimeout(timer);
    };
  }, [...deps, round, turn, every, ask === null]);
  const again = useCallback(() => take((count) => count + 1), []);
  if (found.stale) return { value: undefined, error: null, at: null, loading: true, again };
  return { ...found, loading, again };
}

const same = (one, two) => one.length === two.length && one.every((item, at) => Object.is(item, two[at]));

/** Choose how it looks. @param {'system'|'light'|'dark'} theme */
export function choose(theme) {
  if (theme === 'system') localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, theme);
  document.documentElement.dataset.theme = theme;
  set({ theme });
}

/** Whether traffic can be read on the network: no TLS, and not this machine. */
export function isClear({ protocol, hostname } = location) {
  const here = /^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
  return protocol !== 'https:' && !here;
}

/** Look how the node stands. */
export async function look() {
  try {
    set({ condition: await node.probe() });
  } catch (error) {
    if (!(error instanceof node.Away)) throw error;
  }
}

/** Begin: hear of what happens, and look at the node every few seconds while the page is looked at. */
export function begin() {
  choose(localStorage.getItem(THEME) ?? 'system');
  const anew = () => ({ round: shared.round + 1 });
  node.on('session', seat);
  node.on('ended', () => set({ ended: true }));
  node.on('drained', look);
  node.on('away', () => set({ away: true }));
  node.on('back', () => {
    set({ away: false, ...anew() });
    look();
  });
  document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && look());
  setInterval(() => document.visibilityState === 'visible' && !shared.away && look(), EVERY_MS);
  node.resume();
  look();
}
