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

const PROMOTE = [['AUTO', 'automatically'], ['MANUAL', 'by command']];
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
          <p>The policy is not in force here. Without it this node continues alone, and takes writes again.</p>
        <//>`}
    </section>`;
}

function Policy({ kept, about }) {
  if (kept === null) {
    return html`<p>There is no policy: commits do not wait for followers, and no node takes over when this one is lost. Its commits can be restored
      from its disk, or from a <a href="#/backup">backup</a>.</p>`;
  }
  const { via, lease, acks, behind, promote } = kept;
  return html`
    ${!kept.in_force && html`<${Notice} look="warning" title="Not in force on this node">
      <p>The policy came with a backup, or its definition did not finish. The node takes no writes until a policy is defined here, or this one is
        dropped.</p><//>`}
    ${about.self.etcd_faults?.length > 0 && html`<${Notice} look="warning" title="Known faults of this etcd">
      <ul>${about.self.etcd_faults.map((fault) => html`<li><bdi>${fault}</bdi></li>`)}</ul>
      <p><a href=${docs('cluster.md#etcd')} target="_blank" rel="noopener">Fixes by release</a></p><//>`}
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
        ? html`An acknowledged commit may be on this disk only. <b>When the leader is lost, acknowledged commits may be lost.</b>`
        : html`An acknowledged commit is on at least ${acks + 1} disks: ${acks === 1 ? 'one node' : `${acks} nodes`} may be lost without losing it.`}
        ${' '}${acks > 0 && (spare > 0
          ? html`Of ${nodes} nodes ${times(spare, 'follower')} may be away without stopping writes; beyond that writes are refused.`
          : spare === 0 ? html`With ${nodes} nodes, all are needed: when one is away, writes are refused.`
            : html`<b>There are only ${nodes} nodes: too few for this many followers.</b>`)}</li>
      <li><b>LEASE ${lease}.</b> When the leader fails, ${promote === 'AUTO'
        ? html`another node takes over automatically, shortly after at most ${lease}.` : html`no node takes over until <i>Take the lead</i> is pressed, which is possible after ${lease}.`}
        ${' '}Until then nothing is written; followers go on answering reads. One that is stopped in order gives its lead up at once.</li>
      <li><b>BEHIND ${behind}.</b> Writes wait this long for a silent follower. Then they continue without it, if enough followers are left. It rejoins by itself.</li>
      <li>When etcd is unreachable for longer than the lease, writes are refused, and reads continue.</li>
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
    <${Perform} title=${about.inForce ? 'Change the failover policy' : 'Define a failover policy'} wide act="Define"
      statement=${whole ? defineFailover({ ...draft, via }) : null} reasoned onDone=${again} onClose=${onClose}>
      <div class="columns">
        <div class="stack">
          <${Area} label="Addresses of etcd (VIA)" rows="3" value=${draft.via} onInput=${set('via')} placeholder="https://etcd1.example:2379"
            hint="One address per line, without a password: each node is started with its own login. Every node must reach etcd." wrong=${wrong !== undefined && 'Only http or https, a host and a port'} />
          <${Text} label="Followers that hold each commit (ACKS)" inputmode="numeric" value=${draft.acks} onInput=${set('acks')}
            wrong=${draft.acks !== '' && !isCount(draft.acks) && `0 to ${ACKS_MOST}`} />
          <${Text} label="Leader lease (LEASE)" value=${draft.lease} onInput=${set('lease')} hint="2s to 5m, whole seconds"
            wrong=${!isSpan(draft.lease) && 'A duration such as 5s'} />
          <${Text} label="Timeout for a silent follower (BEHIND)" value=${draft.behind} onInput=${set('behind')} hint="100ms to 10m"
            wrong=${!isSpan(draft.behind) && 'A duration such as 2s'} />
          <${Choice} label="Another node takes over (PROMOTE)" value=${draft.promote} onInput=${set('promote')} options=${PROMOTE} />
        </div>
        <div class="stack"><h3>Consequences</h3>
          <${Means} acks=${isCount(draft.acks) ? draft.acks : 0} lease=${draft.lease || '…'} behind=${draft.behind || '…'} promote=${draft.promote}
            nodes=${about.cluster.replicas.length} />
          <p class="soft">${about.inForce ? 'New addresses must belong to the same etcd. A new LEASE applies from the next election on.'
            : 'The statement returns when the policy is on this node and its followers, and this node leads. Until then nothing is committed.'}
            ${' '}<a href=${docs('cluster.md#failover')} target="_blank" rel="noopener">Each clause</a></p></div>
      </div>
    <//>`;
}
