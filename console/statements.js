/**
 * The only file that composes statements. A function answers a `Statement`: its text, its parameters,
 * and how it is shown to people, where secrets are '...'. Values always go as parameters.
 *
 * @typedef {{text: string, params: object, shown: string, secrets?: boolean}} Statement `secrets`: among its
 *   parameters, none of which are shown then
 */
import { literal, quoted, record as recordOf } from './values.js';

const NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;

/** Whether a text may be a name of the language. */
export const isName = (text) => NAME.test(text);

/** Whether a text names a database or a namespace. */
export const isPart = (text) => /^[^.]+(\.[^.]+)?$/.test(text) && text.split('.').every(isName);

/**
 * A name as a statement may hold it: always in back-quotes, so that a word of the language means the name.
 * @throws {RangeError} it is no name
 */
export function name(text) {
  if (!isName(text)) {
    throw new RangeError(`${JSON.stringify(text)} is no name: letters, digits, _ and -, at most 64`);
  }
  return `\`${text}\``;
}

/** A field's name or path's step, which may be any text. */
export const label = (text) => `\`${text.replace(/[\\`]/g, '\\$&')}\``;

/** A string where the grammar takes no parameter: comments, names of files. */
export const string = quoted;

/** ` REASON '…'`, or nothing. The statement log keeps it with the statement. */
export const because = (reason) => (reason ? ` REASON ${string(reason)}` : '');

/**
 * A statement.
 * @param {string} text @param {object} params
 * @param {string} [shown] where the text itself may not be shown
 * @returns {Statement}
 */
export const statement = (text, params = {}, shown = text) => ({ text, params, shown });

/** Several statements as one script. Their parameters have names of their own. */
export const together = (...all) => statement(
  all.map((one) => one.text).join(';\n'),
  Object.assign({}, ...all.map((one) => one.params)),
  all.map((one) => one.shown).join(';\n'),
);

/** Several statements as one transaction. */
export const inOne = (...all) => together(statement('BEGIN'), ...all, statement('COMMIT'));

/** What INFO tells. */
export const info = {
  store: () => statement('INFO FOR STORE'),
  namespace: (ns) => statement(`INFO FOR NAMESPACE ${name(ns)}`),
  database: ({ ns, db }) => statement(`INFO FOR DATABASE ${name(ns)}.${name(db)}`),
  table: (table) => statement(`INFO FOR TABLE ${name(table)}`),
  index: (index, table) => statement(`INFO FOR INDEX ${name(index)} ON ${name(table)}`),
  space: (space) => statement(`INFO FOR SPACE ${name(space)}`),
  topic: (topic) => statement(`INFO FOR TOPIC ${name(topic)}`),
  group: (group, topic) => statement(`INFO FOR GROUP ${name(group)} ON ${name(topic)}`),
  vault: (vault) => statement(`INFO FOR VAULT ${name(vault)}`),
  node: () => statement('INFO FOR NODE'),
  cluster: () => statement('INFO FOR CLUSTER'),
  state: () => statement('INFO FOR STATE'),
  running: () => statement('INFO FOR RUNNING'),
  users: () => statement('INFO FOR USERS'),
  user: (user) => statement(`INFO FOR USER ${name(user)}`),
  grants: (user) => statement(user ? `INFO FOR GRANTS OF ${name(user)}` : 'INFO FOR GRANTS'),
  backups: () => statement('INFO FOR BACKUPS'),
  statements: (query) => kept('STATEMENTS', query),
  audit: (query) => kept('AUDIT', query),
  history: (record, { before, limit } = {}) => {
    const params = { record: recordOf(record) };
    let text = 'INFO FOR HISTORY OF $record';
    if (before !== undefined) {
      text += ' BEFORE $before';
      params.before = before;
    }
    if (limit !== undefined) {
      text += ' LIMIT $limit';
      params.limit = limit;
    }
    return statement(text, params);
  },
};

function kept(what, { before, limit, of } = {}) {
  const params = {};
  let text = `INFO FOR ${what}`;
  if (before !== undefined) {
    text += ' BEFORE $before';
    params.before = before;
  }
  if (limit !== undefined) {
    text += ' LIMIT $limit';
    params.limit = limit;
  }
  return statement(of ? `${text} OF ${name(of)}` : text, params);
}

/** Make a database, and its namespace where that is not there yet. @param {{ns: string, db: string}} place @param {boolean} alone the namespace is there */
export const defineDatabase = ({ ns, db }, alone) => {
  const database = statement(`DEFINE DATABASE ${name(ns)}.${name(db)}`);
  return alone ? database : inOne(statement(`DEFINE NAMESPACE ${name(ns)}`), database);
};

/** End a running script: by its name in the text, so that the statement log says which. @param {string} id of INFO FOR RUNNING */
export const kill = (id) => statement(`KILL ${string(id)}`);

// --- who may do what ---

/** A statement with a secret among its parameters, which are not shown. */
const secretly = (text, params, shown) => ({ ...statement(text, params, shown), secrets: true });

/** @param {{user: string, role: string, space: string, password: string, comment: string}} of `space`: '' is none */
export function defineUser({ user, role, space, password, comment }) {
  const on = space && ` ON ${space.includes('.') ? 'DATABASE' : 'NAMESPACE'} ${dotted(space)}`;
  const text = (secret) => `DEFINE USER ${name(user)} ROLE ${role}${on} PASSWORD ${secret}${
    comment && ` COMMENT ${string(comment)}`}`;
  return secretly(text('$password'), { password }, text("'...'"));
}

export const alterPassword = (user, password) => secretly(
  `ALTER USER ${name(user)} SET PASSWORD $password`, { password }, `ALTER USER ${name(user)} SET PASSWORD '...'`,
);

export const alterRole = (user, role) => statement(`ALTER USER ${name(user)} SET ROLE ${role}`);

export const dropUser = (user) => statement(`DROP USER ${name(user)}`);

const dotted = (path) => path.split('.').map(name).join('.');

/** A securable as INFO FOR GRANTS writes it, `TABLE shop.main.item`, as a statement does. */
function securable(text) {
  const at = text.lastIndexOf(' ');
  return at < 0 ? text : `${text.slice(0, at)} ${dotted(text.slice(at + 1))}`;
}

/** @param {string[]} verbs @param {string} on as INFO FOR GRANTS writes it */
export const grant = (verbs, on, user) =>
  statement(`GRANT ${verbs.join(', ')} ON ${securable(on)} TO ${name(user)}`);

export const revoke = (verbs, on, user) =>
  statement(`REVOKE ${verbs.join(', ')} ON ${securable(on)} FROM ${name(user)}`);

// --- the node ---

/** A clause with all of some things, or NONE; nothing where it is not said. */
export const clause = (word, all, write = string) => (all ? [`${word} ${all.map(write).join(', ') || 'NONE'}`] : []);

/**
 * What is declared of the node; what is not given stays.
 * @param {{roles?: string[], endpoints?: string[], origins?: string[]}} of no roles drain it
 */
export const defineNode = ({ roles, endpoints, origins }) => statement([
  'DEFINE NODE', ...clause('ROLES', roles, (role) => role), ...clause('ENDPOINTS', endpoints), ...clause('ORIGINS', origins),
].join(' '));

/** Measure the recall of a VECTOR index, for the editor. */
export const measure = (index, table) => statement(`MEASURE INDEX ${name(index)} ON ${name(table)}`);

/** A first place, table and record, for the editor. */
export const beginning = statement(`DEFINE NAMESPACE shop;
DEFINE DATABASE shop.main;
USE shop.main;
DEFINE TABLE person;
CREATE person:ana SET name = 'Ana', age = 34;
SELECT * FROM person;`);

/** The first records of a table, for the editor. */
export const first = (table, limit) => statement(`SELECT * FROM ${name(table)} LIMIT ${limit}`);

/** One record as it is now. @param {string} id such as `person:1` */
export const record = (id) => statement('SELECT * FROM ONLY $record', { record: recordOf(id) });

/** A record with its fields as they are, to be changed in the editor. @param {string} id @param {object} fields */
export const changing = (id, fields) => statement(`UPDATE ${id} CONTENT ${literal(fields)}`);

/** What does nothing: for a request that says something by itself. */
export const nothing = () => statement('RETURN NONE');

/**
 * The records of a table behind one of them, in the order of their ids.
 * @param {string} table @param {?import('./values.js').Tagged} after the last one known; null: from the first
 */
export function page(table, after, limit) {
  const select = `SELECT * FROM ${name(table)}`;
  if (after === null) return statement(`${select} ORDER BY id LIMIT $limit`, { limit });
  return statement(`${select} WHERE id > $after ORDER BY id LIMIT $limit`, { after, limit });
}
