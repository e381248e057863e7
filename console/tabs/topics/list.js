/** All topics of a place, with their figures. */
import { go, placed } from '../../address.js';
import { Button, Text } from '../../components/form.js';
import { Head } from '../../components/head.js';
import { useKeys } from '../../components/keys.js';
import { Answer, Empty } from '../../components/notices.js';
import { plainly } from '../../components/plot.js';
import { Table } from '../../components/table.js';
import { useQuery } from '../../state.js';
import { html, useMemo, useRef, useState } from '../../vendor/preact.js';
import { Asking, MANY, past, rate, rates } from './figures.js';
import { Make } from './settings.js';
import { Spark } from './spark.js';
import { Partly, retention } from './words.js';

const EVERY_MS = 5_000;
const EVERY_MS_OF_MANY = 20_000;

/** @param {{tab: object, place: {ns: string, db: string}}} props */
export function List({ tab, place }) {
  const [making, make] = useState(false);
  const [wanted, want] = useState('');
  const [many, count] = useState(false);
  const asking = useMemo(() => new Asking(place), [place.ns, place.db]);
  const find = useRef(null);
  const asked = useQuery(async (signal) => {
    const found = await asking.all(signal);
    count(found.topics.size > MANY);
    return found;
  }, [asking], { every: many ? EVERY_MS_OF_MANY : EVERY_MS });
  const again = () => {
    asking.forget();
    asked.again();
  };
  useKeys([
    { keys: 'n', does: 'make a topic', run: () => make(true) },
    { keys: '/', does: 'find a topic', run: () => find.current?.querySelector('input').focus() },
  ]);
  return html`
    <${Head} tab=${tab} asked=${{ ...asked, again }}>
      <${Button} look="main" onClick=${() => make(true)}>New topic<//>
    <//>
    <${Answer} asked=${{ ...asked, again }} what="topics">
      ${({ topics, refused }) => html`
        ${refused && html`<${Partly} error=${refused} what="the topics that you may read" />`}
        ${topics.size === 0 ? html`<${Empty} title="No topics here">
            <p>A topic keeps messages in order, for readers and for groups that share the work.</p><//>`
          : html`<div class="find" ref=${find}>
              <${Text} label="Find" type="search" value=${wanted} onInput=${want} placeholder="a part of the name" /></div>
            <${Topics} topics=${topics} wanted=${wanted.trim().toLowerCase()} place=${place} />`}`}
    <//>
    ${making && html`<${Make} place=${place} onClose=${() => make(false)}
      onDone=${(name) => go(placed('topics', place, [name]))} />`}`;
}

/**
 * The table. Its rows are names, and stay the same ones while figures change: who has sorted by lag does not see
 * rows jump at each reading.
 */
function Topics({ topics, wanted, place }) {
  const names = [...topics.keys()].filter((name) => name.toLowerCase().includes(wanted)).sort();
  const rows = useMemo(() => names, [names.join('\n')]);
  const latest = useRef(topics);
  latest.current = topics;
  const longest = Math.min(34, Math.max(14, ...rows.map((name) => name.length + 4)));
  const columns = useMemo(
    () => columnsOf(place, (name) => latest.current.get(name) ?? { name }, longest), [place.ns, place.db, longest],
  );
  return html`
    <p class="soft" role="status">${names.length === topics.size ? `${topics.size} topics`
      : `${names.length} of ${topics.size} topics`}</p>
    <${Table} label="Topics" columns=${columns} rows=${rows} height="70vh" empty="No matching topics" />`;
}

const number = (figure) => (figure === undefined ? html`<span class="soft" title="no permission">–</span>`
  : figure.toLocaleString());
const of = (topic, is) => topic.consumers?.filter((one) => one.is === is).length;
const settings = ({ settings: told }) => (told ? retention(told) : undefined);

function columnsOf(place, at, longest) {
  const figure = (name, title, width, read) => ({
    name, title, align: 'end', width, value: (row) => read(at(row)) ?? -1, cell: (row) => number(read(at(row))),
  });
  const fast = (row) => rate(past(place, row));
  return [
    {
      name: 'topic', title: 'Topic', value: (row) => row, width: `min(${longest}ch, 48vw)`,
      cell: (row) => html`<a href=${placed('topics', place, [row])}><bdi>${row}</bdi></a>`,
    },
    figure('messages', 'Messages', '14ch', (topic) => topic.messages),
    figure('last', 'Last position', '17ch', (topic) => topic.last),
    {
      name: 'rate', title: 'Per second', width: '17ch', align: 'end', value: (row) => fast(row) ?? -1,
      cell: (row) => html`<span class="line"><${Spark} times=${past(place, row).times} values=${rates(past(place, row))} />
        ${fast(row) === undefined ? html`<span class="soft">…</span>` : plainly(fast(row))}</span>`,
    },
    {
      name: 'lag', title: 'Lag', width: '17ch', align: 'end', value: (row) => at(row).lag ?? -1,
      cell: (row) => html`<span class="line"><${Spark} times=${past(place, row).times} values=${past(place, row).lag}
        hue="hue-1" />${number(at(row).lag)}</span>`,
    },
    figure('readers', 'Readers', '12ch', (topic) => of(topic, 'reader')),
    figure('groups', 'Groups', '11ch', (topic) => of(topic, 'group')),
    {
      name: 'retention', title: 'Keeps', width: '18ch',
      value: (row) => settings(at(row)) ?? '', cell: (row) => settings(at(row)) ?? number(undefined),
    },
    {
      name: 'comment', title: 'Comment', width: '24ch', value: (row) => at(row).settings?.comment ?? '',
      cell: (row) => html`<bdi>${at(row).settings?.comment ?? ''}</bdi>`,
    },
  ];
}
