/** What the node runs at the moment, longest first, and how it is ended. */
import { Ago } from '../../components/ago.js';
import { Killing } from '../../components/killing.js';
import { Answer } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useAsked } from '../../state.js';
import { info } from '../../statements.js';
import { shown } from '../../values.js';
import { html, useState } from '../../vendor/preact.js';

const EVERY_MS = 2000;

export function Running() {
  const asked = useAsked((signal) => node.run(info.running(), { signal }), [], { every: EVERY_MS });
  const [chosen, choose] = useState(null);
  const columns = [
    { name: 'since', cell: (row) => shown(row.since), value: (row) => row.since, width: '14ch' },
    { name: 'user', cell: (row) => html`<bdi>${row.user}</bdi>`, value: (row) => row.user, width: '14ch' },
    { name: 'place', cell: (row) => html`<bdi>${row.namespace ? `${row.namespace}.${row.database ?? ''}` : ''}</bdi>`, width: '18ch' },
    { name: 'statement', cell: (row) => html`<${Value} of=${row.text ?? ''} name="Statement" />`, width: '50ch' },
    { name: 'rows read', cell: (row) => row.rows_read, value: (row) => row.rows_read ?? 0, align: 'end', width: '12ch' },
    { name: 'waits', cell: (row) => shown(row.waiting ?? ''), width: '14ch' },
    { name: 'left', cell: (row) => (row.left ? shown(row.left) : '–'), width: '12ch' },
    { name: 'end it', title: html`<span class="unseen">End it</span>`, width: '8ch',
      cell: (row) => html`<button type="button" class="quiet" onClick=${() => choose(row)}>Kill<span class="unseen"> ${row.id}</span></button>` },
  ];
  return html`
    <section class="card" aria-label="What runs">
      <h2>Running <${Ago} at=${asked.at} /></h2>
      <${Answer} asked=${asked} what="what runs">
        ${(rows) => html`<${Table} label="Running scripts" columns=${columns} rows=${rows} empty="Nothing but this question" />`}
      <//>
    </section>
    ${chosen && html`<${Killing} row=${chosen} onClose=${() => choose(null)} onDone=${asked.again} />`}`;
}
