/** All users that the caller administers, by the place that they belong to, and how one is made. */
import { go, link } from '../../address.js';
import { Ago, Moment } from '../../components/ago.js';
import { Button, Choice, Text } from '../../components/form.js';
import { Answer } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { namespaces } from '../../components/places.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery, useShared } from '../../state.js';
import { defineUser, info, isName, isPart } from '../../statements.js';
import { html, useMemo, useState } from '../../vendor/preact.js';
import { NewPassword } from './password.js';
import { BRINGS, ROLES } from './rights.js';

const WHOLE = 'the whole store';
const ANYWHERE = 'all places';

const COLUMNS = [
  { name: 'name', title: 'User', value: (user) => user.name, text: (user) => user.name,
    cell: (user) => html`<a href=${link('access', ['users', user.name])}><bdi>${user.name}</bdi></a>` },
  { name: 'place', title: 'Belongs to', value: (user) => user.space ?? '', text: (user) => user.space ?? WHOLE,
    cell: (user) => (user.space ? html`<bdi>${user.space}</bdi>` : html`<span class="soft">${WHOLE}</span>`) },
  { name: 'role', title: 'Role', value: (user) => user.role, width: '12ch', cell: (user) => user.role },
  { name: 'comment', title: 'Comment', value: (user) => user.comment, text: (user) => user.comment ?? '',
    cell: (user) => (user.comment === null ? null : html`<${Value} of=${user.comment} name="Comment" />`) },
  { name: 'created', title: 'Made (UTC)', value: (user) => user.created, width: '21ch',
    cell: (user) => html`<${Moment} of=${user.created} />` },
];

export function Users() {
  const { who } = useShared();
  const [making, make] = useState(false);
  const asked = useQuery((signal) => node.run(info.users(), { signal }), []);
  return html`
    <p class="actions"><${Button} look="main" onClick=${() => make(true)}>New user<//>
      <${Ago} at=${asked.at} />
      <button type="button" onClick=${asked.again} aria-busy=${asked.loading}>Refresh</button></p>
    <${Answer} asked=${asked} what="users">${(users) => html`<${Listed} users=${users} />`}<//>
    ${asked.error?.code === 'NotAllowed' && html`<p class="soft">Only owners see users: an owner of the store sees all,
      an owner of a place those of that place. <a href=${link('access', ['you'])}>Your privileges</a></p>`}
    ${making && html`<${Made} space=${who?.space ?? ''} onClose=${() => make(false)} />`}`;
}

function Listed({ users }) {
  const [begins, type] = useState('');
  const [where, look] = useState(ANYWHERE);
  const places = useMemo(() => counted(users), [users]);
  const found = users.filter((user) => user.name.includes(begins) && (where === ANYWHERE || (user.space ?? WHOLE) === where));
  return html`
    <div class="columns">
      <${Text} label="Find" placeholder="part of a name" value=${begins} onInput=${type} />
      <${Choice} label="Of" value=${where} onInput=${look}
        options=${[[ANYWHERE, `${ANYWHERE} (${users.length})`], ...places.map(([place, count]) => [place, `${place} (${count})`])]} />
    </div>
    <${Table} label="Users" columns=${COLUMNS} rows=${found} sorted=${['place', false]}
      empty=${users.length ? 'No user with that name' : 'No users'} />`;
}

function counted(users) {
  const found = new Map();
  for (const { space } of users) found.set(space ?? WHOLE, (found.get(space ?? WHOLE) ?? 0) + 1);
  return [...found].sort(([one], [two]) => (one === WHOLE ? -1 : two === WHOLE ? 1 : one < two ? -1 : 1));
}

/** The dialog that makes one. */
function Made({ space: own, onClose }) {
  const [user, call] = useState('');
  const [role, choose] = useState('member');
  const [space, place] = useState(own);
  const [password, take] = useState('');
  const [comment, say] = useState('');
  const known = useQuery(namespaces, []);
  const misnamed = user !== '' && !isName(user);
  const misplaced = space !== '' && !isPart(space);
  const made = isName(user) && !misplaced && password ? defineUser({ user, role, space, password, comment }) : null;
  return html`
    <${Perform} title="New user" statement=${made} act="Create" onClose=${onClose}
      onDone=${() => go(link('access', ['users', user]))}>
      <${Text} label="Name" value=${user} onInput=${call} autofocus
        wrong=${misnamed && 'Letters, digits, _ and -, at most 64, no digit first'} />
      <${Choice} label="Role" value=${role} onInput=${choose} options=${ROLES} hint=${`Inside its place: ${BRINGS[role]}.`} />
      <${Text} label="Belongs to" value=${space} onInput=${place} placeholder=${WHOLE} list="namespaces-known"
        wrong=${misplaced && 'A namespace, or namespace.database'}
        hint="A namespace, namespace.database, or nothing for the whole store. It can't be altered later." />
      <datalist id="namespaces-known">${(known.value ?? []).map(({ ns }) => html`<option value=${ns} />`)}</datalist>
      <${NewPassword} onInput=${take} />
      <${Text} label="Comment" value=${comment} onInput=${say} />
    <//>`;
}
