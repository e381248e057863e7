/** What somebody may do, and why: its role, and what is granted to it. */
import { Text } from '../../components/form.js';
import { isName } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';
import { KINDS, parted, reasons } from './rights.js';

/** Each right that it holds. @param {{held: object[]}} props of INFO FOR GRANTS */
export function Why({ held }) {
  if (!held.length) return html`<p class="soft">Only to change its own password.</p>`;
  return html`<ul>${held.map(({ on, verbs, from }) => html`<li>
    ${verbs.map((verb) => html`<span class="chip">${verb}</span> `)}
    <span class="soft">${from === 'grant' ? 'granted on ' : `by its ${from} on `}</span><bdi>${on}</bdi></li>`)}</ul>`;
}

/** What a user may do on something, and why: asked for one securable. @param {{held: object[]}} props */
export function May({ held }) {
  const [typed, type] = useState('');
  const securable = typed.trim();
  const { kind, names } = parted(securable);
  const [least, most] = KINDS[kind]?.names ?? [1, 0];
  const whole = names.length >= least && names.length <= most && names.every(isName);
  return html`
    <div class="stack">
      <${Text} label="Check a privilege" placeholder="TABLE shop.main.invoice" value=${typed} onInput=${type}
        hint="A securable with its full name: shows its privileges and their source." />
      ${whole && html`<dl class="pairs" aria-label="Effective privileges">
        ${KINDS[kind].verbs.map((verb) => {
          const why = reasons(held, securable, verb);
          return html`<dt><span class="chip ${why.length ? 'well' : ''}">${verb}</span></dt>
            <dd>${why.length ? `yes: ${why.join('; ')}` : 'no: neither its role nor a grant gives it'}</dd>`;
        })}
      </dl>`}
    </div>`;
}
