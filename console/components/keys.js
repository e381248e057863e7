/** Keys of the keyboard: who listens for what, and the list of all that `?` shows. */
import { html, useEffect, useRef } from '../vendor/preact.js';
import { Dialog } from './dialog.js';

const MAC = /Mac|iPhone|iPad/.test(navigator.userAgent);
const bound = new Set();
let started = '';

/** @typedef {{keys: string, does: string, run: () => void}} Key `keys`: `?`, `g r`, `Mod-Enter` */

/** Keys that hold while a component is there. @param {Key[]} keys */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const held = { all: () => latest.current };
    bound.add(held);
    return () => bound.delete(held);
  }, []);
}

const typing = (target) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

addEventListener('keydown', (event) => {
  const target = event.composedPath()[0];
  const mod = event.metaKey || event.ctrlKey;
  const said = mod ? `Mod-${event.key}` : event.key;
  if (event.altKey || (!mod && (typing(target) || document.querySelector('dialog[open]')))) return;
  const all = [...bound].flatMap((held) => held.all());
  const found = all.find(({ keys }) => keys === said || (started && keys === `${started} ${said}`));
  started = !found && all.some(({ keys }) => keys.startsWith(`${said} `)) ? said : '';
  if (!found) return;
  event.preventDefault();
  found.run();
});

const shown = (keys) => keys.split(' ').map((key) =>
  key.replace('Mod-', MAC ? '⌘ ' : 'Ctrl ')).map((key, at) => html`${at > 0 && ' then '}<kbd>${key}</kbd>`);

/** The list. @param {{onClose: () => void}} props */
export function Keyboard({ onClose }) {
  const all = [...bound].flatMap((held) => held.all());
  return html`
    <${Dialog} title="Keyboard" onClose=${onClose}>
      <dl class="pairs keys">
        ${all.map(({ keys, does }) => html`<dt>${shown(keys)}</dt><dd>${does}</dd>`)}
        <dt><kbd>Tab</kbd></dt><dd>to the next thing; with <kbd>Shift</kbd> to the one before</dd>
        <dt><kbd>Escape</kbd></dt><dd>close what is open</dd>
      </dl>
    <//>`;
}
