/** One user: what it is, what it may do and why, and what can be changed of it. */
import { go, link } from '../../address.js';
import { Ago, Moment } from '../../components/ago.js';
import { Confirm } from '../../components/confirm.js';
import { Button, Choice } from '../../components/form.js';
import { Answer, Empty } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { Value } from '../../components/value.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { alterPassword, alterRole, dropUser, info, isName, together } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';
import { Grants } from './grants.js';
import { NewPassword } from './password.js';
import { BRINGS, ROLES } from './rights.js';

const read = async (user, signal) => {
  const both = together(info.user(user), info.grants(user));
  const { results } = await node.script(both.text, { signal });
  return { user: results[0].value, held: results[1].value };
};

export function OneUser({ user, place }) {
  const [open, see] = useState(null);
  const asked = useQuery(isName(user) ? (signal) => read(user, signal) : null, [user]);
  if (!isName(user)) {
    return html`<${Empty} title="Not a user name"><p><a href=${link('access')}>All users</a></p><//>`;
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
            <${Button} onClick=${asked.again} busy=${asked.loading}>Refresh<//>
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
          <dt>Made</dt><dd><${Moment} of=${found.created} /></dd>
          <dt>Activity</dt><dd><a href=${link('access', ['statements'], { of: found.name })}>statement log</a>,${' '}
            <a href=${link('access', ['audit'], { of: found.name })}>audit trail</a></dd>
        </dl>
        <${Grants} user=${found.name} held=${held} place=${place} onDone=${asked.again} />
        ${open === 'role' && html`<${Role} user=${found} onClose=${close} onDone=${done} />`}
        ${open === 'password' && html`<${Password} user=${found} onClose=${close} onDone=${done} />`}
        ${open === 'remove' && html`
          <${Confirm} title=${`Remove the user ${found.name}`} name=${found.name} called="name" twice act="Remove"
            statement=${dropUser(found.name)} onClose=${close} onDone=${() => go(link('access'))}>
            <p>Its sessions end and its grants are removed. Its data stays.</p>
          <//>`}`}
    <//>`;
}

function Role({ user, onClose, onDone }) {
  const [role, choose] = useState(user.role);
  return html`
    <${Perform} title="Change role" statement=${role === user.role ? null : alterRole(user.name, role)} act="Save" reasoned
      onDone=${onDone} onClose=${onClose}>
      <${Choice} label="Role" value=${role} onInput=${choose} options=${ROLES} autofocus
        hint=${`Inside ${user.space ?? 'the whole store'}: ${BRINGS[role]}. Its sessions end.`} />
    <//>`;
}

function Password({ user, onClose, onDone }) {
  const [password, take] = useState('');
  return html`
    <${Perform} title="Set password" statement=${password ? alterPassword(user.name, password) : null} act="Set"
      onDone=${onDone} onClose=${onClose}>
      <p>All sessions of <bdi>${user.name}</bdi> end.</p>
      <${NewPassword} onInput=${take} autofocus />
    <//>`;
}
