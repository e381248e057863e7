/** The statement log and the audit trail: what was done, by whom, why, and what was refused. */
import { link, replace } from '../../address.js';
import { Ago, Moment } from '../../components/ago.js';
import { save } from '../../components/copy.js';
import { Dialog } from '../../components/dialog.js';
import { Button, Choice, Form, Text } from '../../components/form.js';
import { Answer, Refused } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Tree } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info, isName } from '../../statements.js';
import { html, useEffect, useState } from '../../vendor/preact.js';
import { shown } from '../../values.js';
import { json } from '../run/formats.js';

const PAGE = 100;
const OUTCOMES = [['', 'done and refused'], ['done', 'done'], ['refused', 'refused']];
const SIGN_INS = ['sign in', 'sign out'];

/** What a column shows of an entry, whole in its title. */
const cut = (text) => (text === null ? null : html`<bdi title=${text}>${shown(text, 300)}</bdi>`);
const where = (entry) => [entry.namespace, entry.database].filter(Boolean).join('.');
const from = (entry) => [entry.surface, entry.address, entry.node && `at node ${entry.node}`].filter(Boolean).join(' ');

const columns = (open) => [
  { name: 'seq', title: 'Commit', align: 'end', width: '13ch', value: (entry) => entry.seq,
    cell: (entry) => html`<button type="button" class="quiet" aria-label=${`Entry ${entry.seq}`}
      onClick=${() => open(entry)}>${String(entry.seq)}</button>` },
  { name: 'at', title: 'At (UTC)', width: '21ch', value: (entry) => entry.at,
    cell: (entry) => html`<${Moment} of=${entry.at} />` },
  { name: 'user', title: 'User', value: (entry) => entry.user, text: (entry) => entry.user ?? '',
    cell: (entry) => (entry.user === null ? html`<span class="soft">–</span>` : html`<bdi>${entry.user}</bdi>`) },
  { name: 'what', title: 'Statement', value: (entry) => entry.statement ?? entry.action, width: '46ch',
    cell: (entry) => (entry.statement === null ? html`<span class="soft">${entry.action}</span>` : cut(entry.statement)) },
  { name: 'outcome', title: 'Outcome', width: '18ch', value: (entry) => entry.refused, cell: (entry) => (entry.refused
    ? html`<span class="chip ill" title=${entry.needs ? `needs ${entry.needs}` : undefined}>${entry.refused}</span>
      ${entry.more > 0 ? ` +${entry.more}` : ''}` : html`<span class="chip well">done</span>`) },
  { name: 'reason', title: 'Reason', value: (entry) => entry.reason, width: '24ch', cell: (entry) => cut(entry.reason) },
  { name: 'place', title: 'Place', value: where, text: where, cell: (entry) => html`<bdi>${where(entry)}</bdi>` },
  { name: 'address', title: 'From', value: from, text: from, cell: (entry) => html`<bdi>${from(entry)}</bdi>` },
];

export const Statements = ({ query }) => html`<${Entries} name="statements" ask=${info.statements} query=${query}
  about="Every change of every script, every right that was refused, and what was asked to be kept.
    Owners see their places' entries, everybody their own." />`;

export const Audit = ({ query }) => html`<${Entries} name="audit" ask=${info.audit} query=${query}
  about="Sign-ins and sign-outs, done and refused, passwords, users, grants and the node. For owners." />`;

/** @param {object} props `name` (of the address), `ask` (query => statement), `query` (of the address), `about` */
function Entries({ name, ask, query, about }) {
  const { of = '', outcome = '', text = '', action = '' } = query;
  const [user, type] = useState(of);
  const [open, see] = useState(null);
  useEffect(() => type(of), [of]);
  const told = isName(of) ? of : undefined;
  const asked = useQuery((signal) => node.run(ask({ limit: PAGE, of: told }), { signal }), [told]);
  const put = (more) => replace(link('access', [name], { of, outcome, text, action, ...more }));
  return html`
    <p class="soft">${about}</p>
    <${Form} class="filters" onSubmit=${() => put({ of: user.trim() })}>
      <${Text} label="User" value=${user} onInput=${type} placeholder="any user"
        wrong=${user.trim() !== '' && !isName(user.trim()) && 'No name of a user'} />
      <${Text} label="Contains" value=${text} onInput=${(typed) => put({ text: typed })}
        placeholder="in statement, reason, place" />
      <${Choice} label="Outcome" value=${outcome} options=${OUTCOMES} onInput=${(to) => put({ outcome: to })} />
      ${name === 'audit' && html`<${Choice} label="Action" value=${action} onInput=${(to) => put({ action: to })}
        options=${[['', 'all'], ['came', 'sign-ins and sign-outs'], ['statement', 'statements']]} />`}
      <${Button} submit>Search<//>
    <//>
    <${Answer} asked=${asked} what="entries">
      ${(first) => html`<${Read} key=${`${told} ${asked.at?.getTime()}`} first=${first} at=${asked.at} again=${asked.again}
        loading=${asked.loading} ask=${(before) => node.run(ask({ before, limit: PAGE, of: told }))}
        filters=${{ outcome, text, action }} name=${name} onOpen=${see} />`}
    <//>
    ${open && html`<${Dialog} title=${`Entry ${open.seq}`} wide onClose=${() => see(null)}>
      ${open.statement !== null && html`<pre tabindex="0"><bdi>${open.statement}</bdi></pre>`}
      <div><${Tree} of=${open} /></div><//>`}`;
}

function passes(entry, { outcome, text, action }) {
  if (outcome && (outcome === 'refused') !== (entry.refused !== null)) return false;
  if (action && SIGN_INS.includes(entry.action) !== (action === 'came')) return false;
  if (!text) return true;
  const all = [entry.statement, entry.reason, where(entry), entry.action, entry.request, entry.address];
  return all.some((one) => one?.toLowerCase().includes(text.toLowerCase()));
}

/** What was read so far, newest first, and the way to what is older. */
function Read({ first, at, again, loading, ask, filters, name, onOpen }) {
  const [entries, put] = useState(first);
  const [all, end] = useState(first.length < PAGE);
  const [error, fail] = useState(null);
  const [busy, work] = useState(false);
  const older = async () => {
    work(true);
    fail(null);
    try {
      const found = await ask(entries[entries.length - 1].seq);
      put([...entries, ...found]);
      end(found.length < PAGE);
    } catch (thrown) {
      if (!('code' in thrown)) throw thrown;
      fail(thrown);
    } finally {
      work(false);
    }
  };
  const rows = entries.filter((entry) => passes(entry, filters));
  return html`
    <p class="actions">
      <span>${rows.length === entries.length ? `${rows.length} entries` : `${rows.length} of ${entries.length} loaded entries`}</span>
      <${Ago} at=${at} />
      <${Button} onClick=${again} busy=${loading}>Refresh<//>
      ${all ? html`<span class="soft">no older entries</span>` : html`<${Button} onClick=${older} busy=${busy}>Older<//>`}
      <${Button} onClick=${() => save(`${name}.json`, json(rows), 'application/json')}>Save<//>
    </p>
    ${error && html`<${Refused} error=${error} />`}
    <${Table} label="Entries" columns=${columns(onOpen)} rows=${rows} height="70vh"
      empty=${entries.length ? 'No match among the loaded entries' : 'No entries'} />`;
}
