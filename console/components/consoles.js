/** Where other nodes answer, as links to their consoles. */
import { html } from '../vendor/preact.js';

/** What is the same port as this page's comes first: of several addresses it is most likely the console's. */
const likely = (endpoints) => [...endpoints].sort((one, two) => ours(two) - ours(one));
const ours = (endpoint) => endpoint.endsWith(`:${location.port || (location.protocol === 'https:' ? 443 : 80)}`);

/**
 * Links to the consoles at some addresses, at the view that is looked at here. An address does not say what answers
 * there: one of the wire shows nothing.
 * @param {{endpoints: string[]}} props
 */
export const Consoles = ({ endpoints }) => likely(endpoints).map((one, at) => html`${at > 0 && ', '}<a
  href=${`${location.protocol}//${one}/${location.hash}`} target="_blank" rel="noopener"><bdi>${one}</bdi></a>`);

/** Who takes changes, where this node does not. @param {{endpoints: string[]}} props of who leads; none: nobody is known */
export const Led = ({ endpoints }) => (endpoints.length
  ? html`<p>The leader takes changes, at <${Consoles} endpoints=${endpoints} />. Sign in there.</p>`
  : html`<p>No leader is known. <a href="#/cluster">Open Cluster</a></p>`);
