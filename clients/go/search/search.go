// Package search makes queries of full-text search as values, for parameters of @@ and search::matches.
//
//	found, err := storeclient.Query[[]storeclient.RecordID](ctx, db, "SELECT VALUE id FROM article WHERE body @@ $query",
//		storeclient.Params{"query": search.Any("tin", search.Phrase("copper ore", 2))})
//
// A query is a string, a []string of literal words, or the result of a function here. The node checks it.
package search

// A Query is an object with one key, which names its kind.
type Query map[string]any

// Any returns a query that any of some queries fulfils.
func Any(queries ...any) Query { return Query{"any": queries} }

// All returns a query that needs all of some queries; those of [Not] exclude.
func All(queries ...any) Query { return Query{"all": queries} }

// Not returns a query whose matches [All] excludes.
func Not(query any) Query { return Query{"not": query} }

// Phrase returns a query for words in this order, with at most slop other words between them.
func Phrase(text string, slop int) Query { return Query{"phrase": []any{text, slop}} }

// Prefix returns a query for words that begin so; of several words the last one is a beginning.
func Prefix(text string) Query { return Query{"prefix": text} }

// Fuzzy returns a query for words with at most so many edits, 0 to 2.
func Fuzzy(text string, edits int) Query { return Query{"fuzzy": []any{text, edits}} }

// Boost returns a query whose share of a score is multiplied.
func Boost(query any, by float64) Query { return Query{"boost": []any{query, by}} }
