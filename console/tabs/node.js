/** This node: how it stands, what it is, what it holds, and what it does just now. */
import { Ago } from '../components/ago.js';
import { Button, useDoing } from '../components/form.js';
import { Head } from '../components/head.js';
import { Answer, Refused } from '../components/notices.js';
import { Value } from '../components/value.js';
import { UNREADY } from '../components/ready.js';
import * as node from '../node.js';
import { useQuery, useShared } from '../state.js';
import { info } from '../statements.js';
import { shown } from '../values.js';
import { html, useState } from '../vendor/preact.js';
import { Addresses, Roles, rolesOf } from './node/declare.js';
import { Figures, useFigures } from './node/figures.js';
import { Running } from './node/running.js';
import { bytes, count, Expiry, Share } from './node/sizes.js';

const EVERY_MS = 5_000;
const WHOLE = ['serving', 'writable'];

function Node({ tab }) {
  const figures = useFigures();
  const asked = useQuery((signal) => node.run(info.node(), { signal }), [], { every: EVERY_MS });
  return html`
    <${Head} tab=${tab} asked=${asked} />
    <${Standing} about=${asked.value} again=${asked.again} />
    <${Answer} asked=${asked} what="this node">
      ${(about) => html`<div class="columns">
        <${Identity} about=${about} again=${asked.again} />
        <${Surfaces} about=${about} />
        <${Stored} about=${about} newest=${figures.readings.at(-1)} at=${figures.asked.at} />
      </div>`}
    <//>
    <${Running} />
    <${Figures} readings=${figures.readings} asked=${figures.asked} />
    ${asked.value && html`<${Settings} about=${asked.value} />`}`;
}

/** Whether it is ready, and its roles: with what one can do about both. `about`: undefined, not to be seen. */
function Standing({ about, again }) {
  const { condition } = useShared();
  const [open, see] = useState(null);
  const [before, keep] = useState(WHOLE);
  const ready = condition?.ready;
  const roles = about ? rolesOf(about) : ready?.roles ?? [];
  const drained = roles.length === 0;
  const choose = (what) => {
    if (!drained) keep(roles);
    see(what);
  };
  const chosen = { drain: [], resume: before, roles }[open];
  return html`
    <section class="card stack" aria-labelledby="standing-title">
      <div class="head">
        <h2 id="standing-title">Status</h2>
        ${about && html`<p class="actions">
          <${Button} onClick=${() => choose('roles')}>Roles<//>
          ${drained ? html`<${Button} look="main" onClick=${() => choose('resume')}>Resume<//>`
            : html`<${Button} look="danger" onClick=${() => choose('drain')}>Drain<//>`}</p>`}
      </div>
      <dl class="pairs">
        <dt>Ready</dt><dd>${ready ? html`<span class="chip ${ready.ready ? 'well' : 'ill'}">${ready.ready ? 'ready' : ready.reason}</span>
          ${' '}${ready.ready ? '' : UNREADY[ready.reason] ?? ''} <${Ago} at=${condition.at} />` : '…'}</dd>
        <dt>Roles</dt><dd>${drained ? html`<span class="chip warn">none: drained</span>`
          : roles.map((role) => html`<span class="chip">${role}</span> `)}</dd>
        ${about && about.life !== 'alone' && html`<dt>Cluster role</dt><dd><a href="#/cluster">${about.life}</a>${
          about.upstream && `, ${about.upstream}`}${about.waits_for && html`: <bdi>${about.waits_for}</bdi>`}</dd>`}
        ${about && html`<dt>Uptime</dt><dd>${shown(about.uptime).replace(/\d+ms.*$/, '') || shown(about.uptime)}</dd>`}
      </dl>
      ${open && html`<${Roles} roles=${roles} chosen=${chosen} onDone=${again} onClose=${() => see(null)}
        title=${{ drain: 'Drain this node', resume: 'Resume', roles: 'Roles of this node' }[open]} />`}
    </section>`;
}

const listed = (all) => (all.length ? html`<ul>${all.map((one) => html`<li><bdi>${one}</bdi></li>`)}</ul>`
  : html`<span class="soft">none</span>`);

function Identity({ about, again }) {
  const [open, see] = useState(false);
  return html`
    <section class="card stack" aria-labelledby="identity-title">
      <div class="head"><h2 id="identity-title">Identity</h2>
        <${Button} onClick=${() => see(true)}>Endpoints and origins<//></div>
      <dl class="pairs">
        <dt>Version</dt><dd>${about.version}</dd>
        <dt>Store</dt><dd><code>${about.store}</code></dd>
        <dt>Node</dt><dd><code>${about.id}</code></dd>
        <dt>Endpoints</dt><dd>${listed(about.endpoints)}</dd>
        <dt>Origins</dt><dd>${listed(about.origins)}</dd>
        <dt>Directory</dt><dd><code><bdi>${about.settings.directory}</bdi></code></dd>
      </dl>
      ${open && html`<${Addresses} endpoints=${about.endpoints} origins=${about.origins} onDone=${again}
        onClose=${() => see(false)} />`}
    </section>`;
}

function Surfaces({ about }) {
  return html`
    <section class="card stack" aria-labelledby="surfaces-title">
      <h2 id="surfaces-title">Endpoints</h2>
      ${about.surfaces.map((one) => html`<div class="stack">
        <h3>${one.surface} <code><bdi>${one.address}</bdi></code></h3>
        <p>${one.tls ? html`TLS, until <${Expiry} at=${one.certificate_expires.text} />`
          : html`<span class="chip warn">no TLS</span> <span class="soft">traffic can be read on the network</span>`}</p>
        <${Share} label="Connections" of=${one.connections} most=${one.connections_most} />
        ${one.running_most > 0 && html`<${Share} label="Running" of=${one.running} most=${one.running_most} />`}
      </div>`)}
    </section>`;
}

function Stored({ about, newest, at }) {
  const [hash, take] = useState(null);
  const [doing, error, act] = useDoing();
  const { damage, checked, rounds } = about.log_check;
  return html`
    <section class="card stack" aria-labelledby="stored-title">
      <h2 id="stored-title">Storage</h2>
      <dl class="pairs">
        <dt>Log</dt><dd>commit ${count(about.log_begins)} to ${count(about.sequence)}, ${bytes(about.log_bytes)}</dd>
        <dt>Integrity check</dt><dd>${damage.length ? html`<span class="chip ill">${damage.length} damaged</span> <${Value} of=${damage} />`
          : html`<span class="chip well">no damage</span>`} <span class="soft">${
            checked ? `round ${rounds + 1}, up to commit ${count(checked)}` : 'of closed segments'}</span></dd>
        <dt>State</dt><dd>${about.state_damage === null ? html`<span class="chip well">no damage</span>`
          : html`<span class="chip ill">damaged</span> <bdi>${about.state_damage}</bdi>`}</dd>
        <dt>Hash</dt><dd>${hash ? html`<code>${hash.hash}</code> <span class="soft">at commit ${count(hash.sequence)}</span>`
          : html`<${Button} busy=${doing} onClick=${() => act(async () => take(await node.run(info.state())))}>Compute<//>`}</dd>
        <dt>Moments</dt><dd>${about.moments}</dd>
        ${newest && html`<dt>Memory</dt><dd>${bytes(newest.memory)} resident <${Ago} at=${at} /></dd>
          <dt>Open files</dt><dd>${count(newest.files)} <span class="soft">of ${count(newest.filesMost)}</span></dd>`}
      </dl>
      ${error && html`<${Refused} error=${error} />`}
    </section>`;
}

function Settings({ about }) {
  return html`
    <details class="card"><summary>Configuration</summary>
      <dl class="pairs">
        ${Object.entries(about.settings).map(([name, value]) => html`
          <dt><code>${name}</code></dt><dd><${Value} of=${value} name=${name} /></dd>`)}
      </dl>
    </details>`;
}

export const view = Node;
