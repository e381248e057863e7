/** What is in the backup folder, whether it is whole, and making databases anew from a script of it. */
import { Moment } from '../../components/ago.js';
import { Confirm } from '../../components/confirm.js';
import { Dialog } from '../../components/dialog.js';
import { Button } from '../../components/form.js';
import { docs } from '../../components/head.js';
import { Answer, Empty, Notice } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { restore } from '../../statements/backups.js';
import { html, useState } from '../../vendor/preact.js';
import { size } from './size.js';

/** @param {object} props `files` (of INFO FOR BACKUPS), `onBusy(boolean)`, `onDone` */
export function Folder({ files, onBusy, onDone }) {
  const [chosen, choose] = useState(null);
  const [made, tell] = useState(null);
  if (!files.length) return html`<${Empty} title="The folder is empty"><p>Take the first backup.</p><//>`;
  const done = (value) => {
    tell(value);
    onDone();
  };
  return html`
    ${made && html`<${Notice} look="well" title="Restored"><${Makes} of=${made} past /><//>`}
    <${Table} label="Files of the backup folder" columns=${columns(choose)} rows=${files} sorted=${['at', true]} />
    ${chosen && html`<${Restore} path=${chosen} onBusy=${onBusy} onDone=${done} onClose=${() => choose(null)} />`}`;
}

const columns = (choose) => [
  { name: 'path', title: 'Path', width: '30ch', value: ({ path }) => path, cell: ({ path }) => html`<${Value} of=${path} room=${60} name="Path" />` },
  { name: 'form', title: 'Form', width: '11ch', value: ({ form }) => form, cell: ({ form }) => form ?? html`<span class="soft">none</span>` },
  {
    name: 'state', title: 'Whole', width: '16ch', value: ({ verifies }) => verifies,
    cell: (file) => (file.verifies ? html`<span class="chip well">whole</span>`
      : html`<${Value} of=${file.problem} room=${18} name="Problem" />`),
  },
  {
    name: 'does', title: 'Restore', width: '15ch',
    cell: ({ path, form, verifies }) => form === 'script' && verifies
      && html`<${Button} onClick=${() => choose(path)} aria-label=${`Restore ${path}`}>Restore…<//>`,
  },
  { name: 'bytes', title: 'Size', align: 'end', width: '11ch', value: ({ bytes }) => bytes, cell: ({ bytes }) => size(bytes) },
  { name: 'at', title: 'Taken', width: '22ch', value: ({ at }) => at, cell: ({ at }) => html`<${Moment} of=${at} />` },
  { name: 'sequence', title: 'Up to commit', align: 'end', width: '15ch', value: ({ sequence }) => sequence,
    cell: ({ sequence }) => (sequence === null ? html`<span class="soft">–</span>` : String(sequence)) },
  { name: 'place', title: 'Of', width: '18ch', value: ({ place }) => place,
    cell: ({ place, form }) => place ?? html`<span class="soft">${form === null || form === 'script' ? '–' : 'the whole store'}</span>` },
  { name: 'sealed', title: 'With a key', width: '12ch', value: ({ sealed }) => sealed, cell: ({ sealed }) => (sealed ? 'sealed' : 'open') },
];

/** First what it would make, then, with its name typed again, that it does. */
function Restore({ path, onBusy, onDone, onClose }) {
  const [sure, ask] = useState(false);
  const asked = useQuery((signal) => node.run(restore(path, { check: true }), { signal }), [path]);
  if (sure) {
    const run = async (reason) => {
      onBusy(true);
      try {
        return await node.run(restore(path), { reason });
      } finally {
        onBusy(false);
      }
    };
    return html`
      <${Confirm} title="Restore a script" name=${path} called="path" act="Restore" statement=${restore(path)} run=${run}
        onDone=${onDone} onClose=${onClose}>
        <${Makes} of=${asked.value} />
        <p class="soft">It continues when this dialog is closed. If it fails, everything that it has created is removed.</p>
      <//>`;
  }
  return html`
    <${Dialog} title="Restore a script" onClose=${onClose}>
      <${Composed} of=${restore(path, { check: true })} title="Statement" />
      <${Answer} asked=${asked} what="all of the script, to check it">
        ${(found) => html`
          <${Makes} of=${found} />
          <p class="actions">
            <${Button} onClick=${onClose}>Cancel<//>
            <${Button} look="main" onClick=${() => ask(true)} disabled=${Boolean(asked.error)}>Go on<//>
          </p>`}
      <//>
      ${asked.error?.code === 'RestoreTargetExists' && html`<p>Databases are restored under their own names. To have
        one beside what is there, <a href=${docs('console.md#an-evening')} target="_blank" rel="noopener">run its text under
        another name</a>.</p>`}
    <//>`;
}

function Makes({ of, past = false }) {
  return html`
    <p>${past ? 'It created' : 'It creates'} ${of.databases.length === 1 ? 'a database' : `${of.databases.length} databases`},
      with ${String(of.statements)} statements:</p>
    <ul class="plain">${of.databases.map((one) => html`<li><code><bdi>${one}</bdi></code></li>`)}</ul>
    ${!past && html`<p class="soft">Everything else stays as it is.</p>`}`;
}
