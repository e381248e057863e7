/** What is sealed and what is open, and for how long by the node's own clock. */
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { clock } from '../../statements/vaults.js';
import { html, useEffect, useRef, useState } from '../../vendor/preact.js';
import * as routes from './routes.js';

const EVERY_MS = 15_000;
const SECOND_MS = 1000;

/**
 * How it stands with the store and its vaults: `{store, vaults, ahead}`. `ahead`: by how many milliseconds the
 * node's clock is before this machine's, so that a moment of the node can be counted down to here.
 */
export const useStandings = () => useQuery(async (signal) => {
  const began = Date.now();
  const [found, now] = await Promise.all([routes.standings(signal), node.run(clock(), { signal })]);
  return { ...found, ahead: Date.parse(now.text) - (began + Date.now()) / 2 };
}, [], { every: EVERY_MS });

/** Seconds until a moment of the node, at least 0. */
const secondsTo = (until, ahead) => Math.max(0, Math.ceil((Date.parse(until) - ahead - Date.now()) / SECOND_MS));

const inWords = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;

/**
 * Whether it is sealed; while it is open, for how long it still is.
 * @param {object} props `sealed`, `until` (a moment of the node), `ahead`, `onOver` (the time has passed)
 */
export function SealState({ sealed, until, ahead, onOver }) {
  const [left, count] = useState(null);
  const over = useRef(onOver);
  over.current = onOver;
  useEffect(() => {
    if (sealed || !until) return count(null);
    const look = () => {
      const seconds = secondsTo(until, ahead);
      count(seconds);
      if (seconds) return;
      clearInterval(timer);
      over.current?.();
    };
    const timer = setInterval(look, SECOND_MS);
    look();
    return () => clearInterval(timer);
  }, [sealed, until, ahead]);
  if (sealed) return html`<span class="chip warn">sealed</span>`;
  return html`<span class="chip well" title=${until && `until ${until}, by the node's clock`}>open
    ${left !== null && html` for <span role="timer">${inWords(left)}</span>`}</span>`;
}
