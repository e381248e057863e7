/** Making, moving, changing and removing readers and groups. */
import { Confirm } from '../../components/confirm.js';
import { Text, Tick } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import { isName } from '../../statements.js';
import {
  alterGroup, defineGroup, defineReader, dropGroup, dropReader, isLasting, isPauses, moveGroup, moveReader,
} from '../../statements/topics.js';
import { html, useState } from '../../vendor/preact.js';
import { Position, position, WHERE } from './position.js';

const START = { at: 'START', text: '' };
const NO_NAME = 'Letters, digits, _ and -, beginning with a letter or _; at most 64.';

const Name = ({ value, onInput }) => html`<${Text} label="Name" value=${value} autofocus
  onInput=${(text) => onInput(text.trim())} wrong=${value && !isName(value) ? NO_NAME : undefined} />`;

/** @param {{place: object, topic: string, onDone: () => void, onClose: () => void}} props */
export function MakeReader({ place, topic, onDone, onClose }) {
  const [name, call] = useState('');
  const [where, put] = useState(START);
  const at = position(where);
  const statement = isName(name) && at ? defineReader(name, topic, at) : null;
  return html`
    <${Perform} title="New reader" statement=${statement} place=${place} act="Create" reasoned onDone=${onDone}
      onClose=${onClose}>
      <${Name} value=${name} onInput=${call} />
      <${Position} value=${where} onInput=${put} />
    <//>`;
}

const SETTINGS = { deadline: '30s', max_in_flight: '', deliveries: '', dead_letter: '', backoff: '' };
const whole = (text) => (/^\d{0,9}$/.test(text) ? undefined : 'Expected a whole number.');

/** What is wrong with what stands in the fields, by field. */
const wrongIn = (settings) => ({
  deadline: isLasting(settings.deadline) ? undefined : 'Expected a duration such as 30s.',
  max_in_flight: whole(settings.max_in_flight),
  deliveries: whole(settings.deliveries),
  dead_letter: !settings.dead_letter || isName(settings.dead_letter) ? undefined : NO_NAME,
  backoff: !settings.backoff || isPauses(settings.backoff) ? undefined : 'Expected comma-separated durations, such as 1s, 10s, 1m.',
});
const fit = (settings) => !Object.values(wrongIn(settings)).some(Boolean);

function Fields({ value, onInput }) {
  const wrong = wrongIn(value);
  const field = (name) => ({
    value: value[name], wrong: wrong[name], onInput: (text) => onInput({ ...value, [name]: text.trim() }),
  });
  return html`
    <div class="columns">
      <${Text} label="Deadline" hint="Messages not acknowledged by then are delivered again." ...${field('deadline')} />
      <${Text} label="In flight at most" placeholder="1000" inputmode="numeric" ...${field('max_in_flight')} />
      <${Text} label="Deliveries at most" placeholder="any number" inputmode="numeric"
        hint="After this many deliveries a message is given up." ...${field('deliveries')} />
      <${Text} label="Dead letter topic" placeholder="none: they are dropped" ...${field('dead_letter')} />
      <${Text} label="Backoff" placeholder="1s, 10s, 1m" hint="Delays before redeliveries." ...${field('backoff')} />
    </div>`;
}

/** @param {{place: object, topic: string, onDone: () => void, onClose: () => void}} props */
export function MakeGroup({ place, topic, onDone, onClose }) {
  const [name, call] = useState('');
  const [settings, set] = useState(SETTINGS);
  const [ordered, order] = useState(false);
  const [where, put] = useState(START);
  const at = position(where);
  const statement = isName(name) && at && fit(settings) ? defineGroup(name, topic, { ...settings, ordered }, at) : null;
  return html`
    <${Perform} title="New group" wide statement=${statement} place=${place} act="Create" reasoned onDone=${onDone}
      onClose=${onClose}>
      <${Name} value=${name} onInput=${call} />
      <${Fields} value=${settings} onInput=${set} />
      <${Tick} label="Messages of one key in order" value=${ordered} onInput=${order} />
      <${Position} value=${where} onInput=${put} />
    <//>`;
}

const shown = (told) => ({
  deadline: told.deadline.text, max_in_flight: String(told.max_in_flight), deliveries: told.deliveries ? String(told.deliveries) : '',
  dead_letter: told.dead_letter ?? '', backoff: told.backoff.map(({ text }) => text).join(', '),
});

/** @param {{place: object, topic: string, consumer: object, onDone: () => void, onClose: () => void}} props */
export function ChangeGroup({ place, topic, consumer, onDone, onClose }) {
  const [before] = useState(() => shown(consumer.told));
  const [settings, set] = useState(before);
  const changed = Object.fromEntries(Object.entries(settings).filter(([name, text]) => text !== before[name]));
  const statement = Object.keys(changed).length && fit(settings) ? alterGroup(consumer.name, topic, changed) : null;
  return html`
    <${Perform} title="Settings of the group" wide statement=${statement} place=${place} act="Save" reasoned
      onDone=${onDone} onClose=${onClose}>
      <${Fields} value=${settings} onInput=${set} />
    <//>`;
}

/** @param {{place: object, topic: string, consumer: object, onDone: () => void, onClose: () => void}} props */
export function Move({ place, topic, consumer, onDone, onClose }) {
  const [where, put] = useState({ at: 'END', text: '' });
  const done = consumer.told.committed;
  const again = done === undefined ? [] : [['DONE', `its committed position, after ${done}: messages in flight are delivered again`]];
  const at = where.at === 'DONE' ? { at: 'AFTER', value: Number(done) } : position(where);
  const move = consumer.is === 'group' ? moveGroup : moveReader;
  return html`
    <${Confirm} title=${`Move the ${consumer.is}`} name=${consumer.name} called=${consumer.is} act="Move" place=${place}
      ready=${at !== null} statement=${at && move(consumer.name, topic, at)} onDone=${onDone} onClose=${onClose}>
      ${consumer.is === 'group'
        ? html`<p>Receipts of messages in flight become stale, and the messages may be delivered again.</p>`
        : html`<p>Clients of this reader continue there: messages are read again, or skipped.</p>`}
      <${Position} label="To" options=${[...WHERE, ...again]} value=${where} onInput=${put} />
    <//>`;
}

/** @param {{place: object, topic: string, consumer: object, onDone: () => void, onClose: () => void}} props */
export function RemoveConsumer({ place, topic, consumer, onDone, onClose }) {
  const drop = consumer.is === 'group' ? dropGroup : dropReader;
  return html`
    <${Confirm} title=${`Remove the ${consumer.is}`} name=${consumer.name} called=${consumer.is} act="Remove"
      statement=${drop(consumer.name, topic)} place=${place} onDone=${onDone} onClose=${onClose}>
      <p>${consumer.is === 'group' ? 'Its deliveries, position and counts are lost; the messages stay.'
        : 'Its position is lost; the messages stay.'}</p>
    <//>`;
}
