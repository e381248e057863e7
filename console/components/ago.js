/** When something was read, which every figure has near it, and when something was. */
import { html, useEffect, useState } from '../vendor/preact.js';

const listeners = new Set();
setInterval(() => document.visibilityState === 'visible' && listeners.forEach((listener) => listener(Date.now())), 1000);

/** How long ago, in words: `just now`, `12 s ago`, `3 min ago`. @param {Date} at */
export function ago(at, now = Date.now()) {
  const seconds = Math.round((now - at.getTime()) / 1000);
  if (seconds < 2) return 'just now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** @param {{at: ?Date, what?: string}} props `what` happened then; `read` where nothing is said */
export function Ago({ at, what = 'read' }) {
  const [now, listener] = useState(Date.now());
  useEffect(() => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  if (!at) return null;
  return html`<time class="ago" aria-live="off" datetime=${at.toISOString()} title=${at.toLocaleString()}>
    ${what} ${ago(at, Math.max(now, at.getTime()))}</time>`;
}

/** A datetime of the language to the second, in UTC. @param {{of: {text: string}}} props all of it in its title */
export const Moment = ({ of }) =>
  html`<time datetime=${of.text} title=${of.text}>${of.text.slice(0, 19).replace('T', ' ')}</time>`;
