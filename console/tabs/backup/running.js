/** Backups and restores that are being made, by whomever: how long they have been at it, and their end. */
import { Button } from '../../components/form.js';
import { Killing } from '../../components/killing.js';
import { Notice } from '../../components/notices.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info } from '../../statements.js';
import { html, useEffect, useRef, useState } from '../../vendor/preact.js';

const OFTEN_MS = 500;
const SELDOM_MS = 5_000;
const OURS = /^(BACKUP|RESTORE SCRIPT)\b/;

/**
 * @param {object} props `busy` (this page waits for one: it is looked at more often); `onEnd` (one that was
 *   seen is no more)
 */
export function Running({ busy, onEnd }) {
  const [seen, see] = useState(0);
  const asked = useQuery((signal) => node.run(info.running(), { signal }), [],
    { every: busy || seen ? OFTEN_MS : SELDOM_MS });
  const [ending, end] = useState(null);
  const before = useRef(0);
  const found = (asked.value ?? []).filter(({ text }) => OURS.test(text ?? ''));
  useEffect(() => {
    see(found.length);
    if (asked.value && found.length < before.current) onEnd();
    if (asked.value) before.current = found.length;
  }, [asked.value]);
  return html`
    <div class="live" aria-live="polite">
      ${found.map((one) => html`
        <${Notice} key=${one.id} look="loading" title="Running backup">
          <p class="said"><bdi>${one.text}</bdi></p>
          <p class="small">
            <span>by <bdi>${one.user}</bdi></span>
            <span>for ${one.since.text}</span>
            ${one.left && html`<span>at most ${one.left.text} more</span>`}
            <span>${String(one.slices)} slices</span>
            ${one.rows_read > 0 && html`<span>${String(one.rows_read)} rows read</span>`}
            ${one.waiting && html`<span>waits</span>`}
            <${Button} look="quiet" onClick=${() => end(one)}>End…<//>
          </p><//>`)}
    </div>
    ${ending && html`<${Killing} row=${ending} title="End" onClose=${() => end(null)}>
      <p>Everything that it has created is removed.</p><//>`}`;
}
