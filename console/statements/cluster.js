/** Statements on the cluster: its rows, tokens, certificates, the failover policy, and who leads. */
import { because, clause, name, statement, string } from '../statements.js';
import { microseconds } from '../values.js';

const rolesOf = (roles) => clause('ROLES', roles ?? undefined, (role) => role);

/**
 * A row.
 * @param {{name: string, peer: string, endpoints: string[], node?: string, certificate?: string, roles: ?string[], comment: string}} row
 */
export const defineReplica = ({ name: row, peer, endpoints, node, certificate, roles, comment }) => statement([
  `DEFINE REPLICA ${name(row)} PEER ${string(peer)}`, ...(endpoints.length ? clause('ENDPOINTS', endpoints) : []),
  ...(node ? [`NODE ${string(node)}`] : []), ...(certificate ? [`CERTIFICATE ${string(certificate)}`] : []),
  ...rolesOf(roles), ...(comment ? [`COMMENT ${string(comment)}`] : []),
].join(' '));

/** One thing of a row. @param {{peer?: string, endpoints?: string[], roles?: string[]}} change */
export function alterReplica(row, { peer, endpoints, roles }) {
  const [said] = peer ? [`SET PEER ${string(peer)}`] : endpoints ? clause('SET ENDPOINTS', endpoints) : rolesOf(roles);
  return statement(`ALTER REPLICA ${name(row)} ${said}`);
}

export const dropReplica = (row) => statement(`DROP REPLICA ${name(row)}`);

/** @param {string} span such as `10m` */
export const createToken = (row, span) => statement(`CREATE JOIN TOKEN FOR ${name(row)} EXPIRES ${span}`);

export const revokeCertificate = (fingerprint) => statement(`REVOKE CERTIFICATE ${string(fingerprint)}`);

/** Whether a text is a duration, longer than nothing. */
export const isSpan = (text) => microseconds(text) > 0;

/**
 * The failover policy.
 * @param {{via: string[], lease: string, acks: number, behind: string, promote: 'AUTO'|'MANUAL'}} policy `lease` and
 *   `behind` as the language writes durations: `5s`
 */
export const defineFailover = ({ via, lease, acks, behind, promote }) => statement(
  `DEFINE FAILOVER VIA ${via.map(string).join(', ')} LEASE ${lease} ACKS ${BigInt(acks)} BEHIND ${behind} PROMOTE ${promote}`,
);

export const dropFailover = () => statement('DROP FAILOVER');

/** Take a lead that nobody has. */
export const leadStore = () => statement('DEFINE NODE LEADS STORE');

/** Lead with what this node has, whoever else had more. @param {string} reason kept in the statement log, and needed */
export const leadByForce = (reason) => statement(`DEFINE NODE LEADS STORE FORCE${because(reason)}`);
