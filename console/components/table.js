/** A table whose rows are drawn only where they are looked at: 100 000 are as quick as ten. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { compare } from '../values.js';

const ROW_PX = 32;
const BEYOND = 12;
const SAMPLE = 100;

/**
 * @typedef {object} Column
 * @property {string} name unique in its table
 * @property {any} [title] its head; `name` where nothing is said
 * @property {(row: any, index: number) => any} cell what is shown
 * @property {(row: any) => any} [value] a value of the language to sort by; without it no sorting
 * @property {'end'} [align] figures
 * @property {string} [width] such as `12ch`; made from `text` where nothing is said
 * @property {(row: any) => string} [text] how wide it may be, by the first rows
 */

/**
 * @param {object} props `label` (what it is a table of), `columns` ({@link Column}), `rows`,
 *   `height` (CSS, at most; `60vh`), `sorted` ([name, down] to begin with), `empty` (what stands there without
 *   rows), `current` (row => boolean: marked as the one that is looked at), `rowHeight` (pixels)
 */
export function Table({
  label, columns, rows, height = '60vh', sorted = null, empty = 'Nothing', current, rowHeight = ROW_PX,
}) {
  const [order, sort] = useState(sorted);
  const [view, look] = useState({ top: 0, tall: 800 });
  const frame = useRef(null);
  const ordered = useMemo(() => inOrder(rows, columns, order), [rows, order, columns.length]);
  const widths = useMemo(
    () => columns.map((column) => column.width ?? width(column, rows)),
    [columns.map((column) => column.name).join('\n'), rows.length > 0],
  );
  useLayoutEffect(() => {
    const box = frame.current;
    const see = () => look({ top: box.scrollTop, tall: box.clientHeight });
    see();
    const watched = new ResizeObserver(see);
    watched.observe(box);
    box.addEventListener('scroll', see, { passive: true });
    return () => {
      watched.disconnect();
      box.removeEventListener('scroll', see);
    };
  }, []);
  useEffect(() => {
    frame.current.scrollTop = 0;
  }, [order]);
  const from = Math.max(0, Math.floor(view.top / rowHeight) - BEYOND);
  const to = Math.min(ordered.length, Math.ceil((view.top + view.tall) / rowHeight) + BEYOND);
  return html`
    <div class="table" ref=${frame} tabindex="0" role="region" aria-label=${label}
      style=${`max-height: ${height}; --row: ${rowHeight}px`}>
      <table aria-rowcount=${ordered.length + 1}>
        <caption class="unseen">${label}</caption>
        <colgroup>${widths.map((one) => html`<col style=${`width: ${one}`} />`)}</colgroup>
        <thead><tr aria-rowindex="1">
          ${columns.map((column) => html`<${Head} column=${column} order=${order} onSort=${sort} />`)}
        </tr></thead>
        <tbody>
          ${from > 0 && html`<tr class="gap" style=${`height: ${from * rowHeight}px`}></tr>`}
          ${ordered.slice(from, to).map((row, at) => html`
            <tr key=${from + at} aria-rowindex=${from + at + 2} aria-current=${current?.(row) ? 'true' : undefined}>
              ${columns.map((column) => html`
                <td class=${column.align ?? ''}>${column.cell(row, from + at)}</td>`)}
            </tr>`)}
          ${to < ordered.length && html`
            <tr class="gap" style=${`height: ${(ordered.length - to) * rowHeight}px`}></tr>`}
        </tbody>
      </table>
      ${ordered.length === 0 && html`<p class="nothing">${empty}</p>`}
    </div>`;
}

function Head({ column, order, onSort }) {
  const title = column.title ?? column.name;
  const mine = order?.[0] === column.name;
  const down = mine && order[1];
  if (!column.value) return html`<th scope="col" class=${column.align ?? ''}>${title}</th>`;
  const sorted = { true: 'descending', false: 'ascending' }[down];
  return html`
    <th scope="col" class=${column.align ?? ''} aria-sort=${mine ? sorted : 'none'}>
      <button type="button" class="sort" onClick=${() => onSort(mine && down ? null : [column.name, mine])}>
        <bdi>${title}</bdi><span class="mark" aria-hidden="true">${mine ? (down ? '▾' : '▴') : ''}</span>
      </button>
    </th>`;
}

function inOrder(rows, columns, order) {
  const column = order && columns.find(({ name }) => name === order[0]);
  if (!column?.value) return rows;
  const keyed = rows.map((row) => [column.value(row), row]);
  keyed.sort((one, two) => (order[1] ? compare(two[0], one[0]) : compare(one[0], two[0])));
  return keyed.map(([, row]) => row);
}

/** Wide enough for its head and most of the first rows: fixed, so that nothing jumps while one scrolls. */
function width(column, rows) {
  const title = (typeof column.title === 'string' ? column.title : column.name).slice(0, 40);
  const texts = column.text ? rows.slice(0, SAMPLE).map((row) => column.text(row).length) : [10];
  return `${Math.max(title.length + (column.value ? 5 : 3), Math.min(48, Math.max(4, ...texts)) + 2)}ch`;
}
