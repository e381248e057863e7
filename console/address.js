/**
 * Deep links: `#/topics/shop/main/orders?from=12`. The first segment is the tab, the next two the place
 * where the tab is one of places, the rest is the tab's own.
 *
 * @typedef {{tab: string, parts: string[], query: Object<string, string>}} Address
 */
import { useEffect, useState } from './vendor/preact.js';

/** The address that a fragment says. @returns {Address} */
export function read(hash = location.hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map(decoded);
  return { tab: parts[0] ?? '', parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a hand-made address: it leads nowhere, and is shown as it is
  }
}

/**
 * The fragment of a view, for `href`.
 * @param {string} tab @param {Array<string>} parts @param {object} query what is undefined is left out
 */
export function link(tab, parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const path = [tab, ...parts].map(encodeURIComponent).join('/');
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

/** The fragment of a view of a place. @param {{ns: string, db: string}} place */
export const placed = (tab, place, parts = [], query = {}) =>
  link(tab, place?.ns && place.db ? [place.ns, place.db, ...parts] : [], query);

/** Go to a view; the back button leads here again. @param {string} to of `link` */
export function go(to) {
  location.hash = to;
}

/** The view has another address now, and the back button leads to where it led. */
export function replace(to) {
  history.replaceState(null, '', to);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** The address that is shown, for a component. @returns {Address} */
export function useAddress() {
  const [address, set] = useState(() => read());
  useEffect(() => {
    const changed = () => set(read());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return address;
}
