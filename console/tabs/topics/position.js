/** Where a reader or a group is to stand: the beginning, the end, a position, a time. */
import { Choice, Text } from '../../components/form.js';
import { html } from '../../vendor/preact.js';
import { Tagged } from '../../values.js';

/** @typedef {{at: 'START'|'END'|'AFTER'|'TIME', text: string}} Draft what stands in the fields */

/** Where something may stand, as options. */
export const WHERE = [
  ['START', 'the oldest message'], ['END', 'the end: only new messages'],
  ['AFTER', 'behind a position'], ['TIME', 'a time'],
];

/** A time as somebody types it, in the zone of the machine, as a value; null: it is none. */
export function moment(text) {
  const time = text ? new Date(text) : null;
  return time && !Number.isNaN(time.getTime()) ? new Tagged('dt', time.toISOString()) : null;
}

/** The zone of the machine, in words beside such a field. */
export function zone() {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return `In the time of this machine, ${timeZone}.`;
}

/** What a draft stands for; null: something is missing. @param {Draft} draft */
export function position({ at, text }) {
  if (at === 'START' || at === 'END') return { at };
  if (at === 'TIME') {
    const value = moment(text);
    return value && { at, value };
  }
  return /^\d{1,15}$/.test(text) ? { at, value: Number(text) } : null;
}

/** @param {{label?: string, options?: string[][], value: Draft, onInput: (draft: Draft) => void}} props */
export function Position({ label = 'Begins at', options = WHERE, value, onInput }) {
  const type = (text) => onInput({ ...value, text });
  return html`
    <${Choice} label=${label} options=${options} value=${value.at} onInput=${(at) => onInput({ at, text: '' })} />
    ${value.at === 'AFTER' && html`<${Text} label="Position" inputmode="numeric" value=${value.text} onInput=${type}
      hint="The next message is the one after it." />`}
    ${value.at === 'TIME' && html`<${Text} label="Time" type="datetime-local" step="1" value=${value.text} onInput=${type}
      hint=${`The next message is the first one of that time or later. ${zone()}`} />`}`;
}
