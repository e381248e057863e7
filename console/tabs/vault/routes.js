/**
 * The routes of vaults. What is secret travels in their bodies and nowhere else.
 *
 * @typedef {{ns: string, db: string, vault: string}} Of a vault; null: the store
 */
import * as node from '../../node.js';

/** How it stands with the store and the vaults that the caller may see. */
export const standings = (signal) => node.request('GET', '/vault', { signal });

/** @param {?Of} of @returns {Promise<{sealed: boolean, until: string}>} */
export function unseal(of, passphrase) {
  const body = { passphrase };
  if (!of) return node.request('POST', '/vault/unseal', { body });
  return node.request('POST', `/vault/${of.ns}/${of.db}/${of.vault}/unseal`, { body });
}

/** @param {?Of} of */
export function seal(of) {
  if (!of) return node.request('POST', '/vault/seal', {});
  return node.request('POST', `/vault/${of.ns}/${of.db}/${of.vault}/seal`, {});
}

/** @param {?Of} of @param {{old?: string, new: string, rekey?: boolean}} body @returns {Promise<{rewrapped: number}>} */
export function passphrase(of, body) {
  if (!of) return node.request('POST', '/vault/passphrase', { body });
  return node.request('POST', `/vault/${of.ns}/${of.db}/${of.vault}/passphrase`, { body });
}

/** @param {Of} of @param {{id: string, version?: number, reason?: string}} body */
export const reveal = (of, body) => node.request('POST', `/vault/${of.ns}/${of.db}/${of.vault}/reveal`, { body });

/** @param {Of} of @param {{id: string, value: any, if?: 'absent', expect?: number, reason?: string}} body */
export const write = (of, body) => node.request('POST', `/vault/${of.ns}/${of.db}/${of.vault}/write`, { body });

/** @param {Of} of @param {{id: string, reason?: string}} body */
export const erase = (of, body) => node.request('POST', `/vault/${of.ns}/${of.db}/${of.vault}/erase`, { body });

/** A request as it is shown before it is sent: what is secret stands in it as '...'. @param {?Of} of */
export const shown = (of, word, body) => ({
  method: 'POST', path: of ? `/vault/${of.ns}/${of.db}/${of.vault}/${word}` : `/vault/${word}`, body,
});
