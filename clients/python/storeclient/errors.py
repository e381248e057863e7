"""Exceptions of the client.

    StoreError
    ├── Refused             the node refused; one class below for each of its codes
    ├── OutcomeUnknown      the connection broke, or time ran out, while a script was running
    ├── Unreachable         no connection could be made, in time or at all; nothing was sent
    ├── ProtocolBroken      the peer does not speak the protocol
    └── Closed              the client has been closed

Only after `OutcomeUnknown` a script may have run or not. After all others it did not run to its
end. `Refused.results` holds the results before a refusal. `Refused.committed` is set if a part of
the script is committed: sent again, the script would do that part twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from storeclient.answers import Result


class StoreError(Exception):
    """Base of all exceptions of this package, except for wrong arguments (`TypeError`,
    `ValueError`)."""


class OutcomeUnknown(StoreError):
    """A script was sent and its answer is lost: it may have run as a whole, in part, or not at all.

    The client never repeats it by itself. Check the state before you repeat it, or write idempotent
    scripts.
    """


class LoadFailed(StoreError):
    """A bulk load ended early; `__cause__` is the error that ended it.

    Each batch is one commit, so whole ranges of rows are written or not. Rows are numbered from 0.
    """

    def __init__(
        self, message: str, written: tuple[range, ...], unknown: tuple[range, ...], row: int | None
    ) -> None:
        super().__init__(message)
        self.written = written
        """Rows known to be written."""
        self.unknown = unknown
        """Rows of which it is not known: `OutcomeUnknown`. All others are not written."""
        self.row = row
        """The refused row, if the node named one."""

    def __str__(self) -> str:
        count = sum(map(len, self.written))
        told = f"{self.args[0]}; {count} rows are written"
        if self.unknown:
            told += f", of {sum(map(len, self.unknown))} it is unknown"
        return told if self.row is None else f"{told}, row {self.row} was refused"


class Unreachable(StoreError):
    """No connection within the time-out, or no server of the wire protocol there. `__cause__` is
    the error of the last attempt."""


class ProtocolBroken(StoreError):
    """The peer sent data that is not the wire protocol."""


class Closed(StoreError):
    """The client has been closed."""


class Refused(StoreError):
    """The node refused the request. Codes of newer nodes without a class here raise this."""

    classes: ClassVar[dict[str, type[Refused]]] = {}

    def __init_subclass__(cls) -> None:
        Refused.classes[cls.__name__] = cls

    def __init__(self, error: dict[str, Any], results: tuple[Result, ...] = ()) -> None:
        """:param error: the error as the node sent it"""
        super().__init__(str(error.get("message", "")))
        self.code: str = str(error.get("code", type(self).__name__))
        """Stable code of the error; the name of its class."""
        self.status = int(error.get("status", 500))
        """HTTP status of the same error over HTTP."""
        self.retry = bool(error.get("retry", False))
        """True if the same request, sent again unchanged, may succeed; never once a part is
        committed."""
        self.detail: dict[str, Any] = error.get("detail") or {}
        """Facts for programs: the keys are stable for a code."""
        self.request: str | None = error.get("request")
        """Id of the request in the node's log."""
        self.statement: int | None = error.get("statement")
        """Number of the refused statement in the script, from 1."""
        self.line: int | None = error.get("line")
        self.column: int | None = error.get("column")
        self.committed: int | None = self.detail.get("committed")
        """Newest sequence that the script had committed before. None: it changed nothing, so it may
        be sent again as a whole."""
        self.results = results
        """Results of the statements before the refusal."""

    def __str__(self) -> str:
        """Return the message with its position. The code is added only if it differs from the class
        name, which Python shows in front."""
        said = str(self.args[0])
        if self.line is not None and f"(line {self.line}, column " not in said:
            said += f" (line {self.line}, column {self.column})"
        return said if self.code == type(self).__name__ else f"{self.code}: {said}"


def refused(error: dict[str, Any], results: tuple[Result, ...] = ()) -> Refused:
    """Return the exception for an error of the node."""
    return Refused.classes.get(str(error.get("code")), Refused)(error, results)


class UnexpectedToken(Refused):
    """A text of the language does not parse."""


class NameRefused(Refused):
    """A name does not match ^[A-Za-z_][A-Za-z0-9_-]{0,63}$."""


class BackupNameRefused(Refused):
    """A backup name is not relative and made of plain parts."""


class ExpireRefused(Refused):
    """An expiry is zero or negative."""


class BadRequest(Refused):
    """A request, parameter or argument has the wrong form."""


class NoHistory(Refused):
    """A table or larger scope has no history; only a record has one."""


class NotInTransaction(Refused):
    """The statement is not allowed at this point, inside or outside of a transaction."""


class SignInRefused(Refused):
    """User and password do not match, or no credential was given."""


class SessionEnded(Refused):
    """The token is unknown, ended or expired."""


class NotAllowed(Refused):
    """The caller lacks a privilege; detail.needs names it."""


class ForeignOrigin(Refused):
    """The request comes from a web page of another origin, through a browser that can reach this
    node."""


class Unknown(Refused):
    """The thing does not exist, or the caller may not see it."""


class NoKey(Refused):
    """The cache space has no such key."""


class NotASpace(Refused):
    """The path names no cache space."""


class StatementTimeout(Refused):
    """The statement exceeded its TIMEOUT; or the node did not reach the sequence of `after` in
    time. In the second case nothing was run, and detail.after and detail.seq hold the numbers."""


class Cancelled(Refused):
    """The caller cancelled the request or disconnected."""


class NotWritable(Refused):
    """The node accepts no writes: it lacks the writable role, or another node is the leader. In a
    cluster detail.leader holds the leader's addresses."""


class NotHeldHere(Refused):
    """The node does not hold all of the requested data."""


class BackupExists(Refused):
    """A file exists at that backup name."""


class NoBackupFolder(Refused):
    """The node was started without --backup-dir."""


class RestoreTargetExists(Refused):
    """A database that the script would create already exists."""


class Conflict(Refused):
    """The transaction had a conflict with another commit at every retry."""


class AlreadyExists(Refused):
    """A thing or record of that name or id already exists."""


class Duplicate(Refused):
    """A unique index already holds these values."""


class LastOwner(Refused):
    """The store's last owner can't be removed or demoted."""


class GrantOutsideSpace(Refused):
    """A grant would reach beyond the user's space."""


class NotANumber(Refused):
    """A counter's value is not an integer."""


class NumberTooLarge(Refused):
    """A number is out of range: 64-bit integers, 34-digit decimals."""


class DivisionByZero(Refused):
    """A division by zero."""


class Thrown(Refused):
    """The script executed THROW; detail.value is the thrown value."""


class StillHeld(Refused):
    """The object is still in use."""


class LogPruned(Refused):
    """The requested part of the log was pruned; the message says where the log begins."""


class Diverged(Refused):
    """The position is not in this history: of another store, of before a restore, or ahead of the
    log."""


class Stranded(Refused):
    """The node has shown commits that its leader's log lacks: it must be copied again."""


class TooSlow(Refused):
    """The reader of a feed fell too far behind."""


class AnswerTooLarge(Refused):
    """The answer is larger than a wire frame; the message says its size."""


class TooLarge(Refused):
    """A request, record, transaction or working set is over its limit."""


class TypeRefused(Refused):
    """A value has the wrong type for the operation."""


class AssertFailed(Refused):
    """A field's ASSERT does not hold."""


class FieldRefused(Refused):
    """The table does not define that field."""


class RestoreRefused(Refused):
    """A script to restore contains a statement that does not only create."""


class BackupCut(Refused):
    """A backup file is truncated."""


class BackupCorrupt(Refused):
    """A backup file is damaged; the message says where."""


class WrongKey(Refused):
    """A sealed file needs another key."""


class Sealed(Refused):
    """The vault is sealed."""


class TooManyTries(Refused):
    """Too many failed sign-ins, with too many others waiting to be checked."""


class Failed(Refused):
    """A bug in the node; the stack trace is on its standard error."""


class UnknownOutcome(Refused, OutcomeUnknown):
    """The log failed while the commit was pending: it may have happened."""


class Busy(Refused):
    """The node cannot do this at present: a limit of concurrent work or memory is reached
    (backpressure), or its cluster has no known leader."""


class Full(Refused):
    """The surface is at its limit of connections."""


class Draining(Refused):
    """The node is stopping or has no role."""


class NotEnoughReplicas(Refused):
    """Too few followers are in sync."""


class AuditRefused(Refused):
    """The audit entry could not be written."""


class DiskFull(Refused):
    """The disk has no space for the log; reads still work."""


class VersionNotSupported(Refused):
    """A protocol version that the node does not speak."""
