//! Queries of full-text search as values, for parameters of `@@` and `search::matches`.
//!
//! ```
//! use storenode::search;
//!
//! let query = search::any(["tin".into(), search::phrase("copper ore", 2)]);
//! # let made = query.get("any").and_then(storenode::Value::as_array).unwrap();
//! # assert_eq!(made[0].as_str(), Some("tin"));
//! ```
//!
//! A query is a string, an array of literal words, or the result of a function here. The node checks it.

use crate::values::{Object, Value};

fn of(kind: &str, value: impl Into<Value>) -> Value {
    Object::from([(kind.to_owned(), value.into())]).into()
}

fn pair(one: impl Into<Value>, other: impl Into<Value>) -> Vec<Value> {
    vec![one.into(), other.into()]
}

fn listed<Q: Into<Value>>(queries: impl IntoIterator<Item = Q>) -> Vec<Value> {
    queries.into_iter().map(Into::into).collect()
}

/// Return a query that any of some queries fulfils.
pub fn any<Q: Into<Value>>(queries: impl IntoIterator<Item = Q>) -> Value {
    of("any", listed(queries))
}

/// Return a query that needs all of some queries; those of [`not`] exclude.
pub fn all<Q: Into<Value>>(queries: impl IntoIterator<Item = Q>) -> Value {
    of("all", listed(queries))
}

/// Return a query whose matches [`all`] excludes.
pub fn not(query: impl Into<Value>) -> Value {
    of("not", query)
}

/// Return a query for words in this order, with at most `slop` other words between them.
pub fn phrase(text: impl Into<String>, slop: u32) -> Value {
    of("phrase", pair(text.into(), slop))
}

/// Return a query for words that begin so; of several words the last one is a beginning.
pub fn prefix(text: impl Into<String>) -> Value {
    of("prefix", text.into())
}

/// Return a query for words with at most so many edits, 0 to 2.
pub fn fuzzy(text: impl Into<String>, edits: u32) -> Value {
    of("fuzzy", pair(text.into(), edits))
}

/// Return a query whose share of a score is multiplied.
pub fn boost(query: impl Into<Value>, by: f64) -> Value {
    of("boost", pair(query, by))
}
