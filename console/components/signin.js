/** Signing in: a page of its own, or over the page where a session has ended. */
import * as node from '../node.js';
import { isClear, useShared } from '../state.js';
import { html, useState } from '../vendor/preact.js';
import { Copy } from './copy.js';
import { Dialog } from './dialog.js';
import { Button, Form, Text, Tick, useDoing } from './form.js';
import { Notice, Refused } from './notices.js';

const first = () => `curl -u root ${location.origin}/script -H 'Content-Type: text/plain' --data-binary "
  DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main;
  USE shop.main; DEFINE TABLE IF NOT EXISTS person;
  UPSERT person:ana SET name = 'Ana', age = 31;
  SELECT * FROM person WHERE age > 30"`;

function Fields({ named = '' }) {
  const [user, call] = useState(named);
  const [password, type] = useState('');
  const [keep, tick] = useState(false);
  const [doing, error, attempt] = useDoing();
  const submit = async () => {
    await attempt(() => node.signIn(user, password, { keep }));
    type('');
  };
  return html`
    <${Form} onSubmit=${submit} class="signin">
      <${Text} label="User" name="username" autocomplete="username" value=${user} onInput=${call}
        autocapitalize="none" autofocus=${!named} />
      <${Text} label="Password" name="password" type="password" autocomplete="current-password"
        value=${password} onInput=${type} autofocus=${Boolean(named)} />
      <${Tick} label="Stay signed in while this browser tab is open" value=${keep} onInput=${tick} />
      ${error && html`<${Refused} error=${error} />`}
      <p class="actions"><${Button} look="main" submit busy=${doing}>Sign in<//></p>
    <//>`;
}

/** The page of somebody who has not signed in. */
export function SignIn() {
  const { condition } = useShared();
  return html`
    <main class="entrance" id="main">
      <h1>storenode <span class="soft">${condition?.health.version ?? ''}</span></h1>
      ${isClear() && html`<${Clear} />`}
      <section class="card"><${Fields} /></section>
      <details>
        <summary>First statements, without this page</summary>
        <pre tabindex="0">${first()}</pre>
        <p class="actions"><${Copy} text=${first} /></p>
        <p>curl asks for the password of <code>root</code>, the owner that the first start names.
          Every route: <a href="/openapi.json">/openapi.json</a>. Status: <a href="/health">/health</a>,${' '}
          <a href="/ready">/ready</a>, <a href="/metrics">/metrics</a>.</p>
      </details>
    </main>`;
}

/** Over the page, whose contents stay as they are. @param {{onLater: () => void}} props */
export function SignInAgain({ onLater }) {
  const { who } = useShared();
  return html`
    <${Dialog} title="Sign in again" onClose=${onLater}>
      <p>The session has ended. Your input is kept.</p>
      <${Fields} named=${who?.name} />
    <//>`;
}

/** What stands on every page that came over a clear connection from another machine. */
export function Clear() {
  return html`
    <${Notice} look="warning" title="This connection is not encrypted">
      <p>Others on the network can read what you send, including passwords. Give the node a certificate, or reach it
        through a tunnel.</p>
    <//>`;
}
