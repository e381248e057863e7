/** How sizes, spans and shares are written. */
import { html } from '../../vendor/preact.js';

const STEPS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const DAY_MS = 86_400_000;

/** Bytes in words: `1.4 GiB`. */
export function bytes(count) {
  const step = Math.min(STEPS.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  return `${step ? (count / 1024 ** step).toFixed(1) : count} ${STEPS[step]}`;
}

/** A number with its thousands apart. */
export const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, '\u202f');

/** Whole days until a datetime of the node; below 0 once it is over. @param {string} text */
export const daysUntil = (text, now = Date.now()) => Math.floor((Date.parse(text) - now) / DAY_MS);

/** When a certificate is over, with the days left: within fourteen a warning. @param {{at: string}} props */
export function Expiry({ at }) {
  const days = daysUntil(at);
  const look = days < 0 ? 'ill' : days < 14 ? 'warn' : 'well';
  return html`<time datetime=${at}>${at.slice(0, 10)}</time>${' '}
    <span class="chip ${look}">${days < 0 ? 'expired' : days === 1 ? '1 day left' : `${days} days left`}</span>`;
}

/** So many of at most so many. @param {{label: string, of: number, most: number}} props */
export const Share = ({ label, of, most }) => html`
  <span class="share"><span>${label}</span>
    <meter min="0" max=${most} high=${most * 0.8} optimum="0" value=${of} aria-label=${`${label}: ${of} of ${most}`}></meter>
    <span>${count(of)} <span class="soft">of ${count(most)}</span></span></span>`;
