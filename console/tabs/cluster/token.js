/** A join token for a row that waits: shown once, kept nowhere, with what is typed on the machine that joins. */
import { Moment } from '../../components/ago.js';
import { Copy } from '../../components/copy.js';
import { Dialog } from '../../components/dialog.js';
import { Button, Choice } from '../../components/form.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { createToken } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { joining } from './commands.js';

const SPANS = [['10m', 'ten minutes'], ['1h', 'an hour'], ['6h', 'six hours'], ['24h', 'a day']];

/** Makes one, and shows it. @param {object} props `row`, `self` (INFO FOR NODE), `onDone`, `onClose` */
export function Token({ row, self, onDone, onClose }) {
  const [span, last] = useState('1h');
  const [made, take] = useState(null);
  const end = () => {
    onClose();
    onDone();
  };
  if (made) return html`<${Shown} made=${made} row=${row} self=${self} onClose=${end} />`;
  return html`
    <${Perform} title=${`A join token for ${row.name}`} statement=${createToken(row.name, span)} act="Create" reasoned
      onDone=${take} onClose=${onClose} stays>
      <p>Whoever brings it becomes this row's node, and is given all that the store holds. It opens once; a new one ends the one before.</p>
      ${self.surfaces.every(({ surface }) => surface !== 'peer') && html`
        <${Notice} look="warning" title="It can be brought nowhere">
          <p>This node listens for no other: it has to be started with <code>--peer</code> first.</p><//>`}
      <${Choice} label="It lasts" value=${span} onInput=${last} options=${SPANS} />
    <//>`;
}

/** @param {object} props `made` ({token, expires}), `row`, `self`, `onClose`: after that it is nowhere */
function Shown({ made, row, self, onClose }) {
  const command = joining(row, self, made.token);
  return html`
    <${Dialog} title=${`The join token for ${row.name}`}><div>
      <${Notice} look="warning" title="It is shown once">
        <p>The store keeps a digest of it, and the statement log the statement alone. Until <${Moment} of=${made.expires} />.</p><//>
      <pre tabindex="0" class="token">${made.token}</pre>
      <p class="actions"><${Copy} text=${made.token} label="Copy the token" /></p>
      <h3>On the machine of ${row.name}</h3>
      <p>In an empty directory, with addresses and files of its own there. The node copies the store, and serves it then; typed again, the same goes on.</p>
      <pre tabindex="0" class="command">${command}</pre>
      <p class="actions"><${Copy} text=${command} label="Copy the command" /></p>
      <p class="soft">Or put the token into a file that nobody else reads, and say <code>--join</code> with that file.</p>
      <p class="actions ends"><${Button} look="main" onClick=${onClose}>I have it<//></p>
    </div><//>`;
}
