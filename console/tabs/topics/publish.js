/** Publishing one message. */
import { Area, Text } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import { blank, draft, meant, Typed } from '../../components/typed.js';
import { isLasting, publish } from '../../statements/topics.js';
import { html, useState } from '../../vendor/preact.js';

/** Headers as somebody types them, one in a line: an object, undefined without any, null where a line is none. */
export function headersOf(text) {
  const lines = text.split('\n').filter((line) => line.trim());
  if (!lines.length) return undefined;
  const pairs = lines.map((line) => /^\s*([^:]+?)\s*:\s?(.*)$/.exec(line));
  if (pairs.includes(null)) return null;
  return Object.fromEntries(pairs.map(([, name, value]) => [name, value]));
}

const lines = (headers = {}) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join('\n');
const some = (text) => (text === '' ? undefined : text);

/**
 * @param {object} props `place`, `topic`, `like` (a message whose copy it begins with), `onDone({position,
 *   duplicate})`, `onClose`
 */
export function Publish({ place, topic, like, onDone, onClose }) {
  const [value, type] = useState(() => (like ? draft(like.value) : blank()));
  const [more, fill] = useState({ key: like?.key ?? '', id: '', headers: lines(like?.headers), delay: '', expect: '' });
  const set = (name) => (text) => fill({ ...more, [name]: text });
  const headers = headersOf(more.headers);
  const late = more.delay.trim();
  const wrong = {
    headers: headers === null ? 'One per line: name: value' : undefined,
    delay: late && !isLasting(late) ? 'Expected a duration such as 5m.' : undefined,
    expect: /^\d{0,15}$/.test(more.expect) ? undefined : 'Expected a whole number.',
  };
  const found = meant(value);
  const complete = !found.wrong && !Object.values(wrong).some(Boolean);
  const statement = complete ? publish(topic, found.value, {
    key: some(more.key), id: some(more.id), headers: headers ?? undefined, delay: some(late),
    expect: more.expect === '' ? undefined : Number(more.expect),
  }) : null;
  return html`
    <${Perform} title="Publish a message" statement=${statement} place=${place} act="Publish" wide
      onDone=${onDone} onClose=${onClose}>
      <${Typed} value=${value} onInput=${type} autofocus />
      <div class="columns">
        <${Text} label="Key" hint="Ordered groups deliver messages of one key in order." value=${more.key}
          onInput=${set('key')} />
        <${Text} label="Id" hint="Deduplicated, if the topic has DEDUP." value=${more.id} onInput=${set('id')} />
        <${Text} label="Delay" placeholder="none" hint="Groups receive it only after that." value=${more.delay} wrong=${wrong.delay}
          onInput=${set('delay')} />
        <${Text} label="Expected last position" placeholder="any" inputmode="numeric"
          hint="Refused if the last position is another." value=${more.expect} wrong=${wrong.expect} onInput=${set('expect')} />
      </div>
      <${Area} label="Headers" rows="2" placeholder="name: value" value=${more.headers} wrong=${wrong.headers}
        onInput=${set('headers')} />
    <//>`;
}
