/** What one user holds: a matrix of securables and verbs that can be edited, and why it may do what. */
import { Button, Choice, Form, Text, useDoing } from '../../components/form.js';
import { Refused } from '../../components/notices.js';
import { databases, namespaces } from '../../components/places.js';
import { Composed } from '../../components/statement.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { grant, info, inOne, isName, revoke } from '../../statements.js';
import { html, useEffect, useMemo, useState } from '../../vendor/preact.js';
import { KINDS, means, reasons, VERBS } from './rights.js';
import { May, Why } from './why.js';

const MANY = 20;
/** Rows that are drawn at once: a user may hold a thousand grants. */
const DRAWN = 50;
const KIND_OF = { tables: 'TABLE', topics: 'TOPIC', spaces: 'SPACE', vaults: 'VAULT' };
const key = (securable, verb) => `${verb} ${securable}`;

/**
 * @param {object} props `user`, `held` (of INFO FOR GRANTS), `place` (what is offered first), `onDone`
 */
export function Grants({ user, held, place, onDone }) {
  const granted = held.filter(({ from }) => from === 'grant');
  const [added, add] = useState([]);
  const [changed, change] = useState({});
  const [reason, explain] = useState('');
  const [wanted, look] = useState('');
  const [most, draw] = useState(DRAWN);
  const [doing, error, act] = useDoing();
  /** What was held before a change that is done: until the next is read nothing more is, and the rows stay. */
  const [done, settle] = useState(null);
  const verbsOn = useMemo(() => {
    const found = new Map();
    for (const { on, verbs } of granted) found.set(on, new Set([...found.get(on) ?? [], ...verbs]));
    for (const securable of added) if (!found.has(securable)) found.set(securable, new Set());
    return found;
  }, [held, added]);
  const securables = [...verbsOn.keys()];
  const has = (securable, verb) => verbsOn.get(securable).has(verb);
  const fitting = securables.filter((securable) => securable.toLowerCase().includes(wanted.trim().toLowerCase()));
  const turn = (securable, verb, to) => change({ ...changed, [key(securable, verb)]: to });
  const statements = securables.flatMap((securable) => {
    const turned = (to) => VERBS.filter((verb) => changed[key(securable, verb)] === to && has(securable, verb) !== to);
    return [
      ...(turned(true).length ? [grant(turned(true), securable, user)] : []),
      ...(turned(false).length ? [revoke(turned(false), securable, user)] : []),
    ];
  });
  const composed = statements.length > 1 ? inOne(...statements) : statements[0];
  const submit = async () => {
    if (!composed || !await act(() => node.run(composed, { reason: reason.trim() || undefined }))) return;
    settle(held);
    onDone();
  };
  useEffect(() => {
    if (done === null || done === held) return;
    add([]);
    change({});
    explain('');
    settle(null);
  }, [held]);
  return html`
    <section class="card stack" aria-labelledby="grants-title">
      <h3 id="grants-title">Privileges</h3>
      <${Why} held=${held} />
      <${Form} onSubmit=${submit}>
        ${securables.length > DRAWN && html`<${Text} label="Find in its grants" type="search" value=${wanted} onInput=${look}
          hint=${`${fitting.length} of ${securables.length}`} />`}
        <div class="table" tabindex="0" role="region" aria-label="Grants">
          <table class="matrix">
            <caption class="unseen">Grants: a ticked privilege is granted</caption>
            <thead><tr><th scope="col">On</th>${VERBS.map((verb) => html`<th scope="col">${verb}</th>`)}</tr></thead>
            <tbody>
              ${fitting.filter((securable, at) => at < most || added.includes(securable)).map((securable) => html`<tr key=${securable}>
                <th scope="row"><bdi>${securable}</bdi></th>
                ${VERBS.map((verb) => html`<${Cell} securable=${securable} verb=${verb} held=${held}
                  ticked=${changed[key(securable, verb)] ?? has(securable, verb)}
                  changed=${(changed[key(securable, verb)] ?? has(securable, verb)) !== has(securable, verb)} onTurn=${(to) => turn(securable, verb, to)} />`)}
              </tr>`)}
            </tbody>
          </table>
          ${securables.length === 0 && html`<p class="nothing">No grants.</p>`}
        </div>
        ${fitting.length > most && html`<p class="actions"><${Button} onClick=${() => draw(most + DRAWN)}>Show more of ${fitting.length}<//></p>`}
        ${composed && html`
          <${Composed} of=${composed} reason=${reason.trim()} />
          <${Text} label="Reason" hint="Kept in the statement log." value=${reason} onInput=${explain} maxlength="500" />`}
        ${error && html`<${Refused} error=${error} />`}
        ${composed && html`<p class="actions">
          <${Button} onClick=${() => change({})}>Cancel<//>
          <${Button} look="main" submit busy=${doing || done === held}>Grant and revoke<//></p>`}
      <//>
      <${Added} place=${place} known=${securables} onAdd=${(securable) => add([...added, securable])} />
      <${May} held=${held} />
    </section>`;
}

/** One verb on one securable: ticked where it is granted there, and marked where something else brings it too. */
function Cell({ securable, verb, held, ticked, changed, onTurn }) {
  if (!means(securable, verb)) return html`<td class="soft"><span aria-hidden="true">·</span><span class="unseen">not applicable</span></td>`;
  const others = reasons(held.filter(({ on, from }) => from !== 'grant' || on !== securable), securable, verb);
  return html`<td class=${changed ? 'changed' : ''}><span class="cell">
    <input type="checkbox" aria-label=${`${verb} on ${securable}`} checked=${ticked}
      onInput=${(event) => onTurn(event.target.checked)} />
    ${others.length > 0 && html`<span class="chip" title=${`also: ${others.join('; ')}`}>
      also<span class="unseen">: ${others.join('; ')}</span></span>`}
  </span></td>`;
}

/** A row more: something that nothing is granted on yet. */
function Added({ place, known, onAdd }) {
  const [kind, choose] = useState('TABLE');
  const [typed, type] = useState('');
  const offered = useQuery((signal) => offers(kind, place, signal), [kind, place?.ns, place?.db]);
  const [least, most] = KINDS[kind].names;
  const names = typed.trim() ? typed.trim().split('.') : [];
  const whole = names.length >= least && names.length <= most && names.every(isName);
  const securable = names.length ? `${kind} ${names.join('.')}` : kind;
  const submit = () => {
    if (!whole || known.includes(securable)) return;
    onAdd(securable);
    type('');
  };
  return html`
    <${Form} onSubmit=${submit} class="added">
      <${Choice} label="Kind" value=${kind} onInput=${choose} options=${Object.keys(KINDS)} />
      ${most > 0 && html`<${Text} label="Name" value=${typed} onInput=${type} list="securables-offered"
        placeholder=${['', 'namespace', 'namespace.database', 'namespace.database.name'][most]}
        wrong=${known.includes(securable) && 'Already in the table'} />
        <datalist id="securables-offered">${(offered.value ?? []).map((one) => html`<option value=${one} />`)}</datalist>`}
      <${Button} submit disabled=${!whole || known.includes(securable)}>Add a row<//>
    <//>`;
}

/** Names to choose from; none where the caller may not see them. */
async function offers(kind, place, signal) {
  if (KINDS[kind].names[1] === 3) {
    if (!place) return [];
    const found = await node.run(info.database(place), { signal });
    const [list] = Object.entries(KIND_OF).find(([, one]) => one === kind);
    return (found[list] ?? []).map(({ name }) => `${place.ns}.${place.db}.${name}`);
  }
  const all = (await namespaces()).slice(0, MANY);
  const inside = async (one) => (await databases(one)).map((db) => `${one.ns}.${db}`);
  const dbs = kind === 'NAMESPACE' || kind === 'NODE' ? [] : (await Promise.all(all.map(inside))).flat();
  return [...(kind === 'DATABASE' ? [] : all.map(({ ns }) => ns)), ...dbs];
}
