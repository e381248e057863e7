/** What is typed or shown and must not stay: passphrases and values. */
import { Text } from '../../components/form.js';
import { useShared } from '../../state.js';
import { html, useEffect, useState } from '../../vendor/preact.js';

/**
 * A secret that is typed: `[text, put, forget]`. It is forgotten when the page is left.
 * @returns {[string, (text: string) => void, () => void]}
 */
export function useSecret() {
  const [text, put] = useState('');
  const forget = () => put('');
  useEffect(() => {
    addEventListener('pagehide', forget);
    return () => removeEventListener('pagehide', forget);
  }, []);
  return [text, put, forget];
}

/** Calls `hide` when nobody looks at the page any more, or the session has ended. */
export function useHidden(hide) {
  const { ended } = useShared();
  useEffect(() => {
    if (ended) hide();
  }, [ended]);
  useEffect(() => {
    const look = () => document.visibilityState === 'hidden' && hide();
    document.addEventListener('visibilitychange', look);
    return () => document.removeEventListener('visibilitychange', look);
  }, []);
}

/** A passphrase. @param {object} props as `Text` */
export const Passphrase = (props) => html`<${Text} type="password" autocapitalize="off" maxlength="1024" ...${props} />`;
