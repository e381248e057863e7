/** What one user holds: a matrix of nouns and verbs that can be edited, and why it may do what. */
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
const key = (noun, verb) => `${verb} ${noun}`;

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
    for (const noun of added) if (!found.has(noun)) found.set(noun, new Set());
    return found;
  }, [held, added]);
  const nouns = [...verbsOn.keys()];
  const has = (noun, verb) => verbsOn.get(noun).has(verb);
  const fitting = nouns.filter((noun) => noun.toLowerCase().includes(wanted.trim().toLowerCase()));
  const turn = (noun, verb, to) => change({ ...changed, [key(noun, verb)]: to });
  const statements = nouns.flatMap((noun) => {
    const turned = (to) => VERBS.filter((verb) => changed[key(noun, verb)] === to && has(noun, verb) !== to);
    return [
      ...(turned(true).length ? [grant(turned(true), noun, user)] : []),
      ...(turned(false).length ? [revoke(turned(false), noun, user)] : []),
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
        ${nouns.length > DRAWN && html`<${Text} label="Find in its grants" type="search" value=${wanted} onInput=${look}
          hint=${`${fitting.length} of ${nouns.length}`} />`}
        <div class="table" tabindex="0" role="region" aria-label="Grants">
          <table class="matrix">
            <caption class="unseen">Grants: a ticked privilege is granted</caption>
            <thead><tr><th scope="col">On</th>${VERBS.map((verb) => html`<th scope="col">${verb}</th>`)}</tr></thead>
            <tbody>
              ${fitting.filter((noun, at) => at < most || added.includes(noun)).map((noun) => html`<tr key=${noun}>
                <th scope="row"><bdi>${noun}</bdi></th>
                ${VERBS.map((verb) => html`<${Cell} noun=${noun} verb=${verb} held=${held}
                  ticked=${changed[key(noun, verb)] ?? has(noun, verb)}
                  changed=${(changed[key(noun, verb)] ?? has(noun, verb)) !== has(noun, verb)} onTurn=${(to) => turn(noun, verb, to)} />`)}
              </tr>`)}
            </tbody>
          </table>
          ${nouns.length === 0 && html`<p class="nothing">No grants.</p>`}
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
      <${Added} place=${place} known=${nouns} onAdd=${(noun) => add([...added, noun])} />
      <${May} held=${held} />
    </section>`;
}

/** One verb on one noun: ticked where it is granted there, and marked where something else brings it too. */
function Cell({ noun, verb, held, ticked, changed, onTurn }) {
  if (!means(noun, verb)) return html`<td class="soft"><span aria-hidden="true">·</span><span class="unseen">not applicable</span></td>`;
  const others = reasons(held.filter(({ on, from }) => from !== 'grant' || on !== noun), noun, verb);
  return html`<td class=${changed ? 'changed' : ''}><span class="cell">
    <input type="checkbox" aria-label=${`${verb} on ${noun}`} checked=${ticked}
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
  const noun = names.length ? `${kind} ${names.join('.')}` : kind;
  const submit = () => {
    if (!whole || known.includes(noun)) return;
    onAdd(noun);
    type('');
  };
  return html`
    <${Form} onSubmit=${submit} class="added">
      <${Choice} label="Kind" value=${kind} onInput=${choose} options=${Object.keys(KINDS)} />
      ${most > 0 && html`<${Text} label="Name" value=${typed} onInput=${type} list="nouns-offered"
        placeholder=${['', 'namespace', 'namespace.database', 'namespace.database.name'][most]}
        wrong=${known.includes(noun) && 'Already in the table'} />
        <datalist id="nouns-offered">${(offered.value ?? []).map((one) => html`<option value=${one} />`)}</datalist>`}
      <${Button} submit disabled=${!whole || known.includes(noun)}>Add a row<//>
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
