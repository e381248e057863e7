/** Declaring all nodes of a cluster in one transaction: this one, and those that are to come. */
import { Button } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import { defineReplica, inOne } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';
import { blank, Fields, isWhole, meant } from './fields.js';

/** @param {object} props `self` (INFO FOR NODE), `rows` (there already), `onDone`, `onClose` */
export function Build({ self, rows, onDone, onClose }) {
  const has = rows.some((row) => row.node === self.id);
  const [drafts, put] = useState(() => (has ? [blank()] : [
    { ...blank(), name: 'n1', endpoints: self.endpoints.join('\n'), by: 'node', id: self.id, roles: self.roles },
    { ...blank(), name: 'n2' },
  ]));
  const set = (at) => (draft) => put(drafts.map((one, index) => (index === at ? draft : one)));
  const rowsOf = drafts.map((draft) => defineReplica(meant({ ...draft, name: isWhole(draft) ? draft.name : 'unnamed' })));
  return html`
    <${Perform} title="Declare nodes" wide reasoned act="Declare all of them" onDone=${onDone} onClose=${onClose}
      statement=${drafts.every(isWhole) ? inOne(...rowsOf) : null}>
      <p>All of them are declared, or none. A row that names no node waits: a join token lets the node in that brings it, once nodes attach.</p>
      <div class="columns">
        ${drafts.map((draft, at) => html`
          <fieldset class="card stack" key=${at}>
            <legend>${draft.id === self.id && self.id ? 'This node' : `Node ${at + 1}`}</legend>
            <${Fields} draft=${draft} onInput=${set(at)} />
            ${drafts.length > 1 && html`<p><${Button} onClick=${() => put(drafts.filter((_, index) => index !== at))}>Leave out<//></p>`}
          </fieldset>`)}
      </div>
      <p><${Button} onClick=${() => put([...drafts, { ...blank(), name: `n${drafts.length + 1}` }])}>One more node<//></p>
    <//>`;
}
