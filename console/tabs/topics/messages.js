/** Messages of a topic: a page of them from any position or time, the newest, and what comes. */
import { go, placed } from '../../address.js';
import { Button, Choice, Form, Text, useDoing } from '../../components/form.js';
import { Answer, Refused } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import { useQuery } from '../../state.js';
import { shown } from '../../values.js';
import { html, useLayoutEffect, useRef, useState } from '../../vendor/preact.js';
import { useFollowed } from './following.js';
import { Message } from './message.js';
import { firstSince, newest, PAGE, pageFrom } from './paging.js';
import { moment, zone } from './position.js';
import { about } from './words.js';

const ROW_PX = 32;

/**
 * @param {object} props `topic` (Figures), `place`, `query` ({from, message}), `changes` (counts what was done here: then the
 *   page is read anew)
 */
export function Messages({ topic, place, query, changes }) {
  const { name } = topic;
  const [following, follow] = useState(false);
  const last = useRef(topic.last ?? 0);
  last.current = topic.last ?? 0;
  const from = /^\d{1,15}$/.test(query.from ?? '') ? Math.max(1, Number(query.from)) : null;
  const asked = useQuery(
    following ? null : (signal) => (from === null ? newest(place, name, last.current, { signal })
      : pageFrom(place, name, from, { signal })),
    [place.ns, place.db, name, from, changes],
  );
  const to = (more) => go(placed('topics', place, [name], more));
  const see = (position) => to({ from: query.from, message: position });
  const first = topic.messages === undefined ? 1 : topic.last - topic.messages + 1;
  const begin = (on) => {
    if (on && from !== null) to({});
    follow(on);
  };
  return html`
    <div class="stack">
      <div class="head"><h2>Messages</h2>
        <${Places} topic=${topic} place=${place} to=${to} />
      </div>
      ${following ? html`<${Followed} place=${place} name=${name} after=${last.current} see=${see} onStop=${() => begin(false)} />`
        : html`<${Answer} asked=${asked} what="messages">
          ${(page) => html`
            <${Turning} page=${page} from=${from} first=${first} last=${topic.last} asked=${asked} to=${to}
              onFollow=${() => begin(true)} />
            <${Page} page=${from === null ? page.slice().reverse() : page} place=${place} see=${see}
              current=${query.message} />`}
        <//>`}
      ${/^\d{1,15}$/.test(query.message ?? '') && html`<${Message} key=${query.message} place=${place} topic=${name}
        position=${Number(query.message)} near=${asked.value} first=${first} last=${topic.last}
        onTurn=${see} onClose=${() => to({ from: query.from })} />`}
    </div>`;
}

/** Where to read: a position, or a time. */
function Places({ topic, place, to }) {
  const [by, choose] = useState('position');
  const [text, type] = useState('');
  const [doing, error, attempt] = useDoing();
  const time = by === 'time' ? moment(text) : null;
  const complete = by === 'time' ? time !== null : /^[1-9]\d{0,14}$/.test(text);
  const submit = () => complete && attempt(async () => {
    to({ from: by === 'time' ? await firstSince(place, topic.name, topic.last ?? 0, time) : Number(text) });
  });
  return html`
    <${Form} class="going" onSubmit=${submit}>
      <${Choice} label="Go to a" options=${['position', 'time']} value=${by} onInput=${(chosen) => { choose(chosen); type(''); }} />
      ${by === 'time' ? html`<${Text} label="Time" type="datetime-local" step="1" title=${zone()} value=${text} onInput=${type} />`
        : html`<${Text} label="Position" inputmode="numeric" value=${text} onInput=${(given) => type(given.trim())} />`}
      <${Button} submit busy=${doing} disabled=${!complete}>Go<//>
      ${error && html`<${Refused} error=${error} />`}
    <//>`;
}

/** Which messages these are, and the ways to others. */
function Turning({ page, from, first, last, asked, to, onFollow }) {
  const [low, high] = page.length ? [page[0].position, page.at(-1).position] : [from ?? 1, (from ?? 1) - 1];
  const newer = Math.max(0, (last ?? high) - high);
  const says = page.length ? `${low.toLocaleString()} to ${high.toLocaleString()}, ${from === null ? 'newest' : 'oldest'} first`
    : from === null ? 'None' : `None from position ${from.toLocaleString()} on`;
  const newest = () => (from === null ? asked.again() : to({}));
  return html`
    <p class="actions turning">
      <${Button} disabled=${low <= first} onClick=${() => to({ from: first })}>Oldest<//>
      <${Button} disabled=${low <= first} onClick=${() => to({ from: Math.max(first, low - PAGE) })}>Older<//>
      <${Button} disabled=${newer === 0 || from === null} onClick=${() => to({ from: high + 1 })}>Newer<//>
      <${Button} busy=${asked.loading} onClick=${newest}>Newest<//>
      <${Button} onClick=${onFollow}>Follow<//>
      <span class="soft" role="status">${says}</span>
      ${newer > 0 && html`<span class="chip">${newer.toLocaleString()} newer</span>`}
    </p>`;
}

function Page({ page, place, see, current, label = 'Messages' }) {
  const late = page.some(({ due }) => due);
  const columns = columnsOf(place, see).filter(({ name }) => name !== 'due' || late);
  return html`<${Table} label=${label} columns=${columns} rows=${page} height="60vh" rowHeight=${ROW_PX}
    current=${(message) => String(message.position) === current} empty="No messages" />`;
}

function columnsOf(place, see) {
  return [
    {
      name: 'position', title: 'Position', width: '11ch', align: 'end',
      cell: ({ position }) => html`<button type="button" class="quiet" aria-label=${`Message ${position}`}
        onClick=${() => see(position)}>${position}</button>`,
    },
    {
      name: 'value', title: 'Value', text: ({ value }) => shown(value, 80).padEnd(48),
      cell: ({ value }) => html`<${Value} of=${value} place=${place} />`,
    },
    { name: 'key', title: 'Key', text: ({ key }) => key ?? '', cell: ({ key }) => (key === null ? '' : html`<${Value} of=${key} name="Key" />`) },
    { name: 'at', title: 'At', width: '24ch', cell: ({ at }) => html`<time title=${at.text}>${local(at)}</time>` },
    {
      name: 'headers', title: 'Headers', width: '10ch', align: 'end',
      cell: ({ headers }) => Object.keys(headers).length || '',
    },
    { name: 'bytes', title: 'Size', width: '12ch', align: 'end', cell: ({ bytes }) => about(bytes) },
    { name: 'due', title: 'Due', width: '24ch', cell: ({ due }) => (due ? html`<time title=${due.text}>${local(due)}</time>` : '') },
  ];
}

/** A time in the zone of the machine, to the millisecond. */
export function local({ text }) {
  const time = new Date(text);
  const two = (number) => String(number).padStart(2, '0');
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':');
  return `${day} ${clock}.${String(time.getMilliseconds()).padStart(3, '0')}`;
}

/** What comes, newest first. Who has scrolled down keeps what is looked at where it is. */
function Followed({ place, name, after, see, onStop }) {
  const { messages, came, error, again } = useFollowed(place, name, after);
  const box = useRef(null);
  const before = useRef(0);
  useLayoutEffect(() => {
    const table = box.current.querySelector('.table');
    if (table.scrollTop > 0) table.scrollTop += (came - before.current) * ROW_PX;
    before.current = came;
  }, [came]);
  return html`
    <p class="actions turning">
      <${Button} look="main" onClick=${onStop}>Stop<//>
      <span role="status">Following: new messages are shown here.</span>
      <span class="soft">${came.toLocaleString()} received</span>
    </p>
    ${error && html`<${Refused} error=${error} again=${again} />`}
    <div ref=${box}><${Page} page=${messages} place=${place} see=${see} label="New messages" /></div>`;
}
