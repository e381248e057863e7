/** EXPLAIN, drawn as a tree: what is done last stands on top, where records come from at the ends. */
import { kind, shown } from '../../values.js';
import { html } from '../../vendor/preact.js';

/** Whether a value is what EXPLAIN answers. */
export const isPlan = (value) =>
  kind(value) === 'object' && typeof value.statement === 'string' && Array.isArray(value.sources);

const GOOD = new Set(['record', 'range', 'index', 'indexes', 'union', 'count', 'columns', 'fulltext', 'nearest']);
const SAYS = {
  record: 'by id',
  range: 'a range of ids',
  index: 'by an index',
  indexes: 'by the intersection of several indexes',
  union: 'by an index for each side of OR',
  count: 'from the stored count, without a read',
  columns: 'whole table, by its columns',
  fulltext: 'by words',
  nearest: 'by nearness',
  scan: 'full table scan',
  values: 'values in the statement',
};

/** @param {{of: object}} props */
export function Plan({ of }) {
  const steps = [];
  steps.push({ title: of.statement, facts: [
    of.rows !== undefined && `${of.rows} rows`, of.took !== undefined && shown(of.took),
  ] });
  if (of.order) {
    const says = { sort: 'sorts all rows', 'as read': 'read in that order' }[of.order] ?? `keeps ${of.order} while it sorts`;
    steps.push({ title: 'ORDER', says, warn: of.order === 'sort' });
  }
  if (of.distinct) steps.push({ title: 'DISTINCT', says: 'keeps the first of equal rows' });
  if (of.filter) steps.push({ title: 'WHERE', code: of.filter, says: 'applied to each row' });
  const read = of.rows_read !== undefined && `${of.rows_read} rows read`;
  return html`<div class="plan"><${Step} steps=${steps} last=${html`<ul>
    ${of.sources.map((source) => html`<${Source} of=${source} read=${of.sources.length === 1 && read} />`)}</ul>`} />
    ${of.rows_read > 0 && html`<${Share} read=${of.rows_read} kept=${of.rows} />`}</div>`;
}

function Step({ steps: [step, ...rest], last }) {
  return html`
    <div class="step"><b>${step.title}</b>
      ${step.code && html`<code><bdi>${step.code}</bdi></code>`}
      ${step.says && html`<span class=${step.warn ? 'chip warn' : 'soft'}>${step.says}</span>`}
      ${(step.facts ?? []).filter(Boolean).map((fact) => html`<span class="chip">${fact}</span>`)}
    </div>
    ${rest.length ? html`<ul><li><${Step} steps=${rest} last=${last} /></li></ul>` : last}`;
}

function Source({ of, read }) {
  const indexes = of.indexes ?? (of.index ? [of.index] : []);
  return html`
    <li><div class="step">
      <b><bdi>${of.table ?? of.of}</bdi></b>
      <span class="chip ${GOOD.has(of.access) ? 'well' : of.access === 'scan' ? 'warn' : ''}">${of.access}</span>
      <span class="soft">${SAYS[of.access] ?? ''}${of.backwards ? ', backwards' : ''}</span>
      ${indexes.map((name) => html`<span class="chip">index <bdi>${name}</bdi></span>`)}
      ${of.blocks !== undefined && html`<span class="chip">${blocks(of)}</span>`}
      ${of.overlay > 0 && html`<span class="chip">${of.overlay} changed, read by row</span>`}
      ${of.entries !== undefined && html`<span class="chip">${of.entries} entries</span>`}
      ${read && html`<span class="chip">${read}</span>`}
      ${of.access === 'nearest' && nearest(of).map((fact) => html`<span class="chip">${fact}</span>`)}
      ${typeof of.fresh === 'number' && of.fresh > 0 && html`<span class="chip">${of.fresh} fresh</span>`}
      ${(of.bounds ?? []).map((bound) => html`<code><bdi>${bound}</bdi></code>`)}
    </div>
    ${of.terms?.length > 0 && html`<ul>${of.terms.map((term) => html`
      <li class="soft">${term.not && 'without '}<code><bdi>${term.term}</bdi></code> in ${term.records} ${term.records === 1 ? 'record' : 'records'}</li>`)}</ul>`}
    ${of.by_row !== undefined && html`<ul><li class="soft">${of.access === 'columns' ? 'some' : 'read'} by row: <bdi>${of.by_row}</bdi></li></ul>`}
    ${of.unused?.length > 0 && html`<ul>${of.unused.map(({ index, why }) => html`
      <li class="soft">index <code><bdi>${index}</bdi></code> is not used: ${why}</li>`)}</ul>`}
    </li>`;
}

const WAYS = { candidates: 'the records of another index', all: 'all vectors' };

/** How the nearest records were found, and what is known of their recall. */
function nearest({ way, probes, widened, looked_at: looked, recall }) {
  const measured = recall?.filtered?.value === undefined ? recall : recall.filtered;
  const known = recall === undefined ? null : recall.value === undefined ? 'recall unmeasured'
    : `recall ${Number(measured.value).toFixed(3)}, ${Number(measured.low).toFixed(3)} or more${recall.filtered === 'unmeasured' ? ' without the other conditions' : ''}`;
  return [
    WAYS[way], probes !== undefined && `${probes} ${probes === 1 ? 'list' : 'lists'}${widened ? `, widened ${widened} times` : ''}`,
    looked !== undefined && `${looked} vectors compared`, known,
  ].filter(Boolean);
}

/** The blocks of a scan by columns. */
function blocks({ blocks, skipped }) {
  if (!blocks) return 'builds its blocks';
  return `${blocks} ${blocks === 1 ? 'block' : 'blocks'}${skipped ? `, ${skipped} skipped` : ''}`;
}

/** How much of what was read was wanted. */
function Share({ read, kept }) {
  const share = Math.min(1, kept / read);
  return html`<p class="small soft">${kept} of ${read} rows read are in the result <progress max="1" value=${share} aria-label=${`${Math.round(share * 100)} % of the rows read`}></progress></p>`;
}
