/** The indexes of a table on its page: each one's state, the segments of a FULLTEXT index, the lists and the recall of a VECTOR index. */
import { Ago, Moment } from '../../components/ago.js';
import { Button } from '../../components/form.js';
import { Answer } from '../../components/notices.js';
import { Plot } from '../../components/plot.js';
import { Table } from '../../components/table.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info, measure } from '../../statements.js';
import { shown } from '../../values.js';
import { html, useEffect, useState } from '../../vendor/preact.js';
import { bytes, count } from '../node/sizes.js';

/** More are named only. */
const ASKED = 24;
const BUILDING_MS = 2_000;
/** How states look that stay as they are; the others end by themselves. */
const LOOKS = { ready: 'well', failed: 'ill' };

/** @param {object} props `table`, `indexes` (of INFO FOR TABLE), `place`, `onOpen(text)` a script to be opened */
export function Indexes({ table, indexes, place, onOpen }) {
  if (!indexes.length) return null;
  return html`
    <section class="card" aria-label="Indexes">
      <h2>Indexes</h2>
      <ul class="indexes">
        ${indexes.slice(0, ASKED).map((index) => html`
          <${Index} key=${index.name} table=${table} index=${index} place=${place} onOpen=${onOpen} />`)}
      </ul>
      ${indexes.length > ASKED && html`<p class="soft">and ${indexes.length - ASKED} more: ${indexes.slice(ASKED).map(({ name }) => name).join(', ')}</p>`}
    </section>`;
}

const kindOf = (index) => (index.analyzer !== undefined ? 'FULLTEXT' : index.dimension !== undefined ? 'VECTOR' : index.unique ? 'UNIQUE' : null);

function Index({ table, index, place, onOpen }) {
  const kind = kindOf(index);
  const more = kind === 'FULLTEXT' || kind === 'VECTOR' || index.state !== 'ready';
  const [state, become] = useState(index.state);
  const asked = useQuery(more ? (signal) => node.run(info.index(index.name, table), { place, signal }) : null, [table, index.name, place.ns, place.db], {
    every: LOOKS[state] ? 0 : BUILDING_MS,
  });
  const told = asked.value ?? index;
  useEffect(() => become(told.state), [told.state]);
  return html`
    <li class="card index" aria-label=${`Index ${index.name}`}>
      <h3><bdi>${index.name}</bdi> ${kind && html`<span class="chip">${kind}</span>`}
        <span class="chip ${LOOKS[told.state] ?? 'warn'}">${told.state}</span>
        ${more && html`<${Ago} at=${asked.at} />`}</h3>
      <p class="soft"><bdi>${index.fields.join(', ')}</bdi>${index.comment && html`: <bdi>${index.comment}</bdi>`}</p>
      ${told.problem && html`<p class="wrong"><bdi>${told.problem}</bdi></p>`}
      ${told.visited !== undefined && html`<p>${count(told.visited)} of ${count(told.records)} records visited</p>`}
      ${more && html`<${Answer} asked=${asked} what=${index.name}>
        ${(found) => (kind === 'FULLTEXT' ? html`<${FullText} of=${found} />`
          : kind === 'VECTOR' && html`<${Vector} of=${found} table=${table} onOpen=${onOpen} />`)}
      <//>
      <p class="actions"><${Button} look="quiet" onClick=${asked.again}>Refresh<//>
        ${kind === 'VECTOR' && html`<${Button} look="quiet" onClick=${() => onOpen(measure(index.name, table).text)}>Measure its recall in a script<//>`}</p>`}
    </li>`;
}

const Pairs = ({ of }) => html`<dl class="pairs">${of.filter(Boolean).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

const boosted = (fields, boosts) => fields.map((field, at) => `${field} ${shown(boosts[at])}`).join(', ');

function FullText({ of }) {
  return html`<${Pairs} of=${[
    ['Analyzer', html`<bdi>${of.analyzer}</bdi>`],
    ['BM25', of.scoring.map((number) => shown(number)).join(', ')],
    of.boosts && ['Boost', html`<bdi>${boosted(of.fields, of.boosts)}</bdi>`],
    ['Records', count(of.records)],
    ['Terms', `${count(of.terms)}, of ${count(of.tokens)} words`],
    ['Segments', `${count(of.segments)}, ${bytes(of.bytes)}`],
    ['Fresh', `${count(of.fresh.records)} records, ${bytes(of.fresh.bytes)}`],
  ]} />`;
}

function Vector({ of }) {
  return html`
    <${Pairs} of=${[
      ['Vectors', `${count(of.records)} of ${count(of.dimension)} numbers, ${of.type}${of.without ? `; ${count(of.without)} records without` : ''}`],
      ['Distance', of.distance],
      ['Lists', of.lists === 1 ? '1: answers are exact' : `${count(of.lists)}, the largest of ${count(of.largest_list)}`],
      of.lists > 1 && ['Probes', `${count(of.probes)} lists for a query`],
      ['Segments', `${count(of.segments)}, ${bytes(of.bytes)}`],
      ['Fresh', `${count(of.fresh)} records`],
      ['Recall', html`<${Recall} of=${of} />`],
    ]} />
    ${of.recall.curve?.length > 1 && html`<${Curve} of=${of.recall} />`}`;
}

/** A share with as many digits as its interval is worth. @param {number|import('../../values.js').Whole} of */
const share = (of) => (Number(of) === 1 ? '1' : Number(of).toFixed(3));

function Recall({ of: { recall, target } }) {
  if (recall === 'unmeasured') return html`<span class="chip">unmeasured</span> wanted: ${share(target)}`;
  return html`<span class="chip ${recall.state === 'measured' ? 'well' : 'warn'}">${recall.state}</span>
    ${' '}<b>${share(recall.value)}</b> of the ${recall.k} nearest, ${share(recall.low)} to ${share(recall.high)} with 95 %
    ${recall.low < recall.target && html` <span class="chip warn">below ${share(recall.target)}, which is wanted</span>`}
    <br /><span class="soft">${count(recall.queries)} ${QUERIES[recall.of] ?? recall.of},${' '}
      <${Moment} of=${recall.at} />, ${Math.round(100 * recall.changed)} % changed since</span>`;
}

const QUERIES = { given: 'given queries', live: 'queries that were asked', stored: 'stored vectors as queries' };

const COLUMNS = [
  { name: 'probes', cell: (row) => count(row.probes), align: 'end', width: '10ch' },
  ...['value', 'low', 'high'].map((name) => ({
    name, title: name === 'value' ? 'recall' : name, cell: (row) => share(row[name]), align: 'end', width: '10ch',
  })),
];

function Curve({ of: { curve, probes: chosen, target } }) {
  const at = curve.findIndex(({ probes }) => probes >= chosen);
  const line = (label, name) => ({ label, values: curve.map((point) => Number(point[name])) });
  const least = Math.min(...curve.map(({ low }) => low), target);
  return html`
    <${Plot} title="Recall over probes" across="probes" times=${curve.map(({ probes }) => probes)} figure=${share} height=${160}
      chosen=${at < 0 ? undefined : at} range=${[Math.max(0, Math.floor(20 * least) / 20), 1]}
      series=${[line('recall', 'value'), { ...line('low', 'low'), thin: true }, { ...line('high', 'high'), thin: true },
        { label: 'wanted', values: curve.map(() => Number(target)), thin: true }]} />
    <details class="figures"><summary class="soft small">Its figures</summary>
      <${Table} label="Recall over probes" columns=${COLUMNS} rows=${curve} height="18rem" current=${(row) => row === curve[at]} /></details>`;
}
