/** Statements on vaults. Passphrases and ids are parameters; what is read and written goes by routes. */
import { inOne, name, statement, string } from '../statements.js';

/** What time it is on the node: seals end by its clock. */
export const clock = () => statement('RETURN time::now()');

/**
 * Declare a vault.
 * @param {object} of `vault`, `versions`, `comment`, `passphrase` (one of its own: no route gives it its first)
 */
export function define({ vault, versions, comment, passphrase }) {
  const words = (own) => [
    `DEFINE VAULT ${name(vault)}`, own, versions && `VERSIONS ${BigInt(versions)}`,
    comment && `COMMENT ${string(comment)}`,
  ].filter(Boolean).join(' ');
  if (!passphrase) return statement(words());
  const secret = statement(words('PASSPHRASE $passphrase'), { passphrase }, words("PASSPHRASE '...'"));
  return { ...secret, secrets: true };
}

/** @param {{versions?: string, comment?: string}} what is other from now on */
export function alter(vault, { versions, comment }) {
  const all = [];
  if (versions !== undefined) all.push(statement(`ALTER VAULT ${name(vault)} SET VERSIONS ${BigInt(versions)}`));
  if (comment !== undefined) all.push(statement(`ALTER VAULT ${name(vault)} SET COMMENT ${string(comment)}`));
  return all.length === 1 ? all[0] : inOne(...all);
}

export const drop = (vault) => statement(`DROP VAULT ${name(vault)}`);

export const rotate = (vault) => statement(`ROTATE VAULT ${name(vault)}`);

/** Ids in their order. @param {{prefix: string, after: string, limit: number}} which */
export const list = (vault, { prefix, after, limit }) => statement(
  `LIST FROM VAULT ${name(vault)} PREFIX $prefix AFTER $after LIMIT $limit`, { prefix, after, limit },
);

const securable = (vault) => (vault === null ? 'ALL VAULTS' : `VAULT ${name(vault)}`);

/** A whole trail looked through, with the records that it speaks of. @param {?string} vault null: the store's own */
export const check = (vault) => statement(`INFO FOR AUDIT OF ${securable(vault)} CHECK`);

/** Entries of a trail, newest first. @param {?string} vault null: the store's own trail */
export function trail(vault, { before, limit }) {
  const params = before === undefined ? { limit } : { before, limit };
  return statement(`INFO FOR AUDIT OF ${securable(vault)}${before === undefined ? '' : ' BEFORE $before'} LIMIT $limit`, params);
}
