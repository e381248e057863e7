/** Writing a record: what is typed is masked, sent in a body, and forgotten. */
import { Area, Button, Choice, Form, Text, Tick, useDoing } from '../../components/form.js';
import { Notice, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import { parse, Whole } from '../../values.js';
import { html, useState } from '../../vendor/preact.js';
import * as routes from './routes.js';
import { useSecret } from './secret.js';

const KINDS = [
  ['text', 'Plain text'], ['json', 'JSON'],
  ['tagged', 'JSON with tags: {"$dec": "1.50"}'],
];

/** A number of a JSON text, exactly: whole floats and integers beyond those of a float are told apart. */
function exact(_name, value, context) {
  if (typeof value !== 'number' || !context) return value;
  const whole = !/[.e]/i.test(context.source);
  if (whole) return Number.isSafeInteger(value) ? value : BigInt(context.source);
  return Number.isInteger(value) ? new Whole(value, context.source) : value;
}

/** The value that is typed: `{value}`, or `{wrong}` without anything of it. */
function valueOf(kind, text) {
  if (kind === 'text') return text === '' ? { wrong: '' } : { value: text };
  if (text.trim() === '') return { wrong: '' };
  try {
    const plain = JSON.parse(text, exact);
    if (kind === 'json') return { value: plain };
    if (holds(plain, (one) => typeof one === 'bigint')) return { wrong: 'Beyond ±2^53 an int is {"$int": "…"}' };
    return { value: parse(text) };
  } catch {
    return { wrong: 'Not JSON' }; // what the browser says of it would show a part of it
  }
}

const holds = (value, is) => is(value)
  || (value !== null && typeof value === 'object' && !(value instanceof Whole) && Object.values(value).some((one) => holds(one, is)));

/** @param {object} props `of`, `id`, `onDone` */
export function Write({ of, id, onDone }) {
  const [kind, choose] = useState('text');
  const [typed, type, forget] = useSecret();
  const [clear, see] = useState(false);
  const [when, expect] = useState('any');
  const [version, count] = useState('1');
  const [reason, explain] = useState('');
  const [answer, tell] = useState(null);
  const [doing, error, attempt] = useDoing();
  const { value, wrong } = valueOf(kind, typed);
  const strange = when === 'version' && !/^\d{1,15}$/.test(version);
  const ready = id !== '' && wrong === undefined && !strange;
  const rest = {
    ...(when === 'absent' && { if: 'absent' }), ...(when === 'version' && !strange && { expect: Number(version) }),
    ...(reason.trim() && { reason: reason.trim() }),
  };
  const submit = async () => {
    if (!ready) return;
    const body = { id, value, ...rest };
    tell(null);
    forget();
    if (await attempt(async () => tell({ id, ...await routes.write(of, body) }))) onDone();
  };
  return html`
    <${Form} onSubmit=${submit}>
      <${Choice} label="Value is" value=${kind} options=${KINDS} onInput=${choose} />
      <${Area} label="Value" class=${clear ? '' : 'masked'} autocomplete="off" value=${typed} onInput=${type} wrong=${wrong} />
      <${Tick} label="Show it while I type" value=${clear} onInput=${see} />
      <${Choice} label="Only if" value=${when} onInput=${expect}
        options=${[['any', 'always'], ['absent', 'the record is absent'], ['version', 'the version is']]} />
      ${when === 'version' && html`<${Text} label="Expected version" inputmode="numeric" value=${version} onInput=${count}
        wrong=${strange ? 'The number of a version' : ''} />`}
      <${Text} label="Reason" value=${reason} onInput=${explain} maxlength="500" hint="Kept in its trail." />
      ${id !== '' && html`<${Composed} of=${routes.shown(of, 'write', { id, value: '...', ...rest })} title="Request preview" />`}
      <p class="actions"><${Button} look="main" submit busy=${doing} disabled=${!ready && !doing}>Write<//></p>
    <//>
    ${error && html`<${Refused} error=${error} />`}
    ${answer && (answer.written ? html`<${Notice} look="well" title=${html`Version ${String(answer.version)} of <bdi>${answer.id}</bdi> is written`} />`
      : html`<${Notice} look="half" title="Not written: the condition does not hold"><p>Its version is ${String(answer.version)}.</p><//>`)}`;
}
