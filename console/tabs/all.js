/**
 * All tabs, in their order. The scripts of each come when it is first opened, or before, when the page has nothing
 * else to do: from then on a page that stays open needs nothing of a node that may have another version.
 *
 * @typedef {object} Tab
 * @property {string} name first segment of its addresses
 * @property {string} title
 * @property {string} about what it is for, in one sentence
 * @property {string} page its page of docs/
 * @property {boolean} [placed] whether its addresses begin with a namespace and a database
 * @property {() => Promise<{view: View}>} load
 * @typedef {(props: {tab: Tab, place: ?{ns: string, db: string}, parts: string[], query: object}) => any} View
 *   `parts`: the address behind the tab, and behind the place where it is `placed`
 */

import { read } from '../address.js';

/** @type {Tab[]} */
export const TABS = [
  {
    name: 'run',
    title: 'Run',
    about: 'Write scripts, run them, read their results.',
    page: 'statements.md',
    placed: true,
    load: () => import('./run.js'),
  },
  {
    name: 'topics',
    title: 'Topics',
    about: 'Message queues, their readers and groups, and their lag.',
    page: 'topics.md',
    placed: true,
    load: () => import('./topics.js'),
  },
  {
    name: 'cluster',
    title: 'Cluster',
    about: 'Nodes of this store, the leader, and the status of each replica.',
    page: 'cluster.md',
    load: () => import('./cluster.js'),
  },
  {
    name: 'access',
    title: 'Access',
    about: 'Users, grants, the statement log and the audit trail.',
    page: 'access.md',
    load: () => import('./access.js'),
  },
  {
    name: 'node',
    title: 'This node',
    about: 'Status, storage and running statements of this node.',
    page: 'operations.md',
    load: () => import('./node.js'),
  },
  {
    name: 'backup',
    title: 'Backup',
    about: 'Take backups while the node serves, verify them, restore databases from a script.',
    page: 'backup.md',
    load: () => import('./backup.js'),
  },
  {
    name: 'vault',
    title: 'Vault',
    about: 'Secrets that open only while their vault is unsealed; every access is recorded.',
    page: 'vaults.md',
    placed: true,
    load: () => import('./vault.js'),
  },
];

/** @type {Map<Tab, View>} those that are here */
export const VIEWS = new Map();

/** Have a tab's scripts come. @param {Tab} tab */
export async function load(tab) {
  const { view } = await tab.load();
  VIEWS.set(tab, view);
}

const LIBRARIES = [
  () => import('../vendor/codemirror.js'), async () => (await import('../components/plot.js')).library(),
];

/** Have everything come that did not yet, one after the other: first what the address is of. */
export async function ahead() {
  const wanted = read().tab;
  const tabs = [...TABS].sort((one, two) => (two.name === wanted) - (one.name === wanted));
  try {
    for (const tab of tabs) await load(tab);
    for (const library of LIBRARIES) await library();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // it does not come: whoever opens what needs it is told
  }
}
