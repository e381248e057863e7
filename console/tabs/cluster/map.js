/** This node and the rows beside it, with what can be done to each. */
import { Button } from '../../components/form.js';
import { Confirm } from '../../components/confirm.js';
import { Value } from '../../components/value.js';
import { look, useShared } from '../../state.js';
import { dropReplica } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';
import { Roles } from '../node/declare.js';
import { Amend } from './declare.js';
import { Shown, Token } from './token.js';

const DIGITS = 16;

/** @param {object} props `self` (INFO FOR NODE), `cluster` (INFO FOR CLUSTER), `again` */
export function NodeMap({ self, cluster, again }) {
  const mine = cluster.replicas.find(({ name }) => name === cluster.member);
  const others = cluster.replicas.filter((row) => row !== mine);
  return html`
    <section aria-label="Nodes"><ul class="columns nodes">
      <li><${Self} self=${self} row=${mine} again=${again} /></li>
      ${others.map((row) => html`<li key=${row.name}><${Peer} row=${row} again=${again} /></li>`)}
    </ul></section>`;
}

const chips = (roles) => (roles === null ? html`<span class="soft">not declared</span>`
  : roles.length ? roles.map((role) => html`<span class="chip">${role}</span> `) : html`<span class="chip warn">none</span>`);

const addresses = (all) => (all.length ? all.map((one, at) => html`${at > 0 && ', '}<bdi>${one}</bdi>`)
  : html`<span class="soft">none</span>`);

function Self({ self, row, again }) {
  const { condition } = useShared();
  const [open, see] = useState(null);
  const ready = condition?.ready;
  const done = () => {
    again();
    look();
  };
  return html`
    <article class="card stack self" aria-label="This node">
      <div class="head"><h2>${row ? html`<bdi>${row.name}</bdi>` : 'This node'} ${row && html`<span class="chip well">this node</span>`}</h2>
        ${ready && html`<span class="chip ${ready.ready ? 'well' : 'ill'}">${ready.ready ? 'ready' : ready.reason}</span>`}</div>
      <dl class="pairs">
        <dt>Roles</dt><dd>${chips(self.roles)}</dd>
        <dt>Node</dt><dd><code>${self.id}</code></dd>
        <dt>Commit</dt><dd>${String(self.sequence)}</dd>
        <dt>Endpoints</dt><dd>${addresses(self.endpoints)}</dd>
        <dt>Its row</dt><dd>${row ? html`<${Row} row=${row} />` : html`<span class="soft">none: no row names this node</span>`}</dd>
      </dl>
      <p class="actions"><${Button} onClick=${() => see('roles')}>Roles<//>
        ${row && html`<${Button} onClick=${() => see('amend')}>Amend<//>
          <${Button} look="danger" onClick=${() => see('drop')}>Drop<//>`}</p>
      ${open === 'roles' && html`<${Roles} roles=${self.roles} onDone=${done} onClose=${() => see(null)} />`}
      ${open === 'amend' && html`<${Amend} row=${row} onDone=${again} onClose=${() => see(null)} />`}
      ${open === 'drop' && html`<${Dropped} row=${row} onDone=${again} onClose=${() => see(null)} />`}
    </article>`;
}

function Peer({ row, again }) {
  const [open, see] = useState(null);
  const [made, take] = useState(null);
  const shown = () => {
    take(null);
    again();
  };
  const close = () => see(null);
  return html`
    <article class="card stack" aria-label=${`Node ${row.name}`}>
      <div class="head"><h2><bdi>${row.name}</bdi></h2>
        ${row.waits ? html`<span class="chip warn">waits for its node</span>` : html`<span class="chip">declared</span>`}</div>
      <dl class="pairs"><dt>Roles</dt><dd>${chips(row.roles)}</dd><${Pairs} row=${row} /></dl>
      <p class="actions">
        <${Button} onClick=${() => see('amend')}>Amend<//>
        ${row.waits && html`<${Button} onClick=${() => see('token')}>Join token<//>`}
        <${Button} look="danger" onClick=${() => see('drop')}>Drop<//></p>
      ${open === 'amend' && html`<${Amend} row=${row} onDone=${again} onClose=${close} />`}
      ${open === 'token' && html`<${Token} row=${row} onDone=${take} onClose=${close} />`}
      ${made && html`<${Shown} made=${made} row=${row} onClose=${shown} />`}
      ${open === 'drop' && html`<${Dropped} row=${row} onDone=${again} onClose=${close} />`}
    </article>`;
}

const Row = ({ row }) => html`<dl class="pairs"><dt>Roles there</dt><dd>${chips(row.roles)}</dd><${Pairs} row=${row} /></dl>`;

const Pairs = ({ row }) => html`
  <dt>Peers reach it</dt><dd><bdi>${row.peer}</bdi></dd>
  <dt>Clients reach it</dt><dd>${addresses(row.endpoints)}</dd>
  <dt>Known by</dt><dd>${row.node ? html`its id <code>${row.node}</code>` : row.certificate
    ? html`its certificate <code title=${row.certificate}>${row.certificate.slice(0, DIGITS)}…</code>` : html`<span class="soft">nobody yet</span>`}</dd>
  ${row.token_expires !== null && html`<dt>Token</dt><dd>until <${Value} of=${row.token_expires} /></dd>`}
  ${row.comment !== null && html`<dt>Comment</dt><dd><${Value} of=${row.comment} name="Comment" /></dd>`}`;

const Dropped = ({ row, onDone, onClose }) => html`
  <${Confirm} title=${`Drop the row ${row.name}`} name=${row.name} statement=${dropReplica(row.name)} act="Drop"
    onDone=${onDone} onClose=${onClose}>
    <p>The node that it names belongs to this store no more, and its token opens nothing. What the node holds is not touched.</p>
  <//>`;
