/** The records of a vault: their ids by prefix, page by page, and one of them at a time. */
import { Ago } from '../../components/ago.js';
import { Button, Form, Text, useDoing } from '../../components/form.js';
import { Refused } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import * as node from '../../node.js';
import * as vaults from '../../statements/vaults.js';
import { html, useState } from '../../vendor/preact.js';
import { Erase, Reveal } from './reveal.js';
import { Write } from './write.js';

const PAGE = 100;
const SHOWN = 120;

/**
 * @param {object} props `of` (the vault's names), `sealed`, `onTrace` (its trail has grown), `onChange` (something was
 *   written or erased)
 */
export function Records({ of, sealed, onTrace, onChange }) {
  const [id, name] = useState('');
  const [gone, lose] = useState(null);
  const erased = (lost) => {
    lose(lost);
    name('');
    onChange();
  };
  return html`
    <div class="columns">
      <${List} of=${of} id=${id} gone=${gone} onChoose=${name} onTrace=${onTrace} />
      <section class="part card">
        <h2>A record</h2>
        <${Text} label="Id" value=${id} onInput=${name} maxlength="512" hint="Typed, or chosen from the list." />
        <${Reveal} key=${`reveal ${id}`} of=${of} id=${id} sealed=${sealed} onTrace=${onTrace} />
        <details class="what"><summary>Write it</summary><${Write} of=${of} id=${id} onDone=${onChange} /></details>
        <${Erase} of=${of} id=${id} onDone=${erased} />
      </section>
    </div>`;
}

/** Ids are asked for by a button: each asking is an entry of the trail. */
function List({ of, id, gone, onChoose, onTrace }) {
  const [prefix, type] = useState('');
  const [found, put] = useState(null);
  const [doing, error, attempt] = useDoing();
  const ask = (beginning, before) => attempt(async () => {
    const after = before.length ? before[before.length - 1] : '';
    const place = { ns: of.ns, db: of.db };
    const { ids } = await node.run(vaults.list(of.vault, { prefix: beginning, after, limit: PAGE }), { place });
    put({ prefix: beginning, ids: [...before, ...ids], more: ids.length === PAGE, at: new Date() });
  }).finally(onTrace);
  const rows = (found?.ids ?? []).filter((one) => one !== gone);
  return html`
    <section class="part">
      <div class="actions"><h2>Ids</h2>${found && html`<${Ago} at=${found.at} />`}</div>
      <${Form} class="row" onSubmit=${() => ask(prefix, [])}>
        <${Text} label="Prefix" value=${prefix} onInput=${type} />
        <${Button} submit busy=${doing}>List<//>
      <//>
      ${error && html`<${Refused} error=${error} />`}
      ${found ? html`
        <${Table} label="Ids" height="26rem" empty="None" current=${(one) => one === id} rows=${rows}
          columns=${[{ name: 'id', title: 'Id', width: '100%', cell: (one) => html`<${Button} look="quiet" onClick=${() => onChoose(one)}
            title=${one}><bdi>${one.length > SHOWN ? `${one.slice(0, SHOWN)}…` : one}</bdi><//>` }]} />
        <p class="actions soft">${rows.length} ${found.more ? 'so far' : 'in all'}
          ${found.more && html`<${Button} busy=${doing} onClick=${() => ask(found.prefix, found.ids)}>Next ${PAGE}<//>`}</p>`
        : html`<p class="nothing">Listing ids adds an entry to the trail, so they are listed on request.</p>`}
    </section>`;
}
