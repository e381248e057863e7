/** Who leads, and taking a lead that nobody has. */
import { Button } from '../../components/form.js';
import { Confirm } from '../../components/confirm.js';
import { Consoles } from '../../components/consoles.js';
import { docs } from '../../components/head.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { leadByForce, leadStore } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { lasting } from './standing.js';

/** @param {object} props `about` (`seen` of standing.js), `may`, `again` */
export function Lead({ about, may, again }) {
  const { self, led, lost } = about;
  const vacant = self.life === 'waiting' || lost;
  return html`
    <section class="card stack" aria-labelledby="lead-title">
      <h2 id="lead-title">Leader</h2>
      ${vacant && html`<${Vacant} about=${about} />`}
      <dl class="pairs">
        <dt>Leader</dt><dd>${self.life === 'leading' ? html`this node${led && html`, <bdi>${led.name}</bdi>`}` : html`<${Other} about=${about} />`}</dd>
        <dt>Epoch</dt><dd>${String(self.epoch)}</dd>
        ${self.lease !== null && html`<dt>Lease</dt><dd>${lasting(self.lease)} left; renewed after a third of it</dd>`}
        ${self.life === 'leading' ? html`<${Set} about=${about} />` : self.upstream !== null && html`<${Upstream} self=${self} />`}
      </dl>
      ${may && self.life !== 'leading' && (about.inForce || about.untold) && html`<${Taking} about=${about} vacant=${vacant} again=${again} />`}
    </section>`;
}

function Other({ about: { self, led, lost } }) {
  if (self.leader === null) return html`<span class="chip ill">none</span> <span class="soft">known to this node</span>`;
  return html`${led ? html`<bdi>${led.name}</bdi>` : html`node <code>${self.leader}</code>`}${lost ? ', as last known' : ''}
    ${led && led.endpoints.length > 0 && html`, at <${Consoles} endpoints=${led.endpoints} />`}`;
}

/** Who holds everything, and may take over. */
function Set({ about: { self, nodes } }) {
  const ids = self.downstream.filter(({ in_set: holds }) => holds).map(({ node }) => node);
  const rows = nodes.map(({ row }) => row).filter((row) => row && ids.includes(row.node));
  const within = [...rows.map(({ name }) => name), ...ids.filter((id) => !rows.some(({ node }) => node === id))];
  return html`
    <dt>In-sync replicas</dt><dd>this node${within.map((name) => html`, <bdi>${name}</bdi>`)}</dd>
    <dt>Followers</dt><dd>${String(self.followers)} attached${self.furthest_lag === null ? '' : self.furthest_lag === 0 ? ', none behind'
      : `; the one furthest behind lacks ${self.furthest_lag} commits`}</dd>`;
}

const Upstream = ({ self }) => html`
  <dt>This node</dt><dd>${self.upstream}; last contact with the leader ${lasting(self.upstream_silent)} ago</dd>`;

const Vacant = ({ about: { self, led, lost, cluster } }) => html`
  <${Notice} look="warning" title=${lost ? `No contact with ${led?.name ?? 'the leader'}` : 'No leader is known'}>
    <p>${self.waits_for ?? self.upstream_why ?? ''}</p>
    <p>Writes are refused until there is a leader. ${cluster.failover === null ? 'An in-sync replica takes the lead after the lease has expired: automatically, or by command.'
      : cluster.failover.promote === 'MANUAL' ? 'By the policy a node takes the lead by command: this one, if it is in sync, or another.'
      : 'An in-sync replica takes the lead automatically after the lease has expired.'}</p><//>`;

function Taking({ about, vacant, again }) {
  const [open, see] = useState(null);
  const close = () => see(null);
  return html`
    ${vacant && html`<p class="actions"><${Button} look="main" onClick=${() => see('take')}>Take the lead<//></p>`}
    <details class="what"><summary>Move the lead, or continue after the loss of all in-sync replicas</summary>
      <p>A lead is not handed over. Stop the node that leads in order (SIGTERM): it gives up its lead at once, and ${
        about.cluster.failover?.promote === 'AUTO' ? 'another in-sync replica takes it at once' : 'a node takes it by command'}.
        ${' '}<a href=${docs('cluster.md#who-takes-over')} target="_blank" rel="noopener">Who takes over</a></p>
      ${!vacant && html`<p><${Button} onClick=${() => see('take')}>Take the lead<//></p>`}
      <p>When all in-sync replicas are lost for good, this node can continue with the data that it has.</p>
      <p><${Button} look="danger" onClick=${() => see('force')}>Force the lead<//></p>
    </details>
    ${open === 'take' && html`
      <${Perform} title="Take the lead" statement=${leadStore()} act="Take it" onDone=${again} onClose=${close}>
        <p>This node becomes the leader if there is none, if it is an in-sync replica, and if it is declared coordinating. Nothing
          is lost. Otherwise the statement is refused and nothing changes.</p>
      <//>`}
    ${open === 'force' && html`<${Force} about=${about} again=${again} onClose=${close} />`}`;
}

const Force = ({ about, again, onClose }) => html`
  <${Confirm} title="Force the lead with the data of this node" name=${about.self.member ?? 'this node'} called="name of this node" act="Force"
    statement=${leadByForce} reasoned onDone=${again} onClose=${onClose}>
    <${Notice} look="warning" title="Acknowledged commits that this node lacks are lost">
      <p>A new lineage begins on this node, with what it has up to commit ${String(about.self.sequence)}. What other nodes had beyond that is
        lost for good, although clients received an acknowledgement.</p>
      <p>This node is then the only in-sync replica, and ACKS is 0 until a new policy is defined: until then, losing this node loses more.</p>
      <p>A node of the old lineage that returns with later commits is stranded: it follows no node, and must be copied again.</p><//>
    <p>If an in-sync replica can be recovered, start that one instead: it has all commits, and nothing is lost.</p>
  <//>`;
