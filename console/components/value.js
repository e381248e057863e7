/** Values of the language on the page: text only, whatever they hold, each isolated from what is around it. */
import { placed } from '../address.js';
import { kind, literal, shown, Tagged } from '../values.js';
import { html, useState } from '../vendor/preact.js';
import { Copy } from './copy.js';
import { Dialog } from './dialog.js';

const ROOM = 120;
const ITEMS = 100;
const LONG = 4_000;

/**
 * A value in one line, cut where it is long, with a way to see all of it. A record is a link to its page.
 * @param {object} props `of`; `place` ({ns, db}: where records are); `room` (characters); `name` (its field)
 */
export function Value({ of, place, room = ROOM, name = 'Value' }) {
  const [open, see] = useState(false);
  if (of === undefined) return html`<span class="value absent"><span class="unseen">absent</span></span>`;
  const called = kind(of);
  const text = shown(of, room);
  const inside = html`<bdi>${text}</bdi>`;
  if (called === 'record' && place) {
    return html`<a class="value record" href=${placed('run', place, ['record', of.text])}>${inside}</a>`;
  }
  const more = text.endsWith('…') || called === 'array' || called === 'object';
  if (!more) return html`<span class="value ${called}">${inside}</span>`;
  return html`
    <button type="button" class="value more ${called}" onClick=${() => see(true)}>${inside}</button>
    ${open && html`<${Dialog} title=${name} wide onClose=${() => see(false)}>
      <p class="actions"><${Copy} text=${() => (typeof of === 'string' ? of : literal(of))} /></p>
      <div class="whole"><${Tree} of=${of} place=${place} /></div>
    <//>`}`;
}

/**
 * A value with all its parts, opened as one likes. Of many parts some are drawn at a time.
 * @param {object} props `of`; `place`; `depth` (how many levels are open at first)
 */
export function Tree({ of, place, depth = 2 }) {
  const called = kind(of);
  if (called === 'array') {
    return html`<${Parts} marks="[]" parts=${of.map((item) => [null, item])} place=${place} depth=${depth} />`;
  }
  if (called === 'object') {
    return html`<${Parts} marks="{}" parts=${Object.entries(of)} place=${place} depth=${depth} />`;
  }
  return html`<${Leaf} of=${of} place=${place} />`;
}

function Leaf({ of, place }) {
  const [all, show] = useState(false);
  const called = kind(of);
  if (of instanceof Tagged && called === 'record' && place) {
    return html`<a class="value record" href=${placed('run', place, ['record', of.text])}><bdi>${of.text}</bdi></a>`;
  }
  const text = literal(of, all ? Infinity : LONG);
  const cut = !all && text.length > LONG;
  return html`<span class="value ${called}"><bdi>${text}</bdi></span>
    ${cut && html` <button type="button" class="quiet" onClick=${() => show(true)}>Show all</button>`}`;
}

function Parts({ marks, parts, place, depth }) {
  const [open, turn] = useState(depth > 0);
  const [drawn, draw] = useState(ITEMS);
  if (!parts.length) return html`<span class="value">${marks}</span>`;
  const count = `${parts.length} ${marks === '[]' ? 'item' : 'field'}${parts.length === 1 ? '' : 's'}`;
  return html`
    <button type="button" class="twist" aria-expanded=${open} onClick=${() => turn(!open)}>
      <span aria-hidden="true">${open ? '▾' : '▸'}</span> ${marks[0]} <span class="soft">${count}</span> ${marks[1]}
    </button>
    ${open && html`<ul class="parts">
      ${parts.slice(0, drawn).map(([name, item], at) => html`
        <li>${name === null ? html`<span class="soft">${at}</span>` : html`<span class="key"><bdi>${name}</bdi></span>`}
          <span class="soft">: </span><${Tree} of=${item} place=${place} depth=${depth - 1} /></li>`)}
      ${drawn < parts.length && html`<li><button type="button" class="quiet"
        onClick=${() => draw(drawn + 10 * ITEMS)}>Show more of ${parts.length}</button></li>`}
    </ul>`}`;
}
