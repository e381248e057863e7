/** One message, all of it. */
import { placed } from '../../address.js';
import { Copy } from '../../components/copy.js';
import { Dialog } from '../../components/dialog.js';
import { Button } from '../../components/form.js';
import { Answer, Notice } from '../../components/notices.js';
import { Tree, Value } from '../../components/value.js';
import { useQuery } from '../../state.js';
import { literal, written } from '../../values.js';
import { html, useState } from '../../vendor/preact.js';
import { pageFrom } from './paging.js';
import { Publish } from './publish.js';
import { about } from './words.js';

/**
 * @param {object} props `place`, `topic`, `position`, `near` (messages that are there already), `first` and `last`
 *   (positions that are held), `onTurn(position)`, `onClose`
 */
export function Message({ place, topic, position, near, first, last, onTurn, onClose }) {
  const known = position < first ? undefined : near?.find((message) => message.position === position);
  const asked = useQuery(known ? null : async (signal) => {
    const [found] = await pageFrom(place, topic, position, { limit: 1, signal });
    return found?.position === position ? found : null;
  }, [place.ns, place.db, topic, position, known === undefined]);
  const answered = known ? { value: known, error: null } : asked;
  return html`
    <${Dialog} title=${`Message ${position} of ${topic}`} wide onClose=${onClose}>
      <p class="actions">
        <${Button} disabled=${position <= first} onClick=${() => onTurn(position - 1)}>Previous<//>
        <${Button} disabled=${last !== undefined && position >= last} onClick=${() => onTurn(position + 1)}>Next<//>
      </p>
      <${Answer} asked=${answered} what="the message">
        ${(message) => (message ? html`<${Whole} message=${message} place=${place} topic=${topic} />`
          : html`<${Notice} look="gone" title="No message at this position">
              <p>It has been trimmed, or was never published.</p><//>`)}
      <//>
    <//>`;
}

function Whole({ message, place, topic }) {
  const [copying, publish] = useState(false);
  const [said, say] = useState('');
  const headers = Object.entries(message.headers);
  const done = ({ position }) => say(`Published at position ${position}.`);
  return html`
    <dl class="pairs">
      <dt>At</dt><dd><${Value} of=${message.at} /></dd>
      ${message.due && html`<dt>Due</dt><dd><${Value} of=${message.due} /></dd>`}
      ${message.key !== null && html`<dt>Key</dt><dd><${Value} of=${message.key} name="Key" /></dd>`}
      ${message.id !== null && html`<dt>Id</dt><dd><${Value} of=${message.id} name="Id" /></dd>`}
      <dt>Size</dt><dd>${about(message.bytes)}</dd>
    </dl>
    ${headers.length > 0 && html`<section aria-labelledby="headers"><h3 id="headers">Headers</h3>
      <dl class="pairs">${headers.map(([name, text]) => html`
        <dt><bdi>${name}</bdi></dt><dd>${name === 'dead-topic'
          ? html`<a href=${placed('topics', place, [text])}><bdi>${text}</bdi></a>` : html`<${Value} of=${text} name=${name} />`}</dd>`)}
      </dl></section>`}
    <section aria-labelledby="value"><h3 id="value">Value</h3>
      <div class="whole"><${Tree} of=${message.value} place=${place} /></div></section>
    <div class="actions">
      <${Copy} label="Copy" text=${() => literal(message.value)} />
      <${Copy} label="Copy as JSON" text=${() => written(message.value)} />
      <${Button} onClick=${() => publish(true)}>Publish a copy<//>
      <span role="status">${said}</span>
      ${copying && html`<${Publish} place=${place} topic=${topic} like=${message} onDone=${done} onClose=${() => publish(false)} />`}
    </div>`;
}
