/** What is done to a key: it is set, expires at another time, never does, is unlocked, deleted. */
import { Confirm } from '../../components/confirm.js';
import { Choice, Text, Tick } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import { blank, draft, meant, Typed } from '../../components/typed.js';
import { isLasting } from '../../statements/topics.js';
import { expire, persist, put, remove, unlock } from '../../statements/spaces.js';
import { html, useState } from '../../vendor/preact.js';

const DURATION = 'A duration such as 30m is wanted.';
const ALWAYS = [['', 'as the space says'], ['for', 'after']];
const BESIDES = [['keep', 'when it did'], ...ALWAYS];

/**
 * Setting a key. Without a `name` it is typed, and one that is there is left alone unless that is asked for.
 * @param {object} props `place`, `space`, `name`, `found` ({value, ttl}, if it is there), `onDone(words, key)`, `onClose`
 */
export function Put({ place, space, name, found, onDone, onClose }) {
  const [key, call] = useState(name ?? '');
  const [value, type] = useState(() => (found ? draft(found.value) : blank()));
  const [expires, choose] = useState(found ? 'keep' : '');
  const [text, last] = useState('');
  const [over, write] = useState(name !== undefined);
  const meaning = meant(value);
  const fit = expires !== 'for' || isLasting(text);
  const statement = key && !meaning.wrong && fit ? put(space, key, meaning.value, {
    expire: expires === 'for' ? text : expires, only: over ? '' : 'ABSENT',
  }) : null;
  const done = ({ written }) => onDone(written ? 'Written.' : 'Not written: the key is there.', key);
  return html`
    <${Perform} title="Set a key" statement=${statement} place=${place} act="Set" wide reasoned onDone=${done} onClose=${onClose}>
      ${name === undefined && html`<${Text} label="Key" value=${key} onInput=${call} autofocus />`}
      ${typeof found?.value === 'string' && html`<p class="soft">If it is a lock, setting it breaks the lock.</p>`}
      <${Typed} value=${value} onInput=${type} />
      <div class="columns">
        <${Choice} label="It expires" options=${found ? BESIDES : ALWAYS} value=${expires} onInput=${choose} />
        ${expires === 'for' && html`<${Text} label="After" placeholder="30m" value=${text} wrong=${text && !fit ? DURATION : undefined}
          onInput=${(given) => last(given.trim())} />`}
      </div>
      ${name === undefined && html`<${Tick} label="Also where the key is there already" value=${over} onInput=${write} />`}
    <//>`;
}

const told = (onDone, yes) => ({ found }) => onDone(found ? yes : 'Nothing was changed: the key has gone.');

/** @param {object} props `place`, `space`, `name`, `onDone(words)`, `onClose` */
export function Expire({ place, space, name, onDone, onClose }) {
  const [text, last] = useState('');
  const statement = isLasting(text) ? expire(space, name, text) : null;
  return html`
    <${Perform} title="Change the expiry" statement=${statement} place=${place} act="Save" reasoned
      onDone=${told(onDone, 'Its expiry is changed.')} onClose=${onClose}>
      <${Text} label="It expires after" placeholder="30m" hint="Counted from now." value=${text} autofocus
        wrong=${text && !statement ? DURATION : undefined} onInput=${(given) => last(given.trim())} />
    <//>`;
}

/** As {@link Expire}. */
export const Persist = ({ place, space, name, onDone, onClose }) => html`
  <${Perform} title="Persist the key" statement=${persist(space, name)} place=${place} act="Persist it" reasoned
    onDone=${told(onDone, 'It does not expire any more.')} onClose=${onClose}>
    <p>It stays until it is deleted.</p>
  <//>`;

/** As {@link Expire}; `holder`: its value. */
export const Unlock = ({ place, space, name, holder, onDone, onClose }) => html`
  <${Confirm} title="Unlock the key" name=${name} called="key" statement=${unlock(space, name, holder)} place=${place}
    act="Unlock it" onClose=${onClose}
    onDone=${({ released }) => onDone(released ? 'Unlocked.' : 'Nothing was changed: it is no lock of that holder.')}>
    <p>If it is a lock, it falls free at once, whatever its holder is doing: it hears of it only when it extends it. Of a
      key that is no lock nothing changes.</p>
  <//>`;

/** As {@link Expire}. */
export const Delete = ({ place, space, name, onDone, onClose }) => html`
  <${Confirm} title="Delete the key" name=${name} called="key" statement=${remove(space, name)} place=${place}
    act="Delete it" onDone=${({ deleted }) => onDone(deleted ? 'Deleted.' : 'It was gone already.')} onClose=${onClose}>
    <p>Its value goes, and if it is a lock, the lock.</p>
  <//>`;
