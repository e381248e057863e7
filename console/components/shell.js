/** What stands around every tab: the tabs, the place, how the node stands, who is signed in, warnings. */
import { go, placed, useAddress } from '../address.js';
import * as node from '../node.js';
import { choose, isClear, set, useShared } from '../state.js';
import { isName } from '../statements.js';
import { TABS } from '../tabs/all.js';
import { html, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { Ago, ago } from './ago.js';
import { Keyboard, useKeys } from './keys.js';
import { Loaded } from './loaded.js';
import { Notice } from './notices.js';
import { begin, Places } from './places.js';
import { HELD_UP, UNREADY } from './ready.js';
import { Clear, SignIn, SignInAgain } from './signin.js';

/** The whole page. */
export function Shell() {
  const { who, ended, person, place } = useShared();
  const [later, put] = useState(false);
  const [help, see] = useState(false);
  const address = useAddress();
  const tab = TABS.find(({ name }) => name === address.tab) ?? (address.tab ? null : TABS[0]);
  const named = useMemo(() => (tab?.placed ? placeOf(address.parts) : null), [address]);
  useEffect(() => {
    if (named?.db && (named.ns !== place?.ns || named.db !== place?.db)) set({ place: named });
  }, [named, person]);
  useEffect(() => {
    if (!who) return;
    begin();
    if (document.activeElement === document.body) toMain(); // the form is gone
  }, [who]);
  useEffect(() => {
    if (who && document.activeElement === document.body) toMain(); // what had the focus was of the view before
  }, [address]);
  useEffect(() => put(false), [ended]);
  useEffect(() => {
    document.title = `${tab?.title ?? 'Not found'} · storenode`;
  }, [tab]);
  if (!who) return html`<${SignIn} />`;
  const parts = tab?.placed ? address.parts.slice(2) : address.parts;
  const there = tab && (named === null || named.db);
  return html`
    <a class="skip" href="#main" onClick=${skip}>To the contents</a>
    <${Top} tab=${tab} onKeys=${() => see(true)} />
    <${Banners} ended=${ended && later} onSignIn=${() => put(false)} />
    <main id="main" tabindex="-1">
      ${there ? html`<${Loaded} key=${`${tab.name} ${person}`} tab=${tab} place=${named ?? place} parts=${parts} query=${address.query} />`
        : html`<${Notice} look="gone" title="Page not found">
            <p><a href="#/">Go to start</a></p><//>`}
    </main>
    ${help && html`<${Keyboard} onClose=${() => see(false)} />`}
    ${ended && !later && html`<${SignInAgain} onLater=${() => put(true)} />`}`;
}

/** The place that an address says; null: it says none; without a `db`: what it says is the name of none. */
function placeOf([ns, db]) {
  if (ns === undefined) return null;
  return isName(ns) && isName(db ?? '') ? { ns, db } : { ns };
}

const toMain = () => document.getElementById('main').focus({ preventScroll: true });

/** The fragment is the view's address, so the link goes there by hand. */
function skip(event) {
  event.preventDefault();
  toMain();
}

function Top({ tab, onKeys }) {
  const { place, who } = useShared();
  const tabs = useRef(null);
  useEffect(() => tabs.current.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' }), [tab]);
  useKeys([
    { keys: '?', does: 'this list', run: onKeys },
    ...TABS.map((one, at) => ({
      keys: `g ${at + 1}`, does: one.title, run: () => go(placed(one.name, one.placed ? place : null)),
    })),
  ]);
  return html`
    <header class="top">
      <p class="brand">storenode</p>
      <nav aria-label="Tabs" ref=${tabs}><ul>
        ${TABS.map((one) => html`<li><a href=${placed(one.name, one.placed ? place : null)}
          aria-current=${one === tab ? 'page' : undefined}>${one.title}</a></li>`)}
      </ul></nav>
      <details class="menu">
        <summary><bdi>${who.name}</bdi> <span class="soft">${who.role}${who.space ? ` of ${who.space}` : ''}</span></summary>
        <div class="drop">
          <${Look} />
          <button type="button" onClick=${onKeys}>Keyboard <kbd>?</kbd></button>
          <button type="button" onClick=${leave}>Sign out</button>
        </div>
      </details>
      <div class="standing"><${Places} /><${Condition} /></div>
    </header>`;
}

async function leave() {
  try {
    await node.signOut();
  } catch (error) {
    if (!('code' in error)) throw error; // here it is over; on the node it ends by itself
  }
}

function Look() {
  const { theme } = useShared();
  return html`
    <fieldset class="look"><legend>Theme</legend>
      ${['system', 'light', 'dark'].map((one) => html`<label>
        <input type="radio" name="theme" value=${one} checked=${theme === one} onChange=${() => choose(one)} /> ${one}
      </label>`)}
    </fieldset>`;
}

/** How the node stands, in one line. */
function Condition() {
  const { condition, away } = useShared();
  if (!condition) return html`<p class="condition">${away ? 'away' : '…'}</p>`;
  const { health, ready, at } = condition;
  const well = !away && ready.ready;
  const why = away ? 'no answer' : ready.ready ? ready.held_up ? `ready, ${HELD_UP[ready.held_up]}` : 'ready' : UNREADY[ready.reason] ?? ready.reason;
  return html`
    <p class="condition ${well ? 'well' : 'ill'}" title=${`read ${ago(at)}`}>
      <span class="dot" aria-hidden="true"></span><span>${why}</span>
      <span class="soft">${health.version}</span>
      <span><span class="soft">commit</span> <b>${String(health.sequence)}</b></span>
      <span class="soft">${ready.roles.join(', ') || 'no roles'}</span>
      <${Ago} at=${at} />
    </p>`;
}

function Banners({ ended, onSignIn }) {
  const { away, condition } = useShared();
  const began = useRef(undefined); // with the version whose files these are
  began.current ??= condition?.health.version;
  const other = began.current !== condition?.health.version;
  const drained = condition?.ready.reason === 'no_roles';
  return html`
    <div class="banners" aria-live="polite">
      ${isClear() && html`<${Clear} />`}
      ${away && html`<${Notice} look="away" title="The node does not respond">
        <p>The page retries, and continues when the node is back.
          ${condition && html` Last response ${ago(condition.at)}.`}</p>
        <p><button type="button" onClick=${node.lookNow}>Check now</button></p><//>`}
      ${other && html`<${Notice} look="warning" title=${`The node has version ${condition.health.version} now`}>
        <p>This page is of version ${began.current}. Reload it to get the new one; unsaved input is lost.</p>
        <p><button type="button" onClick=${() => location.reload()}>Reload</button></p><//>`}
      ${!away && drained && html`<${Notice} look="drained" title="This node is drained">
        <p>It keeps its data and serves no clients until it has a role again. <a href="#/node">Open Node</a></p><//>`}
      ${ended && html`<${Notice} look="ended" title="You are signed out">
        <p><button type="button" onClick=${onSignIn}>Sign in</button></p><//>`}
    </div>`;
}
