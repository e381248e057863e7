/** A value of the language that somebody types: JSON with the tags of docs/http.md, or a plain text. */
import { html } from '../vendor/preact.js';
import { parse, written } from '../values.js';
import { docs } from './head.js';
import { Area, Choice } from './form.js';

/** @typedef {{as: 'json'|'text', text: string}} Draft what stands in the fields */

const KINDS = [['json', 'JSON'], ['text', 'Plain text']];

/** The draft that stands for a value: a field would make one end of lines of another, so a text with such a one is JSON. @returns {Draft} */
export const draft = (value) => (typeof value === 'string' && !value.includes('\r')
  ? { as: 'text', text: value } : { as: 'json', text: written(value) });

/** An empty draft. @returns {Draft} */
export const blank = () => ({ as: 'json', text: '' });

/**
 * What a draft stands for: `{value}`, or `{wrong}` in words.
 * @param {Draft} of
 */
export function meant({ as, text }) {
  if (as === 'text') return { value: text };
  if (!text.trim()) return { wrong: 'A value is missing.' };
  try {
    const lost = [];
    JSON.parse(text, (_name, value, context) => {
      if (Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '')) {
        lost.push(context.source);
      }
      return value;
    });
    if (lost.length) return { wrong: `${lost[0]} is too large for a JSON number: write {"$int": "${lost[0]}"}.` };
    return { value: parse(text) };
  } catch (error) {
    return { wrong: `Not JSON: ${error.message}` };
  }
}

/**
 * Fields for a value. @param {object} props `label`; `value` (a {@link Draft}); `onInput(draft)`; what else is given goes
 *   to the text
 */
export function Typed({ label = 'Value', value, onInput, ...more }) {
  const wrong = value.text ? meant(value).wrong : undefined;
  const tags = html`Dates, decimals, records and the like as <a href=${docs('http.md#values-in-json')} target="_blank"
    rel="noopener">tagged JSON</a>: <code>${'{"$dt": "2026-01-02T03:04:05Z"}'}</code>`;
  return html`
    <${Choice} label=${`${label} as`} options=${KINDS} value=${value.as} onInput=${(as) => onInput({ ...value, as })} />
    <${Area} label=${label} value=${value.text} wrong=${wrong} hint=${value.as === 'json' && tags} ...${more}
      onInput=${(text) => onInput({ ...value, text })} />`;
}
