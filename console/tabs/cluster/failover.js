/** The failover policy: what it means in words, and the form that puts one into force. */
import { Area, Button, Choice, Text } from '../../components/form.js';
import { Confirm } from '../../components/confirm.js';
import { docs } from '../../components/head.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { defineFailover, dropFailover, isSpan } from '../../statements/cluster.js';
import { shown } from '../../values.js';
import { html, useState } from '../../vendor/preact.js';
import { lines } from './fields.js';

const PROMOTE = [['AUTO', 'by itself'], ['MANUAL', 'when it is told to']];
const PATIENCE = { lease: '5s', behind: '2s' };
const ACKS_MOST = 255;
/** Where etcd is reached: never with a user or a password, of which nothing is composed. */
const ADDRESS = /^https?:\/\/[^/@?#\s]+\/?$/;

/** @param {object} props `about` (`seen` of standing.js), `may`, `again` */
export function Failover({ about, may, again }) {
  const [open, see] = useState(null);
  const kept = about.cluster.failover;
  const close = () => see(null);
  return html`
    <section class="card stack" aria-labelledby="failover-title">
      <div class="head"><h2 id="failover-title">Failover</h2>
        ${may && about.takes && html`<p class="actions">
          <${Button} onClick=${() => see('define')}>${kept ? 'Change the policy' : 'Define a policy'}<//>
          ${kept && !kept.in_force && html`<${Button} look="danger" onClick=${() => see('drop')}>Drop the policy<//>`}</p>`}</div>
      <${Policy} kept=${kept} about=${about} />
      ${open === 'define' && html`<${Define} about=${about} again=${again} onClose=${close} />`}
      ${open === 'drop' && html`
        <${Confirm} title="Drop the failover policy" name="failover" called="word" statement=${dropFailover()} act="Drop it"
          onDone=${again} onClose=${close}>
          <p>It binds nobody here. Without it this node goes on alone, and takes writes again.</p>
        <//>`}
    </section>`;
}

function Policy({ kept, about }) {
  if (kept === null) {
    return html`<p>There is no policy: nothing waits for followers, and when this node is lost nobody takes over. What it had committed comes back
      from its disk, or from a <a href="#/backup">backup</a>.</p>`;
  }
  const { via, lease, acks, behind, promote } = kept;
  return html`
    ${!kept.in_force && html`<${Notice} look="warning" title="Not in force on this node">
      <p>It came with a backup, or it never came to its end to put it into force. The node takes no writes until a policy is defined here, or this one is
        dropped.</p><//>`}
    ${about.self.etcd_faults?.length > 0 && html`<${Notice} look="warning" title="Known of the etcd that this node asks">
      <ul>${about.self.etcd_faults.map((fault) => html`<li><bdi>${fault}</bdi></li>`)}</ul>
      <p><a href=${docs('cluster.md#etcd')} target="_blank" rel="noopener">What is mended in which release</a></p><//>`}
    <${Means} acks=${acks} lease=${shown(lease)} behind=${shown(behind)} promote=${promote} nodes=${about.cluster.replicas.length} />
    <dl class="pairs"><dt>Agreed in</dt><dd>${via.map((one, at) => html`${at > 0 && ', '}<bdi>${one}</bdi>`)}</dd></dl>`;
}

const times = (count, word) => `${count === 1 ? 'one' : count} ${word}${count === 1 ? '' : 's'}`;

/** What a policy means, as sentences. @param {object} props `acks`, `lease`, `behind`, `promote`, `nodes` (how many rows there are) */
function Means({ acks: given, lease, behind, promote, nodes }) {
  const acks = Number(given);
  const spare = nodes - 1 - acks;
  return html`
    <ul class="means">
      <li><b>ACKS ${String(acks)}.</b> ${acks === 0
        ? html`What is answered may be on this one disk alone. <b>A leader that is lost may take with it what it had answered.</b>`
        : html`What is answered is on ${acks + 1} disks at least: any ${acks === 1 ? 'one node may be lost' : `${acks} nodes may be lost at once`}, and nothing of it is.`}
        ${' '}${acks > 0 && (spare > 0
          ? html`Of ${nodes} nodes ${times(spare, 'follower')} may be away, and writes go on; with fewer they are refused until one is back.`
          : spare === 0 ? html`With ${nodes} nodes each of them is needed: when one is away, writes are refused until it is back.`
            : html`<b>There are only ${nodes} nodes: so many followers there will never be.</b>`)}</li>
      <li><b>LEASE ${lease}.</b> When the node that leads dies, ${promote === 'AUTO'
        ? html`another takes over by itself, at most ${lease} and a moment later.` : html`nobody takes over until somebody presses <i>Take the lead</i>; it may be taken after ${lease}.`}
        ${' '}Until then nothing is written; followers go on answering reads. One that is stopped in order gives its lead up at once.</li>
      <li><b>BEHIND ${behind}.</b> A follower that says nothing is waited for so long, and writers with it; then, if enough are left, they go on without it. It comes back by itself.</li>
      <li>When etcd is out of reach for longer than the lease, writes are refused, and reads go on.</li>
    </ul>`;
}

/** What a form begins with: the policy that there is, or one that loses nothing and goes on with a node less. */
const begun = ({ cluster: { failover: kept, replicas } }) => (kept
  ? { via: kept.via.join('\n'), lease: shown(kept.lease), acks: String(kept.acks), behind: shown(kept.behind), promote: kept.promote }
  : { via: '', ...PATIENCE, acks: String(Math.floor((replicas.length - 1) / 2)), promote: 'AUTO' });

const isCount = (text) => /^\d{1,3}$/.test(text) && Number(text) <= ACKS_MOST;

export function Define({ about, again, onClose }) {
  const [draft, put] = useState(() => begun(about));
  const set = (field) => (text) => put({ ...draft, [field]: field === 'via' ? text : text.trim() });
  const via = lines(draft.via);
  const wrong = via.find((one) => !ADDRESS.test(one));
  const whole = via.length > 0 && wrong === undefined && isSpan(draft.lease) && isSpan(draft.behind) && isCount(draft.acks);
  return html`
    <${Perform} title=${about.inForce ? 'Change the failover policy' : 'Define a failover policy'} wide act="Put it into force"
      statement=${whole ? defineFailover({ ...draft, via }) : null} reasoned onDone=${again} onClose=${onClose}>
      <div class="columns">
        <div class="stack">
          <${Area} label="Where etcd is reached" rows="3" value=${draft.via} onInput=${set('via')} placeholder="https://etcd1.example:2379"
            hint="Addresses, one a line, never with a password: as whom a node asks is said at its start. Every node has to reach it." wrong=${wrong !== undefined && 'http or https, a host and a port, and nothing else'} />
          <${Text} label="Followers that hold each commit (ACKS)" inputmode="numeric" value=${draft.acks} onInput=${set('acks')}
            wrong=${draft.acks !== '' && !isCount(draft.acks) && `0 to ${ACKS_MOST}`} />
          <${Text} label="How long a node leads that is not heard of (LEASE)" value=${draft.lease} onInput=${set('lease')} hint="2s to 5m, whole seconds"
            wrong=${!isSpan(draft.lease) && 'A duration such as 5s'} />
          <${Text} label="How long a silent follower is waited for (BEHIND)" value=${draft.behind} onInput=${set('behind')} hint="100ms to 10m"
            wrong=${!isSpan(draft.behind) && 'A duration such as 2s'} />
          <${Choice} label="Another takes over (PROMOTE)" value=${draft.promote} onInput=${set('promote')} options=${PROMOTE} />
        </div>
        <div class="stack"><h3>What that means</h3>
          <${Means} acks=${isCount(draft.acks) ? draft.acks : 0} lease=${draft.lease || '…'} behind=${draft.behind || '…'} promote=${draft.promote}
            nodes=${about.cluster.replicas.length} />
          <p class="soft">${about.inForce ? 'Other addresses have to be of the same etcd. Another LEASE counts when the lead is taken the next time.'
            : 'It is answered once the policy stands on this node and its followers, and this node leads. Until then nothing is committed.'}
            ${' '}<a href=${docs('cluster.md#failover')} target="_blank" rel="noopener">Each clause</a></p></div>
      </div>
    <//>`;
}
