/** Which database is looked at: found by what the caller may see, or typed. */
import { go, placed, read } from '../address.js';
import * as node from '../node.js';
import { current, set, useQuery, useShared } from '../state.js';
import { defineDatabase, info, isName } from '../statements.js';
import { html, useState } from '../vendor/preact.js';
import { Dialog } from './dialog.js';
import { Button, Form, Text } from './form.js';
import { Answer } from './notices.js';
import { Perform } from './perform.js';

const MANY = 200;

/** @typedef {{ns: string, dbs: ?string[]}} Namespace `dbs`: null, it has to be asked for */

/**
 * The namespaces that the caller may see: all of the store, or those in which it has a role or a grant.
 * @returns {Promise<Namespace[]>}
 */
export async function namespaces() {
  const { space, role } = node.who() ?? {};
  try {
    if (!space && role !== 'member') { // a member is refused it, which the audit trail would keep
      const { namespaces: all } = await node.run(info.store());
      return all.map(({ name }) => ({ ns: name, dbs: null }));
    }
  } catch (error) {
    if (error.code !== 'NotAllowed') throw error;
  }
  const grants = await node.run(info.grants());
  const found = new Map();
  const securables = [...grants.map(({ on }) => on.split(' ').at(-1)), space ?? ''];
  for (const securable of securables) {
    const [ns, db] = securable.split('.');
    if (!isName(ns) || ['NODE', 'STORE'].includes(ns)) continue;
    if (!found.has(ns)) found.set(ns, new Set());
    if (db) found.get(ns).add(db);
  }
  return [...found].map(([ns, dbs]) => ({ ns, dbs: dbs.size ? [...dbs] : null }));
}

/** The databases of a namespace. @param {Namespace} one @returns {Promise<string[]>} */
export async function databases({ ns, dbs }) {
  if (dbs) return dbs;
  return (await node.run(info.namespace(ns))).databases.map(({ name }) => name);
}

/** Look at the first database there is, if none is named: a new page begins with something. */
export async function begin() {
  if (current().place) return;
  try {
    for (const one of (await namespaces()).slice(0, 5)) {
      const [db] = await databases(one);
      if (current().place) return;
      if (db) return void set({ place: { ns: one.ns, db } });
    }
  } catch (error) {
    if (!('code' in error)) throw error; // refused: the picker says so, to whoever opens it
  }
}

/** The button with the place, and what it opens. */
export function Places() {
  const { place } = useShared();
  const [open, see] = useState(false);
  return html`
    <button type="button" class="place" aria-haspopup="dialog" onClick=${() => see(true)}>
      <span class="soft">Place</span> ${place ? html`<bdi>${place.ns}.${place.db}</bdi>` : 'choose'}
    </button>
    ${open && html`<${Picker} onClose=${() => see(false)} />`}`;
}

function Picker({ onClose }) {
  const { place } = useShared();
  const [typed, type] = useState('');
  const [making, make] = useState(false);
  const asked = useQuery(namespaces, []);
  const choose = (ns, db) => {
    const { tab } = read();
    set({ place: { ns, db } });
    onClose();
    go(placed(tab || 'run', { ns, db }));
  };
  const [ns, db] = typed.trim().split('.');
  const whole = isName(ns ?? '') && isName(db ?? '');
  if (making) {
    const alone = (asked.value ?? []).some((one) => one.ns === ns);
    return html`
      <${Perform} title="New database" statement=${defineDatabase({ ns, db }, alone)} act="Create" reasoned
        onDone=${() => choose(ns, db)} onClose=${onClose} />`;
  }
  return html`
    <${Dialog} title="Place" onClose=${onClose}>
      <${Form} onSubmit=${() => whole && choose(ns, db)} class="row">
        <${Text} label="Find or create" placeholder="namespace.database" value=${typed} onInput=${type} autofocus />
        <${Button} submit disabled=${!whole}>Open<//>
        <${Button} disabled=${!whole || !asked.value} onClick=${() => make(true)}>Create…<//>
      <//>
      <${Answer} asked=${asked} what="namespaces">
        ${(all) => {
          const found = all.filter((one) => one.ns.startsWith(ns ?? ''));
          if (!found.length) return html`<p class="nothing">No namespace is visible to you. A database that is not
            there yet is named above and made.</p>`;
          return html`
            <ul class="places">
              ${found.slice(0, MANY).map((one) => html`<${Branch} key=${one.ns} one=${one} begins=${db ?? ''}
                opened=${found.length === 1 || one.ns === place?.ns} onChoose=${choose} />`)}
              ${found.length > MANY && html`<li class="soft">and ${found.length - MANY} more: type a beginning</li>`}
            </ul>`;
        }}
      <//>
    <//>`;
}

function Branch({ one, opened, begins, onChoose }) {
  const [open, turn] = useState(opened);
  const { place } = useShared();
  const asked = useQuery(open ? () => databases(one) : null, [one.ns, open]);
  return html`
    <li>
      <button type="button" class="twist" aria-expanded=${open} onClick=${() => turn(!open)}>
        <span aria-hidden="true">${open ? '▾' : '▸'}</span> <bdi>${one.ns}</bdi></button>
      ${open && html`<${Answer} asked=${asked} what="databases">
        ${(names) => html`<ul>
          ${names.filter((name) => name.startsWith(begins)).slice(0, MANY).map((name) => html`<li>
            <button type="button" class="quiet" aria-current=${place?.ns === one.ns && place.db === name ? 'true' : undefined}
              onClick=${() => onChoose(one.ns, name)}><bdi>${name}</bdi></button></li>`)}
          ${names.length === 0 && html`<li class="soft">no database</li>`}
        </ul>`}
      <//>`}
    </li>`;
}
