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
 *   `statement` (shown and run; a function of the reason, where that stands in it), `place`; `act` (the button: "Drop"); `run(reason)` in the place of
 *   running the statement; `ready` (false: something is missing yet); `reasoned` (nothing is done without a
 *   reason); `twice` (the name is asked for two times); `onDone(value)`; `onClose`; `children` (what will be lost)
 */
export function Confirm({
  title, name, called = 'name', statement, place, act = 'Remove', run, ready = true, reasoned = false, twice = false, onDone,
  onClose, children,
}) {
  const [typed, type] = useState('');
  const [repeated, repeat] = useState('');
  const [reason, explain] = useState('');
  const [doing, error, attempt] = useDoing();
  const why = reason.trim() || undefined;
  const within = typeof statement === 'function';
  const composed = within ? statement(why ?? '…') : statement;
  const same = ready && (why || !reasoned) && isTyped(typed, name) && (!twice || isTyped(repeated, name));
  const submit = async () => {
    if (!same) return;
    let value;
    const done = await attempt(async () => {
      value = run ? await run(why) : await node.run(composed, { place, reason: within ? undefined : why });
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
        ${composed && html`<${Composed} of=${composed} place=${place} reason=${within ? undefined : why} />`}
        <${Text} label=${html`Type the ${called} again: <code><bdi>${name}</bdi></code>`} value=${typed}
          onInput=${type} autofocus />
        ${twice && html`<${Text} label="Confirm again" value=${repeated} onInput=${repeat} />`}
        <${Text} label="Reason" hint=${reasoned ? 'Needed, and kept in the statement log.' : 'Kept in the statement log.'} value=${reason} onInput=${explain}
          maxlength="500" />
        ${error && html`<${Refused} error=${error} />`}
        <p class="actions">
          <${Button} onClick=${onClose}>Cancel<//>
          <${Button} look="danger" submit busy=${doing} disabled=${!same}>${act}<//>
        </p>
      <//>
    <//>`;
}
