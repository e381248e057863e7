/** The trail of a vault, or of all of them: page by page, newest first, with filters over what was read. */
import { Ago, Moment } from '../../components/ago.js';
import { Button, Choice, Text, useDoing } from '../../components/form.js';
import { Loading, Notice, Refused } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import * as vaults from '../../statements/vaults.js';
import { html, useEffect, useState } from '../../vendor/preact.js';

const PAGE = 100;

/** @param {object} props `of` (a vault; null: the store's own trail), `turn` (counts when there is something new) */
export function Trail({ of, turn = 0 }) {
  const [found, put] = useState(null);
  const [doing, error, attempt] = useDoing();
  const [action, only] = useState('');
  const [outcome, how] = useState('');
  const [text, find] = useState('');
  const read = (before) => node.run(vaults.trail(of?.vault ?? null, { before, limit: PAGE }), {
    place: of && { ns: of.ns, db: of.db },
  });
  const newest = () => attempt(async () => {
    const some = await read();
    put((known) => joined(some, known));
  });
  const older = () => attempt(async () => {
    const some = await read(found.entries[found.entries.length - 1].seq);
    put((known) => ({ ...known, entries: [...known.entries, ...some], more: some.length === PAGE }));
  });
  useEffect(() => void newest(), [of?.ns, of?.db, of?.vault, turn]);
  const entries = found?.entries ?? [];
  const rows = entries.filter((one) => (!action || one.action === action)
    && (!outcome || (one.outcome === 'granted') === (outcome === 'granted'))
    && (!text || [one.user, one.id, one.reason, one.address].some((part) => part?.includes(text))));
  const actions = [...new Set(entries.map((one) => one.action))].sort();
  return html`
    <section class="part">
      <div class="actions"><h2>Trail</h2><${Ago} at=${found?.at} />
        <${Button} busy=${doing} onClick=${newest}>Load newest<//></div>
      ${error && html`<${Refused} error=${error} />`}
      ${!found && !error && html`<${Loading} what="its trail" />`}
      ${found && html`
        <div class="columns">
          <${Choice} label="Action" value=${action} onInput=${only} options=${[['', 'any'], ...actions]} />
          <${Choice} label="Outcome" value=${outcome} onInput=${how}
            options=${[['', 'any'], ['granted', 'granted'], ['refused', 'refused']]} />
          <${Text} label="User, id, reason or address contains" value=${text} onInput=${find} />
        </div>
        <${Table} label="Trail" rows=${rows} columns=${COLUMNS} height="30rem" empty="No match among the loaded entries" />
        <p class="actions soft">${rows.length} of ${entries.length} loaded${found.more ? '' : ', no older entries'}
          ${found.more && html`<${Button} busy=${doing} onClick=${older}>Older<//>`}</p>
        <${Check} of=${of} />`}
    </section>`;
}

/** The newest page, on top of what was read before where they meet: what is looked at stays where it is. */
function joined(some, known) {
  const top = known?.entries[0]?.seq;
  if (!some.some(({ seq }) => seq === top)) return { entries: some, more: some.length === PAGE, at: new Date() };
  return { ...known, entries: [...some.filter(({ seq }) => seq > top), ...known.entries], at: new Date() };
}

/** All of it looked through, by the node. */
function Check({ of }) {
  const [found, put] = useState(null);
  const [doing, error, attempt] = useDoing();
  const look = () => attempt(async () => put(await node.run(vaults.check(of?.vault ?? null), {
    place: of && { ns: of.ns, db: of.db },
  })));
  return html`
    <div class="actions"><${Button} busy=${doing} onClick=${look}>Verify all<//>
      <span class="soft small">While the vault is unsealed, proofs are verified too.</span></div>
    ${error && html`<${Refused} error=${error} />`}
    ${found && html`
      <${Notice} look=${found.intact ? 'well' : 'refused'} title=${found.intact ? 'The trail is intact' : 'The trail was altered'}>
        <dl class="pairs">
          <dt>Entries</dt><dd>${String(found.entries)}, the newest is ${String(found.newest)}</dd>
          <dt>Hash</dt><dd><code>${found.hash}</code></dd>
          <dt>Proven</dt><dd>${String(found.proven)}, and ${String(found.unproven)} that can't be verified now; the others have no proof</dd>
          ${found.wrong.length > 0 && html`<dt>Wrong</dt><dd>${found.wrong.map(String).join(', ')}</dd>`}
          ${found.put_back.length > 0 && html`<dt>Put back</dt><dd>${found.put_back.map((id, at) => html`${at > 0 && ', '}<bdi>${id}</bdi>`)}</dd>`}
        </dl><//>`}`;
}

const dash = () => html`<span class="soft">–</span>`;
const texts = (name, title, width) => ({
  name, title, width, value: (row) => row[name],
  cell: (row) => (row[name] === null || row[name] === '' ? dash() : html`<${Value} of=${row[name]} room=${60} name=${title} />`),
});

const COLUMNS = [
  { name: 'seq', title: 'Entry', width: '11ch', align: 'end', value: ({ seq }) => seq, cell: ({ seq }) => String(seq) },
  { name: 'at', title: 'When', width: '22ch', value: ({ at }) => at, cell: ({ at }) => html`<${Moment} of=${at} />` },
  { name: 'action', title: 'Action', width: '18ch', value: ({ action }) => action, cell: ({ action }) => html`<bdi>${action}</bdi>` },
  { name: 'outcome', title: 'Outcome', width: '18ch', value: ({ outcome }) => outcome,
    cell: ({ outcome, more }) => html`<span class="chip ${outcome === 'granted' ? 'well' : 'ill'}">${outcome}</span>
      ${more > 0 && html` <span class="soft">and ${String(more)} more</span>`}` },
  texts('user', 'Who', '14ch'),
  texts('id', 'Id', '26ch'),
  { name: 'version', title: 'Version', width: '13ch', align: 'end', value: ({ version }) => version,
    cell: ({ version }) => (version === null ? dash() : String(version)) },
  texts('reason', 'Reason', '26ch'),
  texts('surface', 'Surface', '12ch'),
  texts('address', 'Address', '22ch'),
  { name: 'intact', title: 'Chain', width: '12ch', value: ({ intact }) => intact,
    cell: ({ intact }) => html`<span class="chip ${intact ? 'well' : 'ill'}">${intact ? 'intact' : 'broken'}</span>` },
];
