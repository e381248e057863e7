//! Answers of the node, and the fields of its messages.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::convert::from_value;
use crate::errors::{Error, Refusal, Result};
use crate::frames::Fields;
use crate::seen::Position;
use crate::tables::Code;
use crate::values::{DateTime, Object, SignedDuration, Value};

/// The kind of a statement's result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultKind {
    /// Rows of SELECT and of statements that change records.
    Rows,
    /// Any value.
    Value,
    /// None: the statement has no answer.
    None,
    /// The answer of INFO, EXPLAIN and the like.
    Info,
    /// A kind that this version does not know.
    Other(String),
}

/// The result of one statement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StatementResult {
    /// Value of the statement.
    pub value: Value,
    /// Kind of the value.
    pub kind: ResultKind,
    /// Number of rows in `value`.
    pub rows: u64,
    /// Time that the statement took.
    pub took: Duration,
    /// Number of records created, changed or deleted; `None` of a statement that writes no records.
    pub changed: Option<u64>,
}

/// The results of a script, one for each statement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// Results of the statements.
    pub results: Vec<StatementResult>,
    /// Sequence of the script's last commit, or the one that it read at.
    pub seq: i64,
    /// Name of the history of `seq`.
    pub store: Option<String>,
    /// Epoch of `seq`.
    pub epoch: Option<i64>,
    pub(crate) moment: Option<String>,
}

impl Answer {
    /// Decode the value of the last statement; null of an empty script.
    pub fn value<T: DeserializeOwned>(self) -> Result<T> {
        Ok(from_value(self.into_value())?)
    }

    /// Decode the value of the statement with that index, and leave null in its place.
    pub fn take<T: DeserializeOwned>(&mut self, index: usize) -> Result<T> {
        let count = self.results.len();
        let Some(found) = self.results.get_mut(index) else {
            return Err(Error::argument(format!(
                "the script has {count} results, and none with the index {index}"
            )));
        };
        Ok(from_value(std::mem::take(&mut found.value))?)
    }

    pub(crate) fn into_value(mut self) -> Value {
        self.results.pop().map_or(Value::Null, |last| last.value)
    }

    /// Return the position behind this answer, to follow a table from.
    pub fn position(&self) -> Position {
        Position { seq: self.seq, store: self.store.clone(), epoch: self.epoch }
    }

    /// Keep the results of the statements that stood between what the client put before and behind them.
    pub(crate) fn within(mut self, before: usize) -> Self {
        self.results.drain(..before.min(self.results.len()));
        // A RETURN in it has ended it before its COMMIT was answered.
        if self.results.last().is_some_and(|last| last.kind == ResultKind::None) {
            self.results.pop();
        }
        self
    }
}

/// Node and user of a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Welcome {
    /// Version of the node.
    pub version: String,
    /// Id of the node.
    pub node: String,
    /// Minor of the wire protocol that was agreed on.
    pub minor: i64,
    /// Limits of the node.
    pub limits: Object,
    /// Signed-in user: `name`, `role` and `space`.
    pub user: Option<Object>,
    /// True if the node takes changes, and of nodes before minor 7.
    pub writable: bool,
    /// Addresses of the node that takes changes if this one does not.
    pub leader: Vec<String>,
}

// --- fields ------------------------------------------------------------------------------------------

/// A type that fields of messages have.
pub(crate) trait Field: Sized {
    const NAME: &'static str;

    fn of(value: Value) -> Option<Self>;
}

macro_rules! fields {
    ($($type:ty, $name:literal, $pattern:pat => $found:expr;)*) => {$(
        impl Field for $type {
            const NAME: &'static str = $name;

            fn of(value: Value) -> Option<Self> {
                match value {
                    $pattern => $found,
                    _ => None,
                }
            }
        }
    )*};
}

fields! {
    i64, "int", Value::Int(value) => Some(value);
    u64, "int", Value::Int(value) => value.try_into().ok();
    u32, "int", Value::Int(value) => value.try_into().ok();
    u16, "int", Value::Int(value) => value.try_into().ok();
    bool, "bool", Value::Bool(value) => Some(value);
    String, "string", Value::String(value) => Some(value);
    bytes::Bytes, "bytes", Value::Bytes(value) => Some(value);
    DateTime, "datetime", Value::DateTime(value) => Some(value);
    SignedDuration, "duration", Value::Duration(value) => Some(value);
    Object, "object", Value::Object(value) => Some(value);
    Vec<Value>, "array", Value::Array(value) => Some(value);
    Vec<String>, "array of strings", Value::Array(value) => value.into_iter().map(String::of).collect();
}

/// Fields by their names: those of a body, or of an object in it.
pub(crate) trait Named {
    /// Take a field out.
    fn remove(&mut self, name: &str) -> Option<Value>;
}

impl Named for Fields {
    fn remove(&mut self, name: &str) -> Option<Value> {
        self.remove(name)
    }
}

impl Named for Object {
    fn remove(&mut self, name: &str) -> Option<Value> {
        self.remove(name)
    }
}

fn misfit(name: &str, found: Option<&str>, wanted: &str) -> Error {
    Error::broken(match found {
        Some(found) => format!("the node sent {name} as {found}, not as {wanted}"),
        None => format!("the node sent no {name}"),
    })
}

/// Take a field out of a body that must be there.
pub(crate) fn needed<T: Field>(body: &mut impl Named, name: &str) -> Result<T> {
    let Some(found) = body.remove(name) else { return Err(misfit(name, None, T::NAME)) };
    as_field(found, name)
}

/// Take a field out of a body that may be absent or null.
pub(crate) fn optional<T: Field>(body: &mut impl Named, name: &str) -> Result<Option<T>> {
    match body.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(found) => as_field(found, name).map(Some),
    }
}

/// Read a value as the type that it must have.
pub(crate) fn as_field<T: Field>(value: Value, name: &str) -> Result<T> {
    let found = value.type_name();
    T::of(value).ok_or_else(|| misfit(name, Some(found), T::NAME))
}

fn read_results(found: Option<Value>) -> Result<Vec<StatementResult>> {
    match found {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(found) => as_field::<Vec<Value>>(found, "results")?.into_iter().map(read_result).collect(),
    }
}

fn read_result(found: Value) -> Result<StatementResult> {
    let mut body: Object = as_field(found, "a result")?;
    let Some(value) = body.remove("value") else { return Err(misfit("value of a result", None, "value")) };
    let kind = match needed::<String>(&mut body, "kind")? {
        kind if kind == "rows" => ResultKind::Rows,
        kind if kind == "value" => ResultKind::Value,
        kind if kind == "none" => ResultKind::None,
        kind if kind == "info" => ResultKind::Info,
        kind => ResultKind::Other(kind),
    };
    let took: SignedDuration = needed(&mut body, "took")?;
    Ok(StatementResult {
        value,
        kind,
        rows: needed(&mut body, "rows")?,
        took: Duration::try_from(took).unwrap_or_default(),
        changed: optional(&mut body, "changed")?,
    })
}

pub(crate) fn read_answer(mut body: Fields) -> Result<Answer> {
    Ok(Answer {
        results: read_results(body.remove("results"))?,
        seq: needed(&mut body, "seq")?,
        store: optional(&mut body, "store")?,
        epoch: optional(&mut body, "epoch")?,
        moment: optional(&mut body, "moment")?,
    })
}

pub(crate) fn read_welcome(mut body: Fields) -> Result<Welcome> {
    Ok(Welcome {
        version: needed(&mut body, "version")?,
        node: needed(&mut body, "node")?,
        minor: needed(&mut body, "minor")?,
        limits: needed(&mut body, "limits")?,
        user: optional(&mut body, "user")?,
        writable: optional(&mut body, "writable")?.unwrap_or(true),
        leader: optional(&mut body, "leader")?.unwrap_or_default(),
    })
}

/// Return the refusal of a body, or the error that it is none.
pub(crate) fn read_error(body: Fields) -> Error {
    read_refusal(body).map_or_else(|error| error, Error::from)
}

fn read_refusal(mut body: Fields) -> Result<Refusal> {
    let mut error: Object = needed(&mut body, "error")?;
    let error = &mut error;
    Ok(Refusal {
        code: Code::from(needed::<String>(error, "code")?.as_str()),
        message: needed(error, "message")?,
        status: needed(error, "status")?,
        retry: needed(error, "retry")?,
        detail: optional(error, "detail")?.unwrap_or_default(),
        request: optional(error, "request")?,
        statement: optional(error, "statement")?,
        line: optional(error, "line")?,
        column: optional(error, "column")?,
        results: read_results(body.remove("results"))?,
    })
}
