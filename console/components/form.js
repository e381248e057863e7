/** Parts of forms. */
import { html, useId, useRef, useState } from '../vendor/preact.js';

/**
 * A form that does something with the node; Ctrl or Cmd and Enter submit it from a text of several lines too. While it does, its button is busy; a refusal is thrown to
 * `useDoing`, which shows it.
 * @param {{onSubmit: () => any, children: any, class?: string}} props `onSubmit`: where it answers a promise, nothing is
 *   submitted a second time before that is kept
 */
export function Form({ onSubmit, children, class: named = '' }) {
  const doing = useRef(false);
  const submit = async (event) => {
    event.preventDefault();
    if (doing.current) return; // keys come again while it is done
    doing.current = true;
    try {
      await onSubmit();
    } finally {
      doing.current = false;
    }
  };
  const press = (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.stopPropagation();
    submit(event);
  };
  return html`<form class=${named} onSubmit=${submit} onKeyDown=${press} novalidate>${children}</form>`;
}

/**
 * Something that is done once at a time: `[doing, error, act]`. `act(async () => …)` answers whether
 * it was done; what was thrown is `error` until the next time.
 */
export function useDoing() {
  const [doing, busy] = useState(false);
  const [error, fail] = useState(null);
  const act = async (what) => {
    busy(true);
    fail(null);
    try {
      await what();
      return true;
    } catch (thrown) {
      if (!('code' in thrown)) console.error(thrown);
      fail(thrown);
      return false;
    } finally {
      busy(false);
    }
  };
  return [doing, error, act];
}

/**
 * A labelled input. `value` and `onInput(text)`; what else is given (type, placeholder, autocomplete,
 * required, list …) goes to the input.
 * @param {object} props `label`, `hint`, `wrong` (what is wrong with what stands there)
 */
export function Text({ label, hint, wrong, onInput, type = 'text', ...more }) {
  const id = useId();
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <input id=${id} type=${type} spellcheck=${false} autocomplete="off" aria-describedby=${`${id}-hint`}
        aria-invalid=${wrong ? 'true' : undefined} ...${more}
        onInput=${(event) => onInput(event.target.value)} />
      <p class="hint ${wrong ? 'wrong' : ''}" id=${`${id}-hint`}>${wrong || hint}</p>
    </div>`;
}

/** A labelled text of several lines, as `Text`. */
export function Area({ label, hint, wrong, onInput, ...more }) {
  const id = useId();
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <textarea id=${id} spellcheck=${false} rows="4" aria-describedby=${`${id}-hint`}
        aria-invalid=${wrong ? 'true' : undefined} ...${more}
        onInput=${(event) => onInput(event.target.value)}></textarea>
      <p class="hint ${wrong ? 'wrong' : ''}" id=${`${id}-hint`}>${wrong || hint}</p>
    </div>`;
}

/**
 * One of several. @param {object} props `label`, `hint`, `value`, `onInput(value)`,
 *   `options`: texts, or `[value, text]`
 */
export function Choice({ label, hint, value, options, onInput, ...more }) {
  const id = useId();
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <select id=${id} value=${value} aria-describedby=${`${id}-hint`} ...${more}
        onInput=${(event) => onInput(event.target.value)}>
        ${options.map((option) => {
          const [given, text] = Array.isArray(option) ? option : [option, option];
          return html`<option value=${given} selected=${given === value}>${text}</option>`;
        })}
      </select>
      <p class="hint" id=${`${id}-hint`}>${hint}</p>
    </div>`;
}

/** Yes or no. @param {object} props `label`, `hint`, `value` (boolean), `onInput(boolean)` */
export function Tick({ label, hint, value, onInput, ...more }) {
  const id = useId();
  return html`
    <div class="field tick">
      <input id=${id} type="checkbox" checked=${value} ...${more}
        onInput=${(event) => onInput(event.target.checked)} />
      <label for=${id}>${label}${hint && html` <span class="hint">${hint}</span>`}</label>
    </div>`;
}

/**
 * A button. @param {object} props `look` (main, danger, bare, or nothing), `busy` (it works: pressed
 *   again it does nothing), `onClick`, `submit` (of its form), `children`
 */
export function Button({ look = '', busy = false, submit = false, children, onClick, ...more }) {
  return html`
    <button type=${submit ? 'submit' : 'button'} class=${look} aria-busy=${busy} ...${more}
      onClick=${(event) => (busy ? event.preventDefault() : onClick?.(event))}>${children}</button>`;
}
