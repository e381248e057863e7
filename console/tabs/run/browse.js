/** What there is, on the left: namespaces, databases and what they hold, asked for as it is opened. */
import { placed } from '../../address.js';
import { Answer } from '../../components/notices.js';
import { databases, namespaces } from '../../components/places.js';
import * as node from '../../node.js';
import { useQuery, useShared } from '../../state.js';
import { beginning, first, info } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';

const MANY = 200;
const ROWS = 100;

/** @param {object} props `place`; `onOpen(text, place)` a script to be opened and run there; `onWrite(text)` one to be opened */
export function Browse({ place, onOpen, onWrite }) {
  const { who } = useShared();
  const asked = useQuery(namespaces, []);
  return html`
    <${Answer} asked=${asked} what="namespaces">
      ${(all) => (all.length === 0 ? html`<${None} isOurs=${who?.role === 'owner' && !who.space} onWrite=${onWrite} />` : html`
        <ul class="tree">${all.slice(0, MANY).map((one) => html`
          <${Branch} key=${one.ns} name=${one.ns} opened=${one.ns === place?.ns} what="databases"
            ask=${() => databases(one)} draw=${(names) => names.map((db) => html`
              <${Database} key=${db} place=${{ ns: one.ns, db }} opened=${one.ns === place?.ns && db === place.db} onOpen=${onOpen} />`)} />`)}
        </ul>`)}
    <//>`;
}

/** @param {object} props `isOurs` (an owner of the store sees all: there is none); `onWrite` as above */
function None({ isOurs, onWrite }) {
  if (!isOurs) return html`<p class="nothing">No namespace that you may see.</p>`;
  return html`
    <p class="nothing">The store is empty.</p>
    <p class="actions"><button type="button" onClick=${() => onWrite(beginning.text)}>Write a first script</button></p>`;
}

/** Something that holds others, which are asked for when it is opened. */
function Branch({ name, title = html`<bdi>${name}</bdi>`, aside, opened = false, ask, draw, what, lead }) {
  const [open, turn] = useState(opened);
  return html`
    <li>
      <div class="leaf">
        <button type="button" class="twist" aria-expanded=${open} onClick=${() => turn(!open)}>
          <span aria-hidden="true">${open ? '▾' : '▸'}</span> ${title}</button>
        ${aside && html`<span class="soft">${aside}</span>`}${lead}
      </div>
      ${open && html`<${Inside} ask=${ask} draw=${draw} what=${what} name=${name} />`}
    </li>`;
}

function Inside({ ask, draw, what, name }) {
  const asked = useQuery(ask, [name]);
  return html`<${Answer} asked=${asked} what=${what}>${(value) => {
    const drawn = draw(value);
    return html`<ul>${drawn.length ? drawn : html`<li class="soft">nothing</li>`}</ul>`;
  }}<//>`;
}

const GROUPS = [
  ['tables', 'Tables'], ['spaces', 'Cache spaces'], ['topics', 'Topics'], ['vaults', 'Vaults'], ['functions', 'Functions'],
];

function Database({ place, opened, onOpen }) {
  const [words, look] = useState('');
  const draw = (found) => {
    const many = GROUPS.some(([key]) => (found[key] ?? []).length > 20);
    const fits = ({ name }) => name.toLowerCase().includes(words.toLowerCase());
    const groups = GROUPS.map(([key, title]) => [key, title, (found[key] ?? []).filter(fits)]).filter(([, , rows]) => rows.length);
    return [
      many && html`<li key="find"><input type="search" aria-label=${`Find in ${place.db}`} placeholder="Find" value=${words}
        onInput=${(event) => look(event.target.value)} /></li>`,
      ...groups.map(([key, title, rows]) => html`
        <li key=${key}><p class="soft small">${title}</p><ul>
          ${rows.slice(0, MANY).map((row) => html`<${Thing} key=${row.name} of=${key} row=${row} place=${place} onOpen=${onOpen} />`)}
          ${rows.length > MANY && html`<li class="soft">and ${rows.length - MANY} more</li>`}
        </ul></li>`),
      groups.length === 0 && html`<li class="soft">nothing ${words && 'of that name'}</li>`,
    ].filter(Boolean);
  };
  return html`
    <${Branch} name=${place.db} opened=${opened} what=${place.db} draw=${draw}
      ask=${(signal) => node.run(info.database(place), { place, signal })}
      lead=${!opened && html`<a href=${placed('run', place)}>go there</a>`} />`;
}

function Thing({ of, row, place, onOpen }) {
  if (of === 'tables') return html`<${TableOf} row=${row} place=${place} onOpen=${onOpen} />`;
  const to = {
    spaces: placed('run', place, ['space', row.name]),
    topics: placed('topics', place, [row.name]),
    vaults: placed('vault', place, [row.name]),
  }[of];
  const name = html`<bdi>${of === 'functions' ? `fn::${row.name}` : row.name}</bdi>`;
  return html`<li class="leaf">${to ? html`<a href=${to}>${name}</a>` : html`<code>${name}</code>`}
    ${of === 'topics' && html`<span class="soft">${row.messages}</span>`}
    ${of === 'functions' && html`<span class="soft">${row.returns ?? ''}</span>`}</li>`;
}

const kindOf = (index) => (index.unique ? ', unique' : index.analyzer !== undefined ? ', full-text' : index.dimension !== undefined ? ', vector' : '');

function TableOf({ row, place, onOpen }) {
  const draw = (table) => [
    html`<li class="leaf" key="look">
      <a href=${placed('run', place, ['table', row.name])}>All records</a>
      <button type="button" class="quiet" onClick=${() => onOpen(first(row.name, ROWS).text, place)}>Select ${ROWS}</button></li>`,
    table.fields.length > 0 && html`<li key="fields"><p class="soft small">Fields${table.schemafull && ', and no others'}</p><ul>
      ${table.fields.map((field) => html`<li class="leaf"><code><bdi>${field.name}</bdi></code> <span class="soft"><bdi>${field.type}</bdi></span></li>`)}
    </ul></li>`,
    table.indexes.length > 0 && html`<li key="indexes"><p class="soft small">Indexes</p><ul>
      ${table.indexes.map((index) => html`<li class="leaf"><code><bdi>${index.name}</bdi></code>
        <span class="soft"><bdi>${index.fields.join(', ')}</bdi>${kindOf(index)}</span>
        ${index.state !== 'ready' && html`<span class="chip warn">${index.state}</span>`}</li>`)}
    </ul></li>`,
  ].filter(Boolean);
  return html`<${Branch} name=${row.name} aside=${row.records} what=${row.name} draw=${draw}
    ask=${(signal) => node.run(info.table(row.name), { place, signal })} />`;
}
