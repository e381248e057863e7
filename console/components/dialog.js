/** A native dialog over the page: it keeps the focus inside, and gives it back when it ends. */
import { html, useId, useLayoutEffect, useRef } from '../vendor/preact.js';

/**
 * @param {object} props `title`; `onClose` (Escape and the cross; without it neither is there);
 *   `wide`; `children`
 */
export function Dialog({ title, onClose, wide = false, children }) {
  const shown = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = shown.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const cancel = (event) => {
    if (event.target !== shown.current) return;
    event.preventDefault();
    onClose?.();
  };
  return html`
    <dialog ref=${shown} class=${wide ? 'wide' : ''} aria-labelledby=${id} onCancel=${cancel}>
      <header>
        <h2 id=${id}>${title}</h2>
        ${onClose && html`<button type="button" class="bare" aria-label="Close" onClick=${onClose}>
          <span aria-hidden="true">×</span>
        </button>`}
      </header>
      ${children}
    </dialog>`;
}
