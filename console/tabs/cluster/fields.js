/** The fields of a row, for one that is added or amended, and for those of a whole cluster. */
import { Area, Choice, Text, Tick } from '../../components/form.js';
import { isName } from '../../statements.js';
import { html } from '../../vendor/preact.js';

export const ROLES = ['serving', 'writable', 'coordinating'];
const BY = [['', 'no node yet: waiting for a join token'], ['node', 'id of the node'], ['certificate', 'fingerprint of its certificate']];

/** @typedef {{name: string, peer: string, endpoints: string, by: string, id: string, roles: ?string[], comment: string}} Draft */

/** @returns {Draft} */
export const blank = () => ({ name: '', peer: '', endpoints: '', by: '', id: '', roles: ['serving'], comment: '' });

export const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);

/** Whether a draft says what a row needs. @param {Draft} draft */
export const isWhole = (draft) => isName(draft.name) && draft.peer.trim() !== '' && (draft.by === '' || draft.id.trim() !== '');

/** What a draft declares, for `defineReplica`. @param {Draft} draft */
export const meant = ({ name, peer, endpoints, by, id, roles, comment }) => ({
  name, peer: peer.trim(), endpoints: lines(endpoints), [by || 'nobody']: id.trim(), roles, comment,
});

/** @param {object} props `draft`, `onInput(draft)`, `named` (the name can be typed) */
export function Fields({ draft, onInput, named = true }) {
  const put = (field) => (value) => onInput({ ...draft, [field]: value });
  return html`
    ${named && html`<${Text} label="Name" value=${draft.name} onInput=${put('name')}
      wrong=${draft.name !== '' && !isName(draft.name) && 'Letters, digits, _ and -, at most 64, no digit first'} />`}
    <${Text} label="Address for peers" value=${draft.peer} onInput=${put('peer')} placeholder="n2.example:8002" />
    <${Area} label="Addresses for clients" rows="2" value=${draft.endpoints} onInput=${put('endpoints')}
      hint="One address per line" placeholder="n2.example:8001" />
    ${named && html`<${Choice} label="Known by" value=${draft.by} onInput=${put('by')} options=${BY} />
      ${draft.by && html`<${Text} label=${draft.by === 'node' ? 'Its id' : 'Fingerprint'} value=${draft.id} onInput=${put('id')}
        hint=${draft.by === 'node' ? 'As in its INFO FOR NODE' : 'SHA-256: 64 hexadecimal digits, with colons or without'} />`}`}
    <${Ticks} roles=${draft.roles} onInput=${put('roles')} />
    ${named && html`<${Text} label="Comment" value=${draft.comment} onInput=${put('comment')} />`}`;
}

const Ticks = ({ roles, onInput }) => html`
  <fieldset class="stack"><legend>Roles</legend>
    ${ROLES.map((role) => html`<${Tick} label=${role} value=${roles?.includes(role) ?? false}
      onInput=${(to) => onInput(ROLES.filter((one) => (one === role ? to : roles?.includes(one))))} />`)}
    ${!roles?.length && html`<p class="hint">${roles === null ? 'No roles are declared.' : 'ROLES NONE: the node is drained.'}</p>`}
  </fieldset>`;
