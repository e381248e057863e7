"""What can go wrong, as exceptions.

    StoreError
    ├── Refused             the node said no; one class below for each of its codes
    ├── OutcomeUnknown      the connection broke, or time ran out, while a script was under way
    ├── Unreachable         no connection could be made, in time or at all; nothing was sent
    ├── ProtocolBroken      the peer does not speak the protocol
    └── Closed              the client has been closed

Only `OutcomeUnknown` leaves open whether the script ran. After every other one of these it did not
run to its end. What a refused script answered before its refusal is in `Refused.results`, and
`Refused.committed` is set when something of it stands: sent again, that would be done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from storeclient.answers import Result


class StoreError(Exception):
    """Everything this package raises, but for wrong arguments (`TypeError`, `ValueError`)."""


class OutcomeUnknown(StoreError):
    """A script was sent and its answer will not come: it may have run, in part or whole, or not.

    Never repeated by the client itself. Look before repeating, or write so that repeating does no
    harm.
    """


class Unreachable(StoreError):
    """No connection in the time allowed, or nobody there who speaks the protocol. The cause is the
    last attempt's error."""


class ProtocolBroken(StoreError):
    """What came over the connection is not the wire protocol."""


class Closed(StoreError):
    """The client has been closed."""


class Refused(StoreError):
    """The node refused. Codes of newer nodes that this version has no class for come as this."""

    classes: ClassVar[dict[str, type[Refused]]] = {}

    def __init_subclass__(cls) -> None:
        Refused.classes[cls.__name__] = cls

    def __init__(self, error: dict[str, Any], results: tuple[Result, ...] = ()) -> None:
        """:param error: the error as the node sent it"""
        super().__init__(str(error.get("message", "")))
        self.code: str = str(error.get("code", type(self).__name__))
        """The stable name of the error; the name of its class."""
        self.status = int(error.get("status", 500))
        """The HTTP status that the same error has over HTTP."""
        self.retry = bool(error.get("retry", False))
        """Whether the same request may succeed when sent again unchanged; never once something
        of it stands."""
        self.detail: dict[str, Any] = error.get("detail") or {}
        """For programs: the keys are stable for a code."""
        self.request: str | None = error.get("request")
        """Names the request in the node's log."""
        self.statement: int | None = error.get("statement")
        """Which statement of the script was refused, from 1."""
        self.line: int | None = error.get("line")
        self.column: int | None = error.get("column")
        self.committed: int | None = self.detail.get("committed")
        """The newest sequence that the script had committed before; None: it has changed nothing,
        so that it may be sent again as a whole."""
        self.results = results
        """What ran before the refusal."""

    def __str__(self) -> str:
        """The message, with its place; not the code where that is the name of the class, which
        stands before it wherever an error is shown."""
        said = str(self.args[0])
        if self.line is not None and f"(line {self.line}, column " not in said:
            said += f" (line {self.line}, column {self.column})"
        return said if self.code == type(self).__name__ else f"{self.code}: {said}"


def refused(error: dict[str, Any], results: tuple[Result, ...] = ()) -> Refused:
    """The exception for an error of the node."""
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
    """A place or table has no history; a record has."""


class NotInTransaction(Refused):
    """The statement does not fit where it stands in a transaction."""


class SignInRefused(Refused):
    """User and password do not match, or no credential was given."""


class SessionEnded(Refused):
    """The token is unknown, ended or expired."""


class NotAllowed(Refused):
    """The caller lacks a grant; detail.needs names it."""


class ForeignOrigin(Refused):
    """A page of another site asked, through the browser of somebody who can reach this node."""


class Unknown(Refused):
    """No such thing, or none that the caller may see."""


class NoKey(Refused):
    """The cache space has no such key."""


class NotASpace(Refused):
    """The path names no cache space."""


class StatementTimeout(Refused):
    """The statement used up its TIMEOUT, or the node did not show in time what the request was to
    come after: detail.after and detail.seq say so then, and nothing was run."""


class Cancelled(Refused):
    """The caller cancelled the request or went away."""


class NotWritable(Refused):
    """The node takes no changes: it lacks the role, or another takes them; detail.leader names that
    one's addresses, where the node is in a cluster."""


class NotHeldHere(Refused):
    """The node does not hold all of what was asked for."""


class BackupExists(Refused):
    """A file exists at that backup name."""


class NoBackupFolder(Refused):
    """The node was started without --backup-dir."""


class RestoreTargetExists(Refused):
    """A database that the script creates exists."""


class Conflict(Refused):
    """Another commit won every retry of this transaction."""


class AlreadyExists(Refused):
    """Something of that name or id exists."""


class Duplicate(Refused):
    """A unique index holds these values already."""


class LastOwner(Refused):
    """The store's last owner can't be removed or demoted."""


class GrantOutsideSpace(Refused):
    """A grant would reach beyond the user's space."""


class NotANumber(Refused):
    """A counter's value is not an integer."""


class NumberTooLarge(Refused):
    """A number left its range: 64-bit integers, 34-digit decimals."""


class DivisionByZero(Refused):
    """A division by zero."""


class Thrown(Refused):
    """The script's own THROW; detail.value is what it threw."""


class StillHeld(Refused):
    """Something is still in use."""


class LogPruned(Refused):
    """The log begins later; the message says where."""


class Diverged(Refused):
    """A position is of another history: another store, one that was restored, the future."""


class Stranded(Refused):
    """The node has shown what its leader's log does not hold: it has to be copied anew."""


class TooSlow(Refused):
    """The reader of a feed did not keep up."""


class AnswerTooLarge(Refused):
    """The answer is larger than a wire frame; the message says its size."""


class TooLarge(Refused):
    """A request, record, transaction or working set is over its limit."""


class TypeRefused(Refused):
    """A value has the wrong type for what is done with it."""


class AssertFailed(Refused):
    """A field's ASSERT does not hold."""


class FieldRefused(Refused):
    """The table does not define that field."""


class RestoreRefused(Refused):
    """A script to restore does something other than create."""


class BackupCut(Refused):
    """A backup file ends early."""


class BackupCorrupt(Refused):
    """A backup file is damaged; the message says where."""


class WrongKey(Refused):
    """A sealed file opens under another key."""


class Sealed(Refused):
    """The vault is sealed."""


class TooManyTries(Refused):
    """Too many failed sign-ins, and too many that wait for their turn behind them."""


class Failed(Refused):
    """A bug in the node; the trace is on its standard error."""


class UnknownOutcome(Refused, OutcomeUnknown):
    """The log failed while the commit was on its way: it may have happened."""


class Busy(Refused):
    """The node is doing as much as it will."""


class Full(Refused):
    """The surface holds as many connections as it will."""


class Draining(Refused):
    """The node is stopping or has no role."""


class NotEnoughReplicas(Refused):
    """Too few followers are in sync."""


class AuditRefused(Refused):
    """The audit entry could not be written."""


class DiskFull(Refused):
    """No room for the log; reads go on."""


class VersionNotSupported(Refused):
    """A protocol version that the node does not speak."""
