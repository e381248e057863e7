/** What a text of the language looks like: its tokens for the editor, and where its statements are. */
import { FUNCTIONS, WORDS } from './words.js';

const KNOWN = new Set(WORDS);
const CALLED = new Set(FUNCTIONS.map(([name]) => name));
const CONSTANTS = new Set(['NONE', 'NULL', 'TRUE', 'FALSE']);

/**
 * One token from a place on: `[kind, length]`. Kinds: space, comment, string, name (in back-quotes), number,
 * parameter, word, mark. What is not closed goes to the end of the text.
 */
const TOKENS = [
  ['space', /\s+/y],
  ['comment', /--[^\n]*|\/\/[^\n]*|#[^\n]*|\/\*[^]*?(?:\*\/|$)/y],
  ['string', /[bdmu]?'(?:[^'\\]|\\[^])*(?:'|$)|[bdmu]?"(?:[^"\\]|\\[^])*(?:"|$)/y],
  ['name', /`(?:[^`\\]|\\[^])*(?:`|$)/y],
  ['number', /\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:dec|(?:w|d|h|ms|m|us|s)(?:\d+(?:w|d|h|ms|m|us|s))*|[KMGT]i?B)?(?![A-Za-z_])/y],
  ['parameter', /\$[A-Za-z_]\w*/y],
  ['word', /[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*/y],
  ['mark', /[^]/y],
];

/** The tokens of a text. @returns {Generator<{kind: string, text: string, at: number}>} */
export function* tokens(text) {
  let at = 0;
  while (at < text.length) {
    for (const [kind, pattern] of TOKENS) {
      pattern.lastIndex = at;
      const found = pattern.exec(text);
      if (!found) continue;
      yield { kind, text: found[0], at };
      at += found[0].length;
      break;
    }
  }
}

/**
 * The statements of a script: its text between semicolons that stand in no bracket. An empty one is none.
 * @returns {Array<{text: string, at: number}>} `at`: where it begins
 */
export function statements(text) {
  const found = [];
  let depth = 0;
  let from = 0;
  let begins = -1;
  let ends = 0;
  const take = () => {
    if (begins >= 0) found.push({ text: text.slice(begins, ends), at: begins });
    begins = -1;
  };
  for (const token of tokens(text)) {
    if (token.kind === 'mark' && token.text === ';' && depth === 0) {
      take();
      from = token.at + 1;
      continue;
    }
    if (token.kind === 'mark' && '([{'.includes(token.text)) depth += 1;
    if (token.kind === 'mark' && ')]}'.includes(token.text)) depth = Math.max(0, depth - 1);
    if (token.kind === 'space' || token.kind === 'comment') continue;
    if (begins < 0) begins = Math.max(from, token.at);
    ends = token.at + token.text.length;
  }
  take();
  return found;
}

/** The word that a statement begins with, in capitals. */
export function firstWord(text) {
  for (const token of tokens(text)) {
    if (token.kind !== 'space' && token.kind !== 'comment') return token.text.toUpperCase();
  }
  return '';
}

/** Where a line and a column of the node's are in a text: both count from 1. */
export function offset(text, line, column) {
  let at = 0;
  for (let left = line - 1; left > 0; left -= 1) {
    const next = text.indexOf('\n', at);
    if (next < 0) break;
    at = next + 1;
  }
  const end = text.indexOf('\n', at);
  const points = [...text.slice(at, end < 0 ? text.length : end)].slice(0, column - 1);
  return at + points.join('').length;
}

/** How much of a text from a place on is one thing that may be underlined. */
export function extent(text, at) {
  for (const [kind, pattern] of TOKENS) {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found && kind !== 'space') return found[0].split('\n')[0].length || 1;
  }
  return 1;
}

/** For CodeMirror's StreamLanguage: line by line, so a comment or string over lines is remembered. */
export const mode = {
  name: 'storeql',
  startState: () => ({ open: null }),
  token(stream, state) {
    if (state.open) return rest(stream, state);
    if (stream.eatSpace()) return null;
    if (stream.match(/--.*|\/\/.*|#.*/)) return 'comment';
    if (stream.match('/*')) {
      state.open = ['comment', '*/'];
      return rest(stream, state);
    }
    const begun = stream.match(/[bdmu]?(['"])|(`)/);
    if (begun) {
      state.open = begun[2] ? ['variableName', '`'] : ['string', begun[1]];
      return rest(stream, state);
    }
    if (stream.match(/\d[\w.]*/)) return 'number';
    if (stream.match(/\$\w+/)) return 'labelName';
    const word = stream.match(/[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*/);
    if (word) return called(word[0], stream);
    stream.next();
    return 'operator';
  },
  languageData: {
    commentTokens: { line: '--', block: { open: '/*', close: '*/' } },
    closeBrackets: { brackets: ['(', '[', '{', "'", '"', '`'] },
  },
};

function called(word, stream) {
  const upper = word.toUpperCase();
  if (CONSTANTS.has(upper)) return 'atom';
  if (CALLED.has(word) || word.startsWith('fn::')) return 'typeName';
  return KNOWN.has(upper) && stream.peek() !== ':' ? 'keyword' : 'variableName';
}

function rest(stream, state) {
  const [kind, end] = state.open;
  while (!stream.eol()) {
    if (stream.match(end)) {
      state.open = null;
      return kind;
    }
    if (stream.next() === '\\' && kind !== 'comment') stream.next();
  }
  return kind;
}
