/** What the last backups and restores were: taken or refused, by whom and why. */
import { Button } from '../../components/form.js';
import { Ago, Moment } from '../../components/ago.js';
import { Answer } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info } from '../../statements.js';
import { html, useEffect, useRef } from '../../vendor/preact.js';

const PAGE = 1000;
const ENOUGH = 20;
const OURS = /^(BACKUP|RESTORE SCRIPT)\b/;

/** Entries of the audit trail that are of backups, newest first. @param {number} pages to look through at most */
async function found(pages, signal) {
  const entries = [];
  let before;
  for (let page = 0; page < pages; page += 1) {
    const some = await node.run(info.audit({ before, limit: PAGE }), { signal });
    entries.push(...some.filter(({ statement }) => OURS.test(statement ?? '')));
    if (some.length < PAGE) return { entries, back: null };
    before = some[some.length - 1].seq;
    if (entries.length >= ENOUGH * (page + 1)) break;
  }
  return { entries, back: before };
}

const COLUMNS = [
  { name: 'at', title: 'When', width: '22ch', value: ({ at }) => at, cell: ({ at }) => html`<${Moment} of=${at} />` },
  { name: 'statement', title: 'Statement', width: '48ch', value: ({ statement }) => statement,
    cell: ({ statement }) => html`<${Value} of=${statement} room=${100} name="Statement" />` },
  { name: 'outcome', title: 'Outcome', width: '22ch', value: ({ refused }) => refused,
    cell: ({ refused }) => html`<span class="chip ${refused ? 'ill' : 'well'}">${refused ?? 'done'}</span>` },
  { name: 'user', title: 'Who', width: '14ch', value: ({ user }) => user, cell: ({ user }) => html`<bdi>${user}</bdi>` },
  { name: 'surface', title: 'Surface', width: '12ch', value: ({ surface }) => surface, cell: ({ surface }) => surface },
  { name: 'reason', title: 'Reason', width: '30ch', value: ({ reason }) => reason,
    cell: ({ reason }) => (reason ? html`<${Value} of=${reason} room=${60} name="Reason" />` : html`<span class="soft">–</span>`) },
];

/** @param {{turn: number}} props `turn`: counts whenever there is something new */
export function Last({ turn }) {
  const pages = useRef(1);
  const asked = useQuery((signal) => found(pages.current, signal), []);
  const further = () => {
    pages.current += 5;
    asked.again();
  };
  useEffect(() => {
    if (turn) asked.again();
  }, [turn]);
  return html`
    <section class="part">
      <h2>The last backups <${Ago} at=${asked.at} /></h2>
      <${Answer} asked=${asked} what="the audit trail">
        ${({ entries, back }) => html`
          <${Table} label="The last backups and restores" columns=${COLUMNS} rows=${entries} height="40vh"
            empty="None in the audit trail" />
          ${back !== null && html`<p class="actions soft">Searched back to commit ${String(back)}
            <${Button} look="quiet" onClick=${further} busy=${asked.loading}>Load older<//></p>`}`}
      <//>
    </section>`;
}
