/** A join token for a row that waits: shown once, kept nowhere. */
import { Copy } from '../../components/copy.js';
import { Dialog } from '../../components/dialog.js';
import { Button, Choice } from '../../components/form.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { Value } from '../../components/value.js';
import { createToken } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';

const SPANS = [['10m', 'ten minutes'], ['1h', 'an hour'], ['6h', 'six hours'], ['24h', 'a day']];

/** @param {object} props `row`, `onDone({token, expires})`, `onClose` */
export function Token({ row, onDone, onClose }) {
  const [span, last] = useState('1h');
  return html`
    <${Perform} title=${`A join token for ${row.name}`} statement=${createToken(row.name, span)} act="Make it" reasoned
      onDone=${onDone} onClose=${onClose}>
      <p>Whoever brings it becomes this row's node, once nodes attach. It opens once; a new one ends the one before.</p>
      <${Choice} label="It lasts" value=${span} onInput=${last} options=${SPANS} />
    <//>`;
}

/** @param {object} props `made` ({token, expires}), `row`, `onClose`: after that it is nowhere */
export const Shown = ({ made, row, onClose }) => html`
  <${Dialog} title=${`The join token for ${row.name}`} onClose=${onClose}>
    <${Notice} look="warning" title="It is shown once">
      <p>The store keeps a digest of it, and the statement log the statement alone. Until <${Value} of=${made.expires} />.</p><//>
    <pre tabindex="0" class="token">${made.token}</pre>
    <p class="actions"><${Copy} text=${made.token} label="Copy the token" /><${Button} look="main" onClick=${onClose}>I have it<//></p>
  <//>`;
