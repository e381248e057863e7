/** Dialogs that add a row, and that amend one. */
import { Perform } from '../../components/perform.js';
import { inOne } from '../../statements.js';
import { alterReplica, defineReplica } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { blank, Fields, isWhole, lines, meant } from './fields.js';

export function Declare({ onClose, onDone }) {
  const [draft, put] = useState(blank);
  return html`
    <${Perform} title="Add a row" statement=${isWhole(draft) ? defineReplica(meant(draft)) : null} act="Add it" reasoned
      onDone=${onDone} onClose=${onClose}>
      <${Fields} draft=${draft} onInput=${put} />
    <//>`;
}

const alike = (one, two) => one?.length === two?.length && one.every((item, at) => item === two[at]);

/** What a row is known by stays: another node is another row. */
export function Amend({ row, onClose, onDone }) {
  const [draft, put] = useState({ peer: row.peer, endpoints: row.endpoints.join('\n'), roles: row.roles });
  const ends = lines(draft.endpoints);
  const emptied = row.endpoints.length > 0 && ends.length === 0;
  const changes = [
    ...(draft.peer.trim() !== row.peer && draft.peer.trim() ? [{ peer: draft.peer.trim() }] : []),
    ...(ends.length && !alike(ends, row.endpoints) ? [{ endpoints: ends }] : []),
    ...(draft.roles !== null && !alike(draft.roles, row.roles) ? [{ roles: draft.roles }] : []),
  ].map((change) => alterReplica(row.name, change));
  const statement = changes.length > 1 ? inOne(...changes) : changes[0] ?? null;
  return html`
    <${Perform} title=${`Amend the row ${row.name}`} statement=${emptied ? null : statement} act="Amend it" reasoned
      onDone=${onDone} onClose=${onClose}>
      <${Fields} draft=${draft} onInput=${put} named=${false} />
      ${emptied && html`<p class="hint wrong">The last address of clients can't be removed.</p>`}
    <//>`;
}
