/** Run: scripts and what they answer, records and their histories, cache keys, what runs. */
import { go, placed } from '../address.js';
import { Head } from '../components/head.js';
import { Empty } from '../components/notices.js';
import { html, useEffect, useState } from '../vendor/preact.js';
import { Browse } from './run/browse.js';
import { open, run as runScript } from './run/desk.js';
import { Running } from './node/running.js';
import { Past } from './run/past.js';
import { RecordPage } from './run/record.js';
import { Scripts } from './run/scripts.js';
import { TablePage } from './run/table.js';
import { Spaces } from './spaces/spaces.js';

const WIDE = '(min-width: 60rem)';

function Run({ tab, place, parts, query }) {
  const [view, named] = parts;
  const [shown, show] = useState(() => matchMedia(WIDE).matches);
  const opened = (text, there = place) => {
    go(placed('run', there));
    return open(text);
  };
  const spaces = view === 'space' && place;
  return html`
    ${!spaces && html`<${Head} tab=${tab}>
      <nav aria-label="In Run"><ul>
        ${[['', 'Scripts'], ['running', 'Running'], ['past', 'History'], ['space', 'Cache spaces']].map(([name, label]) => html`
          <li><a href=${placed('run', place, name ? [name] : [])} aria-current=${(view ?? '') === name ? 'page' : undefined}>${label}</a></li>`)}
      </ul></nav>
    <//>`}
    <div class="desk">
      <details class="browse card" open=${shown} onToggle=${(event) => show(event.target.open)}>
        <summary>Explorer</summary>
        ${shown && html`<${Browse} key=${`${place?.ns}.${place?.db}`} place=${place} onWrite=${open} onOpen=${(text, there) => runScript(opened(text, there), null, there)} />`}
      </details>
      <div class="work">${spaces ? html`<${Spaces} place=${place} name=${named} query=${query} />`
        : html`<${View} view=${view} named=${named} place=${place} onOpen=${opened} />`}</div>
    </div>`;
}

function View({ view, named, place, onOpen }) {
  useEffect(() => {
    if (view) document.getElementById('main').scrollTo?.(0, 0);
  }, [view, named]);
  if (view === 'running') return html`<${Running} />`;
  if (view === 'past') return html`<${Past} onOpen=${onOpen} />`;
  if (!view) return html`<${Scripts} place=${place} />`;
  if (!place || !named) return html`<${Empty} title="Choose a place first" />`;
  if (view === 'record') return html`<${RecordPage} id=${named} place=${place} onOpen=${onOpen} />`;
  if (view === 'table') return html`<${TablePage} table=${named} place=${place} onOpen=${onOpen} />`;
  return html`<${Empty} title="Page not found" />`;
}

export const view = Run;
