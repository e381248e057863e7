/** What changes something and destroys nothing: its fields, what will run, and a button that runs it. */
import { html, useState } from '../vendor/preact.js';
import * as node from '../node.js';
import { Dialog } from './dialog.js';
import { Button, Form, Text, useDoing } from './form.js';
import { Refused } from './notices.js';
import { Composed } from './statement.js';

/**
 * @param {object} props `title`; `statement` (shown and run; null: something is missing yet), `place`; `act` (the
 *   button); `run(reason)` in the place of running the statement; `reasoned` (a reason may be given);
 *   `look` (of the button: danger); `onDone(value)`; `onClose`; `wide`; `stays` (what is done does not close it: `onDone` shows
 *   something in its place); `children`: the fields
 */
export function Perform({
  title, statement, place, act, run, reasoned = false, look = 'main', onDone, onClose, wide = false, stays = false, children,
}) {
  const [reason, explain] = useState('');
  const [doing, error, attempt] = useDoing();
  const why = reason.trim() || undefined;
  const submit = async () => {
    if (!statement) return;
    let value;
    const done = await attempt(async () => {
      value = run ? await run(why) : await node.run(statement, { place, reason: why });
    });
    if (done) {
      if (!stays) onClose();
      onDone?.(value);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose} wide=${wide}>
      <${Form} onSubmit=${submit}>
        ${children}
        ${reasoned && html`<${Text} label="Reason" hint="Kept in the statement log." value=${reason} onInput=${explain}
          maxlength="500" />`}
        ${statement && html`<${Composed} of=${statement} place=${place} reason=${why} />`}
        ${error && html`<${Refused} error=${error} />`}
        <p class="actions">
          <${Button} onClick=${onClose}>Cancel<//>
          <${Button} look=${look} submit busy=${doing} disabled=${!statement}>${act}<//>
        </p>
      <//>
    <//>`;
}
