/** One vault: how it stands, its seal, its records, its trail. */
import { placed } from '../../address.js';
import { Answer, Notice } from '../../components/notices.js';
import { Button } from '../../components/form.js';
import { Confirm } from '../../components/confirm.js';
import { docs } from '../../components/head.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info } from '../../statements.js';
import * as vaults from '../../statements/vaults.js';
import { html, useState } from '../../vendor/preact.js';
import { Alter, Rotate } from './declared.js';
import { Records } from './records.js';
import { Change, Seal, Unseal } from './seals.js';
import { SealState } from './standings.js';
import { Trail } from './trail.js';

/** @param {object} props `of` (its names), `standings` (what `useStandings` found), `onChange`, `onGone` */
export function One({ of, standings, onChange, onGone }) {
  const place = { ns: of.ns, db: of.db };
  const asked = useQuery((signal) => node.run(info.vault(of.vault), { place, signal }), [of.ns, of.db, of.vault]);
  const [turn, count] = useState(0);
  const [doing, begin] = useState(null);
  const [changed, tell] = useState(null);
  const mine = standings.vaults.find(({ namespace, database, vault }) =>
    namespace === of.ns && database === of.db && vault === of.vault);
  const opens = mine?.own ? of : null;
  const called = mine?.own ? of.vault : 'the store';
  const traced = () => count((before) => before + 1);
  const anew = () => {
    asked.again();
    onChange();
    traced();
  };
  const end = () => begin(null);
  const state = mine && { ...mine, until: mine.own ? mine.until : standings.store.until };
  return html`
    <section class="part">
      <div class="actions">
        <h2><a href=${placed('vault', place)}>Vaults</a> / <bdi>${of.vault}</bdi></h2>
        ${state && html`<${SealState} sealed=${state.sealed} until=${state.until} ahead=${standings.ahead} onOver=${onChange} />`}
        ${state && !state.sealed && html`<${Seal} of=${opens} onDone=${anew} />`}
      </div>
      ${state?.sealed && html`<${Notice} look="sealed" title="Sealed">
        <p>Its records can't be listed, revealed or written until it is unsealed. Erasing and the trail still work.</p>
        <${Unseal} of=${opens} called=${called} onDone=${anew} /><//>`}
      ${changed && html`<${Notice} look="well" title="Passphrase changed">
        <p>${String(changed.rewrapped)} keys rewrapped.</p><//>`}
      <${Answer} asked=${asked} what="its status">
        ${(found) => html`
          <dl class="pairs card">
            <dt>Records</dt><dd>${String(found.records)}, of each ${String(found.versions)}
              ${found.versions === 1 ? ' version' : ' versions'} kept</dd>
            <dt>Opened by</dt><dd>${found.own ? 'a passphrase of its own' : "the store's passphrase"}</dd>
            ${found.comment && html`<dt>Comment</dt><dd><bdi>${found.comment}</bdi></dd>`}
            <dt>Key</dt><dd>version ${String(found.key_version)}${found.rotation !== 'none'
              && html` <span class="chip warn">re-encrypting values: ${found.rotation}</span>`}</dd>
            ${found.in_log_until !== null && html`<dt>Erased values</dt><dd>are in the log up to commit
              ${String(found.in_log_until)} until it is pruned. <a href=${docs('vaults.md')}>More</a></dd>`}
            <dt>Trail</dt><dd>${String(found.audit.entries)} ${found.audit.entries === 1 ? 'entry' : 'entries'}${found.audit.hash
              && html`, the newest <code>${found.audit.hash.slice(0, 16)}…</code>`}</dd>
          </dl>
          <p class="actions">
            <${Button} onClick=${() => begin('alter')}>Alter…<//>
            <${Button} onClick=${() => begin('rotate')}>Rotate its key…<//>
            ${found.own && html`<${Button} onClick=${() => begin('passphrase')}>Change its passphrase…<//>`}
            <${Button} look="danger" onClick=${() => begin('drop')}>Drop…<//>
          </p>
          ${doing === 'alter' && html`<${Alter} of=${of} found=${found} onDone=${anew} onClose=${end} />`}`}
      <//>
    </section>
    ${asked.error?.code !== 'Unknown' && html`<${Records} key=${`${of.ns}.${of.db}.${of.vault}`} of=${of}
      sealed=${state ? state.sealed : false} onTrace=${traced} onChange=${anew} />`}
    <${Trail} of=${of} turn=${turn} />
    ${doing === 'rotate' && html`<${Rotate} of=${of} onDone=${anew} onClose=${end} />`}
    ${doing === 'passphrase' && html`<${Change} of=${of} called=${of.vault} onDone=${(answer) => { tell(answer); anew(); }}
      onClose=${end} />`}
    ${doing === 'drop' && html`<${Confirm} title="Drop a vault" name=${of.vault} place=${place} act="Drop" called="name"
      statement=${vaults.drop(of.vault)} onDone=${onGone} onClose=${end}>
      <p>All its records are removed${asked.value ? `: ${asked.value.records} records` : ''}. Its trail stays, and backups
        keep what they have.</p><//>`}`;
}
