/** Where the page begins. */
import { Shell } from './components/shell.js';
import { begin } from './state.js';
import { ahead } from './tabs/all.js';
import { html, render } from './vendor/preact.js';

begin();
const root = document.getElementById('page');
root.replaceChildren();
render(html`<${Shell} />`, root);
if (window.requestIdleCallback) requestIdleCallback(ahead, { timeout: 2000 });
else setTimeout(ahead, 500);
