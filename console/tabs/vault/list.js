/** The vaults of a place. */
import { placed } from '../../address.js';
import { Button } from '../../components/form.js';
import { Empty } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { html, useState } from '../../vendor/preact.js';
import { Make } from './declared.js';
import { SealState } from './standings.js';

/** @param {object} props `found` (what `useStandings` found), `place`, `onChange` */
export function Vaults({ found, place, onChange }) {
  const [making, make] = useState(false);
  const here = found.vaults.filter(({ namespace, database }) => namespace === place.ns && database === place.db);
  const elsewhere = found.vaults.filter((one) => !here.includes(one));
  return html`
    <section class="part">
      <div class="actions"><h2>Vaults of <bdi>${place.ns}.${place.db}</bdi></h2>
        <${Button} onClick=${() => make(true)}>New vault…<//></div>
      ${here.length === 0 ? html`<${Empty} title="No vaults visible to you"><p>A vault holds secrets that are readable only
          while it is unsealed; every access is recorded.</p><//>`
        : html`<${Table} label="Vaults" rows=${here} sorted=${['vault', false]}
          columns=${columns(place, found, onChange)} />`}
      ${elsewhere.length > 0 && html`<p class="soft">Elsewhere:
        ${elsewhere.slice(0, 50).map(({ namespace: ns, database: db, vault }, at) => html`${at > 0 && ', '}<a
          href=${placed('vault', { ns, db }, [vault])}><bdi>${ns}.${db}.${vault}</bdi></a>`)}
        ${elsewhere.length > 50 && ` and ${elsewhere.length - 50} more`}</p>`}
    </section>
    ${making && html`<${Make} place=${place} onDone=${onChange} onClose=${() => make(false)} />`}`;
}

const columns = (place, { store, ahead }, onOver) => [
  { name: 'vault', title: 'Vault', width: '26ch', value: ({ vault }) => vault,
    cell: ({ vault }) => html`<a href=${placed('vault', place, [vault])}><bdi>${vault}</bdi></a>` },
  { name: 'sealed', title: 'Seal', width: '20ch', value: ({ sealed }) => sealed,
    cell: ({ own, sealed, until }) => html`<${SealState} sealed=${sealed} ahead=${ahead} onOver=${onOver}
      until=${own ? until : store.until} />` },
  { name: 'records', title: 'Records', width: '12ch', align: 'end', value: ({ records }) => records,
    cell: ({ records }) => String(records) },
  { name: 'own', title: 'Opened by', width: '26ch', value: ({ own }) => own,
    cell: ({ own }) => (own ? 'a passphrase of its own' : "the store's passphrase") },
];
