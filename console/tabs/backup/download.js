/**
 * A backup to this computer: the node makes it, says how large it is, and only then it is fetched. Where the browser
 * can write to a file it goes there part by part; else the browser collects it before it saves it.
 */
import { save } from '../../components/copy.js';
import { Button, useDoing } from '../../components/form.js';
import { Notice, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import * as node from '../../node.js';
import { html, useEffect, useRef, useState } from '../../vendor/preact.js';
import { size } from './size.js';

const COLLECTED_MOST = 1024 ** 3;
const PATH = '/backup';

/** @param {object} props `form`, `from`, `isBad` (what is filled in does not do), `onBusy(boolean)`, `onDone` */
export function Download({ form, from, isBad, onBusy, onDone }) {
  const [offered, offer] = useState(null);
  const [come, count] = useState(null);
  const [saved, keep] = useState(null);
  const [doing, error, attempt] = useDoing();
  const over = useRef(null);
  const query = { as: form === 'snapshot' ? undefined : form, from };
  const leave = () => {
    over.current?.abort();
    over.current = null;
    offer(null);
    count(null);
  };
  useEffect(() => leave, []);
  const make = async () => {
    keep(null);
    onBusy(true);
    over.current = new AbortController();
    await attempt(async () => offer(described(await node.request('GET', PATH, {
      query, raw: true, signal: over.current.signal,
    }))));
    onBusy(false);
    onDone();
  };
  const store = () => attempt(async () => {
    const file = await stored(offered, count);
    if (file === null) return;
    over.current = null; // it is here: nothing to end
    offer(null);
    count(null);
    keep(file);
  });
  const shown = `${PATH}${Object.values(query).some(Boolean)
    ? `?${new URLSearchParams(Object.entries(query).filter(([, value]) => value))}` : ''}`;
  return html`
    <${Composed} of=${{ method: 'GET', path: shown }} />
    ${!offered && html`<p class="actions"><${Button} look="main" busy=${doing} disabled=${isBad} onClick=${make}>
      ${doing ? 'Creating…' : 'Create'}<//></p>`}
    ${offered && html`<${Offer} of=${offered} come=${come} doing=${doing} onSave=${store} onLeave=${leave} />`}
    ${error && html`<${Refused} error=${error} />`}
    ${saved && html`<${Notice} look="well" title="Downloaded"><${About} of=${saved} /><//>`}`;
}

function Offer({ of, come, doing, onSave, onLeave }) {
  const tooMuch = !window.showSaveFilePicker && of.bytes > COLLECTED_MOST;
  return html`
    <${Notice} look="warning" title=${`${of.name}: ${size(of.bytes)}`}>
      <${About} of=${of} />
      ${come !== null && html`<p><progress max=${of.bytes} value=${come} aria-label="Download progress"></progress>
        ${size(come)} of ${size(of.bytes)}</p>`}
      ${tooMuch ? html`<p>This browser would hold the whole file in memory. Download it with a tool instead:
          <code>curl -fOJ -u <i>user</i> ${location.origin}/backup</code></p>`
        : come === null && html`<p>The node keeps the file for 30 seconds: start the download.</p>`}
      <p class="actions">
        <${Button} onClick=${onLeave}>Cancel<//>
        ${!tooMuch && html`<${Button} look="main" busy=${doing} onClick=${onSave}>Download<//>`}
      </p><//>`;
}

const About = ({ of }) => html`
  <dl class="pairs">
    <dt>File</dt><dd><code><bdi>${of.name}</bdi></code></dd>
    <dt>Form</dt><dd>${of.form}</dd>
    <dt>Size</dt><dd>${size(of.bytes)} <span class="soft">${of.bytes} bytes</span></dd>
    <dt>SHA-256</dt><dd><code>${of.digest}</code></dd>
  </dl>`;

function described(answer) {
  const [, name] = /filename="([^"]*)"/.exec(answer.headers.get('Content-Disposition')) ?? [null, 'backup'];
  const digest = atob((answer.headers.get('Digest') ?? '').replace('sha-256=', ''));
  return {
    answer, name, form: answer.headers.get('Store-Backup-Form'), bytes: Number(answer.headers.get('Content-Length')),
    digest: Array.from(digest, (sign) => sign.charCodeAt(0).toString(16).padStart(2, '0')).join(''),
  };
}

/** Save what was offered; null: no file was chosen. @param {(bytes: number) => void} count what has come so far */
async function stored(offered, count) {
  const { answer, name, bytes } = offered;
  let file = null;
  if (window.showSaveFilePicker) {
    try {
      file = await (await window.showSaveFilePicker({ suggestedName: name })).createWritable();
    } catch (error) {
      if (error.name === 'AbortError') return null;
      throw error;
    }
  }
  let come = 0;
  const counted = new TransformStream({
    transform(some, onward) {
      come += some.byteLength;
      count(come);
      onward.enqueue(some);
    },
  });
  count(0);
  try {
    const body = answer.body.pipeThrough(counted);
    if (file) await body.pipeTo(file);
    else save(name, await new Response(body).blob(), 'application/octet-stream');
  } catch (cause) {
    if (cause.name === 'AbortError') return null; // it was left while it came
    throw new node.Away(cause);
  }
  if (come !== bytes) throw new node.Away(new Error(`${come} of ${bytes} bytes`));
  return offered;
}
