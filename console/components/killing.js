/** How something that runs is ended, wherever it is seen. */
import * as node from '../node.js';
import { kill } from '../statements.js';
import { html } from '../vendor/preact.js';
import { Perform } from './perform.js';

/** @param {object} props `row` (of INFO FOR RUNNING), `title`, `onDone`, `onClose`; `children`: what ends with it */
export const Killing = ({ row, title = 'End a running script', onDone, onClose, children }) => html`
  <${Perform} title=${title} statement=${kill(row.id)} act="End" look="danger" reasoned onDone=${onDone} onClose=${onClose}
    run=${(reason) => node.run(kill(row.id), { reason, record: true })}>
    ${children ?? html`<p>It ends with <code>Cancelled</code> at its next slice. Its open transaction is rolled back; what it has
      committed stays.</p>`}
    <pre tabindex="0"><bdi>${(row.text ?? '').slice(0, 2000)}</bdi></pre>
  <//>`;
