/** One cache space: its keys by their beginning, a thousand at a time, and one of them. */
import { go, replace } from '../../address.js';
import { Ago } from '../../components/ago.js';
import { Button, Form, Text } from '../../components/form.js';
import { Head } from '../../components/head.js';
import { useKeys } from '../../components/keys.js';
import { Answer } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info } from '../../statements.js';
import { keys } from '../../statements/spaces.js';
import { html, useMemo, useRef, useState } from '../../vendor/preact.js';
import { Put } from './changing.js';
import { Key } from './key.js';
import { ABOUT, at } from './spaces.js';

const PAGE = 1000;

/** @param {{place: object, space: string, query: {prefix?: string, after?: string, key?: string}}} props */
export function Space({ place, space, query }) {
  const [making, make] = useState(false);
  const [said, say] = useState('');
  const { prefix = '', after, key } = query;
  const asked = useQuery(
    async (signal) => (await node.run(keys(space, { prefix, after, limit: PAGE }), { place, signal })).keys,
    [place.ns, place.db, space, prefix, after],
  );
  const to = (more) => at(place, space, { prefix, after, key, ...more });
  const gone = !asked.value && asked.error?.code === 'Unknown';
  const found = useRef(null);
  useKeys([
    { keys: 'n', does: 'set a key', run: () => make(true) },
    { keys: '/', does: 'find keys', run: () => found.current?.querySelector('input').focus() },
  ]);
  const changed = (words) => {
    say(words);
    asked.again();
  };
  return html`
    <${Head} tab=${ABOUT} title=${space} asked=${asked}>
      <a href=${at(place)}>All spaces</a>
      ${!gone && html`<${Button} look="main" onClick=${() => make(true)}>Set a key<//>`}
    <//>
    ${!gone && html`<${Told} place=${place} space=${space} />`}
    <p class="soft" role="status">${said}</p>
    <div class="beside">
      <div class="stack" ref=${found}>
        ${!gone && html`<${Prefix} key=${prefix} prefix=${prefix}
          onFind=${(wanted) => replace(at(place, space, { prefix: wanted, key }))} />`}
        <${Answer} asked=${asked} what="keys">
          ${(names) => html`<${Names} names=${names} current=${key} to=${to} after=${after} />`}
        <//>
      </div>
      ${key !== undefined && html`<${Key} key=${key} place=${place} space=${space} name=${key} onChanged=${changed}
        onClose=${() => go(to({ key: undefined }))} />`}
    </div>
    ${making && html`<${Put} place=${place} space=${space} onClose=${() => make(false)}
      onDone=${(words, name) => {
        changed(words);
        go(to({ key: name }));
      }} />`}`;
}

/** What INFO says of it; who has no INFO reads the keys all the same. */
function Told({ place, space }) {
  const asked = useQuery((signal) => node.run(info.space(space), { place, signal }), [place.ns, place.db, space]);
  const { value, error } = asked;
  if (!value) return error ? html`<p class="soft"><bdi>${error.message}</bdi> <code>${error.code}</code></p>` : null;
  return html`
    <p class="soft">${value.keys.toLocaleString()} keys (<${Ago} at=${asked.at} what="counted" />). By default a key
      ${value.expire ? ` expires after ${value.expire.text}` : ' does not expire'}.
      ${value.comment && html` <bdi>${value.comment}</bdi>`}</p>`;
}

function Prefix({ prefix, onFind }) {
  const [text, type] = useState(prefix);
  return html`
    <${Form} class="row" onSubmit=${() => onFind(text)}>
      <${Text} label="Prefix" type="search" value=${text} onInput=${type} />
      <${Button} submit>Find<//>
    <//>`;
}

function Names({ names, current, to, after }) {
  const columns = useMemo(() => [{
    name: 'key', title: 'Key', text: (name) => name,
    cell: (name) => html`<a href=${to({ key: name })}><bdi>${name}</bdi></a>`,
  }], [to({ key: undefined })]);
  const full = names.length === PAGE;
  return html`
    <p class="actions">
      <span class="soft" role="status">${names.length.toLocaleString()} keys${full ? ', and there may be more' : ''}</span>
      ${after !== undefined && html`<a href=${to({ after: undefined })}>From the first</a>`}
      ${full && html`<a href=${to({ after: names.at(-1) })}>The next ${PAGE}</a>`}
    </p>
    <${Table} label="Keys" columns=${columns} rows=${names} height="65vh" current=${(name) => name === current}
      empty="No keys with this prefix" />`;
}
