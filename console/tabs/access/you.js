/** The one who is signed in: what it may do, and its password. */
import { link } from '../../address.js';
import { Ago } from '../../components/ago.js';
import { Button, Form, Text, useDoing } from '../../components/form.js';
import { Answer, Notice, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import * as node from '../../node.js';
import { useQuery, useShared } from '../../state.js';
import { info } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';
import { NewPassword } from './password.js';
import { BRINGS } from './rights.js';
import { May, Why } from './why.js';

const SHOWN = { method: 'POST', path: '/password', body: { old: '...', new: '...' } };

export function You() {
  const { who } = useShared();
  const asked = useQuery((signal) => node.run(info.grants(), { signal }), [who?.name]);
  if (!who) return null;
  return html`
    <div class="columns">
      <section class="card stack">
        <h2><bdi>${who.name}</bdi> <span class="chip">${who.role}</span></h2>
        <p>Inside ${who.space ? html`<bdi>${who.space}</bdi>` : 'the whole store'}: ${BRINGS[who.role] ?? ''}.
          <span class="soft"> <a href=${link('access', ['statements'], { of: who.name })}>Your activity</a></span></p>
        <${Answer} asked=${asked} what="your grants">${(held) => html`
          <p class="actions"><${Ago} at=${asked.at} /></p><${Why} held=${held} /><${May} held=${held} />`}<//>
      </section>
      <${Own} />
    </div>`;
}

function Own() {
  const [old, typeOld] = useState('');
  const [password, type] = useState('');
  const [round, anew] = useState(0);
  const [done, say] = useState(false);
  const [doing, error, act] = useDoing();
  const whole = old !== '' && password !== '';
  const submit = async () => {
    if (!whole) return;
    say(false);
    if (!await act(() => node.request('POST', '/password', { body: { old, new: password } }))) return;
    typeOld('');
    type('');
    anew(round + 1);
    say(true);
  };
  return html`
    <section class="card stack">
      <h2>Your password</h2>
      <${Form} onSubmit=${submit}>
        <${Text} label="Current password" type="password" autocomplete="current-password" value=${old} onInput=${typeOld} />
        <${NewPassword} key=${round} onInput=${type} hint="8 to 1024 characters. Your other sessions end." />
        <${Composed} of=${SHOWN} />
        ${error && html`<${Refused} error=${error} />`}
        ${done && html`<${Notice} look="well" title="Password changed" />`}
        <p class="actions"><${Button} look="main" submit busy=${doing} disabled=${!whole}>Change password<//></p>
      <//>
    </section>`;
}
