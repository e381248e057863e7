/** What stands in the place of an answer: each state has a look of its own. */
import { placed } from '../address.js';
import { html } from '../vendor/preact.js';
import { Ago } from './ago.js';
import { Led } from './consoles.js';
import { useShared } from '../state.js';

/**
 * @param {object} props `look` (loading, empty, refused, sealed, drained, gone, away, ended, half,
 *   warning, well), `title`, `children`, `again` (a function: a button asks once more)
 */
export function Notice({ look, title, children, again }) {
  const urgent = ['refused', 'away', 'half'].includes(look);
  return html`
    <div class="notice ${look}" role=${urgent ? 'alert' : 'status'}>
      <p class="title">${title}</p>
      ${children}
      ${again && html`<p><button type="button" onClick=${again}>Retry</button></p>`}
    </div>`;
}

/** Something is being read. @param {{what: string}} props */
export const Loading = ({ what }) => html`<${Notice} look="loading" title=${`Reading ${what}…`} />`;

/** There is nothing. `children` say what one could do. */
export const Empty = ({ title, children }) =>
  html`<${Notice} look="empty" title=${title}>${children}<//>`;

const LOOKS = {
  Sealed: ['sealed', 'Sealed'],
  Draining: ['drained', 'This node serves no clients'],
  Unknown: ['gone', 'Not found'],
  NotASpace: ['gone', 'Not found'],
  NoKey: ['gone', 'Not found'],
  Away: ['away', 'No answer'],
  SessionEnded: ['ended', 'The session has ended'],
};

/**
 * What the node said instead of an answer, in its own words, with its code.
 * @param {{error: Error, again?: () => void}} props `error` of node.js: a Refusal or Away
 */
export function Refused({ error, again }) {
  const { place } = useShared();
  const [look, title] = LOOKS[error.code] ?? ['refused', 'Refused'];
  const half = error.detail?.committed !== undefined;
  return html`
    <${Notice} look=${half ? 'half' : look} title=${half ? 'Refused after a part was committed' : title} again=${again}>
      <p class="said"><bdi>${error.message}</bdi></p>
      ${half && html`<p>Everything up to commit ${String(error.detail.committed)} is kept.</p>`}
      ${Array.isArray(error.detail?.leader) && html`<${Led} endpoints=${error.detail.leader} />`}
      ${look === 'sealed' && html`<p><a href=${placed('vault', place)}>Unseal it</a></p>`}
      ${look === 'drained' && html`<p><a href="#/node">Open Node</a></p>`}
      <p class="small">
        <code>${error.code ?? error.name}</code>
        ${error.line ? html`<span>line ${error.line}, column ${error.column}</span>` : null}
        ${error.request && html`<span>request <code>${error.request}</code></span>`}
        ${error.at && html`<${Ago} at=${error.at} what="said" />`}
      </p>
    <//>`;
}

/**
 * What `useQuery` found: reading, a refusal, nothing, or `children(value)`. A value that is older than
 * a refusal stays, with the refusal above it.
 * @param {{asked: object, what: string, children: (value: any) => any}} props
 */
export function Answer({ asked, what, children }) {
  if (asked.value === undefined && asked.error) {
    return html`<${Refused} error=${asked.error} again=${asked.again} />`;
  }
  if (asked.value === undefined) return html`<${Loading} what=${what} />`;
  return html`
    ${asked.error && html`<${Refused} error=${asked.error} again=${asked.again} />`}
    ${children(asked.value)}`;
}
