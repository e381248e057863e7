/**
 * All tabs, in their order.
 *
 * @typedef {object} Tab
 * @property {string} name first segment of its addresses
 * @property {string} title
 * @property {string} about what it is for, in one sentence
 * @property {string} page its page of docs/
 * @property {boolean} [placed] whether its addresses begin with a namespace and a database
 * @property {(props: {tab: Tab, place: ?{ns: string, db: string}, parts: string[], query: object}) => any} view
 *   `parts`: the address behind the tab, and behind the place where it is `placed`
 */
import { access } from './access.js';
import { backup } from './backup.js';
import { cluster } from './cluster.js';
import { run } from './run.js';
import { thisNode } from './node.js';
import { topics } from './topics.js';
import { vault } from './vault.js';

/** @type {Tab[]} */
export const TABS = [run, topics, cluster, access, thisNode, backup, vault];
