/** What the editor offers: words and functions of the language, and what INFO tells of the place. */
import * as node from '../../node.js';
import { forgotten } from '../../state.js';
import { info } from '../../statements.js';
import { tokens } from '../../storeql.js';
import { FUNCTIONS, WORDS } from '../../words.js';

const KEPT_MS = 30_000;
const TABLES = 8;

const words = WORDS.map((label) => ({ label, type: 'keyword', boost: -1 }));
const functions = FUNCTIONS.map(([label, detail, about]) => ({
  label, type: 'function', detail: detail.slice(label.length), info: about, apply: `${label}(`,
}));

const known = new Map();
forgotten(() => known.clear());

/** What INFO says, remembered for a while: completion must not ask at each key. */
async function told(statement, place) {
  const key = `${place.ns}.${place.db} ${statement.text}`;
  const before = known.get(key);
  if (before && Date.now() - before.at < KEPT_MS) return before.value;
  let value = null;
  try {
    value = await node.run(statement, { place });
  } catch (error) {
    if (!('code' in error)) throw error; // refused: then nothing of it is offered
  }
  known.set(key, { value, at: Date.now() });
  return value;
}

const BARE = /^[A-Za-z_]\w*$/;
const KNOWN = new Set(WORDS);
const named = (name) => (BARE.test(name) && !KNOWN.has(name.toUpperCase()) ? name : `\`${name}\``);

/** A CompletionSource for a place. @param {?{ns: string, db: string}} place */
export const completion = (place) => async (context) => {
  const word = context.matchBefore(/[$\w:]+/);
  if (!word && !context.explicit) return null;
  const from = word?.from ?? context.pos;
  const text = context.state.doc.toString();
  const options = [...functions, ...words, ...parameters(text)];
  if (place) options.push(...await things(place, text));
  return { from, options, validFor: /^[$\w:]*$/ };
};

function parameters(text) {
  const found = new Set([...tokens(text)].filter(({ kind }) => kind === 'parameter').map((token) => token.text));
  return [...found].map((label) => ({ label, type: 'variable' }));
}

async function things(place, text) {
  const database = await told(info.database(place), place);
  if (!database) return [];
  const option = (type) => ({ name }) => ({ label: name, apply: named(name), type: 'class', detail: type, boost: 1 });
  const said = new Set([...tokens(text)].map((token) => token.text.replaceAll('`', '')));
  const mentioned = database.tables.filter(({ name }) => said.has(name)).slice(0, TABLES);
  const tables = await Promise.all(mentioned.map(({ name }) => told(info.table(name), place)));
  const fields = tables.filter(Boolean).flatMap((table) => table.fields.map((field) => ({
    label: field.name, type: 'property', detail: `${field.type} of ${table.name}`, boost: 2,
  })));
  return [
    ...database.tables.map(option('table')), ...database.spaces.map(option('space')),
    ...database.topics.map(option('topic')),
    ...database.functions.map(({ name }) => ({ label: `fn::${name}`, apply: `fn::${name}(`, type: 'function' })),
    ...fields,
  ];
}
