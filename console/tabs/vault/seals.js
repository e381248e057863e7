/** Unsealing, sealing and passphrases: of the store, or of a vault with a passphrase of its own. */
import { Dialog } from '../../components/dialog.js';
import { Button, Choice, Form, useDoing } from '../../components/form.js';
import { Notice, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import { html, useState } from '../../vendor/preact.js';
import * as routes from './routes.js';
import { Passphrase, useSecret } from './secret.js';

/** @param {object} props `of` (a vault; null: the store), `called`, `onDone` */
export function Unseal({ of, called, onDone }) {
  const [typed, type, forget] = useSecret();
  const [doing, error, attempt] = useDoing();
  const submit = async () => {
    if (!typed) return;
    const given = typed;
    forget();
    if (await attempt(() => routes.unseal(of, given))) onDone();
  };
  return html`
    <${Form} onSubmit=${submit}>
      <${Passphrase} label=${html`Passphrase of <bdi>${called}</bdi>`} value=${typed} onInput=${type} />
      <details class="what"><summary>Request preview</summary>
        <${Composed} of=${routes.shown(of, 'unseal', { passphrase: '...' })} title="Request" /></details>
      ${error && html`<${Refused} error=${error} />`}
      <p class="actions"><${Button} look="main" submit busy=${doing} disabled=${!typed && !doing}>Unseal<//></p>
    <//>`;
}

/** The button that seals; it asks nothing, since whoever may can unseal again. @param {object} props `of`, `onDone` */
export function Seal({ of, onDone }) {
  const [doing, error, attempt] = useDoing();
  const press = async () => {
    if (await attempt(() => routes.seal(of))) onDone();
  };
  return html`
    <${Button} busy=${doing} onClick=${press} title=${routes.shown(of, 'seal').path}>Seal now<//>
    ${error && html`<${Refused} error=${error} />`}`;
}

const KEEPS = 'The keys stay, and are rewrapped at once. With an old copy of disk, log or backup, the old'
  + ' passphrase still opens that copy, and with its root key also the present data.';
const RENEWS = 'A new root key and new vault keys; every value is re-encrypted in the background while the vault'
  + ' is unsealed. Old copies stay readable with the old passphrase.';

/** Sets the store's first passphrase, or changes one. @param {object} props `of`, `called`, `first`, `onDone(answer)`, `onClose` */
export function Change({ of, called, first = false, onDone, onClose }) {
  const [old, typeOld, forgetOld] = useSecret();
  const [fresh, typeFresh, forgetFresh] = useSecret();
  const [again, typeAgain, forgetAgain] = useSecret();
  const [rekey, choose] = useState(false);
  const [doing, error, attempt] = useDoing();
  const same = fresh === again;
  const ready = fresh && same && (first || old);
  const submit = async () => {
    if (!ready) return;
    const body = { old: first ? undefined : old, new: fresh, rekey: rekey || undefined };
    forgetOld();
    forgetFresh();
    forgetAgain();
    let answer;
    if (!await attempt(async () => { answer = await routes.passphrase(of, body); })) return;
    onClose();
    onDone(answer);
  };
  const shown = { old: first ? undefined : '...', new: '...', rekey: rekey || undefined };
  const said = Object.fromEntries(Object.entries(shown).filter(([, value]) => value !== undefined));
  return html`
    <${Dialog} title=${first ? 'Set the passphrase' : 'Change the passphrase'} onClose=${onClose}>
      <${Form} onSubmit=${submit}>
        <${Notice} look="warning" title="A lost passphrase is a lost vault">
          <p>No owner, backup or file of the node can open its data. Keep it where it survives the loss of this
            machine, with at least two people.</p><//>
        ${!first && html`<${Passphrase} label=${html`Old passphrase of <bdi>${called}</bdi>`} value=${old} onInput=${typeOld} />`}
        <${Passphrase} label="New passphrase" value=${fresh} onInput=${typeFresh} hint="8 to 1024 characters" />
        <${Passphrase} label="Repeat new passphrase" value=${again} onInput=${typeAgain}
          wrong=${again && !same ? 'The two differ' : ''} />
        ${!first && html`<${Choice} label="Keys" value=${rekey ? 'new' : 'same'} hint=${rekey ? RENEWS : KEEPS}
          options=${[['same', 'Keep: change only the passphrase'], ['new', 'Replace all, after a leak']]}
          onInput=${(value) => choose(value === 'new')} />`}
        <${Composed} of=${routes.shown(of, 'passphrase', said)} title="Request preview" />
        ${error && html`<${Refused} error=${error} />`}
        <p class="actions">
          <${Button} onClick=${onClose}>Cancel<//>
          <${Button} look="main" submit busy=${doing} disabled=${!ready && !doing}>${first ? 'Set' : 'Save'}<//>
        </p>
      <//>
    <//>`;
}
