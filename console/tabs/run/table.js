/** All records of a table, read page by page at one moment: nothing that is committed meanwhile moves them. */
import { Ago } from '../../components/ago.js';
import { Button, useDoing } from '../../components/form.js';
import { Answer, Empty, Loading, Refused } from '../../components/notices.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info, nothing, page } from '../../statements.js';
import { html, useEffect, useRef, useState } from '../../vendor/preact.js';
import { Indexes } from './indexes.js';
import { Grid } from './results.js';

const PAGE = 1000;
const KEEP = '2m';

const many = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;

/** @param {object} props `table`, `place`, `onOpen(text)` a script to be opened */
export function TablePage({ table, place, onOpen }) {
  const [turn, again] = useState(0);
  const about = useQuery((signal) => node.run(info.table(table), { place, signal }), [table, place.ns, place.db, turn]);
  return html`
    <section class="card" aria-label="Table">
      <h2><bdi>${table}</bdi> <${Ago} at=${about.at} /></h2>
      <${Answer} asked=${about} what=${table}>
        ${(found) => html`<p class="soft">${[
          many(found.records, 'record'),
          `${many(found.fields.length, 'field')} defined${found.schemafull ? ', and no others' : ''}`,
          many(found.indexes.length, 'index', 'indexes'),
        ].join(', ')}${found.comment && html`: <bdi>${found.comment}</bdi>`}</p>`}
      <//>
      <${Records} key=${`${place.ns}.${place.db} ${table} ${turn}`} table=${table} place=${place} total=${about.value?.records}
        onAnew=${() => again(turn + 1)} />
    </section>
    ${about.value && html`<${Indexes} table=${table} indexes=${about.value.indexes} place=${place} onOpen=${onOpen} />`}`;
}

function Records({ table, place, total, onAnew }) {
  const [rows, put] = useState(null);
  const [whole, end] = useState(false);
  const [at, date] = useState(null);
  const [doing, error, attempt] = useDoing();
  const moment = useRef(null);
  const next = () => attempt(async () => {
    const last = rows?.length ? rows[rows.length - 1].id : null;
    const asked = page(table, last, PAGE);
    const found = await node.script(asked.text, {
      params: asked.params, place, moment: moment.current ?? 'new', keep: KEEP,
    });
    moment.current = found.moment;
    const more = found.results[0].value;
    if (more.length < PAGE) { // nothing more is read there
      letGo(moment.current);
      moment.current = null;
    }
    put((before) => [...(before ?? []), ...more]);
    end(more.length < PAGE);
    date((before) => before ?? found.at);
  });
  useEffect(() => {
    next();
    return () => letGo(moment.current);
  }, []);
  if (rows === null) return error ? html`<${Refused} error=${error} again=${next} />` : html`<${Loading} what=${table} />`;
  return html`
    ${rows.length === 0 ? html`<${Empty} title="The table is empty" />` : html`
      <${Grid} rows=${rows} place=${place} label=${`Records of ${table}`} height="65vh">
        <span class="small soft">${rows.length}${total === undefined ? '' : ` of ${total}`} read</span>
        <${Ago} at=${at} what="as of" />
        ${!whole && html`<${Button} busy=${doing} onClick=${next}>Read ${PAGE} more<//>`}
        <${Button} onClick=${onAnew}>Reload<//>
      <//>`}
    ${error && html`<${Refused} error=${error} again=${error.detail?.moment ? onAnew : next} />`}`;
}

/** The node keeps few moments for each user. */
async function letGo(moment) {
  if (moment === null) return;
  try {
    await node.run(nothing(), { moment, keep: '0s' });
  } catch (error) {
    if (!('code' in error)) throw error; // it is gone already, or lapses by itself
  }
}
