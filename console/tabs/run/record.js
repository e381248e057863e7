/** A record's page: what it holds, and what became of it, newest first. */
import { placed } from '../../address.js';
import { Ago } from '../../components/ago.js';
import { Button, useDoing } from '../../components/form.js';
import { Answer, Empty, Notice, Refused } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Tree, Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { changing, info, record } from '../../statements.js';
import { kind } from '../../values.js';
import { html, useEffect, useState } from '../../vendor/preact.js';

const PAGE = 50;
const STOPPED = {
  limit: 'There are older changes.',
  budget: 'The search stopped here.',
  pruned: 'Older changes are no longer in the log.',
};

const fieldsOf = ({ id: _id, ...fields }) => fields;

/** @param {object} props `id` (such as person:1), `place`, `onOpen(text)` */
export function RecordPage({ id, place, onOpen }) {
  const now = useQuery((signal) => node.run(record(id), { place, signal }), [id, place.ns, place.db]);
  return html`
    <section class="card" aria-label="Record">
      <h2><bdi>${id}</bdi> <${Ago} at=${now.at} /></h2>
      <${Answer} asked=${now} what=${id}>
        ${(value) => (kind(value) === 'none'
          ? html`<${Empty} title="No such record"><p>Its history shows if it ever existed.</p><//>`
          : html`<div class="whole"><${Tree} of=${value} place=${place} /></div>
            <p class="actions"><${Button} onClick=${() => onOpen(changing(id, fieldsOf(value)).text)}>Change it in a script<//>
              <${Button} onClick=${now.again}>Refresh<//></p>`)}
      <//>
    </section>
    <${History} id=${id} place=${place} />`;
}

function History({ id, place }) {
  const [entries, add] = useState([]);
  const asked = useQuery((signal) => node.run(info.history(id, { limit: PAGE }), { place, signal }), [id, place.ns, place.db]);
  const [older, put] = useState(null);
  const [doing, error, attempt] = useDoing();
  useEffect(() => {
    add(asked.value?.entries ?? []);
    put(asked.value ?? null);
  }, [asked.value]);
  const more = () => attempt(async () => {
    const found = await node.run(info.history(id, { before: older.next, limit: PAGE }), { place });
    add((before) => [...before, ...found.entries]);
    put(found);
  });
  const columns = [
    { name: 'commit', cell: (row) => String(row.seq), align: 'end', width: '9ch' },
    { name: 'at', cell: (row) => html`<${Value} of=${row.at} />`, width: '29ch' },
    { name: 'action', cell: (row) => row.action, width: '9ch' },
    { name: 'by', cell: (row) => html`<bdi>${row.by ?? '–'}</bdi>`, width: '11ch' },
    { name: 'changed', cell: (row) => html`<bdi>${row.changed ? row.changed.join(', ') : 'unknown'}</bdi>`, width: '20ch' },
    { name: 'reason', cell: (row) => html`<bdi>${row.reason ?? ''}</bdi>`, width: '16ch' },
    { name: 'fields afterwards', cell: (row) => row.value && html`<${Value} of=${row.value} place=${place} name="Fields" />`, width: '26ch' },
  ];
  return html`
    <section class="card" aria-label="History">
      <h2>History <${Ago} at=${asked.at} /></h2>
      <${Answer} asked=${asked} what="its history">
        ${() => html`
          <${Table} label=${`History of ${id}`} columns=${columns} rows=${entries} empty="No changes found" />
          ${older?.stopped && html`<${Notice} look="empty" title=${STOPPED[older.stopped]}>
            ${older.next !== null && html`<p><${Button} busy=${doing} onClick=${more}>Read older ones<//></p>`}<//>`}
          ${error && html`<${Refused} error=${error} />`}`}
      <//>
    </section>
    <p><a href=${placed('run', place)}>Back to the scripts</a></p>`;
}
