/** A small plot over time or another figure, drawn by uPlot, with its newest or chosen figures in words beside it. */
import { html, useEffect, useRef } from '../vendor/preact.js';
import { useShared } from '../state.js';

const HUES = ['--accent', '--second', '--warn', '--danger'];

/** The library. Its styles come with the first plot, so that no page waits for them. */
export function library() {
  if (!document.querySelector('link[href$="/uplot.css"]')) {
    const href = new URL('../vendor/uplot.css', import.meta.url).href;
    document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
  }
  return import('../vendor/uplot.js');
}

/** A colour of the style sheet as the canvas takes it. */
function colour(name) {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/**
 * @param {object} props `title`; `times` (seconds since 1970); `series` ([{label, values, thin}]; null where nothing
 *   is known; `thin`: beside the others); `unit` (behind a figure); `figure(number)` (its text); `height` (pixels);
 *   `across` (what `times` are instead: figures, one step apart); `chosen` (the index that is marked, and whose figures
 *   are in words; the last one); `range` ([least, most] of the figures)
 */
export function Plot({ title, times, series, unit = '', figure = plainly, height = 96, across, chosen, range }) {
  const box = useRef(null);
  const plot = useRef(null);
  const { theme } = useShared();
  const data = drawn(times, series.map(({ values }) => values));
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    let over = false;
    let watched = null;
    library().then(({ default: UPlot }) => {
      if (over) return;
      const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, font: '11px system-ui' };
      plot.current = new UPlot({
        width: box.current.clientWidth || 300, height, legend: { show: false },
        cursor: { y: false }, padding: [8, 8, 0, 0],
        scales: { ...(across && { x: { time: false, distr: 2 } }), ...(range && { y: { range } }) },
        series: [{}, ...series.map(({ label, thin }, at) => ({
          label, stroke: colour(HUES[at % HUES.length]), width: thin ? 1 : 1.5, dash: thin && [4, 3],
          points: chosen === undefined || thin ? { show: false } : { show: true, size: 8, filter: () => [chosen] },
        }))],
        axes: [{ ...axis, size: 28, ...(across && { values: (_plot, ticks) => ticks.map((tick) => tick ?? '') }) }, { ...axis, size: 56, values: (_plot, ticks) => ticks.map(figure) }],
      }, latest.current, box.current);
      watched = new ResizeObserver(([{ contentRect }]) => plot.current.setSize({ width: contentRect.width, height }));
      watched.observe(box.current);
    }, () => undefined); // the figures stand beside it in words
    return () => {
      over = true;
      watched?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [series.map(({ label }) => label).join('\n'), height, theme, across, chosen, ...range ?? []]);
  useEffect(() => plot.current?.setData(data), [times, ...series.map(({ values }) => values)]);
  return html`
    <figure class="plot">
      <figcaption>${title}${chosen !== undefined && html` <span class="soft">at ${times[chosen]} ${across}</span>`}
        ${series.map(({ label, values }, at) => html`<span class="hue-${at % HUES.length}">
          <span class="soft">${label}</span> <b>${chosen === undefined ? last(values, figure) : figure(values[chosen])}</b>${unit && ` ${unit}`}</span>`)}
      </figcaption>
      <div ref=${box} aria-hidden="true"></div>
    </figure>`;
}

/** A line has two ends: a first reading gets an unknown one before it, else the axis is of years. */
const drawn = (times, all) => (times.length === 1
  ? [[times[0] - 1, times[0]], ...all.map((values) => [null, ...values])] : [times, ...all]);

/** A number with as many digits as one can read at a glance. */
export function plainly(number) {
  const size = Math.abs(number);
  if (size >= 1e9) return `${(number / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return String(Math.round(number * 100) / 100);
}

const last = (values, figure) => {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? figure(known[known.length - 1]) : '–';
};
