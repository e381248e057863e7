/** The desk: scripts beside each other, the editor, what goes with a script, and what it answered. */
import { Editor } from '../../components/editor.js';
import { Area, Button, Text, Tick } from '../../components/form.js';
import { Ago } from '../../components/ago.js';
import { useKeys } from '../../components/keys.js';
import { html, useEffect, useMemo, useRef, useState } from '../../vendor/preact.js';
import { completion } from './completion.js';
import { change, choose, close, currentOf, open, run, title, useDesk, wrong } from './desk.js';
import { Results } from './results.js';
import { Rows } from './rows.js';

/** @param {object} props `place` */
export function Scripts({ place }) {
  const desk = useDesk();
  const script = currentOf(desk);
  const held = useRef(null);
  const complete = useMemo(() => completion(place), [place?.ns, place?.db]);
  const go = (selected) => run(script.id, selected, place);
  useKeys([
    { keys: 'Mod-Enter', does: 'in a script: run what is selected, or all of it', run: () => go(held.current?.() ?? null) },
    { keys: 'n', does: 'a new script', run: () => open() },
  ]);
  return html`
    <${Strip} desk=${desk} />
    <div class="write">
      <${Editor} key=${script.id} label="Script" value=${script.text} marks=${script.marks} complete=${complete} held=${held}
        onInput=${(text) => change(script.id, { text })} onRun=${go} />
      <${Beside} script=${script} />
    </div>
    <div class="actions">
      <${Button} look="main" busy=${Boolean(script.running)} disabled=${Boolean(wrong(script.params))}
        onClick=${() => go(held.current?.() ?? null)}>Run<//>
      ${script.running && html`<${Button} onClick=${() => script.running.over.abort()}>Stop<//>
        <${Elapsed} since=${script.running.since} />`}
      <span class="soft small">${place ? html`in <bdi>${place.ns}.${place.db}</bdi>` : 'no database chosen: the script needs USE'}</span>
    </div>
    ${script.answer && html`<${Results} key=${script.id} answer=${script.answer} />`}`;
}

function Elapsed({ since }) {
  return html`<span class="small soft"><span role="status">Running, </span><${Ago} at=${since} what="begun" /></span>`;
}

function Strip({ desk }) {
  const strip = useRef(null);
  useEffect(() => strip.current.querySelector('[aria-pressed="true"]')?.scrollIntoView({ block: 'nearest' }), [desk.current]);
  return html`
    <div class="strip" role="group" aria-label="Scripts" ref=${strip}>
      ${desk.scripts.map((script) => html`<span key=${script.id} class="one">
        <button type="button" class="bare" aria-pressed=${script.id === desk.current} onClick=${() => choose(script.id)}>
          <bdi>${title(script)}</bdi>${script.running ? ' …' : ''}</button>
        ${(desk.scripts.length > 1 || script.text) && html`<button type="button" class="bare" aria-label=${`Close: ${title(script)}`}
          onClick=${() => close(script.id)}><span aria-hidden="true">×</span></button>`}
      </span>`)}
      <button type="button" class="quiet" onClick=${() => open()}>New script</button>
    </div>`;
}

/** Parameters, and what goes into the statement log. */
function Beside({ script }) {
  const [shown, show] = useState(Boolean(script.params));
  const put = (name) => (value) => change(script.id, { [name]: value });
  return html`
    <details class="extras" open=${shown} onToggle=${(event) => show(event.target.open)}>
      <summary>Parameters and options ${(script.params.trim() || script.reason || script.timeout || script.record) && html`<span class="chip">given</span>`}</summary>
      <div class="columns">
        <${Area} label="Parameters, as JSON" hint=${'{"age": 30, "from": {"$dt": "2026-01-02T03:04:05Z"}} for $age and $from'} value=${script.params} wrong=${wrong(script.params)}
          onInput=${put('params')} />
        <div>
          <${Rows} onRead=${put('params')} />
          <${Text} label="Reason" hint="Kept in the statement log." value=${script.reason} onInput=${put('reason')} maxlength="500" />
          <${Text} label="Timeout" hint="For the whole script, such as 5s." value=${script.timeout} onInput=${put('timeout')} />
          <${Tick} label="Keep it in the statement log although it only reads" value=${script.record} onInput=${put('record')} />
        </div>
      </div>
    </details>`;
}
