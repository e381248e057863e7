/** One user: what it is, what it may do and why, and what can be changed of it. */
import { go, link } from '../../address.js';
import { Ago } from '../../components/ago.js';
import { Confirm } from '../../components/confirm.js';
import { Dialog } from '../../components/dialog.js';
import { Button, Choice, Form, Text, useDoing } from '../../components/form.js';
import { Answer, Empty, Refused } from '../../components/notices.js';
import { Composed } from '../../components/statement.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useAsked } from '../../state.js';
import { alterPassword, alterRole, dropUser, info, isName, together } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';
import { Grants } from './grants.js';
import { BRINGS, ROLES } from './rights.js';

const read = async (user, signal) => {
  const both = together(info.user(user), info.grants(user));
  const { results } = await node.script(both.text, { signal });
  return { user: results[0].value, held: results[1].value };
};

export function OneUser({ user, place }) {
  const [open, see] = useState(null);
  const asked = useAsked(isName(user) ? (signal) => read(user, signal) : null, [user]);
  if (!isName(user)) {
    return html`<${Empty} title="That is no name of a user"><p><a href=${link('access')}>All users</a></p><//>`;
  }
  const close = () => see(null);
  const done = () => {
    close();
    asked.again();
  };
  return html`
    <${Answer} asked=${asked} what="the user">
      ${({ user: found, held }) => html`
        <div class="head">
          <h2><bdi>${found.name}</bdi> <span class="chip">${found.role}</span></h2>
          <p class="actions"><${Ago} at=${asked.at} />
            <${Button} onClick=${asked.again} busy=${asked.loading}>Read again<//>
            <${Button} onClick=${() => see('role')}>Change role<//>
            <${Button} onClick=${() => see('password')}>Set password<//>
            <${Button} look="danger" onClick=${() => see('remove')}>Remove<//></p>
        </div>
        <dl class="pairs card">
          <dt>Belongs to</dt><dd>${found.space ? html`<bdi>${found.space}</bdi>` : 'the whole store'}
            <span class="soft"> (can't be altered)</span></dd>
          <dt>Role</dt><dd>${found.role}: ${BRINGS[found.role] ?? ''}</dd>
          <dt>Comment</dt><dd>${found.comment === null ? html`<span class="soft">none</span>`
            : html`<${Value} of=${found.comment} name="Comment" />`}</dd>
          <dt>Made</dt><dd><${Value} of=${found.created} /></dd>
          <dt>What it did</dt><dd><a href=${link('access', ['statements'], { of: found.name })}>statement log</a>,${' '}
            <a href=${link('access', ['audit'], { of: found.name })}>audit trail</a></dd>
        </dl>
        <${Grants} user=${found.name} held=${held} place=${place} onDone=${asked.again} />
        ${open === 'role' && html`<${Role} user=${found} onClose=${close} onDone=${done} />`}
        ${open === 'password' && html`<${Password} user=${found} onClose=${close} onDone=${done} />`}
        ${open === 'remove' && html`
          <${Confirm} title=${`Remove the user ${found.name}`} name=${found.name} called="name" twice act="Remove"
            statement=${dropUser(found.name)} onClose=${close} onDone=${() => go(link('access'))}>
            <p>Its sessions end and what is granted to it goes with it. What it wrote stays.</p>
          <//>`}`}
    <//>`;
}

function Role({ user, onClose, onDone }) {
  const [role, choose] = useState(user.role);
  const [reason, explain] = useState('');
  const [doing, error, act] = useDoing();
  const altered = alterRole(user.name, role);
  const submit = async () => {
    if (await act(() => node.run(altered, { reason: reason.trim() || undefined }))) onDone();
  };
  return html`
    <${Dialog} title="Change role" onClose=${onClose}>
      <${Form} onSubmit=${submit}>
        <${Choice} label="Role" value=${role} onInput=${choose} options=${ROLES} autofocus
          hint=${`Inside ${user.space ?? 'the whole store'}: ${BRINGS[role]}. Its sessions end.`} />
        <${Text} label="Reason" hint="Kept in the statement log." value=${reason} onInput=${explain} maxlength="1000" />
        <${Composed} of=${altered} reason=${reason.trim()} />
        ${error && html`<${Refused} error=${error} />`}
        <p class="actions"><${Button} onClick=${onClose}>Leave it<//>
          <${Button} look="main" submit busy=${doing} disabled=${role === user.role}>Change it<//></p>
      <//>
    <//>`;
}

function Password({ user, onClose, onDone }) {
  const [password, type] = useState('');
  const [again, repeat] = useState('');
  const [doing, error, act] = useDoing();
  const altered = alterPassword(user.name, password);
  const whole = password !== '' && password === again;
  const submit = async () => {
    if (whole && await act(() => node.run(altered))) onDone();
  };
  return html`
    <${Dialog} title="Set password" onClose=${onClose}>
      <${Form} onSubmit=${submit}>
        <p>All sessions of <bdi>${user.name}</bdi> end.</p>
        <${Text} label="New password" type="password" autocomplete="new-password" value=${password} onInput=${type}
          hint="8 to 1024 characters" autofocus />
        <${Text} label="New password once more" type="password" autocomplete="new-password" value=${again}
          onInput=${repeat} wrong=${again !== '' && again !== password && 'It is not the same'} />
        <${Composed} of=${altered} />
        ${error && html`<${Refused} error=${error} />`}
        <p class="actions"><${Button} onClick=${onClose}>Leave it<//>
          <${Button} look="main" submit busy=${doing} disabled=${!whole}>Set it<//></p>
      <//>
    <//>`;
}
