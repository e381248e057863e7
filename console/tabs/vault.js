/** Vault: passphrases and seals, the vaults of a place, their records, and who did what with them. */
import { go, placed } from '../address.js';
import { Button } from '../components/form.js';
import { Head } from '../components/head.js';
import { Answer, Empty, Notice } from '../components/notices.js';
import { isName } from '../statements.js';
import { html, useState } from '../vendor/preact.js';
import { Vaults } from './vault/list.js';
import { One } from './vault/one.js';
import { Change, Seal, Unseal } from './vault/seals.js';
import { SealState, useStandings } from './vault/standings.js';
import { Trail } from './vault/trail.js';

function Vault({ tab, place, parts, query }) {
  const asked = useStandings();
  const [named] = parts;
  const gone = () => {
    go(placed('vault', place));
    asked.again();
  };
  return html`
    <${Head} tab=${tab} title=${named ? `Vault ${named.slice(0, 64)}` : tab.title} asked=${asked} />
    <${Answer} asked=${asked} what="the state of the vaults">
      ${(found) => {
        if (named && !isName(named)) {
          return html`<${Notice} look="gone" title="Not a name of a vault"><p><a href=${placed('vault', place)}>Vaults</a></p><//>`;
        }
        if (named && place) {
          return html`<${One} key=${`${place.ns}.${place.db}.${named}`} of=${{ ...place, vault: named }} standings=${found}
            onChange=${asked.again} onGone=${gone} />`;
        }
        return html`
          <${Store} found=${found} onChange=${asked.again} />
          ${place ? html`<${Vaults} found=${found} place=${place} onChange=${asked.again} />`
            : html`<${Empty} title="No place"><p>Choose a database above to see its vaults.</p><//>`}
          ${query.trail === 'store' ? html`<${Trail} of=${null} />`
            : html`<p><a href=${placed('vault', place, [], { trail: 'store' })}>The trail of the store's passphrase, and of
                vaults that were declared and dropped</a></p>`}`;
      }}
    <//>`;
}

/** The passphrase of the store, which opens every vault without one of its own. */
function Store({ found, onChange }) {
  const { store, ahead } = found;
  const [changing, change] = useState(false);
  const [changed, tell] = useState(null);
  const done = (answer) => {
    tell(answer);
    onChange();
  };
  return html`
    <section class="part card">
      <div class="actions"><h2>The store</h2>
        ${store.set && html`<${SealState} sealed=${store.sealed} until=${store.until} ahead=${ahead} onOver=${onChange} />`}
        ${!store.sealed && html`<${Seal} of=${null} onDone=${onChange} />`}
        <${Button} onClick=${() => change(true)}>${store.set ? 'Change the passphrase…' : 'Set the passphrase…'}<//>
      </div>
      ${!store.set && html`<${Empty} title="The store has no passphrase yet"><p>An owner of the store sets it. Until
        then, vaults without their own passphrase can't be opened.</p><//>`}
      ${store.set && store.sealed && html`<${Notice} look="sealed" title="Sealed">
        <p>Vaults under the store's passphrase can't be listed, read or written.</p>
        <${Unseal} of=${null} called="the store" onDone=${onChange} /><//>`}
      ${store.set && !store.sealed && html`<p class="soft">Open for all authorized users, until the time is over or a user
        seals it. Use does not extend the time.</p>`}
      ${changed && html`<${Notice} look="well" title=${changed.rewrapped === 1 ? 'Passphrase changed'
        : 'Passphrase and keys changed'}><p>${String(changed.rewrapped)} keys rewrapped.</p><//>`}
      ${changing && html`<${Change} of=${null} called="the store" first=${!store.set} onDone=${done} onClose=${() => change(false)} />`}
    </section>`;
}

export const view = Vault;
