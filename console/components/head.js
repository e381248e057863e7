/** The head of a tab: its name, what it is for in a sentence, and when what it shows was read. */
import { html } from '../vendor/preact.js';
import { Ago } from './ago.js';

/** Where a page of docs/ is, among the console's own files. @param {string} page such as `topics.md#groups` */
export const docs = (page) => new URL(`../docs/${page.replace('.md', '.html')}`, import.meta.url).href;

/**
 * @param {object} props `tab` (of tabs/all.js), `title` (where it is not the tab's), `asked` (of `useQuery`: when
 *   it was read, and a button to read it anew), `children` (actions)
 */
export function Head({ tab, title = tab.title, asked, children }) {
  return html`
    <header class="head">
      <div>
        <h1><bdi>${title}</bdi></h1>
        <p class="about">${tab.about} <a href=${docs(tab.page)} target="_blank" rel="noopener">Documentation</a></p>
      </div>
      <div class="actions">
        ${asked && html`<${Ago} at=${asked.at} />
          <button type="button" onClick=${asked.again} aria-busy=${asked.loading}>Refresh</button>`}
        ${children}
      </div>
    </header>`;
}
