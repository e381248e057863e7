/** One topic: how it stands, who reads it, its messages, and what one does with it. */
import { go, placed } from '../../address.js';
import { Button } from '../../components/form.js';
import { Head } from '../../components/head.js';
import { useKeys } from '../../components/keys.js';
import { Answer, Notice } from '../../components/notices.js';
import { Plot } from '../../components/plot.js';
import { useQuery } from '../../state.js';
import { html, useMemo, useState } from '../../vendor/preact.js';
import { Consumers } from './consumers.js';
import { Asking, past, rates } from './figures.js';
import { Messages } from './messages.js';
import { Publish } from './publish.js';
import { Redrive, Remove, Trim } from './removing.js';
import { Change } from './settings.js';
import { about, Partly, retention, size } from './words.js';

const EVERY_MS = 3_000;

/** @param {{tab: object, place: {ns: string, db: string}, name: string, query: object}} props */
export function Topic({ tab, place, name, query }) {
  const [open, see] = useState(null);
  const [{ said, changes }, say] = useState({ said: '', changes: 0 });
  const asking = useMemo(() => new Asking(place), [place.ns, place.db, name]);
  const found = useQuery((signal) => asking.one(name, signal), [asking], { every: EVERY_MS });
  const again = () => {
    asking.forget();
    found.again();
  };
  const asked = { ...found, again };
  const done = (words) => {
    say((before) => ({ said: words, changes: before.changes + 1 }));
    again();
  };
  const close = () => see(null);
  useKeys([{ keys: 'p', does: 'publish a message', run: () => see('publish') }]);
  const shared = { place, topic: name, onClose: close };
  return html`
    <${Head} tab=${tab} title=${name} asked=${asked}>
      <a href=${placed('topics', place)}>All topics</a>
    <//>
    ${asked.value || !asked.error ? html`<p class="actions">
      <${Button} look="main" onClick=${() => see('publish')}>Publish<//>
      ${asked.value?.topic.settings && html`<${Button} onClick=${() => see('settings')}>Settings<//>`}
      <${Button} onClick=${() => see('trim')}>Trim<//>
      <${Button} onClick=${() => see('redrive')}>Redrive<//>
      <${Button} look="danger" onClick=${() => see('remove')}>Remove<//>
      <span class="soft" role="status">${said}</span>
    </p>` : null}
    <${Answer} asked=${asked} what="the topic">
      ${({ topic, refused }) => html`
        ${refused && html`<${Partly} error=${refused} what="figures without settings and positions" />`}
        <${Standing} topic=${topic} place=${place} />
        <${Consumers} topic=${topic} place=${place} onDone=${done} />
        <${Messages} topic=${topic} place=${place} query=${query} changes=${changes} />
        ${open === 'settings' && html`<${Change} ...${shared} told=${topic.settings} onDone=${() => done('Changed.')} />`}
        ${open === 'trim' && html`<${Trim} ...${shared} figures=${topic}
          onDone=${({ trimmed }) => done(`Trimmed: ${trimmed} messages.`)} />`}`}
    <//>
    ${open === 'publish' && html`<${Publish} ...${shared} onDone=${(answer) => done(published(answer))} />`}
    ${open === 'redrive' && html`<${Redrive} ...${shared} from=${name}
      onDone=${({ moved }) => done(`Moved: ${moved} messages.`)} />`}
    ${open === 'remove' && html`<${Remove} ...${shared} onDone=${() => go(placed('topics', place))} />`}`;
}

/** What a publish answered, in words. */
export const published = ({ position, duplicate }) => (duplicate
  ? `Not appended: the message with that id is at position ${position}.` : `Published at position ${position}.`);

function Standing({ topic, place }) {
  const kept = past(place, topic.name);
  const fast = useMemo(() => rates(kept), [kept.times.length, kept.times.at(-1)]);
  if (topic.last === undefined) {
    return html`<${Notice} look="warning" title="No permission to see its figures">
      <p>This needs INFO or READ on the topic.</p><//>`;
  }
  // New arrays each time: a plot draws what it is given anew.
  return html`
    <div class="columns">
      <section class="card" aria-label="Status"><${Figures} topic=${topic} /></section>
      <section class="card" aria-label="Rate"><${Plot} title="Published" times=${[...kept.times]} unit="a second" height=${140}
        series=${[{ label: 'messages', values: fast }]} /></section>
      <section class="card" aria-label="Lag"><${Plot} title="Lag" times=${[...kept.times]} unit="messages" height=${140}
        series=${[{ label: 'largest lag', values: [...kept.lag] }]} /></section>
    </div>`;
}

function Figures({ topic }) {
  const { settings: told } = topic;
  const first = topic.last - topic.messages + 1;
  return html`
    <dl class="pairs">
      <dt>Messages</dt><dd><b>${topic.messages.toLocaleString()}</b></dd>
      <dt>Positions</dt><dd>${topic.messages ? `${first.toLocaleString()} to ${topic.last.toLocaleString()}`
        : topic.last ? `none; the last was ${topic.last.toLocaleString()}` : 'none yet'}</dd>
      ${told && html`
        <dt>Keeps</dt><dd>${retention(told)}</dd>
        ${told.bytes !== undefined && html`<dt>Holds</dt><dd>${about(told.bytes)} of ${size(told.max_bytes)}</dd>`}
        <dt>Largest message</dt><dd>${size(told.largest)}</dd>
        <dt>Deduplicates ids for</dt><dd>${told.dedup?.text ?? 'not at all'}</dd>
        ${told.comment && html`<dt>Comment</dt><dd><bdi>${told.comment}</bdi></dd>`}`}
    </dl>`;
}
