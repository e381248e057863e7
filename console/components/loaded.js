/** The view of a tab, whose scripts may have to come first. */
import { load, VIEWS } from '../tabs/all.js';
import { html, useEffect, useState } from '../vendor/preact.js';
import { Notice } from './notices.js';

/** @param {object} props `tab` (of tabs/all.js), and what its view gets */
export function Loaded({ tab, ...more }) {
  const [came, count] = useState(0);
  const [lost, lose] = useState(false);
  const view = VIEWS.get(tab);
  useEffect(() => {
    if (!view) load(tab).then(() => count(came + 1), () => lose(true));
  }, [tab]);
  if (view) return html`<${view} tab=${tab} ...${more} />`;
  return lost ? html`<${Missing} what="this page" />` : null;
}

/** What stands where scripts did not come. @param {{what: string}} props */
export const Missing = ({ what }) => html`
  <${Notice} look="gone" title="Part of the console failed to load">
    <p>The node does not respond, or its version differs from that of ${what}. Reload the page; unsaved input is lost.</p>
    <p><button type="button" onClick=${() => location.reload()}>Reload</button></p><//>`;
