// Made by `make docs` of protocol/errors.py: change that, not this file.

package storeclient

/** Version of the client, and of the node that it came with. */
public const val VERSION: String = "0.2.0-beta"

/** Codes of refusals. A newer node may send others. */
public object Code {
    /** A thing or record of that name or id already exists. */
    public const val ALREADY_EXISTS: String = "AlreadyExists"

    /** The answer is larger than a wire frame, or no memory is left for it; the message says its size. */
    public const val ANSWER_TOO_LARGE: String = "AnswerTooLarge"

    /** A field's ASSERT, or the EXPECT of a PUBLISH, does not hold. */
    public const val ASSERT_FAILED: String = "AssertFailed"

    /** The audit entry could not be written. */
    public const val AUDIT_REFUSED: String = "AuditRefused"

    /** A backup file is damaged; the message says where. */
    public const val BACKUP_CORRUPT: String = "BackupCorrupt"

    /** A backup file is truncated. */
    public const val BACKUP_CUT: String = "BackupCut"

    /** A file exists at that backup name. */
    public const val BACKUP_EXISTS: String = "BackupExists"

    /** A backup name is not relative and made of plain parts. */
    public const val BACKUP_NAME_REFUSED: String = "BackupNameRefused"

    /** A request, parameter or argument has the wrong form. */
    public const val BAD_REQUEST: String = "BadRequest"

    /** The node cannot do this at present: a limit of concurrent work or memory is reached (backpressure), or
     * its cluster has no known leader. */
    public const val BUSY: String = "Busy"

    /** The caller cancelled the request or disconnected. */
    public const val CANCELLED: String = "Cancelled"

    /** The transaction had a conflict with another commit at every retry. */
    public const val CONFLICT: String = "Conflict"

    /** The disk has no space for the log; reads still work. */
    public const val DISK_FULL: String = "DiskFull"

    /** The position to resume from is not in this history: it belongs to another store, or this store was
     * restored or has diverged since. Data derived from that position must be rebuilt. */
    public const val DIVERGED: String = "Diverged"

    /** A division by zero. */
    public const val DIVISION_BY_ZERO: String = "DivisionByZero"

    /** The node is stopping or has no role. */
    public const val DRAINING: String = "Draining"

    /** A unique index already holds these values. */
    public const val DUPLICATE: String = "Duplicate"

    /** An expiry is zero or negative. */
    public const val EXPIRE_REFUSED: String = "ExpireRefused"

    /** A bug in the node; the stack trace is on its standard error. */
    public const val FAILED: String = "Failed"

    /** A SCHEMAFULL table does not define that field, or it is READONLY and would change. */
    public const val FIELD_REFUSED: String = "FieldRefused"

    /** The request comes from a web page of another origin, through a browser that can reach this node. */
    public const val FOREIGN_ORIGIN: String = "ForeignOrigin"

    /** The surface is at its limit of connections, or the topic at its limit of bytes. */
    public const val FULL: String = "Full"

    /** A grant would reach beyond the user's space. */
    public const val GRANT_OUTSIDE_SPACE: String = "GrantOutsideSpace"

    /** The head of the HTTP request is over its limit. */
    public const val HEAD_TOO_LARGE: String = "HeadTooLarge"

    /** The store's last owner can't be removed or demoted. */
    public const val LAST_OWNER: String = "LastOwner"

    /** The requested part of the log was pruned; the message says where the log begins. */
    public const val LOG_PRUNED: String = "LogPruned"

    /** The Host header does not name this node. */
    public const val MISDIRECTED_REQUEST: String = "MisdirectedRequest"

    /** A name does not match ^[A-Za-z_][A-Za-z0-9_-]{0,63}$. */
    public const val NAME_REFUSED: String = "NameRefused"

    /** The node was started without --backup-dir. */
    public const val NO_BACKUP_FOLDER: String = "NoBackupFolder"

    /** A table or larger scope has no history; only a record has one. */
    public const val NO_HISTORY: String = "NoHistory"

    /** The cache space has no such key. */
    public const val NO_KEY: String = "NoKey"

    /** The HTTP path does not exist. */
    public const val NO_SUCH_ROUTE: String = "NoSuchRoute"

    /** A counter's value is not an integer. */
    public const val NOT_A_NUMBER: String = "NotANumber"

    /** The path names no cache space. */
    public const val NOT_A_SPACE: String = "NotASpace"

    /** The caller lacks a privilege; detail.needs names it. */
    public const val NOT_ALLOWED: String = "NotAllowed"

    /** Too few followers are in sync. Nothing was written; or the answer would rest on commits that they do
     * not hold yet. */
    public const val NOT_ENOUGH_REPLICAS: String = "NotEnoughReplicas"

    /** The node does not hold all of the requested data. */
    public const val NOT_HELD_HERE: String = "NotHeldHere"

    /** A transfer coding or method that the node does not speak, or a statement that this version parses but
     * cannot execute. */
    public const val NOT_IMPLEMENTED_HERE: String = "NotImplementedHere"

    /** The statement is not allowed at this point, inside or outside of a transaction. */
    public const val NOT_IN_TRANSACTION: String = "NotInTransaction"

    /** The node lacks the writable role, or another node is the leader. */
    public const val NOT_WRITABLE: String = "NotWritable"

    /** A number is out of range: 64-bit integers, 34-digit decimals. */
    public const val NUMBER_TOO_LARGE: String = "NumberTooLarge"

    /** The request did not arrive in time. */
    public const val REQUEST_TIMEOUT: String = "RequestTimeout"

    /** A script to restore contains a statement that does not only create. */
    public const val RESTORE_REFUSED: String = "RestoreRefused"

    /** A database that the script would create already exists. */
    public const val RESTORE_TARGET_EXISTS: String = "RestoreTargetExists"

    /** The vault is sealed. */
    public const val SEALED: String = "Sealed"

    /** The token is unknown, ended or expired. */
    public const val SESSION_ENDED: String = "SessionEnded"

    /** User and password do not match, or no credential was given. */
    public const val SIGN_IN_REFUSED: String = "SignInRefused"

    /** The statement exceeded its TIMEOUT; or the node did not reach the sequence of `after` in time; or
     * pending commits that it read were not acknowledged by the in-sync replicas in time. */
    public const val STATEMENT_TIMEOUT: String = "StatementTimeout"

    /** The object is still in use. */
    public const val STILL_HELD: String = "StillHeld"

    /** The node has shown commits that the log of its leader lacks, which only a fault can cause. Nothing was
     * cut off; the node must be copied again. */
    public const val STRANDED: String = "Stranded"

    /** The script executed THROW; detail.value is the thrown value. */
    public const val THROWN: String = "Thrown"

    /** A request, record, transaction or working set is over its limit. */
    public const val TOO_LARGE: String = "TooLarge"

    /** Too many sign-ins of this user or from this address were waiting before this one. */
    public const val TOO_MANY_TRIES: String = "TooManyTries"

    /** The reader of a feed fell too far behind. It can resume from the last sequence that it received. */
    public const val TOO_SLOW: String = "TooSlow"

    /** A value has the wrong type for the operation, or for the field of a table. */
    public const val TYPE_REFUSED: String = "TypeRefused"

    /** A text of the language does not parse. */
    public const val UNEXPECTED_TOKEN: String = "UnexpectedToken"

    /** The thing does not exist, or the caller may not see it. */
    public const val UNKNOWN: String = "Unknown"

    /** The outcome of a commit is unknown: it may have happened. It was on its way to the disk or to
     * followers when the wait for it ended. Causes: the log failed, the request timed out or was killed, in-
     * sync replicas did not acknowledge in time, or the node lost its leadership. detail.sequence is the
     * number of the commit. */
    public const val UNKNOWN_OUTCOME: String = "UnknownOutcome"

    /** This route speaks only WebSocket, version 13. */
    public const val UPGRADE_REQUIRED: String = "UpgradeRequired"

    /** A protocol version that the node does not speak. */
    public const val VERSION_NOT_SUPPORTED: String = "VersionNotSupported"

    /** An encrypted store or backup needs another key, or a vault another passphrase. */
    public const val WRONG_KEY: String = "WrongKey"

    /** The path exists, with other methods; see Allow. */
    public const val WRONG_METHOD: String = "WrongMethod"
}
