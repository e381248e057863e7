/** Cluster: which nodes belong to this store, who leads, how each stands, and who may still come in. */
import { link } from '../address.js';
import { Consoles } from '../components/consoles.js';
import { Button } from '../components/form.js';
import { docs, Head } from '../components/head.js';
import { Answer, Notice } from '../components/notices.js';
import { UNREADY } from '../components/ready.js';
import * as node from '../node.js';
import { useQuery, useShared } from '../state.js';
import { info, together } from '../statements.js';
import { html, useState } from '../vendor/preact.js';
import { Build } from './cluster/build.js';
import { Certificates } from './cluster/certificates.js';
import { Declare } from './cluster/declare.js';
import { Failover } from './cluster/failover.js';
import { Lead } from './cluster/lead.js';
import { NodeMap } from './cluster/map.js';
import { Rows } from './cluster/rows.js';
import { seen } from './cluster/standing.js';

const EVERY_MS = 2_000;
const BUILDING = 'build';

/** What is declared, and what this node says of itself. */
async function read(signal) {
  const both = together(info.node(), info.cluster());
  try {
    const { results } = await node.script(both.text, { signal });
    return seen({ self: results[0].value, cluster: results[1].value });
  } catch (error) {
    if (error.code !== 'Busy') throw error;
    // It does not know yet what was released, and answers what is asked about itself alone.
    return seen({ self: await node.run(info.node(), { signal }), cluster: null, untold: error.message });
  }
}

function Cluster({ tab, parts }) {
  const { who } = useShared();
  const asked = useQuery(read, [], { every: EVERY_MS });
  const may = who.role === 'owner' && !who.space;
  const builds = parts[0] === BUILDING;
  return html`
    <${Head} tab=${tab} title=${builds ? 'Building a cluster' : tab.title} asked=${asked} />
    ${asked.value === undefined && asked.error?.code === 'NotAllowed' && html`<${Outside} />`}
    <${Answer} asked=${asked} what="the cluster">
      ${(about) => html`
        ${!may && html`<${Notice} look="" title=${`Signed in as ${who.name}, ${who.role}${who.space ? ` of ${who.space}` : ''}`}>
          <p>Changes need an owner of the store.</p><//>`}
        ${builds ? html`<${Build} about=${about} may=${may} again=${asked.again} />` : html`<${Whole} about=${about} may=${may} again=${asked.again} />`}`}
    <//>`;
}

function Whole({ about, may, again }) {
  const [open, see] = useState(null);
  const { self, cluster } = about;
  const close = () => see(null);
  const declares = may && about.takes;
  if (about.untold) {
    return html`
      <${Notice} look="warning" title="Only this node's status is shown">
        <p>${about.untold}</p><//>
      <${Lead} about=${about} may=${may} again=${again} />
      <${NodeMap} about=${about} may=${may} again=${again} />`;
  }
  return html`
    <${About} about=${about} may=${may} />
    ${(cluster.failover !== null || cluster.replicas.length > 0) && html`<${Lead} about=${about} may=${may} again=${again} />`}
    ${declares && html`<p class="actions">
      <${Button} onClick=${() => see('rows')}>Declare nodes<//>
      <${Button} onClick=${() => see('row')}>Add a row<//></p>`}
    <${NodeMap} about=${about} may=${may} again=${again} />
    <${Failover} about=${about} may=${may} again=${again} />
    <${Certificates} self=${self} cluster=${cluster} may=${declares} again=${again} />
    ${open === 'rows' && html`<${Rows} self=${self} rows=${cluster.replicas} onClose=${close} onDone=${again} />`}
    ${open === 'row' && html`<${Declare} onClose=${close} onDone=${again} />`}`;
}

/** How it stands with this node, and where it goes on from here. */
function About({ about, may }) {
  const { cluster, led } = about;
  const building = may && html`<p><a class="button main" href=${link('cluster', [BUILDING])}>Build a cluster step by step</a></p>`;
  if (!about.takes) {
    return html`<${Notice} look="" title=${about.self.life === 'waiting' || led === null || about.lost ? 'This node is read-only' : `This node is read-only: the leader is ${led.name}`}>
      <p>Rows, tokens, certificates and the policy are changed where the store is led${led && !about.lost && led.endpoints.length > 0
        ? html`: <${Consoles} endpoints=${led.endpoints} />. Each node has sessions of its own.` : '.'}</p><//>`;
  }
  if (about.inForce) return null;
  return html`
    <${Notice} look="empty" title=${cluster.replicas.length ? 'Not a whole cluster yet' : 'This node is alone'}>
      <p>${cluster.replicas.length ? 'Nodes are declared, but none would take over from this one yet.'
        : 'A cluster is several nodes that hold the same store: one takes changes, the others follow it, answer reads, and one of them takes over when it is lost.'}
        ${' '}<a href=${docs('cluster.md')} target="_blank" rel="noopener">Cluster documentation</a></p>
      ${building}
    <//>`;
}

/** What anybody may see, for who may not see more. */
function Outside() {
  const { condition } = useShared();
  if (!condition) return null;
  const { ready, health } = condition;
  return html`
    <section class="card stack" aria-labelledby="outside-title">
      <h2 id="outside-title">This node</h2>
      <p class="soft">The status that every user sees. The other nodes and their status need INFO on the node: owners and viewers of the whole store have it.</p>
      <dl class="pairs">
        <dt>Ready</dt><dd><span class="chip ${ready.ready ? 'well' : 'ill'}">${ready.ready ? 'ready' : ready.reason}</span> ${UNREADY[ready.reason] ?? ''}</dd>
        <dt>Roles</dt><dd>${ready.roles.join(', ') || 'none'}</dd>
        <dt>Commit</dt><dd>${String(health.sequence)}</dd>
      </dl>
    </section>`;
}

export const view = Cluster;
