/** One key: its value, when it expires, who holds it, and what one does with it. */
import { Ago } from '../../components/ago.js';
import { Copy } from '../../components/copy.js';
import { Button } from '../../components/form.js';
import { Answer, Notice } from '../../components/notices.js';
import { Tree } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { get } from '../../statements/spaces.js';
import { literal, microseconds, NONE } from '../../values.js';
import { html, useState } from '../../vendor/preact.js';
import { Delete, Expire, Persist, Put, Unlock } from './changing.js';

/** @param {object} props `place`, `space`, `name` (the key), `onChanged(words)`, `onClose` */
export function Key({ place, space, name, onChanged, onClose }) {
  const [open, see] = useState(null);
  const asked = useQuery((signal) => node.run(get(space, name), { place, signal }), [place.ns, place.db, space, name]);
  const done = (words) => {
    asked.again();
    onChanged(words);
  };
  const shared = { place, space, name, onDone: done, onClose: () => see(null) };
  const there = asked.value && asked.value !== NONE;
  const isText = there && typeof asked.value.value === 'string';
  return html`
    <section class="card stack" aria-label="The key">
      <div class="head">
        <h2 class="named"><bdi>${name}</bdi></h2>
        <p class="actions"><${Ago} at=${asked.at} />
          <button type="button" aria-busy=${asked.loading} onClick=${asked.again}>Refresh</button>
          <button type="button" onClick=${onClose}>Close</button></p>
      </div>
      <${Answer} asked=${asked} what="the key">
        ${(found) => (found === NONE ? html`<${Notice} look="gone" title="No such key">
            <p>It has expired, was deleted, or never existed.</p><//>`
          : html`<${Entry} found=${found} at=${asked.at} place=${place} />`)}
      <//>
      <p class="actions">
        <${Button} onClick=${() => see('put')}>Set<//>
        <${Button} disabled=${!there} onClick=${() => see('expire')}>Expiry<//>
        <${Button} disabled=${!there || !asked.value.ttl} onClick=${() => see('persist')}>Persist<//>
        <${Button} disabled=${!isText} onClick=${() => see('unlock')}>Unlock<//>
        <${Button} look="danger" disabled=${!there} onClick=${() => see('delete')}>Delete<//>
      </p>
      ${open === 'put' && html`<${Put} ...${shared} found=${there ? asked.value : undefined} />`}
      ${open === 'expire' && html`<${Expire} ...${shared} />`}
      ${open === 'persist' && html`<${Persist} ...${shared} />`}
      ${open === 'unlock' && html`<${Unlock} ...${shared} holder=${asked.value.value} />`}
      ${open === 'delete' && html`<${Delete} ...${shared} />`}
    </section>`;
}

function Entry({ found, at, place }) {
  const { value, ttl } = found;
  const until = ttl && new Date(at.getTime() + microseconds(ttl.text) / 1000);
  return html`
    <dl class="pairs">
      <dt>Expires</dt><dd>${ttl ? html`in <b>${shortly(ttl.text)}</b>, <time datetime=${until.toISOString()}>
        ${until.toLocaleString()}</time>` : 'never'}</dd>
      ${typeof value === 'string' && html`<dt>Holder</dt><dd class="soft">If it is a lock, its value is its holder.</dd>`}
    </dl>
    <div class="whole"><${Tree} of=${value} place=${place} /></div>
    <p class="actions"><${Copy} text=${() => (typeof value === 'string' ? value : literal(value))} /></p>`;
}

/** A duration without what is below its second; of a second and less all of it. */
function shortly(text) {
  const cut = text.replace(/\d+ms|\d+us/g, '');
  return cut || text;
}
