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
      <p>The node with this token becomes the node of this row, and receives the whole store. The token works once; a new token replaces it.</p>
      ${self.surfaces.every(({ surface }) => surface !== 'peer') && html`
        <${Notice} look="warning" title="This node does not listen for peers">
          <p>Start it with <code>--peer</code> first.</p><//>`}
      <${Choice} label="Valid for" value=${span} onInput=${last} options=${SPANS} />
    <//>`;
}

/** @param {object} props `made` ({token, expires}), `row`, `self`, `onClose`: after that it is nowhere */
function Shown({ made, row, self, onClose }) {
  const command = joining(row, self, made.token);
  return html`
    <${Dialog} title=${`The join token for ${row.name}`}><div>
      <${Notice} look="warning" title="Shown only once">
        <p>The store keeps only a digest of it. Valid until <${Moment} of=${made.expires} />.</p><//>
      <pre tabindex="0" class="token">${made.token}</pre>
      <p class="actions"><${Copy} text=${made.token} label="Copy the token" /></p>
      <h3>On the machine of ${row.name}</h3>
      <p>Run it in an empty directory, with the addresses and files of that machine. The node copies the store, then serves it; run it again to resume.</p>
      <pre tabindex="0" class="command">${command}</pre>
      <p class="actions"><${Copy} text=${command} label="Copy the command" /></p>
      <p class="soft">Or put the token into a private file, and give that file to <code>--join</code>.</p>
      <p class="actions ends"><${Button} look="main" onClick=${onClose}>Done<//></p>
    </div><//>`;
}
