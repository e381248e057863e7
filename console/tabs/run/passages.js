/**
 * Passages that a search has marked, as `search::highlight` and `search::snippet` make them: text escaped for HTML, with
 * matches in `<b>…</b>`. They are drawn as text and marks. What is not exactly that is text as it stands.
 */
import { Copy } from '../../components/copy.js';
import { Dialog } from '../../components/dialog.js';
import { Value } from '../../components/value.js';
import { tokens } from '../../storeql.js';
import { html, useState } from '../../vendor/preact.js';

const MAKES = new Set(['search::highlight', 'search::snippet']);
const OPENS = { '(': ')', '[': ']', '{': '}' };
const DEFAULT_MARKS = /^\{(?:words:\d+)?\}$/i;

/**
 * The columns of each statement of a script that hold marked passages: those that such a call makes, and those of a
 * LET from which the statement reads. A call with marks of its own or without escaping makes a text like any other.
 * @param {string[]} texts the statements @returns {Array<Set<string>>}
 */
export function passageColumns(texts) {
  const variables = new Map();
  return texts.map((text) => {
    const parts = [...tokens(text)].filter(({ kind }) => kind !== 'space' && kind !== 'comment');
    const found = new Set([...own(parts), ...read(parts, variables)]);
    if (upper(parts[0]) === 'LET' && parts[1]?.kind === 'parameter') variables.set(parts[1].text, found);
    return found;
  });
}

const upper = (part) => part?.text.toUpperCase();
const is = (part, text) => part?.kind === 'mark' && part.text === text;

/** The index of the token that closes the bracket at an index; the end where none does. */
function closing(parts, at) {
  let depth = 0;
  for (let n = at; n < parts.length; n += 1) {
    if (parts[n].kind !== 'mark') continue;
    if (OPENS[parts[n].text]) depth += 1;
    else if (')]}'.includes(parts[n].text) && (depth -= 1) === 0) return n;
  }
  return parts.length;
}

/** Whether the bracket at an index holds the rows of the statement itself: `FROM (`, `RETURN (`, `LET $rows = (`. */
const holdsRows = (parts, at) => ['FROM', 'RETURN'].includes(upper(parts[at - 1])) || (at === 3 && upper(parts[0]) === 'LET');

/** The columns that calls of the statement make. */
function own(parts) {
  const found = [];
  for (let at = 0; at < parts.length; at += 1) {
    if (MAKES.has(parts[at].text) && is(parts[at + 1], '(')) {
      const end = closing(parts, at + 1);
      const begins = is(parts[at - 1], ',') || upper(parts[at - 1]) === 'SELECT';
      if (begins && areDefault(parts.slice(at + 2, end))) found.push(...called(parts, at, end + 1));
      at = end;
    } else if (parts[at].kind === 'mark' && OPENS[parts[at].text] && !holdsRows(parts, at)) at = closing(parts, at);
  }
  return found;
}

/** The name of a column whose call ends before an index; none where more is done with its value. */
function called(parts, at, next) {
  if (upper(parts[next]) === 'AS') {
    const { kind, text } = parts[next + 1] ?? {};
    return kind === 'name' ? [text.slice(1, -1).replace(/\\(.)/g, '$1')] : [text];
  }
  return is(parts[next], ',') || upper(parts[next]) === 'FROM' ? [parts[at].text] : [];
}

/** Whether arguments leave marks and escaping as they are. */
function areDefault(given) {
  const comma = given.findIndex((part) => is(part, ','));
  return comma < 0 || DEFAULT_MARKS.test(given.slice(comma + 1).map(({ text }) => text).join(''));
}

/** The columns of the variables that the rows of a statement are read from. */
function read(parts, variables) {
  const from = upper(parts[0]) === 'RETURN' ? 0 : parts.findIndex((part) => upper(part) === 'FROM');
  if (from < 0) return [];
  const found = [];
  for (let at = from + 1; at < parts.length; at += 1) {
    const { kind, text } = parts[at];
    if (kind === 'word' && !text.includes('::')) break;
    const end = kind === 'mark' && OPENS[text] ? closing(parts, at) : at;
    for (const part of parts.slice(at, end + 1)) if (part.kind === 'parameter') found.push(...variables.get(part.text) ?? []);
    at = end;
  }
  return found;
}

const UNESCAPED = /[<>"']|&(?!(?:amp|lt|gt|quot|#x27);)/;
const SIGNS = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#x27;': "'" };

/**
 * The parts of a marked passage, in turn not marked and marked.
 * @param {any} value @returns {?string[]} null: it is no such passage
 */
export function passage(value) {
  if (typeof value !== 'string') return null;
  const parts = value.split(/(<\/?b>)/);
  const texts = [];
  for (const [at, part] of parts.entries()) {
    if (at % 2) {
      if (part !== (at % 4 === 1 ? '<b>' : '</b>')) return null;
    } else if (UNESCAPED.test(part)) return null;
    else texts.push(part.replace(/&[^;]*;/g, (sign) => SIGNS[sign]));
  }
  return texts.length % 2 ? texts : null;
}

/** A passage without its marks, or a value that is none. */
export const unmarked = (value) => passage(value)?.join('') ?? value;

const ROOM = 160;
const BEFORE = 24;

/** The parts that fit, from shortly before the first mark on if that is far behind. */
function cut(texts) {
  const first = texts[0].length;
  const skipped = texts.length > 1 && first > ROOM / 2 ? texts[0].indexOf(' ', first - BEFORE) + 1 || first - BEFORE : 0;
  let left = ROOM;
  const shown = [];
  for (const text of [skipped ? `…${texts[0].slice(skipped)}` : texts[0], ...texts.slice(1)]) {
    if (left <= 0) break;
    shown.push(text.slice(0, left));
    left -= text.length;
  }
  const isCut = skipped > 0 || left < 0 || shown.length < texts.length;
  return { shown, isCut, more: left < 0 || shown.length < texts.length };
}

const drawn = (texts) => texts.map((text, at) => (at % 2 ? html`<mark>${text}</mark>` : text));

/** A passage in one line, with a way to see all of it. @param {{of: any, place: object, name: string}} props as of `Value` */
export function Passage({ of, place, name }) {
  const [open, see] = useState(false);
  const texts = passage(of);
  if (!texts) return html`<${Value} of=${of} place=${place} name=${name} />`;
  const { shown, isCut, more } = cut(texts);
  const inside = html`<bdi>${drawn(shown)}${more && '…'}</bdi>`;
  if (!isCut) return html`<span class="value passage">${inside}</span>`;
  return html`
    <button type="button" class="value passage more" onClick=${() => see(true)}>${inside}</button>
    ${open && html`<${Dialog} title=${name} wide onClose=${() => see(false)}>
      <p class="actions"><${Copy} text=${of} /></p>
      <p class="whole value passage"><bdi>${drawn(texts)}</bdi></p>
    <//>`}`;
}
