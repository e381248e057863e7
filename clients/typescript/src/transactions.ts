import type { Answer } from "./answers.js";
import { within } from "./answers.js";
import type { Database } from "./client.js";
import { hasTransactionWords, renamed } from "./pages.js";
import type { Params, RunOptions } from "./runner.js";
import { type Value, ValueError } from "./values.js";

/** Statements that commit together, in one script. */
export class Transaction {
  #text = "";
  #params: Params = {};
  readonly #db: Database;

  /** @internal */
  constructor(db: Database) {
    this.#db = db;
  }

  /** Adds one or more statements. Equal names of parameters in different calls do not collide. */
  add(statements: string, params: Params = {}): this {
    if (hasTransactionWords(statements)) {
      throw new ValueError("", `a transaction has its own BEGIN and COMMIT: ${JSON.stringify(statements.slice(0, 40))}`);
    }
    const names = new Map<string, string>();
    const added: Params = {};
    for (const [name, value] of Object.entries(params)) {
      let own = name;
      for (let n = 1; own in this.#params || own in added; n++) own = `${name}__${n}`;
      names.set(name, own);
      added[own] = value;
    }
    Object.assign(this.#params, added);
    this.#text += `${renamed(statements, names)}\n;\n`; // on a line of its own: they may end in a comment
    return this;
  }

  /** Commits all statements or none. The answer has the results of the added statements. */
  async run<T = Value>(options: RunOptions = {}): Promise<Answer<T>> {
    const answer = await this.#db.run<T>(`BEGIN;\n${this.#text}COMMIT`, this.#params, options);
    return answer.withResults(within(answer.results, 1));
  }
}
