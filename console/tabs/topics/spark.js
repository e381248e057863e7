/** A line as small as a word: how a figure went, beside the figure. */
import { html } from '../../vendor/preact.js';

const WIDE = 72;
const TALL = 18;

/** @param {{times: number[], values: Array<?number>, hue?: string}} props `hue`: `hue-0` to `hue-3` of the plots */
export function Spark({ times, values, hue = 'hue-0' }) {
  const points = times.map((time, at) => [time, values[at]]).filter(([, value]) => value !== null);
  if (points.length < 2) return html`<svg class="spark" width=${WIDE} height=${TALL} aria-hidden="true"></svg>`;
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const most = Math.max(...points.map(([, value]) => value), 1e-9);
  const drawn = points.map(([time, value]) => {
    const x = ((time - first) / Math.max(last - first, 0.001)) * (WIDE - 2) + 1;
    return `${x.toFixed(1)},${(TALL - 2 - (value / most) * (TALL - 4)).toFixed(1)}`;
  });
  return html`<svg class="spark ${hue}" width=${WIDE} height=${TALL} aria-hidden="true">
    <polyline points=${drawn.join(' ')} /></svg>`;
}
