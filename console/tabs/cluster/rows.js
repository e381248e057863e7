/** Declaring all nodes of a cluster in one transaction: this one, and those that are to come. */
import { Button } from '../../components/form.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { inOne } from '../../statements.js';
import { defineReplica } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { blank, Fields, isWhole, meant, ROLES } from './fields.js';

/** A node of a cluster in which each may take over. */
const able = (name) => ({ ...blank(), name, roles: ROLES });

/** Names that no row has: n1, n2, … */
function* names(rows) {
  const taken = new Set(rows.map(({ name }) => name));
  for (let number = 1; ; number++) if (!taken.has(`n${number}`)) yield `n${number}`;
}

/** Where this page reaches a port of the node. */
const here = (address) => `${location.hostname}:${address.split(':').at(-1)}`;

/** This node, as far as it is known: where it is reached from here is where others may reach it. */
function own(self, name) {
  const at = (surface) => self.surfaces.filter((one) => one.surface === surface).map(({ address }) => here(address));
  const ends = self.endpoints.length ? self.endpoints : [...at('http'), ...at('wire')];
  return { ...able(name), peer: at('peer')[0] ?? '', endpoints: ends.join('\n'), by: 'node', id: self.id };
}

const isHere = (address) => /^(localhost|127(\.\d+){3}|\[::1\]):/.test(address);

/** @param {object} props `self` (INFO FOR NODE), `rows` (there already), `onDone`, `onClose` */
export function Rows({ self, rows, onDone, onClose }) {
  const has = rows.some((row) => row.node === self.id);
  const [drafts, put] = useState(() => {
    const free = names(rows);
    const next = () => free.next().value;
    return has ? [able(next())] : [own(self, next()), able(next()), able(next())];
  });
  const set = (at) => (draft) => put(drafts.map((one, index) => (index === at ? draft : one)));
  const statements = drafts.map((draft) => isWhole(draft) && defineReplica(meant(draft)));
  const more = () => put([...drafts, able(names([...rows, ...drafts]).next().value)]);
  return html`
    <${Perform} title="Declare nodes" wide reasoned act="Declare all of them" onDone=${onDone} onClose=${onClose}
      statement=${statements.every(Boolean) ? inOne(...statements) : null}>
      <p>All of them are declared, or none. A row without a node waits for a node with its join token. With three nodes, one may be lost and
        writes continue.</p>
      ${drafts.some(({ peer }) => isHere(peer)) && drafts.some(({ peer }) => peer && !isHere(peer)) && html`
        <${Notice} look="warning" title="A local address"><p>Nodes on other machines can't reach localhost.</p><//>`}
      <div class="columns">
        ${drafts.map((draft, at) => html`
          <fieldset class="card stack" key=${at}>
            <legend>${draft.id === self.id && self.id ? 'This node' : `Node ${rows.length + at + 1}`}</legend>
            <${Fields} draft=${draft} onInput=${set(at)} />
            ${drafts.length > 1 && html`<p><${Button} onClick=${() => put(drafts.filter((_, index) => index !== at))}>Remove<//></p>`}
          </fieldset>`)}
      </div>
      <p><${Button} onClick=${more}>Add a node<//></p>
    <//>`;
}
