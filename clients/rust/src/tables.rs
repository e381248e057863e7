//! Made by `make docs` of protocol/errors.py: change that, not this file.

use std::fmt;

/// Version of the client, and of the node that it came with.
pub const VERSION: &str = "0.2.0-beta";

/// Stable name of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// A thing or record of that name or id already exists.
    AlreadyExists,
    /// The answer is larger than a wire frame, or no memory is left for it; the message says its size.
    AnswerTooLarge,
    /// A field's ASSERT, or the EXPECT of a PUBLISH, does not hold.
    AssertFailed,
    /// The audit entry could not be written.
    AuditRefused,
    /// A backup file is damaged; the message says where.
    BackupCorrupt,
    /// A backup file is truncated.
    BackupCut,
    /// A file exists at that backup name.
    BackupExists,
    /// A backup name is not relative and made of plain parts.
    BackupNameRefused,
    /// A request, parameter or argument has the wrong form.
    BadRequest,
    /// The node cannot do this at present: a limit of concurrent work or memory is reached (backpressure), or its cluster has no known leader.
    Busy,
    /// The caller cancelled the request or disconnected.
    Cancelled,
    /// The transaction had a conflict with another commit at every retry.
    Conflict,
    /// The disk has no space for the log; reads still work.
    DiskFull,
    /// The position to resume from is not in this history: it belongs to another store, or this store was restored or has diverged since. Data derived from that position must be rebuilt.
    Diverged,
    /// A division by zero.
    DivisionByZero,
    /// The node is stopping or has no role.
    Draining,
    /// A unique index already holds these values.
    Duplicate,
    /// An expiry is zero or negative.
    ExpireRefused,
    /// A bug in the node; the stack trace is on its standard error.
    Failed,
    /// A SCHEMAFULL table does not define that field, or it is READONLY and would change.
    FieldRefused,
    /// The request comes from a web page of another origin, through a browser that can reach this node.
    ForeignOrigin,
    /// The surface is at its limit of connections, or the topic at its limit of bytes.
    Full,
    /// A grant would reach beyond the user's space.
    GrantOutsideSpace,
    /// The head of the HTTP request is over its limit.
    HeadTooLarge,
    /// The store's last owner can't be removed or demoted.
    LastOwner,
    /// The requested part of the log was pruned; the message says where the log begins.
    LogPruned,
    /// The Host header does not name this node.
    MisdirectedRequest,
    /// A name does not match ^\[A-Za-z_\]\[A-Za-z0-9_-\]{0,63}$.
    NameRefused,
    /// The node was started without --backup-dir.
    NoBackupFolder,
    /// A table or larger scope has no history; only a record has one.
    NoHistory,
    /// The cache space has no such key.
    NoKey,
    /// The HTTP path does not exist.
    NoSuchRoute,
    /// A counter's value is not an integer.
    NotANumber,
    /// The path names no cache space.
    NotASpace,
    /// The caller lacks a privilege; detail.needs names it.
    NotAllowed,
    /// Too few followers are in sync. Nothing was written; or the answer would rest on commits that they do not hold yet.
    NotEnoughReplicas,
    /// The node does not hold all of the requested data.
    NotHeldHere,
    /// A transfer coding or method that the node does not speak, or a statement that this version parses but cannot execute.
    NotImplementedHere,
    /// The statement is not allowed at this point, inside or outside of a transaction.
    NotInTransaction,
    /// The node lacks the writable role, or another node is the leader.
    NotWritable,
    /// A number is out of range: 64-bit integers, 34-digit decimals.
    NumberTooLarge,
    /// The request did not arrive in time.
    RequestTimeout,
    /// A script to restore contains a statement that does not only create.
    RestoreRefused,
    /// A database that the script would create already exists.
    RestoreTargetExists,
    /// The vault is sealed.
    Sealed,
    /// The token is unknown, ended or expired.
    SessionEnded,
    /// User and password do not match, or no credential was given.
    SignInRefused,
    /// The statement exceeded its TIMEOUT; or the node did not reach the sequence of `after` in time; or pending commits that it read were not acknowledged by the in-sync replicas in time.
    StatementTimeout,
    /// The object is still in use.
    StillHeld,
    /// The node has shown commits that the log of its leader lacks, which only a fault can cause. Nothing was cut off; the node must be copied again.
    Stranded,
    /// The script executed THROW; detail.value is the thrown value.
    Thrown,
    /// A request, record, transaction or working set is over its limit.
    TooLarge,
    /// Too many sign-ins of this user or from this address were waiting before this one.
    TooManyTries,
    /// The reader of a feed fell too far behind. It can resume from the last sequence that it received.
    TooSlow,
    /// A value has the wrong type for the operation, or for the field of a table.
    TypeRefused,
    /// A text of the language does not parse.
    UnexpectedToken,
    /// The thing does not exist, or the caller may not see it.
    Unknown,
    /// The outcome of a commit is unknown: it may have happened. It was on its way to the disk or to followers when the wait for it ended. Causes: the log failed, the request timed out or was killed, in-sync replicas did not acknowledge in time, or the node lost its leadership. detail.sequence is the number of the commit.
    UnknownOutcome,
    /// This route speaks only WebSocket, version 13.
    UpgradeRequired,
    /// A protocol version that the node does not speak.
    VersionNotSupported,
    /// An encrypted store or backup needs another key, or a vault another passphrase.
    WrongKey,
    /// The path exists, with other methods; see Allow.
    WrongMethod,
    /// A code that this version does not know.
    Other(Box<str>),
}

impl Code {
    /// Return the name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AlreadyExists => "AlreadyExists",
            Self::AnswerTooLarge => "AnswerTooLarge",
            Self::AssertFailed => "AssertFailed",
            Self::AuditRefused => "AuditRefused",
            Self::BackupCorrupt => "BackupCorrupt",
            Self::BackupCut => "BackupCut",
            Self::BackupExists => "BackupExists",
            Self::BackupNameRefused => "BackupNameRefused",
            Self::BadRequest => "BadRequest",
            Self::Busy => "Busy",
            Self::Cancelled => "Cancelled",
            Self::Conflict => "Conflict",
            Self::DiskFull => "DiskFull",
            Self::Diverged => "Diverged",
            Self::DivisionByZero => "DivisionByZero",
            Self::Draining => "Draining",
            Self::Duplicate => "Duplicate",
            Self::ExpireRefused => "ExpireRefused",
            Self::Failed => "Failed",
            Self::FieldRefused => "FieldRefused",
            Self::ForeignOrigin => "ForeignOrigin",
            Self::Full => "Full",
            Self::GrantOutsideSpace => "GrantOutsideSpace",
            Self::HeadTooLarge => "HeadTooLarge",
            Self::LastOwner => "LastOwner",
            Self::LogPruned => "LogPruned",
            Self::MisdirectedRequest => "MisdirectedRequest",
            Self::NameRefused => "NameRefused",
            Self::NoBackupFolder => "NoBackupFolder",
            Self::NoHistory => "NoHistory",
            Self::NoKey => "NoKey",
            Self::NoSuchRoute => "NoSuchRoute",
            Self::NotANumber => "NotANumber",
            Self::NotASpace => "NotASpace",
            Self::NotAllowed => "NotAllowed",
            Self::NotEnoughReplicas => "NotEnoughReplicas",
            Self::NotHeldHere => "NotHeldHere",
            Self::NotImplementedHere => "NotImplementedHere",
            Self::NotInTransaction => "NotInTransaction",
            Self::NotWritable => "NotWritable",
            Self::NumberTooLarge => "NumberTooLarge",
            Self::RequestTimeout => "RequestTimeout",
            Self::RestoreRefused => "RestoreRefused",
            Self::RestoreTargetExists => "RestoreTargetExists",
            Self::Sealed => "Sealed",
            Self::SessionEnded => "SessionEnded",
            Self::SignInRefused => "SignInRefused",
            Self::StatementTimeout => "StatementTimeout",
            Self::StillHeld => "StillHeld",
            Self::Stranded => "Stranded",
            Self::Thrown => "Thrown",
            Self::TooLarge => "TooLarge",
            Self::TooManyTries => "TooManyTries",
            Self::TooSlow => "TooSlow",
            Self::TypeRefused => "TypeRefused",
            Self::UnexpectedToken => "UnexpectedToken",
            Self::Unknown => "Unknown",
            Self::UnknownOutcome => "UnknownOutcome",
            Self::UpgradeRequired => "UpgradeRequired",
            Self::VersionNotSupported => "VersionNotSupported",
            Self::WrongKey => "WrongKey",
            Self::WrongMethod => "WrongMethod",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Code {
    fn from(name: &str) -> Self {
        match name {
            "AlreadyExists" => Self::AlreadyExists,
            "AnswerTooLarge" => Self::AnswerTooLarge,
            "AssertFailed" => Self::AssertFailed,
            "AuditRefused" => Self::AuditRefused,
            "BackupCorrupt" => Self::BackupCorrupt,
            "BackupCut" => Self::BackupCut,
            "BackupExists" => Self::BackupExists,
            "BackupNameRefused" => Self::BackupNameRefused,
            "BadRequest" => Self::BadRequest,
            "Busy" => Self::Busy,
            "Cancelled" => Self::Cancelled,
            "Conflict" => Self::Conflict,
            "DiskFull" => Self::DiskFull,
            "Diverged" => Self::Diverged,
            "DivisionByZero" => Self::DivisionByZero,
            "Draining" => Self::Draining,
            "Duplicate" => Self::Duplicate,
            "ExpireRefused" => Self::ExpireRefused,
            "Failed" => Self::Failed,
            "FieldRefused" => Self::FieldRefused,
            "ForeignOrigin" => Self::ForeignOrigin,
            "Full" => Self::Full,
            "GrantOutsideSpace" => Self::GrantOutsideSpace,
            "HeadTooLarge" => Self::HeadTooLarge,
            "LastOwner" => Self::LastOwner,
            "LogPruned" => Self::LogPruned,
            "MisdirectedRequest" => Self::MisdirectedRequest,
            "NameRefused" => Self::NameRefused,
            "NoBackupFolder" => Self::NoBackupFolder,
            "NoHistory" => Self::NoHistory,
            "NoKey" => Self::NoKey,
            "NoSuchRoute" => Self::NoSuchRoute,
            "NotANumber" => Self::NotANumber,
            "NotASpace" => Self::NotASpace,
            "NotAllowed" => Self::NotAllowed,
            "NotEnoughReplicas" => Self::NotEnoughReplicas,
            "NotHeldHere" => Self::NotHeldHere,
            "NotImplementedHere" => Self::NotImplementedHere,
            "NotInTransaction" => Self::NotInTransaction,
            "NotWritable" => Self::NotWritable,
            "NumberTooLarge" => Self::NumberTooLarge,
            "RequestTimeout" => Self::RequestTimeout,
            "RestoreRefused" => Self::RestoreRefused,
            "RestoreTargetExists" => Self::RestoreTargetExists,
            "Sealed" => Self::Sealed,
            "SessionEnded" => Self::SessionEnded,
            "SignInRefused" => Self::SignInRefused,
            "StatementTimeout" => Self::StatementTimeout,
            "StillHeld" => Self::StillHeld,
            "Stranded" => Self::Stranded,
            "Thrown" => Self::Thrown,
            "TooLarge" => Self::TooLarge,
            "TooManyTries" => Self::TooManyTries,
            "TooSlow" => Self::TooSlow,
            "TypeRefused" => Self::TypeRefused,
            "UnexpectedToken" => Self::UnexpectedToken,
            "Unknown" => Self::Unknown,
            "UnknownOutcome" => Self::UnknownOutcome,
            "UpgradeRequired" => Self::UpgradeRequired,
            "VersionNotSupported" => Self::VersionNotSupported,
            "WrongKey" => Self::WrongKey,
            "WrongMethod" => Self::WrongMethod,
            _ => Self::Other(name.into()),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
