/** From one node to a secured cluster, step by step: what is done is seen on the node, not remembered here. */
import { Button } from '../../components/form.js';
import { Copy } from '../../components/copy.js';
import { docs } from '../../components/head.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { Consoles, Led } from '../../components/consoles.js';
import { alterReplica } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { Roles, rolesOf } from '../node/declare.js';
import { reachable } from './commands.js';
import { Define } from './failover.js';
import { ROLES } from './fields.js';
import { Rows } from './rows.js';
import { Token } from './token.js';

/** @param {object} props `about` (`seen` of standing.js), `may`, `again` */
export function Build({ about, may, again }) {
  if (!about.takes) {
    return html`<${Notice} look="empty" title="A cluster is built on the node that takes changes">
      <${Led} endpoints=${about.led?.endpoints ?? []} /><//>`;
  }
  const steps = STEPS.map((step) => ({ ...step, done: step.isDone(about) }));
  const now = steps.findIndex(({ done }) => !done);
  return html`
    <p><a href="#/cluster">Back to the cluster</a></p>
    <p class="about">Nodes connect only over TLS 1.3, with certificates that they make themselves and that their rows name. No
      installation and no certificate authority is needed. <a href=${docs('cluster.md#how-nodes-trust-each-other')} target="_blank" rel="noopener">How they trust each other</a></p>
    <ol class="steps">
      ${steps.map(({ title, view, done }, at) => html`
        <li class="card stack" key=${title} aria-current=${at === now ? 'step' : undefined}>
          <div class="head"><h2>${at + 1}. ${title}</h2>
            <span class="chip ${done ? 'well' : at === now ? 'warn' : ''}">${done ? 'done' : at === now ? 'now' : 'later'}</span></div>
          <${view} about=${about} may=${may} again=${again} done=${done} look=${at === now ? 'main' : ''} />
        </li>`)}
    </ol>
    ${now < 0 && html`<${Notice} look="well" title="The cluster is complete"><p>${about.self.followers + 1} nodes hold this store, and another takes over when one is lost.
      ${' '}<a href="#/cluster">Show the cluster</a></p><//>`}`;
}

const others = ({ nodes }) => nodes.filter(({ isSelf }) => !isSelf);
const follows = ({ self }, { row }) => self.downstream.some(({ node, standing }) => node === row.node && standing === 'in sync');

function Reached({ about: { self }, done }) {
  if (done) return html`<p>It listens at <code><bdi>${self.surfaces.find(({ surface }) => surface === 'peer').address}</bdi></code> for other nodes.</p>`;
  const text = reachable(self);
  return html`
    <p>Restart it with an address at which the others reach it. This page continues when it is back.</p>
    <pre tabindex="0" class="command">${text}</pre>
    <p class="actions"><${Copy} text=${text} label="Copy the command" /></p>`;
}

function Declared({ about, may, again, done, look }) {
  const [open, see] = useState(false);
  const { replicas } = about.cluster;
  return html`
    <p>One row for each node, including this one: its address for peers, its addresses for clients, and its roles. All are declared in one transaction.</p>
    ${replicas.length > 0 && html`<p>Declared: ${replicas.map(({ name }, at) => html`${at > 0 && ', '}<bdi>${name}</bdi>`)}.
      ${about.cluster.member === null && html` None of them names this node.`}</p>`}
    ${may && html`<p class="actions"><${Button} look=${look} onClick=${() => see(true)}>${done ? 'Declare more nodes' : 'Declare nodes'}<//></p>`}
    ${open && html`<${Rows} self=${about.self} rows=${replicas} onDone=${again} onClose=${() => see(false)} />`}`;
}

function Able({ about, may, again, done, look }) {
  const [open, see] = useState(false);
  return html`
    <p>${done ? 'This node is declared coordinating: it can become the leader.' : 'Only a coordinating node can become the leader: neither the row nor the roles of this node say so.'}</p>
    ${may && !done && html`<p class="actions"><${Button} look=${look} onClick=${() => see(true)}>Its roles<//></p>`}
    ${open && html`<${Roles} roles=${rolesOf(about.self)} chosen=${ROLES} onDone=${again} onClose=${() => see(false)} />`}`;
}

function Joined({ about, may, again }) {
  const rows = others(about);
  return html`
    <p>Create a token for each waiting row. It is shown once, with the command to run on that machine; the node copies the store, and follows.</p>
    <ul class="stack">${rows.map((one) => html`<li key=${one.name}><${Joining} one=${one} about=${about} may=${may} again=${again} /></li>`)}</ul>
    ${rows.length === 0 && html`<p class="soft">No other node is declared yet.</p>`}`;
}

function Joining({ one: { row, standing }, about, may, again }) {
  const [open, see] = useState(null);
  const close = () => see(null);
  const serves = row.roles?.includes('serving') ?? true;
  return html`
    <div class="joins" role="group" aria-label=${row.name}>
      <b><bdi>${row.name}</bdi></b> <span class="chip ${standing.look}">${standing.word}</span> <span class="soft">${standing.says}</span>
      ${may && html`<span class="actions">
        ${row.waits && !serves && html`<${Button} onClick=${() => see('serve')}>Set to serving<//>`}
        ${row.waits && html`<${Button} look=${row.token_expires === null ? 'main' : ''} onClick=${() => see('token')}>Join token<//>`}</span>`}
      ${open === 'token' && html`<${Token} row=${row} self=${about.self} onDone=${again} onClose=${close} />`}
      ${open === 'serve' && html`
        <${Perform} title=${`Set ${row.name} to serving`} act="Set" reasoned onDone=${again} onClose=${close}
          statement=${alterReplica(row.name, { roles: ROLES.filter((role) => role === 'serving' || row.roles.includes(role)) })}>
          <p>Its row then says that it serves clients.</p><//>`}
    </div>`;
}

function Safe({ about, may, again, done, look }) {
  const [open, see] = useState(false);
  const ready = about.nodes.some((one) => !one.isSelf && follows(about, one));
  return html`
    <p>${done ? 'A policy is in force: another node takes over when the leader is lost.'
      : 'The nodes elect a leader in etcd. The policy has the addresses of etcd, the number of followers that must hold each commit, and the timeouts.'}</p>
    ${may && !done && html`<p class="actions"><${Button} look=${look} onClick=${() => see(true)}>Define a policy<//>
      ${!ready && html`<span class="soft">No follower is in sync yet: only a policy with ACKS 0 would be accepted.</span>`}</p>`}
    ${open && html`<${Define} about=${about} again=${again} onClose=${() => see(false)} />`}`;
}

function Shown({ about, done }) {
  const far = others(about).filter(({ row }) => row.endpoints.length);
  return html`
    <p>Each node has its own console and its own sessions: sign in there with the same users.</p>
    ${done && html`<ul>${far.map(({ name, row }) => html`<li><bdi>${name}</bdi>: <${Consoles} endpoints=${row.endpoints} /></li>`)}</ul>`}`;
}

const joined = (about) => others(about).length > 0 && others(about).every((one) => follows(about, one));

const STEPS = [
  { title: 'Open this node to peers', view: Reached, isDone: ({ self }) => self.surfaces.some(({ surface }) => surface === 'peer') },
  { title: 'Declare the nodes', view: Declared, isDone: ({ cluster }) => cluster.member !== null && cluster.replicas.length > 1 },
  { title: 'Let this node lead', view: Able, isDone: ({ self }) => self.coordinates },
  { title: 'Join the other nodes', view: Joined, isDone: joined },
  { title: 'Define the failover policy', view: Safe, isDone: ({ inForce }) => inForce },
  { title: 'Open the other consoles', view: Shown, isDone: (about) => about.inForce && joined(about) },
];
