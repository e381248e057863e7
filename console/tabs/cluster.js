/** Cluster: which nodes belong to this store, by what each is known, and who may still come in. */
import { Button } from '../components/form.js';
import { docs, Head } from '../components/head.js';
import { Answer, Notice } from '../components/notices.js';
import * as node from '../node.js';
import { useAsked } from '../state.js';
import { info, together } from '../statements.js';
import { shown } from '../values.js';
import { html, useState } from '../vendor/preact.js';
import { Build } from './cluster/build.js';
import { Certificates } from './cluster/certificates.js';
import { Declare } from './cluster/declare.js';
import { NodeMap } from './cluster/map.js';

/** What is declared, and what this node says of itself. */
async function read(signal) {
  const both = together(info.node(), info.cluster());
  const { results } = await node.script(both.text, { signal });
  return { self: results[0].value, cluster: results[1].value };
}

function Cluster({ tab }) {
  const [open, see] = useState(null);
  const asked = useAsked(read, []);
  const close = () => see(null);
  return html`
    <${Head} tab=${tab} asked=${asked} />
    <${Answer} asked=${asked} what="the cluster">
      ${({ self, cluster }) => html`
        <${About} alone=${cluster.replicas.length === 0} />
        <p class="actions">
          <${Button} look="main" onClick=${() => see('build')}>Declare nodes<//>
          <${Button} onClick=${() => see('row')}>Add a row<//></p>
        <${NodeMap} self=${self} cluster=${cluster} again=${asked.again} />
        <${Certificates} self=${self} cluster=${cluster} again=${asked.again} />
        <section class="card stack" aria-labelledby="failover-title">
          <h2 id="failover-title">Failover</h2>
          <${Policy} kept=${cluster.failover} />
        </section>
        ${open === 'build' && html`<${Build} self=${self} rows=${cluster.replicas} onClose=${close} onDone=${asked.again} />`}
        ${open === 'row' && html`<${Declare} onClose=${close} onDone=${asked.again} />`}`}
    <//>`;
}

const Policy = ({ kept }) => kept === null
  ? html`<p>There is no policy: when this node is lost nobody takes over, and what it had committed comes back from its disk or from
      a${' '}<a href="#/backup">backup</a>. <code>DEFINE FAILOVER</code> puts one into force.</p>`
  : html`<p>${kept.in_force ? 'In force' : 'Not in force on this node: it came with a backup'}. Agreed in ${kept.via.join(', ')}; lease
      ${' '}${shown(kept.lease)}, ${kept.acks} followers hold each commit, one that is silent for ${shown(kept.behind)} is not waited for, and a node takes
      over ${kept.promote === 'AUTO' ? 'by itself' : 'when it is told to'}.</p>`;

const About = ({ alone }) => html`
  <${Notice} look="empty" title=${alone ? 'This node is alone' : 'Declared'}>
    <p>${alone ? 'A cluster is several nodes that hold the same store: one takes changes, the others follow it, answer reads, and one of '
      + 'them takes over when it is lost.' : 'The rows below say which nodes belong to this store. How one does is that node\'s to say.'}
      ${' '}A node joins with a token and follows; with a failover policy another takes over.
      ${' '}<a href=${docs('cluster.md')} target="_blank" rel="noopener">What there is</a></p>
  <//>`;

export const view = Cluster;
