/** What is declared of a vault, made and changed; and another key for it. */
import { Text, Tick } from '../../components/form.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import * as node from '../../node.js';
import { isName } from '../../statements.js';
import * as vaults from '../../statements/vaults.js';
import { html, useState } from '../../vendor/preact.js';
import { Passphrase, useSecret } from './secret.js';

const isCount = (text) => /^\d{1,3}$/.test(text);
const NO_COUNT = 'A number from 1 to 100';

/** @param {object} props `place`, `onDone`, `onClose` */
export function Make({ place, onDone, onClose }) {
  const [vault, call] = useState('');
  const [versions, keep] = useState('1');
  const [comment, explain] = useState('');
  const [own, tick] = useState(false);
  const [passphrase, type, forget] = useSecret();
  const [again, typeAgain, forgetAgain] = useSecret();
  const ready = isName(vault) && isCount(versions) && (!own || (passphrase && passphrase === again));
  const of = { vault, versions, comment };
  const run = (reason) => {
    const statement = vaults.define({ ...of, passphrase: own ? passphrase : undefined });
    forget();
    forgetAgain();
    return node.run(statement, { place, reason });
  };
  return html`
    <${Perform} title="New vault" act="Create" place=${place} run=${run} reasoned onDone=${onDone} onClose=${onClose}
      statement=${ready ? vaults.define({ ...of, passphrase: own ? '...' : undefined }) : null}>
      <${Text} label="Name" value=${vault} onInput=${call} autofocus
        wrong=${vault && !isName(vault) ? 'Letters, digits, _ and -, at most 64' : ''} />
      <${Text} label="Versions of each record that are kept" inputmode="numeric" value=${versions} onInput=${keep}
        wrong=${isCount(versions) ? '' : NO_COUNT} />
      <${Text} label="Comment" value=${comment} onInput=${explain} />
      <${Tick} label="It has a passphrase of its own" value=${own} onInput=${tick} hint="Otherwise the store's passphrase opens it. This can't be changed later." />
      ${own && html`
        <${Notice} look="warning" title="A lost passphrase is a lost vault" />
        <${Passphrase} label="Its passphrase" value=${passphrase} onInput=${type} hint="8 to 1024 characters" />
        <${Passphrase} label="Its passphrase again" value=${again} onInput=${typeAgain}
          wrong=${again && again !== passphrase ? 'The two differ' : ''} />`}
    <//>`;
}

/** @param {object} props `of`, `found` (as it is), `onDone`, `onClose` */
export function Alter({ of, found, onDone, onClose }) {
  const [versions, keep] = useState(String(found.versions));
  const [comment, explain] = useState(found.comment ?? '');
  const wrong = isCount(versions) ? '' : NO_COUNT;
  const other = {
    versions: !wrong && versions !== String(found.versions) ? versions : undefined,
    comment: comment !== (found.comment ?? '') ? comment : undefined,
  };
  const differs = Object.values(other).some((one) => one !== undefined);
  return html`
    <${Perform} title="Alter a vault" act="Alter" place=${{ ns: of.ns, db: of.db }} reasoned onDone=${onDone} onClose=${onClose}
      statement=${differs && !wrong ? vaults.alter(of.vault, other) : null}>
      <${Text} label="Versions of each record that are kept" inputmode="numeric" value=${versions} onInput=${keep} wrong=${wrong}
        hint=${Number(versions) < found.versions ? 'Older ones are removed at once, but not from backups.' : ''} />
      <${Text} label="Comment" value=${comment} onInput=${explain} />
    <//>`;
}

/** @param {object} props `of`, `onDone`, `onClose` */
export const Rotate = ({ of, onDone, onClose }) => html`
  <${Perform} title="Rotate the key" act="Rotate" place=${{ ns: of.ns, db: of.db }} statement=${vaults.rotate(of.vault)}
    reasoned onDone=${onDone} onClose=${onClose}>
    <p>A new vault key, and every value is sealed again behind the answer. The older key goes when nothing uses it any
      more. Old copies of disk, log and backups stay readable with it.</p>
  <//>`;
