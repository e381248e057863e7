/** What a script answered: one result below another, and where it was refused. */
import { Ago } from '../../components/ago.js';
import { Copy, save } from '../../components/copy.js';
import { Notice, Refused } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Tree, Value } from '../../components/value.js';
import { firstWord } from '../../storeql.js';
import { kind, shown } from '../../values.js';
import { html, useMemo, useState } from '../../vendor/preact.js';
import { areObjects, csv, field, fieldsOf, isTable, json } from './formats.js';
import { Passage, passageColumns, unmarked } from './passages.js';
import { isPlan, Plan } from './plan.js';

const MOST_COLUMNS = 100;
const NO_PASSAGES = new Set();

/** @param {{answer: import('./desk.js').Answer}} props */
export function Results({ answer }) {
  const { results, texts, error, place } = answer;
  const marked = useMemo(() => passageColumns(texts), [texts]);
  return html`
    <section class="results" aria-label="Results">
      <p class="small soft summary"><span role="status">${[
        `${results.length} ${results.length === 1 ? 'result' : 'results'}`,
        answer.seq !== null && `at commit ${answer.seq}`, place && `in ${place.ns}.${place.db}`, `after ${answer.ms} ms, `,
      ].filter(Boolean).join(' ')}</span><${Ago} at=${answer.at} what="answered" /></p>
      ${results.map((result, at) => html`
        <${Result} key=${`${answer.at.getTime()} ${at}`} number=${at + 1} result=${result} text=${texts[at]} place=${place}
          passages=${marked[at]} />`)}
      ${error && html`<${Failed} error=${error} text=${error.statement ? texts[error.statement - 1] : ''} />`}
    </section>`;
}

const counted = (count, noun) => `${count} ${count === 1 ? noun : `${noun}s`}`;
const DONE = { CREATE: 'created', INSERT: 'inserted', UPSERT: 'written', UPDATE: 'updated', DELETE: 'deleted' };
const done = (text) => DONE[firstWord(text ?? '')] ?? 'changed';

function Failed({ error, text }) {
  if (error.name === 'AbortError') {
    return html`<${Notice} look="ended" title="Stopped">
      <p>The script was cancelled. Its commits up to then are kept.</p><//>`;
  }
  return html`${text && html`<p class="told"><code><bdi>${text.slice(0, 200)}</bdi></code></p>`}<${Refused} error=${error} />`;
}

function Result({ number, result, text, place, passages }) {
  const { value } = result;
  const tabular = useMemo(() => areObjects(value), [value]);
  const auto = useMemo(() => (tabular && isTable(value) ? 'table' : 'json'), [value]);
  const [chosen, choose] = useState('auto');
  const plan = isPlan(value);
  const way = chosen === 'auto' ? (plan ? 'plan' : auto) : chosen;
  const ways = [['auto', 'Auto'], ['json', 'JSON'], ...(tabular && auto === 'json' ? [['table', 'Table']] : [])];
  const silent = kind(value) === 'none';
  return html`
    <article class="result" aria-label=${`Result ${number}`}>
      <header>
        <b>${number}</b>
        ${text && html`<code class="told"><bdi>${text.replace(/\s+/g, ' ').slice(0, 160)}</bdi></code>`}
        <span class="facts"><span class="chip">${result.kind}</span>
          ${result.changed !== undefined ? html`<span>${counted(result.changed, 'record')} ${done(text)}</span>`
            : result.kind === 'rows' && html`<span>${counted(result.rows, 'row')}</span>`}
          <span class="soft">${result.took}</span></span>
      </header>
      ${!silent && html`
        <div class="actions">
          <div role="group" aria-label="View">
            ${ways.map(([name, label]) => html`<button type="button" class="bare" aria-pressed=${chosen === name}
              onClick=${() => choose(name)}>${label}</button>`)}
          </div>
          <${Out} value=${value} tabular=${tabular} number=${number} />
        </div>
        ${way === 'plan' && html`<${Plan} of=${value} />`}
        ${way === 'table' && html`<${Grid} rows=${value} place=${place} passages=${passages}
          label=${`Rows of result ${number}`} />`}
        ${way === 'json' && html`<div class="whole"><${Tree} of=${value} place=${place} /></div>`}`}
    </article>`;
}

/** What a result is copied and saved as. */
function Out({ value, tabular, number }) {
  return html`
    <span class="out">
      <${Copy} label="Copy JSON" text=${() => json(value)} />
      ${tabular && html`<${Copy} label="Copy CSV" text=${() => csv(value)} />`}
      <button type="button" class="quiet" onClick=${() => save(`result-${number}.json`, json(value), 'application/json')}>Save JSON</button>
      ${tabular && html`<button type="button" class="quiet"
        onClick=${() => save(`result-${number}.csv`, csv(value), 'text/csv')}>Save CSV</button>`}
    </span>`;
}

/**
 * Records as rows that are sorted and filtered here.
 * @param {object} props `rows`, `place`, `label`, `height`, `passages` (names of columns with passages that a search has
 *   marked), `children` (beside the filter)
 */
export function Grid({ rows, place, label, height, passages = NO_PASSAGES, children }) {
  const [words, look] = useState('');
  const names = useMemo(() => fieldsOf(rows), [rows]);
  const texts = useMemo(() => new Map(), [rows]);
  const plain = (value, name) => (passages.has(name) ? unmarked(value) : value);
  const found = useMemo(() => filtered(rows, words, texts, plain), [rows, words]);
  const drawn = names.slice(0, MOST_COLUMNS);
  const columns = useMemo(() => drawn.map((name) => ({
    name,
    title: html`<bdi>${name}</bdi>`,
    align: isFigure(field(rows.find((row) => (field(row, name) ?? null) !== null) ?? {}, name)) ? 'end' : undefined,
    cell: (row) => html`<${passages.has(name) ? Passage : Value} of=${field(row, name)} place=${place} name=${name} />`,
    value: (row) => plain(field(row, name), name),
    text: (row) => (field(row, name) === undefined ? '' : shown(plain(field(row, name), name), 48)),
  })), [drawn.join('\n'), place?.ns, place?.db, passages]);
  return html`
    <div class="actions filter">
      ${rows.length > 5 && html`<input type="search" aria-label="Filter these rows" placeholder="Filter these rows" value=${words}
        onInput=${(event) => look(event.target.value)} />
      <span class="small soft" role="status">${words ? `${found.length} of ${rows.length} rows` : ''}</span>`}
      ${names.length > MOST_COLUMNS && html`<span class="small soft">the first ${MOST_COLUMNS} of ${names.length} fields</span>`}
      ${children}
    </div>
    <${Table} label=${label} columns=${columns} rows=${found} height=${height} empty="No matching rows" />`;
}

const isFigure = (value) => value !== undefined && ['int', 'float', 'decimal'].includes(kind(value));

function filtered(rows, words, texts, plain) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return rows;
  return rows.filter((row) => {
    if (!texts.has(row)) texts.set(row, Object.entries(row)
      .map(([name, value]) => shown(plain(value, name))).join('\n').toLowerCase());
    return texts.get(row).includes(wanted);
  });
}
