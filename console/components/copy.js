/** Copying, saving: what leaves the page goes to the person's own machine only. */
import { html, useState } from '../vendor/preact.js';

/** Put a text on the clipboard; a clear connection has only the old way. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  const over = document.querySelector('dialog[open]:last-of-type') ?? document.body;
  over.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  return undefined;
}

/** @param {{text: string | (() => string), label?: string}} props */
export function Copy({ text, label = 'Copy' }) {
  const [said, say] = useState('');
  const press = async () => {
    try {
      await copy(typeof text === 'function' ? text() : text);
      say('Copied');
    } catch {
      say('The browser does not allow it');
    }
    setTimeout(() => say(''), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${press}>
    ${said || label}<span class="unseen" role="status">${said}</span></button>`;
}

/** Save bytes or a text as a file. @param {string} name @param {BlobPart} content @param {string} type */
export function save(name, content, type) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
