/** What will run, shown before it does. */
import { html } from '../vendor/preact.js';
import { literal } from '../values.js';
import { Copy } from './copy.js';

/**
 * @param {object} props `of`: a Statement of statements.js, or a request
 *   `{method, path, body}` whose secrets are '...' already; `place`; `reason`; `title`
 */
export function Composed({ of, place, reason, title = 'Statement preview' }) {
  const text = of.method ? `${of.method} ${of.path}${of.body ? `\n${literal(of.body)}` : ''}` : of.shown;
  const params = Object.entries(of.secrets ? {} : of.params ?? {});
  return html`
    <figure class="composed">
      <figcaption>${title}${place && html` <span class="soft">in ${place.ns}.${place.db}</span>`}
        <${Copy} text=${text} /></figcaption>
      <pre tabindex="0"><bdi>${text}</bdi></pre>
      ${params.length > 0 && html`<dl class="pairs">
        ${params.map(([name, value]) => html`
          <dt><code>$${name}</code></dt><dd><code><bdi>${literal(value, 300)}</bdi></code></dd>`)}
      </dl>`}
      ${reason && html`<dl class="pairs"><dt>Reason</dt><dd><bdi>${reason}</bdi></dd></dl>`}
    </figure>`;
}
