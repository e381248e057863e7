/** What destroys: the name is typed again, a reason is taken, the statement is shown before it runs. */
import { html, useState } from '../vendor/preact.js';
import * as node from '../node.js';
import { Dialog } from './dialog.js';
import { Button, Form, Text, useDoing } from './form.js';
import { Refused } from './notices.js';
import { Composed } from './statement.js';

/** Whether a field of one line holds a name: what is pasted into one has spaces for ends of lines, or nothing. */
const isTyped = (text, name) => [' ', ''].some((end) => text === name.replace(/\r\n|[\r\n]/g, end));

/**
 * @param {object} props `title`; `name` (what has to be typed); `called` (what it is: "table");
 *   `statement` (shown and run), `place`; `act` (the button: "Drop"); `run(reason)` in the place of
 *   running the statement; `ready` (false: something is missing yet); `twice` (the name is asked for two
 *   times); `onDone(value)`; `onClose`; `children` (what will be lost)
 */
export function Confirm({
  title, name, called = 'name', statement, place, act = 'Remove', run, ready = true, twice = false, onDone, onClose, children,
}) {
  const [typed, type] = useState('');
  const [repeated, repeat] = useState('');
  const [reason, explain] = useState('');
  const [doing, error, attempt] = useDoing();
  const same = ready && isTyped(typed, name) && (!twice || isTyped(repeated, name));
  const submit = async () => {
    if (!same) return;
    let value;
    const done = await attempt(async () => {
      const why = reason.trim() || undefined;
      value = run ? await run(why) : await node.run(statement, { place, reason: why });
    });
    if (done) {
      onClose();
      onDone?.(value);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <${Form} onSubmit=${submit}>
        ${children}
        ${statement && html`<${Composed} of=${statement} place=${place} reason=${reason.trim()} />`}
        <${Text} label=${html`Type the ${called} again: <code><bdi>${name}</bdi></code>`} value=${typed}
          onInput=${type} autofocus />
        ${twice && html`<${Text} label="And once more" value=${repeated} onInput=${repeat} />`}
        <${Text} label="Reason" hint="Kept in the statement log." value=${reason} onInput=${explain}
          maxlength="1000" />
        ${error && html`<${Refused} error=${error} />`}
        <p class="actions">
          <${Button} onClick=${onClose}>Leave it<//>
          <${Button} look="danger" submit busy=${doing} disabled=${!same}>${act}<//>
        </p>
      <//>
    <//>`;
}
