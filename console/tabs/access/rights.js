/**
 * What the words of rights mean: the table of docs/access.md, and which right covers what. The node
 * judges; this says why it will judge so, from what INFO FOR GRANTS tells.
 *
 * @typedef {{on: string, verbs: string[], from: string}} Held as INFO FOR GRANTS tells it
 */

export const VERBS = ['READ', 'WRITE', 'CONSUME', 'DEFINE', 'INFO', 'UNSEAL'];
export const ROLES = ['owner', 'editor', 'viewer', 'member'];

/** What a role means inside its user's space. */
export const BRINGS = {
  owner: 'everything, including users, grants and vaults',
  editor: 'reads, writes, consumes and defines everything except vaults',
  viewer: 'reads everything except vaults',
  member: 'only what is granted to it',
};

const PLACE = ['READ', 'WRITE', 'CONSUME', 'DEFINE', 'INFO'];
const VAULT = ['READ', 'WRITE', 'INFO', 'UNSEAL'];

/** Which verbs mean something on which kind of securable, and of how many names it is at least and at most. */
export const KINDS = {
  NODE: { verbs: ['INFO', 'UNSEAL'], names: [0, 0] },
  NAMESPACE: { verbs: PLACE, names: [1, 1] },
  DATABASE: { verbs: PLACE, names: [2, 2] },
  TABLE: { verbs: ['READ', 'WRITE', 'DEFINE', 'INFO'], names: [3, 3] },
  TOPIC: { verbs: PLACE, names: [3, 3] },
  SPACE: { verbs: ['READ', 'WRITE', 'INFO'], names: [3, 3] },
  VAULT: { verbs: VAULT, names: [3, 3] },
  'ALL VAULTS IN': { verbs: VAULT, names: [1, 2] },
};

/** The kind and the names of a securable as the node writes it. @param {string} securable `TABLE shop.main.item` */
export function parted(securable) {
  const at = securable.lastIndexOf(' ');
  if (at < 0) return { kind: securable, names: [] };
  return { kind: securable.slice(0, at), names: securable.slice(at + 1).split('.') };
}

/** Whether a verb means something on a securable. */
export const means = (securable, verb) => KINDS[parted(securable).kind]?.verbs.includes(verb) ?? false;

const within = (names, around) => around.every((name, at) => name === names[at]);
const isVault = (kind) => kind === 'VAULT' || kind === 'ALL VAULTS IN';

/** Whether what is held reaches a securable. @param {Held} held @param {string} securable */
export function covers(held, securable) {
  const { kind, names } = parted(securable);
  const on = parted(held.on);
  if (held.from.startsWith('role ')) {
    if (isVault(kind) && held.from !== 'role owner') return false;
    if (on.kind === 'STORE') return true;
    return kind !== 'NODE' && within(names, on.names);
  }
  if (on.kind === 'ALL VAULTS IN' && kind === 'VAULT') return within(names, on.names);
  if (on.kind === 'NAMESPACE' || on.kind === 'DATABASE') return !isVault(kind) && kind !== 'NODE' && within(names, on.names);
  return held.on === securable;
}

/**
 * Why a user may do something: each right that lets it, in words. Empty: it may not.
 * @param {Held[]} all @param {string} securable @param {string} verb
 */
export const reasons = (all, securable, verb) => (means(securable, verb)
  ? all.filter((held) => held.verbs.includes(verb) && covers(held, securable)).map(told) : []);

/** One right in words. @param {Held} held */
export function told(held) {
  if (!held.from.startsWith('role ')) return `granted on ${held.on}`;
  return `its ${held.from}${held.on === 'STORE' ? ', of the whole store' : ` of ${held.on}`}`;
}
