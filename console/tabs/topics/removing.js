/** What takes messages away from a topic: trimming, redriving, removing it. */
import { Confirm } from '../../components/confirm.js';
import { Text } from '../../components/form.js';
import { Perform } from '../../components/perform.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { isName } from '../../statements.js';
import { drop, oldest, redrive, trim } from '../../statements/topics.js';
import { html, useEffect, useState } from '../../vendor/preact.js';

const MOST = 1000;

/** @param {{place: object, topic: string, onDone: () => void, onClose: () => void}} props */
export const Remove = ({ place, topic, onDone, onClose }) => html`
  <${Confirm} title="Remove the topic" name=${topic} called="topic" statement=${drop(topic)} place=${place}
    act="Remove" onDone=${onDone} onClose=${onClose}>
    <p>Its messages, readers and groups are removed, too.</p>
  <//>`;

/** @param {{place: object, topic: string, figures: object, onDone: (answer: object) => void, onClose: () => void}} props */
export function Trim({ place, topic, figures, onDone, onClose }) {
  const [text, type] = useState('');
  const whole = /^[1-9]\d{0,14}$/.test(text);
  const first = figures.last === undefined ? undefined : figures.last - figures.messages + 1;
  const going = whole && first !== undefined ? Math.max(0, Math.min(Number(text), figures.last + 1) - first) : null;
  return html`
    <${Confirm} title="Trim the topic" name=${topic} called="topic" act="Trim" ready=${whole} place=${place}
      statement=${whole ? trim(topic, Number(text)) : null} onDone=${onDone} onClose=${onClose}>
      <p>Unread messages are lost, too: readers and groups continue with the first message that is left.</p>
      <${Text} label="First position to keep" inputmode="numeric" value=${text} onInput=${(given) => type(given.trim())}
        wrong=${text && !whole ? 'Expected a whole number from 1.' : undefined} autofocus
        hint=${first === undefined ? undefined : `It holds ${first} to ${figures.last}.`} />
      ${going !== null && html`<p role="status">${going.toLocaleString()} messages will be removed.</p>`}
    <//>`;
}

/**
 * Moving messages to another topic. Where they go to is the topic from which the oldest one died, if it says so.
 * @param {object} props `place`, `from`, `to` (where it is known), `onDone({moved, first, last})`, `onClose`
 */
export function Redrive({ place, from, to, onDone, onClose }) {
  const [target, aim] = useState(to ?? '');
  const [text, count] = useState(String(MOST));
  const asked = useQuery(to ? null : (signal) => node.run(oldest(from), { place, signal }), [from, to]);
  const came = asked.value?.['dead-topic'];
  useEffect(() => {
    if (came) aim((before) => before || came);
  }, [came]);
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  const wrong = limit >= 1 && limit <= MOST ? undefined : `From 1 to ${MOST}.`;
  const statement = isName(target) && !wrong ? redrive(from, target, limit) : null;
  return html`
    <${Perform} title="Redrive messages" statement=${statement} place=${place} act="Redrive" reasoned
      onDone=${onDone} onClose=${onClose}>
      <p>The oldest messages of <bdi>${from}</bdi> move to the end of another topic, without the headers about how they
        died. They leave <bdi>${from}</bdi> in the same commit.</p>
      <${Text} label="To the topic" value=${target} onInput=${(given) => aim(given.trim())} autofocus
        hint=${came ? html`The oldest message comes from <bdi>${came}</bdi>.` : undefined} />
      <${Text} label="At most" inputmode="numeric" value=${text} wrong=${wrong} onInput=${(given) => count(given.trim())} />
    <//>`;
}
