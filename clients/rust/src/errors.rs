//! Errors of the client.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::answers::StatementResult;
use crate::tables::Code;
use crate::values::{Object, Value};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the client.
///
/// Only [`Error::is_outcome_unknown`] leaves open if the request was executed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The node refused. The code says which refusal it is.
    Refused(Box<Refusal>),
    /// The request was sent and its answer will not come: it may have been done in full, in part or not at all.
    #[non_exhaustive]
    OutcomeUnknown {
        /// Circumstances.
        message: String,
        /// Cause of the end of the connection.
        cause: Option<Box<Error>>,
    },
    /// No connection could be made in time. Nothing was sent.
    #[non_exhaustive]
    Unreachable {
        /// Circumstances.
        message: String,
        /// Error of the last attempt.
        cause: Option<Box<Error>>,
    },
    /// The peer does not speak the wire protocol.
    ProtocolBroken(String),
    /// The client, or the handle, was closed.
    Closed,
    /// An argument is no value of the language, or an operation does not take it. Nothing was sent.
    InvalidArgument(InvalidArgument),
    /// A received value does not fit the type that the caller asked for.
    Decode(DecodeError),
    /// An operation on a socket, a file or a stream failed.
    Io(Arc<io::Error>),
}

impl Error {
    /// Return the code of a refusal; `None` of other errors.
    pub fn code(&self) -> Option<&Code> {
        self.refusal().map(|refusal| &refusal.code)
    }

    /// Return true for a refusal with that code.
    pub fn is(&self, code: Code) -> bool {
        self.code() == Some(&code)
    }

    /// Return the refusal of the node; `None` of other errors.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Return true if the request may have been executed, and no answer will tell.
    ///
    /// That is so for [`Error::OutcomeUnknown`] and for the node's own [`Code::UnknownOutcome`].
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. }) || self.is(Code::UnknownOutcome)
    }

    /// Return true for a refusal that says that the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.retry)
    }

    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::ProtocolBroken(message.into())
    }

    pub(crate) fn unknown(message: impl Into<String>, cause: Option<Self>) -> Self {
        Self::OutcomeUnknown { message: message.into(), cause: cause.map(Box::new) }
    }

    pub(crate) fn unreachable(message: impl Into<String>, cause: Option<Self>) -> Self {
        Self::Unreachable { message: message.into(), cause: cause.map(Box::new) }
    }

    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Self::InvalidArgument(InvalidArgument::new(reason))
    }

    /// Return true if the error goes away with time: a node that is away, stops, is full, only reads, or is behind.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::OutcomeUnknown { .. } | Self::Unreachable { .. } => true,
            Self::Refused(refusal) => {
                let passes = matches!(refusal.code, Code::NotWritable | Code::UnknownOutcome);
                refusal.retry || refusal.is_behind() || passes
            }
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::OutcomeUnknown { message, .. } => write!(f, "outcome unknown: {message}"),
            Self::Unreachable { message, .. } => write!(f, "unreachable: {message}"),
            Self::ProtocolBroken(message) => write!(f, "protocol broken: {message}"),
            Self::Closed => f.write_str("the client has been closed"),
            Self::InvalidArgument(argument) => argument.fmt(f),
            Self::Decode(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OutcomeUnknown { cause: Some(cause), .. }
            | Self::Unreachable { cause: Some(cause), .. } => Some(&**cause),
            Self::Io(error) => error.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl From<InvalidArgument> for Error {
    fn from(argument: InvalidArgument) -> Self {
        Self::InvalidArgument(argument)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// A refusal of the node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// Stable name of the refusal.
    pub code: Code,
    /// Message for people.
    pub message: String,
    /// HTTP status of the same error.
    pub status: u16,
    /// True if the same request may succeed later.
    pub retry: bool,
    /// Facts for programs, with keys that are stable for a code.
    pub detail: Object,
    /// Name of the request in the node's log.
    pub request: Option<String>,
    /// Place of the refusal in the script, from 1.
    pub statement: Option<u32>,
    /// Line of that place, from 1.
    pub line: Option<u32>,
    /// Column of that place, from 1.
    pub column: Option<u32>,
    /// Results of the statements before the refused one that were kept.
    pub results: Vec<StatementResult>,
}

impl Refusal {
    /// Return the newest sequence that the script committed before it was refused; 0: it changed nothing.
    pub fn committed(&self) -> i64 {
        self.detail.get("committed").and_then(Value::as_int).unwrap_or(0)
    }

    /// Return true if a node did not show in time the sequence that the request was to come after.
    pub(crate) fn is_behind(&self) -> bool {
        self.code == Code::StatementTimeout && self.detail.contains_key("after")
    }

    pub(crate) fn local(code: Code, status: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            status,
            retry: false,
            detail: Object::new(),
            request: None,
            statement: None,
            line: None,
            column: None,
            results: Vec::new(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.statement, self.line, self.column) {
            (Some(statement), Some(line), Some(column)) => {
                let first = self.message.lines().next().unwrap_or_default();
                write!(f, "{}: {first} (statement {statement}, line {line}, column {column})", self.code)
            }
            _ => write!(f, "{}: {}", self.code, self.message),
        }
    }
}

impl std::error::Error for Refusal {}

/// An argument that is no value of the language, or that an operation does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{reason}", .path, if .path.is_empty() { "" } else { ": " })]
#[non_exhaustive]
pub struct InvalidArgument {
    /// Place of the value, such as `$item.sizes[2]`; empty for the whole argument.
    pub path: String,
    /// Reason of the refusal.
    pub reason: String,
}

impl InvalidArgument {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    /// Return the same error with a place before its own.
    pub(crate) fn under(mut self, place: impl fmt::Display) -> Self {
        self.path = format!("{place}{}", self.path);
        self
    }
}

/// A value does not fit the type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{reason}", .path, if .path.is_empty() { "" } else { ": " })]
#[non_exhaustive]
pub struct DecodeError {
    /// Place of the value, such as `.items[2]`; empty for the whole value.
    pub path: String,
    /// Reason.
    pub reason: String,
}

impl DecodeError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    pub(crate) fn under(mut self, place: impl fmt::Display) -> Self {
        self.path = format!("{place}{}", self.path);
        self
    }
}

/// Outcome of an attempt that has no reply.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Nothing of the request was written: it is sent on another connection.
    NotSent,
    Error(Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}
