/** A value, shown for a moment or copied without being shown; and erasing a record. */
import { Moment } from '../../components/ago.js';
import { Confirm } from '../../components/confirm.js';
import { copy } from '../../components/copy.js';
import { Button, Form, Text, useDoing } from '../../components/form.js';
import { Notice, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import { Tree } from '../../components/value.js';
import { written } from '../../values.js';
import { html, useEffect, useState } from '../../vendor/preact.js';
import * as routes from './routes.js';
import { useHidden } from './secret.js';

/** Seconds for which a value is shown. */
const SHOWN_S = 20;

const asText = (value) => (typeof value === 'string' ? value : written(value));

/** @param {object} props `of`, `id`, `sealed`, `onTrace` (its trail has grown) */
export function Reveal({ of, id, sealed, onTrace }) {
  const [version, choose] = useState('');
  const [reason, explain] = useState('');
  const [shown, show] = useState(null);
  const [said, say] = useState('');
  const [doing, error, attempt] = useDoing();
  const hide = () => show(null);
  useHidden(hide);
  useEffect(() => {
    if (sealed) hide();
  }, [sealed]);
  const wrong = version && !/^[1-9]\d{0,14}$/.test(version) ? 'The number of a version, from 1 on' : '';
  const ready = id !== '' && !wrong;
  const body = { id, ...(version && !wrong && { version: Number(version) }), ...(reason.trim() && { reason: reason.trim() }) };
  const ask = async () => {
    hide();
    say('');
    return routes.reveal(of, body).finally(onTrace);
  };
  const look = () => ready && attempt(async () => show(await ask()));
  const take = () => ready && attempt(async () => {
    const { value, version: taken } = await ask();
    try {
      await copy(asText(value));
      say(`Version ${taken} is copied to the clipboard, which may keep it.`);
    } catch {
      say('The browser does not let the page write to the clipboard.');
    }
  });
  return html`
    <${Form} onSubmit=${look}>
      <div class="columns">
        <${Text} label="Version" inputmode="numeric" placeholder="the newest" value=${version} onInput=${choose} wrong=${wrong} />
        <${Text} label="Reason" value=${reason} onInput=${explain} maxlength="500" hint="Kept in its trail." />
      </div>
      ${ready && html`<${Composed} of=${routes.shown(of, 'reveal', body)} title="Request preview" />`}
      <p class="actions">
        <${Button} busy=${doing} disabled=${!ready} onClick=${take}>Copy without showing<//>
        <${Button} look="main" submit busy=${doing} disabled=${!ready}>Show for ${SHOWN_S} s<//>
      </p>
      <p class="soft" role="status">${said}</p>
    <//>
    ${error && html`<${Refused} error=${error} />`}
    ${shown && html`<${Shown} of=${shown} onHide=${hide} onCopied=${say} />`}`;
}

function Shown({ of, onHide, onCopied }) {
  const [left, count] = useState(SHOWN_S);
  useEffect(() => {
    const ends = performance.now() + SHOWN_S * 1000;
    const timer = setInterval(() => {
      const seconds = Math.ceil((ends - performance.now()) / 1000);
      if (seconds > 0) count(seconds);
      else onHide();
    }, 250);
    return () => clearInterval(timer);
  }, [of]);
  const put = async () => {
    try {
      await copy(asText(of.value));
      onCopied('Copied to the clipboard, which may keep it.');
    } catch {
      onCopied('The browser does not let the page write to the clipboard.');
    }
  };
  return html`
    <${Notice} look="warning" title=${html`Version ${String(of.version)} of <bdi>${of.id}</bdi>, of <${Moment} of=${of.at} />`}>
      <div class="whole revealed">${typeof of.value === 'string' ? html`<pre tabindex="0"><bdi>${of.value}</bdi></pre>`
        : html`<${Tree} of=${of.value} />`}</div>
      <p class="actions">
        <span role="timer">hidden in ${left} s</span>
        <${Button} onClick=${put}>Copy<//><${Button} onClick=${onHide}>Hide<//>
      </p><//>`;
}

/** @param {object} props `of`, `id`, `onDone(id)` */
export function Erase({ of, id, onDone }) {
  const [asking, ask] = useState(false);
  const [nothing, tell] = useState(null);
  const erase = (reason) => routes.erase(of, { id, ...(reason && { reason }) });
  const done = ({ erased }) => {
    tell(erased ? null : id);
    if (erased) onDone(id);
  };
  return html`
    <p class="actions"><${Button} look="danger" disabled=${id === ''} onClick=${() => ask(true)}>Erase…<//></p>
    ${nothing !== null && nothing === id && html`<p role="status">No such record.</p>`}
    ${asking && html`<${Confirm} title="Erase a record" name=${id} called="id" act="Erase" run=${erase}
      statement=${routes.shown(of, 'erase', { id })} onDone=${done} onClose=${() => ask(false)}>
      <p>All its versions are removed from the state at once, and from the log when it is pruned, but never from backups.</p>
    <//>`}`;
}
