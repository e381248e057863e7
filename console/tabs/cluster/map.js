/** All nodes beside each other, this one among them, with what can be done to each. */
import { Button } from '../../components/form.js';
import { Confirm } from '../../components/confirm.js';
import { Consoles } from '../../components/consoles.js';
import { Value } from '../../components/value.js';
import { dropReplica } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { Roles, rolesOf } from '../node/declare.js';
import { Expiry } from '../node/sizes.js';
import { Amend } from './declare.js';
import { Token } from './token.js';

const DIGITS = 16;

/** @param {object} props `about` (`seen` of standing.js), `may` (the caller may change it), `again` */
export const NodeMap = ({ about, may, again }) => html`
  <section aria-label="Nodes"><ul class="columns nodes">
    ${about.nodes.map((one) => html`<li key=${one.isSelf ? 'self' : one.name}>
      <${Node} one=${one} about=${about} may=${may} again=${again} /></li>`)}
  </ul></section>`;

const chips = (roles) => (roles === null ? html`<span class="soft">not declared</span>`
  : roles.length ? roles.map((role) => html`<span class="chip">${role}</span> `) : html`<span class="chip warn">none</span>`);

function Node({ one, about, may, again }) {
  const [open, see] = useState(null);
  const { row, isSelf, standing } = one;
  const close = () => see(null);
  const rows = may && about.takes && row !== null;
  const led = about.led !== null && about.led === row;
  return html`
    <article class="card stack ${led && !about.lost ? 'leads' : ''}" aria-label=${isSelf ? 'This node' : `Node ${row.name}`}>
      <div class="head"><h2><bdi>${one.name}</bdi></h2>
        <p>${isSelf && one.name !== 'This node' && html`<span class="chip">this node</span> `}<span class="chip ${standing.look}">${standing.word}</span></p></div>
      <p class="soft says">${standing.says}</p>
      <dl class="pairs">
        ${isSelf && html`<${Self} self=${about.self} row=${row} />`}
        ${about.untold ? null : row ? html`<${Row} one=${one} own=${rolesOf(about.self)} />` : html`<dt>Its row</dt><dd><span class="soft">none: this node has no row</span></dd>`}
      </dl>
      ${may && (isSelf || rows) && html`<p class="actions">
        ${isSelf && html`<${Button} onClick=${() => see('roles')}>Roles<//>`}
        ${rows && html`<${Button} onClick=${() => see('amend')}>Amend<//>
          ${row.waits && html`<${Button} onClick=${() => see('token')}>Join token<//>`}
          <${Button} look="danger" onClick=${() => see('drop')}>Drop<//>`}</p>`}
      ${open === 'roles' && html`<${Roles} roles=${rolesOf(about.self)} onDone=${again} onClose=${close} />`}
      ${open === 'amend' && html`<${Amend} row=${row} onDone=${again} onClose=${close} />`}
      ${open === 'token' && html`<${Token} row=${row} self=${about.self} onDone=${again} onClose=${close} />`}
      ${open === 'drop' && html`<${Dropped} row=${row} onDone=${again} onClose=${close} />`}
    </article>`;
}

const Self = ({ self, row }) => html`
  ${row === null && html`<dt>Node</dt><dd><code>${self.id}</code></dd>`}
  <dt>Roles</dt><dd>${chips(rolesOf(self))}</dd>
  <dt>Commit</dt><dd>${String(self.sequence)}</dd>`;

const alike = (one, two) => one !== null && one.length === two.length && one.every((role) => two.includes(role));

/** @param {object} props `one`, `own` (the roles of this node) */
function Row({ one, own }) {
  const { row, isSelf, certificates } = one;
  return html`
    ${!(isSelf && alike(row.roles, own)) && html`<dt>${isSelf ? 'Roles in its row' : 'Roles'}</dt><dd>${chips(row.roles)}</dd>`}
    <dt>Address for peers</dt><dd><bdi>${row.peer}</bdi></dd>
    <dt>Addresses for clients</dt><dd>${row.endpoints.length === 0 ? html`<span class="soft">none declared</span>`
      : isSelf ? row.endpoints.map((address, at) => html`${at > 0 && ', '}<bdi>${address}</bdi>`) : html`<${Consoles} endpoints=${row.endpoints} />`}</dd>
    <dt>Known by</dt><dd>${row.node ? html`its id <code>${row.node}</code>` : row.certificate
      ? html`its certificate <code title=${row.certificate}>${row.certificate.slice(0, DIGITS)}…</code>` : html`<span class="soft">no node yet</span>`}</dd>
    ${certificates.map(({ certificate, expires }) => html`<dt>Certificate</dt>
      <dd><code title=${certificate}>${certificate.slice(0, 8)}…</code>${' '}
        ${expires === null ? html`<span class="soft">not used yet</span>` : html`<${Expiry} at=${expires.text} />`}</dd>`)}
    ${row.token_expires !== null && html`<dt>Token</dt><dd>until <${Value} of=${row.token_expires} /></dd>`}
    ${row.comment !== null && html`<dt>Comment</dt><dd><${Value} of=${row.comment} name="Comment" /></dd>`}`;
}

const Dropped = ({ row, onDone, onClose }) => html`
  <${Confirm} title=${`Drop the row ${row.name}`} name=${row.name} statement=${dropReplica(row.name)} act="Drop"
    onDone=${onDone} onClose=${onClose}>
    <p>Its node no longer belongs to this store: its links end at once, its certificate is no longer trusted, and its token opens
      nothing. What it holds is not touched. Where too few would be left for the policy, it is refused.</p>
  <//>`;
