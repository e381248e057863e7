/** Access: who may do what, and who did what. */
import { link } from '../address.js';
import { docs, Head } from '../components/head.js';
import { Empty } from '../components/notices.js';
import { html } from '../vendor/preact.js';
import { Audit, Statements } from './access/entries.js';
import { OneUser } from './access/user.js';
import { Users } from './access/users.js';
import { You } from './access/you.js';

const PARTS = [
  ['users', 'Users', Users],
  ['statements', 'Statement log', Statements],
  ['audit', 'Audit trail', Audit],
  ['you', 'You', You],
];

function Access({ tab, parts, query, place }) {
  const [asked = 'users', user] = parts;
  const found = PARTS.find(([name]) => name === asked);
  const View = asked === 'users' && user ? OneUser : found?.[2];
  return html`
    <${Head} tab=${tab} />
    <nav aria-label="Parts of Access"><ul>
      ${PARTS.map(([name, title]) => html`<li><a href=${link('access', [name])}
        aria-current=${name === asked ? 'page' : undefined}>${title}</a></li>`)}
    </ul></nav>
    ${View ? html`<${View} key=${`${asked}/${user ?? ''}`} user=${user} query=${query} place=${place} />`
      : html`<${Empty} title="There is no such part">
          <p><a href=${docs(tab.page)} target="_blank" rel="noopener">About access</a></p><//>`}`;
}

export const view = Access;
