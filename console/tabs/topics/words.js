/** Settings and refusals in words. */
import { Notice } from '../../components/notices.js';
import { html } from '../../vendor/preact.js';

const UNITS = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];

/** A count of bytes as BYTES takes it: in the largest unit that it is a whole number of. */
export function size(bytes) {
  const number = Number(bytes);
  const unit = UNITS.find(([, factor]) => number && number % factor === 0);
  return unit ? `${number / unit[1]}${unit[0]}` : String(bytes);
}

/** A count of bytes as one reads it at a glance. */
export function about(bytes) {
  const number = Number(bytes);
  const unit = UNITS.find(([, factor]) => number >= factor);
  return unit ? `${(number / unit[1]).toFixed(1)} ${unit[0]}` : `${number} B`;
}

/** What a topic keeps, by what INFO says of it. */
export function retention({ keep, max_bytes: most, full }) {
  const parts = [];
  if (keep) parts.push(keep.text);
  if (most) parts.push(`${size(most)}${full === 'REFUSE' ? ', then refuses' : ''}`);
  return parts.join(', ') || 'everything';
}

/** That what is shown is not all there is, in the node's words. @param {{error: Error, what: string}} props */
export const Partly = ({ error, what }) => html`
  <${Notice} look="warning" title=${`Shown are ${what}`}>
    <p class="said"><bdi>${error.message}</bdi></p><p class="small"><code>${error.code}</code></p><//>`;
