/** A new password, typed twice. */
import { Text } from '../../components/form.js';
import { html, useState } from '../../vendor/preact.js';

/** @param {object} props `onInput(password)`: '' until both are the same; `hint`; what else an input takes */
export function NewPassword({ onInput, hint = '8 to 1024 characters', ...more }) {
  const [first, type] = useState('');
  const [again, repeat] = useState('');
  const both = (one, two) => onInput(one === two ? one : '');
  return html`
    <${Text} label="New password" type="password" autocomplete="new-password" value=${first} hint=${hint} ...${more}
      onInput=${(text) => { type(text); both(text, again); }} />
    <${Text} label="Repeat new password" type="password" autocomplete="new-password" value=${again}
      wrong=${again !== '' && again !== first && 'The two differ'}
      onInput=${(text) => { repeat(text); both(first, text); }} />`;
}
