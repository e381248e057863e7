/** Making a topic, and changing its settings. */
import { Choice, Text } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import { isName } from '../../statements.js';
import { alter, define, isLasting, isSize } from '../../statements/topics.js';
import { html, useState } from '../../vendor/preact.js';
import { size } from './words.js';

const NOTHING = { keep: '', max_bytes: '', largest: '', dedup: '', full: 'DROP', comment: '' };
const FULL = [['DROP', 'drop the oldest messages'], ['REFUSE', 'refuse new ones']];
const DURATION = 'Expected a duration such as 7d or 1h30m.';
const SIZE = 'Expected a size such as 64MiB, 500KB or a number of bytes.';

const wrong = (holds, words) => (text) => (text && !holds(text) ? words : undefined);
const lasting = wrong(isLasting, DURATION);
const sized = wrong(isSize, SIZE);

const fit = ({ keep, max_bytes: most, largest, dedup }) =>
  ![lasting(keep), sized(most), sized(largest), lasting(dedup)].some(Boolean);

function Fields({ value, onInput }) {
  const set = (key) => (text) => onInput({ ...value, [key]: key === 'comment' ? text : text.trim() });
  return html`
    <div class="columns">
      <${Text} label="Keep messages for" placeholder="for ever" hint="Older ones are trimmed." value=${value.keep}
        wrong=${lasting(value.keep)} onInput=${set('keep')} />
      <${Text} label="Hold at most" placeholder="no limit" hint="Bytes of all messages together." value=${value.max_bytes}
        wrong=${sized(value.max_bytes)} onInput=${set('max_bytes')} />
      <${Choice} label="When it is full" options=${FULL} value=${value.full} onInput=${set('full')} />
      <${Text} label="Largest message" placeholder="8MiB" value=${value.largest} wrong=${sized(value.largest)}
        onInput=${set('largest')} />
      <${Text} label="Deduplicate ids for" placeholder="not at all" hint="A message with the same id is not appended again."
        value=${value.dedup} wrong=${lasting(value.dedup)} onInput=${set('dedup')} />
      <${Text} label="Comment" value=${value.comment} onInput=${set('comment')} />
    </div>`;
}

/** @param {{place: object, onDone: (name: string) => void, onClose: () => void}} props */
export function Make({ place, onDone, onClose }) {
  const [name, call] = useState('');
  const [settings, set] = useState(NOTHING);
  const written = { ...settings, full: settings.full === 'DROP' ? '' : settings.full };
  const statement = isName(name) && fit(settings) ? define(name, written) : null;
  return html`
    <${Perform} title="New topic" wide statement=${statement} place=${place} act="Create" reasoned
      onDone=${() => onDone(name)} onClose=${onClose}>
      <${Text} label="Name" value=${name} onInput=${(text) => call(text.trim())} autofocus
        wrong=${name && !isName(name) ? 'Letters, digits, _ and -, beginning with a letter or _; at most 64.' : undefined} />
      <${Fields} value=${settings} onInput=${set} />
    <//>`;
}

/** What INFO says, as the fields have it. */
const shown = (told) => ({
  keep: told.keep?.text ?? '', max_bytes: told.max_bytes ? size(told.max_bytes) : '', largest: size(told.largest),
  dedup: told.dedup?.text ?? '', full: told.full, comment: told.comment ?? '',
});

/** @param {{place: object, topic: string, told: object, onDone: () => void, onClose: () => void}} props */
export function Change({ place, topic, told, onDone, onClose }) {
  const [before] = useState(() => shown(told));
  const [settings, set] = useState(before);
  const changed = Object.fromEntries(Object.entries(settings).filter(([key, text]) => text !== before[key]));
  const statement = Object.keys(changed).length && fit(settings) ? alter(topic, changed) : null;
  return html`
    <${Perform} title="Settings of the topic" wide statement=${statement} place=${place} act="Save"
      reasoned onDone=${onDone} onClose=${onClose}>
      <p class="soft">Messages beyond the new limits are trimmed soon after.</p>
      <${Fields} value=${settings} onInput=${set} />
    <//>`;
}
