/** What runs just now, the longest first, and how it is ended: which is kept, though it only reads. */
import { Ago } from '../../components/ago.js';
import { Button } from '../../components/form.js';
import { Killing } from '../../components/killing.js';
import { Answer } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';

const EVERY_MS = 2_000;

const columns = (end) => [
  { name: 'since', title: 'For', align: 'end', width: '16ch', value: (one) => one.since,
    cell: (one) => html`<${Value} of=${one.since} />` },
  { name: 'end', title: 'End', width: '9ch', cell: (one) => html`<${Button} look="danger" aria-label=${`End ${one.id}`}
    onClick=${() => end(one)}>KILL<//>` },
  { name: 'user', title: 'User', value: (one) => one.user, text: (one) => one.user, cell: (one) => html`<bdi>${one.user}</bdi>` },
  { name: 'text', title: 'Statement', width: '52ch', value: (one) => one.text, cell: (one) => html`<bdi title=${one.text}>${one.text}</bdi>` },
  { name: 'rows', title: 'Rows read', align: 'end', width: '15ch', value: (one) => one.rows_read, cell: (one) => String(one.rows_read) },
  { name: 'waits', title: 'State', width: '14ch', cell: (one) => (one.waiting ? html`<span class="soft">waits</span>`
    : one.commit === null ? 'runs' : 'commits') },
  { name: 'place', title: 'Place', width: '22ch', cell: (one) => html`<bdi>${[one.namespace, one.database].filter(Boolean).join('.')}</bdi>` },
  { name: 'address', title: 'By', width: '26ch', cell: (one) => html`<bdi>${one.surface} ${one.address}</bdi>` },
];

export function Running() {
  const [ending, end] = useState(null);
  const asked = useQuery((signal) => node.run(info.running(), { signal }), [], { every: EVERY_MS });
  return html`
    <section class="card stack" aria-labelledby="running-title">
      <div class="head"><h2 id="running-title">Running</h2><p class="actions"><${Ago} at=${asked.at} /></p></div>
      <${Answer} asked=${asked} what="the running statements">
        ${(all) => html`<${Table} label="Running scripts" columns=${columns(end)} sorted=${['since', true]} height="40vh"
          rows=${all.filter(({ text }) => text !== info.running().text)} empty="No other statements" />`}
      <//>
      ${ending && html`<${Killing} row=${ending} onClose=${() => end(null)} onDone=${asked.again} />`}
    </section>`;
}
