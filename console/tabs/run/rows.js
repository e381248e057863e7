/** Rows from a file of this computer, as the parameter $rows of a script. */
import { html, useId, useState } from '../../vendor/preact.js';

/** A parameter is kept as text in the page: beyond this the command's import is the better way. */
const MOST_BYTES = 8 * 2 ** 20;

/**
 * The parameters that a file stands for: `rows` is its array, its one value, or the values of its lines. What
 * stands in them stays as it was written, so that no number loses a digit.
 * @param {string} text @throws {SyntaxError} it is neither
 */
export function parameters(text) {
  const whole = text.trim();
  try {
    JSON.parse(whole);
    return `{"rows": ${whole.startsWith('[') ? whole : `[${whole}]`}}`;
  } catch (error) {
    const lines = whole.split('\n').filter((line) => line.trim());
    if (lines.length < 2) throw error;
    for (const line of lines) JSON.parse(line);
    return `{"rows": [${lines.join(',\n')}]}`;
  }
}

/** @param {{onRead: (params: string) => void}} props */
export function Rows({ onRead }) {
  const id = useId();
  const [wrong, say] = useState('');
  const read = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    try {
      if (file.size > MOST_BYTES) throw new RangeError('More than 8 MiB: use storenode import');
      onRead(parameters(await file.text()));
      say('');
    } catch (error) {
      say(error.message);
    }
  };
  return html`
    <div class="field">
      <label for=${id}>Rows from a file</label>
      <input id=${id} type="file" accept=".json,.jsonl,.ndjson" aria-describedby=${`${id}-hint`} onChange=${read}
        aria-invalid=${wrong ? 'true' : undefined} />
      <p class="hint ${wrong ? 'wrong' : ''}" id=${`${id}-hint`}>${wrong
        || 'JSON, or one value per line: $rows of INSERT INTO a_table $rows.'}</p>
    </div>`;
}
