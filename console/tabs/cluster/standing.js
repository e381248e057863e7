/** What this node knows of each node of the cluster: its row, how it stands, and its certificates, beside each other. */
import { microseconds } from '../../values.js';

const SECOND_US = 1_000_000;
/** Who was heard of so lately is not said to be silent. */
const LATELY_US = 3 * SECOND_US;
const LOST_US = 10 * SECOND_US;
const TAKES = ['alone', 'founding', 'leading'];

/**
 * @typedef {object} Seen
 * @property {object} self INFO FOR NODE
 * @property {object} cluster INFO FOR CLUSTER; of nothing, where it is not told
 * @property {string} untold why it is not
 * @property {boolean} takes whether this node may take changes, by its cluster
 * @property {boolean} inForce whether a failover policy is in force here
 * @property {?object} led the row of who leads, as far as is known here
 * @property {boolean} lost whether who leads is not heard of
 * @property {Member[]} nodes one for each row, in the order of the rows; this node first where it has none
 *
 * @typedef {object} Member
 * @property {?object} row
 * @property {string} name
 * @property {boolean} isSelf
 * @property {object[]} certificates of `trusted`
 * @property {{word: string, look: string, says: string}} standing a word for a chip, and a sentence
 */

const NOTHING = { member: null, replicas: [], trusted: [], revoked: [], failover: null };

/** @param {{self: object, cluster: ?object, untold?: string}} read `cluster` null: the node tells of itself alone, and why @returns {Seen} */
export function seen({ self, cluster: told, untold = '' }) {
  const cluster = told ?? NOTHING;
  const { replicas: rows, member } = cluster;
  const led = rows.find(({ node }) => node !== null && node === self.leader) ?? null;
  const lost = self.upstream !== null && isLost(self);
  const nodes = rows.map((row) => ({
    row, name: row.name, isSelf: row.name === member, certificates: cluster.trusted.filter(({ replica }) => replica === row.name),
    standing: row.name === member ? own(self, cluster) : other(row, self, cluster, lost),
  }));
  if (member === null) nodes.unshift({ row: null, name: self.member ?? 'This node', isSelf: true, certificates: [], standing: own(self, cluster) });
  const { failover } = cluster;
  return { self, cluster, untold, takes: TAKES.includes(self.life), inForce: failover?.in_force ?? false, led, lost, nodes };
}

const isLost = (self) => self.upstream_why !== null || microseconds(self.upstream_silent.text) > LOST_US;

/** How long something was silent, if that is worth a word. */
const silence = (span) => (span !== null && microseconds(span.text) > LATELY_US ? `, no contact for ${lasting(span)}` : '');

/** A duration of the node in words: `0.4 s`, `3 min`, `2 h`. @param {{text: string}} span */
export function lasting({ text }) {
  const seconds = microseconds(text) / SECOND_US;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

const UPSTREAM = {
  copying: ['copying', 'warn', 'receiving a copy of the store'],
  'catching up': ['catching up', 'warn', 'lacks commits that were released more than a second ago'],
  'in sync': ['in sync', 'well', 'has all commits released up to a second ago'],
  'copy failed': ['copy failed', 'ill', 'must be copied again: the leader no longer has the log that it lacks'],
  stranded: ['stranded', 'ill', 'it shows commits that its leader does not have. Find out which of the two is right, and copy the other again'],
};

const says = ([word, look, words]) => ({ word, look, says: words });

function own(self, cluster) {
  if (self.upstream === 'stranded' && self.waits_for) return says(['stranded', 'ill', self.waits_for]);
  if (self.life === 'leading' && self.waits_for) return says(['leads, held up', 'ill', `waiting for ${self.waits_for}`]);
  if (self.life === 'leading') return says(['leads', 'well', 'takes changes and replicates them to its followers']);
  if (self.life === 'founding') return says(['founding', 'warn', 'its policy is being put into force: no commits until then']);
  if (self.life === 'waiting') return says(['waits', 'ill', self.waits_for ?? 'there is no leader to follow']);
  if (self.life === 'alone') return alone(self, cluster);
  const silent = silence(self.upstream_silent);
  if (self.upstream === 'catching up' && self.upstream_why !== null) {
    return says(['not attached', 'ill', `${self.upstream_why}${silent}`]);
  }
  const [word, look, words] = UPSTREAM[self.upstream] ?? [self.upstream, 'warn', ''];
  return says([word, look, `${words}${silent}`]);
}

function alone(self, { failover }) {
  if (failover !== null && !failover.in_force) return says(['not in force', 'ill', 'there is a policy that is not in force']);
  return self.downstream.length ? says(['is copied', 'well', 'takes changes; others copy it, but none would take over'])
    : says(['alone', '', 'takes changes, and has no followers']);
}

/** Another node, by what this one hears of it. */
function other(row, self, { failover }, lost) {
  if (row.waits) {
    return says(row.token_expires === null ? ['waits', 'warn', 'no node yet: create a join token']
      : ['token is out', 'warn', 'waiting for the node with its join token']);
  }
  if (row.node === null) return says(['not shown yet', 'warn', 'no node has connected with this certificate']);
  if (row.node === self.leader) {
    return lost ? says(['led last', 'ill', `no contact${silence(self.upstream_silent).replace(', no contact', '')}`])
      : says(failover === null ? ['is copied', 'well', 'takes changes'] : ['leads', 'well', 'takes changes and replicates them to its followers']);
  }
  if (!TAKES.includes(self.life)) return says(['not known here', '', 'only the leader knows its status']);
  const told = self.downstream.find(({ node }) => node === row.node);
  if (!told || told.standing === null) {
    const since = told ? silence(told.silent) : '';
    return says(['not attached', 'ill', `not following at present${since}${holds(told)}`]);
  }
  const [word, look, words] = UPSTREAM[told.standing] ?? [told.standing, 'warn', ''];
  const lag = told.lag === null ? words : told.lag === 0 ? 'up to date' : `lacks ${told.lag} commits`;
  return says([word, look, `${lag}${silence(told.silent)}${holds(told)}`]);
}

/** Whether it is in the set: who may take over, and is waited for. */
const holds = (told) => (told?.in_set === true ? '; in sync: it may take over' : told?.in_set === false ? '; not in sync: it may not take over' : '');
