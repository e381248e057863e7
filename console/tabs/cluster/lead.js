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
      <h2 id="lead-title">Who leads</h2>
      ${vacant && html`<${Vacant} about=${about} />`}
      <dl class="pairs">
        <dt>Leader</dt><dd>${self.life === 'leading' ? html`this node${led && html`, <bdi>${led.name}</bdi>`}` : html`<${Other} about=${about} />`}</dd>
        <dt>Epoch</dt><dd>${String(self.epoch)}</dd>
        ${self.lease !== null && html`<dt>Lease</dt><dd>${lasting(self.lease)} left; it is renewed when a third is over</dd>`}
        ${self.life === 'leading' ? html`<${Set} about=${about} />` : self.upstream !== null && html`<${Upstream} self=${self} />`}
      </dl>
      ${may && self.life !== 'leading' && (about.inForce || about.untold) && html`<${Taking} about=${about} vacant=${vacant} again=${again} />`}
    </section>`;
}

function Other({ about: { self, led, lost } }) {
  if (self.leader === null) return html`<span class="chip ill">nobody</span> <span class="soft">that this node knows of</span>`;
  return html`${led ? html`<bdi>${led.name}</bdi>` : html`node <code>${self.leader}</code>`}${lost ? ', as was last heard' : ''}
    ${led && led.endpoints.length > 0 && html`, at <${Consoles} endpoints=${led.endpoints} />`}`;
}

/** Who holds everything, and may take over. */
function Set({ about: { self, nodes } }) {
  const ids = self.downstream.filter(({ in_set: holds }) => holds).map(({ node }) => node);
  const rows = nodes.map(({ row }) => row).filter((row) => row && ids.includes(row.node));
  const within = [...rows.map(({ name }) => name), ...ids.filter((id) => !rows.some(({ node }) => node === id))];
  return html`
    <dt>In the set</dt><dd>this node${within.map((name) => html`, <bdi>${name}</bdi>`)}</dd>
    <dt>Followers</dt><dd>${String(self.followers)} attached${self.furthest_lag === null ? '' : self.furthest_lag === 0 ? ', none of them behind'
      : `; the one furthest behind lacks ${self.furthest_lag} commits`}</dd>`;
}

const Upstream = ({ self }) => html`
  <dt>This node</dt><dd>${self.upstream}; who leads was heard of ${lasting(self.upstream_silent)} ago</dd>`;

const Vacant = ({ about: { self, led, lost, cluster } }) => html`
  <${Notice} look="warning" title=${lost ? `${led?.name ?? 'Who leads'} is not heard of` : 'Nobody leads that this node knows of'}>
    <p>${self.waits_for ?? self.upstream_why ?? ''}</p>
    <p>Writes are refused until somebody leads. ${cluster.failover === null ? 'A node of the set takes the lead, once the lease is over: by itself, or when it is told to.'
      : cluster.failover.promote === 'MANUAL' ? 'By the policy a node takes the lead when it is told to: here, if it is in the set, or on another.'
      : 'A node of the set takes the lead by itself, once the lease is over.'}</p><//>`;

function Taking({ about, vacant, again }) {
  const [open, see] = useState(null);
  const close = () => see(null);
  return html`
    ${vacant && html`<p class="actions"><${Button} look="main" onClick=${() => see('take')}>Take the lead<//></p>`}
    <details class="what"><summary>Moving the lead, and going on when all who held everything are gone</summary>
      <p>A lead is not handed over. Stop the node that leads in order (SIGTERM): it gives up its lead at once, and ${
        about.cluster.failover?.promote === 'AUTO' ? 'another of the set takes it within a moment' : 'the one that is told to takes it'}.
        ${' '}<a href=${docs('cluster.md#who-takes-over')} target="_blank" rel="noopener">Who takes over</a></p>
      ${!vacant && html`<p><${Button} onClick=${() => see('take')}>Take the lead<//></p>`}
      <p>When every node that held everything is gone for good, this one can begin anew with what it has.</p>
      <p><${Button} look="danger" onClick=${() => see('force')}>Begin anew here<//></p>
    </details>
    ${open === 'take' && html`
      <${Perform} title="Take the lead" statement=${leadStore()} act="Take it" onDone=${again} onClose=${close}>
        <p>This node leads then, if nobody does, if it is in the set of those that hold everything, and if it was declared coordinating. Nothing
          is lost by it. Where it may not, it is refused and nothing changes.</p>
      <//>`}
    ${open === 'force' && html`<${Force} about=${about} again=${again} onClose=${close} />`}`;
}

const Force = ({ about, again, onClose }) => html`
  <${Confirm} title="Begin anew with what this node has" name=${about.self.member ?? 'this node'} called="name of this node" act="Begin anew"
    statement=${leadByForce} reasoned onDone=${again} onClose=${onClose}>
    <${Notice} look="warning" title="What was answered and is not here is lost">
      <p>A new lineage begins on this node, with what it has up to commit ${String(about.self.sequence)}. What other nodes had beyond that is
        gone for good, though clients were told that it stands.</p>
      <p>The set is this node alone, and ACKS is 0 until a new policy says otherwise: until then a loss of this node loses more.</p>
      <p>A node of the old lineage that comes back with more is stranded: it follows nobody, and has to be copied anew.</p><//>
    <p>Where one of the set can be brought back, start that one instead: it holds everything, and nothing is lost.</p>
  <//>`;
