/**
 * Queries of full-text search as values, for parameters of `@@` and `search::matches`.
 *
 * ```ts
 * import { search } from "storeclient";
 *
 * const found = await db.query("SELECT VALUE id FROM article WHERE body @@ $query", {
 *   query: search.any("tin", search.phrase("copper ore", 2)),
 * });
 * ```
 *
 * A query is a string, an array of literal words, or the result of a function here. The node checks it.
 */

/** A query: an object has one key, which names its kind. */
export type Query =
  | string
  | readonly string[]
  | { any: readonly Query[] }
  | { all: readonly Query[] }
  | { not: Query }
  | { phrase: readonly [text: string, slop: number] }
  | { prefix: string }
  | { fuzzy: readonly [text: string, edits: number] }
  | { boost: readonly [query: Query, by: number] };

/** Returns a query that any of some queries fulfils. */
export function any(...queries: readonly Query[]): Query {
  return { any: queries };
}

/** Returns a query that needs all of some queries; those of `not` exclude. */
export function all(...queries: readonly Query[]): Query {
  return { all: queries };
}

/** Returns a query whose matches `all` excludes. */
export function not(query: Query): Query {
  return { not: query };
}

/** Returns a query for words in this order, with at most `slop` other words between them. */
export function phrase(text: string, slop = 0): Query {
  return { phrase: [text, slop] };
}

/** Returns a query for words that begin so; of several words the last one is a beginning. */
export function prefix(text: string): Query {
  return { prefix: text };
}

/** Returns a query for words with at most so many edits, 0 to 2. */
export function fuzzy(text: string, edits = 1): Query {
  return { fuzzy: [text, edits] };
}

/** Returns a query whose share of a score is multiplied. */
export function boost(query: Query, by: number): Query {
  return { boost: [query, by] };
}
