/** Readers and groups of a topic: where they stand, what is out, what came back, what was given up. */
import { placed } from '../../address.js';
import { Button } from '../../components/form.js';
import { docs } from '../../components/head.js';
import { plainly } from '../../components/plot.js';
import { Table } from '../../components/table.js';
import { html, useState } from '../../vendor/preact.js';
import { ChangeGroup, MakeGroup, MakeReader, Move, RemoveConsumer } from './consuming.js';
import { past, rate, remembered } from './figures.js';
import { Redrive } from './removing.js';
import { Spark } from './spark.js';

/** @param {{topic: object, place: object, onDone: (words: string) => void}} props `topic`: Figures of figures.js */
export function Consumers({ topic, place, onDone }) {
  const [open, see] = useState(null);
  const consumers = topic.consumers ?? [];
  const shared = { place, topic: topic.name, consumer: open?.consumer, onClose: () => see(null) };
  const after = (words) => () => onDone(words);
  return html`
    <div class="stack">
      <div class="head"><h2>Readers and groups</h2>
        <p class="actions">
          <${Button} onClick=${() => see({ what: 'reader' })}>New reader<//>
          <${Button} onClick=${() => see({ what: 'group' })}>New group<//>
        </p>
      </div>
      ${consumers.length === 0 ? html`<p class="soft">No readers and groups. A reader is a named position; a
          group distributes the messages among its members. <a href=${docs('topics.md#groups')} target="_blank" rel="noopener">More</a></p>`
        : html`<div class="acting"><${Table} label="Readers and groups" columns=${columnsOf(topic.name, place, see)}
            rows=${consumers} height="24rem" rowHeight=${36} /></div>`}
      ${open?.what === 'reader' && html`<${MakeReader} ...${shared} onDone=${after('Reader created.')} />`}
      ${open?.what === 'group' && html`<${MakeGroup} ...${shared} onDone=${after('Group created.')} />`}
      ${open?.what === 'move' && html`<${Move} ...${shared} onDone=${after('Moved.')} />`}
      ${open?.what === 'change' && html`<${ChangeGroup} ...${shared} onDone=${after('Changed.')} />`}
      ${open?.what === 'remove' && html`<${RemoveConsumer} ...${shared} onDone=${after('Removed.')} />`}
      ${open?.what === 'redrive' && html`<${Redrive} place=${place} from=${open.consumer.told.dead_letter} to=${topic.name}
        onClose=${shared.onClose} onDone=${({ moved }) => onDone(`Moved: ${moved} messages.`)} />`}
    </div>`;
}

const figure = (number) => (number === undefined ? html`<span class="soft">–</span>` : number.toLocaleString());

function columnsOf(topic, place, see) {
  const kept = (row) => past(place, remembered(topic, row));
  const of = (name, title, about, width = '11ch') => ({
    name, title: html`<span title=${about}>${title}</span>`, align: 'end', width, cell: ({ is, told }) => (
      is === 'reader' ? '' : figure(told[name])),
  });
  const does = (consumer, what, words) => html`<button type="button" class="quiet"
    aria-label=${`${words} ${consumer.is} ${consumer.name}`} onClick=${() => see({ what, consumer })}>${words}</button>`;
  return [
    {
      name: 'name', title: 'Name', text: ({ name }) => name.padEnd(10), value: ({ name }) => name,
      cell: ({ name }) => html`<bdi>${name}</bdi>`,
    },
    { name: 'is', title: 'Kind', width: '11ch', value: ({ is }) => is, cell: ({ is }) => is },
    {
      name: 'lag', title: 'Lag', width: '17ch', align: 'end', cell: (row) => html`<span class="line">
        <${Spark} times=${kept(row).times} values=${kept(row).lag} hue="hue-1" />${figure(row.lag)}</span>`,
    },
    of('waiting', 'Waiting', 'Not delivered yet, delayed, or waiting for an earlier message of their key'),
    of('in_flight', 'In flight', 'Delivered, with a deadline that has not expired'),
    of('redelivered', 'Redelivered', 'Delivered again', '14ch'),
    of('dead_lettered', 'Dead letters', 'Given up since the group was created', '14ch'),
    {
      name: 'position', title: 'Done up to', width: '14ch', align: 'end',
      cell: ({ told }) => figure(told.position ?? told.committed),
    },
    {
      name: 'rate', title: 'Per second', width: '12ch', align: 'end',
      cell: (row) => (rate(kept(row)) === undefined ? html`<span class="soft">…</span>` : plainly(rate(kept(row)))),
    },
    {
      name: 'deadline', title: 'Deadline', width: '12ch', cell: ({ told }) => told.deadline?.text ?? '',
    },
    {
      name: 'dead_letter', title: 'Dead letters go to', width: '20ch', text: ({ told }) => told.dead_letter ?? '',
      cell: ({ is, told }) => (told.dead_letter
        ? html`<a href=${placed('topics', place, [told.dead_letter])}><bdi>${told.dead_letter}</bdi></a>`
        : is === 'group' && told.deadline ? html`<span class="soft">they are dropped</span>` : ''),
    },
    {
      name: 'act', title: 'Actions', width: '36ch', cell: (row) => html`${does(row, 'move', 'Move')}
        ${row.told.deadline && does(row, 'change', 'Settings')} ${row.told.dead_letter && does(row, 'redrive', 'Redrive')}
        ${does(row, 'remove', 'Remove')}`,
    },
  ];
}
