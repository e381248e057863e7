/** The form of a backup: which form, of what, where to; the statement or the request is shown as it is filled in. */
import { save } from '../../components/copy.js';
import { Button, Choice, Form, Text, useDoing } from '../../components/form.js';
import { Notice, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import * as node from '../../node.js';
import { useShared } from '../../state.js';
import { isPart } from '../../statements.js';
import { backup } from '../../statements/backups.js';
import { html, useState } from '../../vendor/preact.js';
import { Download } from './download.js';
import { size } from './size.js';

const FORMS = [
  ['snapshot', 'Snapshot: everything at one commit'],
  ['log', 'Log: all commits from a given one'],
  ['script', 'Script: statements that create it again'],
];
const EXTENSIONS = { snapshot: '.storesnap', log: '.storelog', script: '.storeql' };
const CARRIES = {
  snapshot: 'Contains the hashes of all passwords: protect it like the store.',
  log: 'Applies on top of an earlier backup; restores alone if it begins at 1.',
  script: 'Readable text. Without histories, vaults and positions of groups.',
};
const FOLDER = ['folder', "The node's backup folder"];
const HERE = ['here', 'This computer'];

/** A name that nobody has yet: what, and when. */
function suggested(form, places) {
  const what = places.length ? places[0].replace('.', '-') : 'store';
  const when = new Date().toISOString().slice(0, 16).replace(/[-:]/g, '').replace('T', '-');
  return `${what}-${when}${EXTENSIONS[form]}`;
}

/**
 * @param {object} props `place`, `files` (of the folder, to say which log joins; null: the node has none),
 *   `onBusy(boolean)`, `onDone`
 */
export function Take({ place, files, onBusy, onDone }) {
  const { who } = useShared();
  const [form, choose] = useState('snapshot');
  const [whole, all] = useState(true);
  const [typed, type] = useState(null);
  const [from, begin] = useState('');
  const hasFolder = files !== null;
  const [chosen, put] = useState('folder');
  const into = hasFolder ? chosen : 'here';
  const [called, call] = useState(null);
  const [reason, explain] = useState('');
  const [answer, take] = useState(null);
  const [doing, error, attempt] = useDoing();
  const text = typed ?? (place ? `${place.ns}.${place.db}` : '');
  const parts = form === 'log' || whole ? [] : text.split(',').map((one) => one.trim()).filter(Boolean);
  const wrong = wrongOf({ form, whole, parts, from });
  const asked = {
    form, places: parts, from: form === 'log' && from ? from : undefined,
    to: into === 'folder' ? called ?? suggested(form, wrong.place ? [] : parts) : undefined,
  };
  const isBad = Boolean(wrong.place || wrong.from) || asked.to === '';
  const streamed = into === 'here' && !parts.length;
  const submit = async () => {
    if (isBad) return;
    take(null);
    onBusy(true);
    await attempt(async () => take(await taken(asked, reason)));
    onBusy(false);
    call(null);
    onDone();
  };
  return html`
    <section class="card part">
      <h2>New backup</h2>
      <${Form} onSubmit=${submit}>
        <${Choice} label="Form" value=${form} options=${FORMS} hint=${CARRIES[form]}
          onInput=${(value) => { choose(value); call(null); }} />
        ${form === 'log' ? html`
          <${Text} label="From commit" inputmode="numeric" placeholder="1" value=${from} onInput=${begin}
            wrong=${wrong.from} hint=${joins(files)} />`
        : html`
          <${Choice} label="Of" value=${whole ? 'store' : 'part'} options=${[['store', 'The whole store'],
            ['part', form === 'script' ? 'Namespaces and databases' : 'One namespace or database']]}
            onInput=${(value) => all(value === 'store')} />
          ${!whole && html`<${Text} label=${form === 'script' ? 'Which, comma-separated' : 'Which'} value=${text} onInput=${type}
            placeholder="shop.main" wrong=${wrong.place}
            hint=${form === 'script' ? 'shop is a namespace, shop.main a database' : ''} />`}`}
        <${Choice} label="To" value=${into} options=${hasFolder ? [FOLDER, HERE] : [HERE]}
          hint=${into === 'here' && !streamed ? 'A part comes in one answer, up to 16 MiB.' : ''} onInput=${put} />
        ${into === 'folder' && html`<${Text} label="Name" value=${asked.to} onInput=${call}
          hint="A path in the folder. Existing files are never replaced." />`}
        ${!streamed && html`<${Text} label="Reason" value=${reason} onInput=${explain} maxlength="500"
          hint="Kept in the statement log." />`}
        ${streamed ? html`<${Download} key=${`${form} ${asked.from}`} form=${form} from=${asked.from} isBad=${isBad} onBusy=${onBusy} onDone=${onDone} />`
        : html`
          ${!isBad && html`<${Composed} of=${backup(asked)} reason=${reason.trim()} />`}
          <p class="actions"><${Button} look="main" submit busy=${doing} disabled=${isBad}>
            ${doing ? 'Backing up…' : 'Back up'}<//></p>`}
      <//>
      ${error && html`<${Refused} error=${error} />`}
      ${answer && html`<${Taken} answer=${answer} />`}
      ${who.space && html`<p class="soft small">An owner of a place can download scripts of it to this computer.</p>`}
    </section>`;
}

function wrongOf({ form, whole, parts, from }) {
  const found = {};
  if (form === 'log') {
    if (from && !/^\d{1,18}$/.test(from)) found.from = 'The number of a commit, from 1 on';
  } else if (!whole) {
    const strange = parts.find((one) => !isPart(one));
    if (!parts.length) found.place = 'A namespace, or a database as namespace.database';
    else if (strange !== undefined) found.place = `${strange.slice(0, 80)} is not a namespace or database`;
    else if (form === 'snapshot' && parts.length > 1) found.place = 'A snapshot takes one of them';
  }
  return found;
}

/** From where a log would join what is there. */
function joins(files) {
  const ends = (files ?? []).filter(({ sequence, place }) => sequence !== null && place === null)
    .map(({ sequence }) => Number(sequence));
  if (!ends.length) return 'Empty: from 1, all commits in the log.';
  const newest = Math.max(...ends);
  return `Empty: from 1. The newest file here ends at commit ${newest}: ${newest + 1} continues it.`;
}

async function taken(asked, reason) {
  const statement = backup(asked);
  const { results } = await node.script(statement.text, { reason: reason.trim() || undefined, record: true });
  const { value, took } = results[results.length - 1];
  if (asked.to !== undefined) return { ...value, took };
  const bytes = Uint8Array.from(atob(value.text), (sign) => sign.charCodeAt(0));
  const path = suggested(asked.form, asked.places);
  save(path, bytes, 'application/octet-stream');
  return { path, bytes: bytes.length, form: asked.form, took, here: true };
}

function Taken({ answer }) {
  return html`
    <${Notice} look="well" title=${answer.here ? 'Backed up, and given to the browser to save' : 'Backed up'}>
      <dl class="pairs">
        <dt>Path</dt><dd><code><bdi>${answer.path}</bdi></code></dd>
        <dt>Form</dt><dd>${answer.form}</dd>
        <dt>Size</dt><dd>${size(answer.bytes)} <span class="soft">${String(answer.bytes)} bytes</span></dd>
        <dt>Took</dt><dd>${String(answer.took)}</dd>
      </dl><//>`;
}
