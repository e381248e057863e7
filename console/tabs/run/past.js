/** What was run in this browser session. It is forgotten with it. */
import { Ago } from '../../components/ago.js';
import { Copy } from '../../components/copy.js';
import { Empty } from '../../components/notices.js';
import { html } from '../../vendor/preact.js';
import { useDesk } from './desk.js';

/** @param {object} props `onOpen(text, place)`: as a script where it was run, without running it */
export function Past({ onOpen }) {
  const { history } = useDesk();
  if (!history.length) return html`<${Empty} title="No statements yet"><p>Statements are kept here until this page is closed.</p><//>`;
  return html`
    <ol class="past" aria-label="History of this browser session" reversed>
      ${history.map((entry) => html`<li key=${entry.id} class="card">
        <p class="actions"><span class="chip ${entry.said === 'done' ? 'well' : 'warn'}">${entry.said}</span>
          <${Ago} at=${entry.at} what="" />
          <span class="soft">${entry.place && `${entry.place.ns}.${entry.place.db}`} ${entry.ms !== undefined && `${entry.ms} ms`}</span>
          <button type="button" class="quiet" onClick=${() => onOpen(entry.text, entry.place ?? undefined)}>Open</button><${Copy} text=${entry.text} /></p>
        <pre tabindex="0"><bdi>${entry.text.slice(0, 4000)}</bdi></pre>
      </li>`)}
    </ol>`;
}
