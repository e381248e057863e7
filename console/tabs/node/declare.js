/** What is declared of this node: its roles (none: drained), endpoints, origins. */
import { Area, Tick } from '../../components/form.js';
import { Notice } from '../../components/notices.js';
import { Perform } from '../../components/perform.js';
import { look } from '../../state.js';
import { defineNode } from '../../statements.js';
import { html, useState } from '../../vendor/preact.js';

const ROLES = {
  serving: 'accepts traffic: /ready returns 200',
  writable: 'takes changes',
  coordinating: 'may become the leader of its cluster; no effect on a single node',
};

/** What is the same of all of them. A node that takes no changes keeps no reason. */
const declared = (onDone, onClose, kept = true) => ({
  reasoned: kept, onClose, onDone: () => {
    onDone();
    look();
  },
});

/** The roles of a node by INFO FOR NODE. One that was told none itself may take the lead by those of its row. */
export const rolesOf = ({ roles, coordinates }) => (coordinates && !roles.includes('coordinating') ? [...roles, 'coordinating'] : roles);

/** @param {object} props `roles` that it has, `chosen` to begin with, `title`, `onDone`, `onClose` */
export function Roles({ roles, chosen = roles, title = 'Roles of this node', onDone, onClose }) {
  const [ticked, tick] = useState(chosen);
  const wanted = Object.keys(ROLES).filter((role) => ticked.includes(role));
  const same = wanted.length === roles.length && wanted.every((role) => roles.includes(role));
  const drains = wanted.length === 0;
  return html`
    <${Perform} title=${title} statement=${same ? null : defineNode({ roles: wanted })} act=${drains ? 'Drain it' : 'Declare'}
      look=${drains ? 'danger' : 'main'} ...${declared(onDone, onClose, wanted.includes('writable'))}>
      ${Object.entries(ROLES).map(([role, about]) => html`<${Tick} label=${role} hint=${about} value=${ticked.includes(role)}
        onInput=${(to) => tick(to ? [...ticked, role] : ticked.filter((one) => one !== role))} />`)}
      ${drains && html`<${Notice} look="warning" title="This drains the node">
        <p>It keeps its data and serves no clients, on either surface, until it has a role again. This page can assign one.</p><//>`}
      ${roles.includes('coordinating') && !wanted.includes('coordinating') && html`
        <p>It can no longer become the leader, whatever its row says.</p>`}
      ${!wanted.includes('writable') && html`<p class="soft">A node that is not writable logs no entry of this change.</p>`}
    <//>`;
}

const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);
const alike = (one, two) => one.length === two.length && one.every((item, at) => item === two[at]);

/** @param {object} props `endpoints`, `origins`, `onDone`, `onClose` */
export function Addresses({ endpoints, origins, onDone, onClose }) {
  const [typed, type] = useState(endpoints.join('\n'));
  const [from, allow] = useState(origins.join('\n'));
  const emptied = endpoints.length > 0 && lines(typed).length === 0;
  const changed = {
    ...(alike(lines(typed), endpoints) ? {} : { endpoints: lines(typed) }),
    ...(alike(lines(from), origins) ? {} : { origins: lines(from) }),
  };
  const statement = emptied || !Object.keys(changed).length ? null : defineNode(changed);
  return html`
    <${Perform} title="Endpoints and origins" statement=${statement} act="Declare" ...${declared(onDone, onClose)}>
      <${Area} label="Endpoints" value=${typed} onInput=${type} hint="Addresses for clients, one per line: db1.example:8001"
        wrong=${emptied && 'At least one: the last one can\'t be removed'} />
      <${Area} label="Origins" value=${from} onInput=${allow}
        hint="Origins of web pages that may send requests, one per line: https://app.example. Empty: none." />
    <//>`;
}
