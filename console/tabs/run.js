/** Run: scripts, and what they answer. */
import { Head } from '../components/head.js';
import { Button, Form, Area, useDoing } from '../components/form.js';
import { Refused } from '../components/notices.js';
import { Tree } from '../components/value.js';
import * as node from '../node.js';
import { html, useState } from '../vendor/preact.js';
import { at, Spaces } from './spaces/spaces.js';

function Run({ tab, place, parts, query }) {
  if (place && parts[0] === 'space') return html`<${Spaces} place=${place} name=${parts[1]} query=${query} />`;
  return html`<${Scripts} tab=${tab} place=${place} />`;
}

function Scripts({ tab, place }) {
  const [text, type] = useState('RETURN 1 + 1');
  const [answer, take] = useState(null);
  const [doing, error, attempt] = useDoing();
  const submit = () => attempt(async () => take(await node.script(text, { place })));
  return html`
    <${Head} tab=${tab}>${place && html`<a href=${at(place)}>Cache spaces</a>`}<//>
    <${Form} onSubmit=${submit}>
      <${Area} label="Script" value=${text} onInput=${type} />
      <p class="actions"><${Button} look="main" submit busy=${doing}>Run<//></p>
    <//>
    ${error && html`<${Refused} error=${error} />`}
    ${answer && answer.results.map((result) => html`
      <section class="card"><p class="soft">${result.kind}, ${result.rows} rows, ${result.took}</p>
        <${Tree} of=${result.value} place=${place} /></section>`)}`;
}

export const run = {
  name: 'run',
  title: 'Run',
  about: 'Write scripts, run them, and look at what they answer.',
  page: 'statements.md',
  placed: true,
  view: Run,
};
