/** What is done to a key: it is set, expires at another time, never does, is unlocked, deleted. */
import { Confirm } from '../../components/confirm.js';
import { Choice, Text, Tick } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import { blank, draft, meant, Typed } from '../../components/typed.js';
import { isLasting } from '../../statements/topics.js';
import { expire, persist, put, remove, unlock } from '../../statements/spaces.js';
import { html, useState } from '../../vendor/preact.js';

const DURATION = 'Expected a duration such as 30m.';
const ALWAYS = [['', 'default of the space'], ['for', 'after']];
const BESIDES = [['keep', 'unchanged'], ...ALWAYS];

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
  const done = ({ written }) => onDone(written ? 'Written.' : 'Not written: the key exists.', key);
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
      ${name === undefined && html`<${Tick} label="Overwrite an existing key" value=${over} onInput=${write} />`}
    <//>`;
}

const told = (onDone, yes) => ({ found }) => onDone(found ? yes : 'Nothing was changed: the key no longer exists.');

/** @param {object} props `place`, `space`, `name`, `onDone(words)`, `onClose` */
export function Expire({ place, space, name, onDone, onClose }) {
  const [text, last] = useState('');
  const statement = isLasting(text) ? expire(space, name, text) : null;
  return html`
    <${Perform} title="Change the expiry" statement=${statement} place=${place} act="Save" reasoned
      onDone=${told(onDone, 'Expiry changed.')} onClose=${onClose}>
      <${Text} label="It expires after" placeholder="30m" hint="Counted from now." value=${text} autofocus
        wrong=${text && !statement ? DURATION : undefined} onInput=${(given) => last(given.trim())} />
    <//>`;
}

/** As {@link Expire}. */
export const Persist = ({ place, space, name, onDone, onClose }) => html`
  <${Perform} title="Persist the key" statement=${persist(space, name)} place=${place} act="Persist it" reasoned
    onDone=${told(onDone, 'The key no longer expires.')} onClose=${onClose}>
    <p>It stays until it is deleted.</p>
  <//>`;

/** As {@link Expire}; `holder`: its value. */
export const Unlock = ({ place, space, name, holder, onDone, onClose }) => html`
  <${Confirm} title="Unlock the key" name=${name} called="key" statement=${unlock(space, name, holder)} place=${place}
    act="Unlock it" onClose=${onClose}
    onDone=${({ released }) => onDone(released ? 'Unlocked.' : 'Nothing was changed: that holder does not hold the lock.')}>
    <p>If it is a lock, it is free at once; its holder notices only when it extends it. A
      key that is not a lock is not changed.</p>
  <//>`;

/** As {@link Expire}. */
export const Delete = ({ place, space, name, onDone, onClose }) => html`
  <${Confirm} title="Delete the key" name=${name} called="key" statement=${remove(space, name)} place=${place}
    act="Delete it" onDone=${({ deleted }) => onDone(deleted ? 'Deleted.' : 'The key did not exist.')} onClose=${onClose}>
    <p>Its value is deleted; if it is a lock, the lock is released.</p>
  <//>`;
