import type { Params } from "./runner.js";
import { ValueError } from "./values.js";

const AFTER = "storeclient_after";
const LIMIT = "storeclient_rows";

/** Pieces of a text: skipped (1), an opening (2) and a closing (3) bracket, an end (4), a word (5). */
const PIECES =
  /('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|--[^\n]*|\/\/[^\n]*|#[^\n]*|\/\*.*?\*\/|\$\w+|[\w.:]*[.:]\w*)|([[({])|([\])}])|(;)|([A-Za-z_]\w*)/gs;
const GOES_ON = /^\s*(?:$|[=!<>~+\-*/%),.?]|(?:IN|NOT|CONTAINS|AND|OR)\b)/i;

interface Word {
  text: string;
  start: number;
  end: number;
}

/** Returns the words of a text in capitals, those outside of strings, comments and brackets. */
function words(text: string): Word[] {
  const found: Word[] = [];
  let depth = 0;
  for (const piece of text.matchAll(PIECES)) {
    if (piece[2]) depth++;
    else if (piece[3]) depth--;
    else if (depth > 0) continue;
    else if (piece[4]) throw new ValueError("", "one SELECT is read page by page, without a `;`");
    else if (piece[5]) found.push({ text: piece[5].toUpperCase(), start: piece.index, end: piece.index + piece[5].length });
  }
  return found;
}

/** Returns what stands before WHERE, and the condition. */
function splitSelect(text: string): { head: string; where: string } {
  const found = words(text);
  if (found[0]?.text !== "SELECT")
    throw new ValueError("", `what is read page by page is a SELECT, not ${JSON.stringify(text.slice(0, 40))}`);
  const from = found.findIndex((one) => one.text === "FROM");
  if (from < 0) throw new ValueError("", "the SELECT has no FROM");
  for (const [n, one] of found.entries()) {
    if (isClause(one, n, from, text)) {
      throw new ValueError(
        "",
        `${one.text} has no place in a SELECT that is read page by page: all of its rows come, in the order of their ids`,
      );
    }
  }
  const where = found.slice(from + 1).find((one) => one.text === "WHERE");
  return where ? { head: text.slice(0, where.start), where: text.slice(where.end) } : { head: text, where: "" };
}

function isClause(word: Word, n: number, from: number, text: string): boolean {
  switch (word.text) {
    case "SPLIT":
    case "GROUP":
    case "HAVING":
    case "ORDER":
    case "LIMIT":
    case "START":
    case "FETCH":
    case "TIMEOUT":
      return n >= from + 2 && !GOES_ON.test(text.slice(word.end)); // else it is a field
    case "VALUE":
    case "DISTINCT":
      return n === 1;
    case "ONLY":
      return n === from + 1;
    default:
      return false;
  }
}

/** Scripts of the pages of one SELECT. Its text is split at words and not parsed. */
export class Pages {
  private readonly head: string;
  private readonly where: string;

  constructor(
    select: string,
    private readonly params: Params | undefined,
    readonly page: number,
  ) {
    if (!Number.isInteger(page) || page < 1) throw new ValueError("page", `a page has at least one row, not ${page}`);
    for (const name of [AFTER, LIMIT]) {
      if (params && name in params) throw new ValueError(`$${name}`, "the client names its own parameter so");
    }
    ({ head: this.head, where: this.where } = splitSelect(select));
  }

  /** Returns the script of the page behind an id, and its parameters. */
  script(after: unknown): { text: string; params: Params } {
    const params: Params = { ...this.params, [LIMIT]: this.page };
    const conditions: string[] = [];
    if (after !== undefined) {
      conditions.push(`id > $${AFTER}`);
      params[AFTER] = after;
    }
    if (this.where) conditions.push(`(${this.where}\n)`); // on a line of its own: the text may end in a comment
    const where = conditions.length > 0 ? ` WHERE ${conditions.join(" AND ")}` : "";
    return { text: `${this.head}\n${where} ORDER BY id LIMIT $${LIMIT}`, params };
  }
}

/** True if a text has BEGIN or COMMIT as a word of its own. */
export function hasTransactionWords(text: string): boolean {
  for (const piece of text.matchAll(PIECES)) {
    if (piece[5] && /^(?:BEGIN|COMMIT)$/i.test(piece[5])) return true;
  }
  return false;
}

/** Returns a text with its parameters under other names. What stands in strings and comments stays. */
export function renamed(text: string, names: ReadonlyMap<string, string>): string {
  return text.replace(PIECES, (piece) => {
    const own = piece.startsWith("$") ? names.get(piece.slice(1)) : undefined;
    return own === undefined ? piece : `$${own}`;
  });
}
