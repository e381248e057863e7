"""The error catalogue: every refusal of the node is a class here, with a stable code, an HTTP
status and a meaning.

The class is the row: its name is the code, its docstring the meaning, so neither can exist without
the other. `docs/errors.md` is made from this file.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Final, Self


class Refusal(Exception):
    """A refusal: the error answer of the node to a request.

    Raised where the condition is found, and turned into an answer in one place on each surface.

    :param message: for people; shows the offending value, never a secret
    :param detail: for programs; its keys are stable for a code
    """

    status: ClassVar[int]
    retry: ClassVar[bool]
    """True if the same request, sent again unchanged, may succeed."""
    retry_after_s: ClassVar[int | None]

    def __init_subclass__(
        cls, *, status: int, retry: bool = False, retry_after_s: int | None = None
    ) -> None:
        assert cls.__name__ not in CATALOGUE, f"{cls.__name__} stands twice in the catalogue"
        cls.status, cls.retry, cls.retry_after_s = status, retry, retry_after_s
        CATALOGUE[cls.__name__] = cls

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.offset: int | None = None
        """Offset in the script's text of the expression that was refused, if there is one."""

    @property
    def code(self) -> str:
        """Stable name of the error, for programs."""
        return type(self).__name__

    @property
    def without_place(self) -> str:
        """Message of a parse error without its position and its excerpt of the text."""
        line, column = self.detail.get("line"), self.detail.get("column")
        return self.message.partition("\n")[0].removesuffix(f" (line {line}, column {column})")

    def also(self, **detail: object) -> Self:
        """Return a copy with more detail. A copy, since one refusal object may be reported to many
        clients."""
        told = copy(self)
        told.detail = {**self.detail, **detail}
        told.__cause__ = self.__cause__
        return told

    def answer(self, request: str | None = None) -> dict[str, object]:
        """Return the error as all surfaces send it, under `error`.

        A refusal inside a script also names the `statement` (from 1), `line` and `column`. Once the
        script has committed something, `detail.committed` is its newest sequence on the disk, and
        `retry` is false: sent again unchanged, the script would do that part twice.

        Message and detail quote the request, so they may hold values that no answer can carry.
        Strings are escaped to valid UTF-8; tuples and sets become lists.
        """
        where = {name: self.detail[name] for name in _WHERE if name in self.detail}
        return {
            "code": self.code,
            "message": _shown(self.message),
            "status": self.status,
            "retry": self.retry and COMMITTED not in self.detail,
            "detail": _shown(
                {name: self.detail[name] for name in self.detail if name not in where}
            ),
            "request": request,
            **where,
        }


COMMITTED: Final = "committed"
"""Key in the detail of the refusal that stopped a script: the script's newest own commit."""

LEADER: Final = "leader"
"""Key in the detail of `NotWritable`, of a node in a cluster: endpoints of the leader, a list of
`host:port`; empty while no leader is known."""

_WHERE: Final[tuple[str, ...]] = ("statement", "line", "column")


def _shown(item: object) -> object:
    if isinstance(item, str):
        # JSON may contain lone surrogates, which UTF-8 cannot encode: shown as \ud800.
        return item if item.isascii() else item.encode("utf-8", "backslashreplace").decode()
    if isinstance(item, list | tuple | set | frozenset):
        return [_shown(part) for part in item]
    if isinstance(item, dict):
        return {_shown(name): _shown(part) for name, part in item.items()}
    return item


CATALOGUE: Final[dict[str, type[Refusal]]] = {}
"""All refusal classes, by code."""


def after(refusal: Refusal, committed: int) -> Refusal:
    """Return a script's refusal with the sequence that the script had committed before; 0: none."""
    return refusal.also(**{COMMITTED: committed}) if committed else refusal


class UnexpectedToken(Refusal, status=400):
    """A text of the language does not parse.

    Detail: found, expected, line, column, near.
    """


class NameRefused(Refusal, status=400):
    """A name does not match ^[A-Za-z_][A-Za-z0-9_-]{0,63}$."""


class BackupNameRefused(Refusal, status=400):
    """A backup name is not relative and made of plain parts."""


class ExpireRefused(Refusal, status=400):
    """An expiry is zero or negative."""


class BadRequest(Refusal, status=400):
    """A request, parameter or argument has the wrong form."""


class NoHistory(Refusal, status=400):
    """A table or larger scope has no history; only a record has one."""


class NotInTransaction(Refusal, status=400):
    """The statement is not allowed at this point, inside or outside of a transaction."""


class SignInRefused(Refusal, status=401):
    """User and password do not match, or no credential was given."""


class SessionEnded(Refusal, status=401):
    """The token is unknown, ended or expired."""


class NotAllowed(Refusal, status=403):
    """The caller lacks a privilege; detail.needs names it."""


class ForeignOrigin(Refusal, status=403):
    """The request comes from a web page of another origin, through a browser that can reach this
    node."""


class Unknown(Refusal, status=404):
    """The thing does not exist, or the caller may not see it."""


class NoKey(Refusal, status=404):
    """The cache space has no such key."""


class NotASpace(Refusal, status=404):
    """The path names no cache space."""


class NoSuchRoute(Refusal, status=404):
    """The HTTP path does not exist."""


class WrongMethod(Refusal, status=405):
    """The path exists, with other methods; see Allow."""


class StatementTimeout(Refusal, status=408):
    """The statement exceeded its TIMEOUT; or the node did not reach the sequence of `after` in
    time; or pending commits that it read were not acknowledged by the in-sync replicas in time.

    Detail of the second case: after, and seq, the newest sequence that the node shows; nothing was
    run.
    """


class Cancelled(Refusal, status=408):
    """The caller cancelled the request or disconnected."""


class TooSlow(Refusal, status=408):
    """The reader of a feed fell too far behind. It can resume from the last sequence that it
    received."""


class RequestTimeout(Refusal, status=408):
    """The request did not arrive in time."""


class NotWritable(Refusal, status=409):
    """The node lacks the writable role, or another node is the leader.

    Detail of the latter: leader, the leader's endpoints; empty while no leader is known.
    """

    @property
    def leader(self) -> tuple[str, ...]:
        """Endpoints of the leader, as far as this node knows them."""
        found = self.detail.get(LEADER)
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


class NotHeldHere(Refusal, status=409):
    """The node does not hold all of the requested data."""


class BackupExists(Refusal, status=409):
    """A file exists at that backup name."""


class NoBackupFolder(Refusal, status=409):
    """The node was started without --backup-dir."""


class RestoreTargetExists(Refusal, status=409):
    """A database that the script would create already exists."""


class Conflict(Refusal, status=409, retry=True):
    """The transaction had a conflict with another commit at every retry."""


class AlreadyExists(Refusal, status=409):
    """A thing or record of that name or id already exists."""


class Duplicate(Refusal, status=409):
    """A unique index already holds these values."""


class LastOwner(Refusal, status=409):
    """The store's last owner can't be removed or demoted."""


class GrantOutsideSpace(Refusal, status=409):
    """A grant would reach beyond the user's space."""


class NotANumber(Refusal, status=409):
    """A counter's value is not an integer."""


class NumberTooLarge(Refusal, status=409):
    """A number is out of range: 64-bit integers, 34-digit decimals."""


class DivisionByZero(Refusal, status=409):
    """A division by zero."""


class Thrown(Refusal, status=409):
    """The script executed THROW; detail.value is the thrown value."""


class StillHeld(Refusal, status=409):
    """The object is still in use."""


class LogPruned(Refusal, status=410):
    """The requested part of the log was pruned; the message says where the log begins."""


class Diverged(Refusal, status=410):
    """The position to resume from is not in this history: it belongs to another store, or this
    store was restored or has diverged since. Data derived from that position must be rebuilt."""


class Stranded(Refusal, status=410):
    """The node has shown commits that the log of its leader lacks, which only a fault can cause.
    Nothing was cut off; the node must be copied again."""


class AnswerTooLarge(Refusal, status=413):
    """The answer is larger than a wire frame, or no memory is left for it; the message says its
    size.

    If the frame is too small for the answer of a write, the write is refused before it is
    committed.
    """


class TooLarge(Refusal, status=413):
    """A request, record, transaction or working set is over its limit."""


class MisdirectedRequest(Refusal, status=421):
    """The Host header does not name this node."""


class TypeRefused(Refusal, status=422):
    """A value has the wrong type for the operation, or for the field of a table.

    Detail of a field: table, field, wanted, found.
    """


class AssertFailed(Refusal, status=422):
    """A field's ASSERT, or the EXPECT of a PUBLISH, does not hold.

    Detail: table, field, wanted, found; of a PUBLISH: expected, found.
    """


class FieldRefused(Refusal, status=422):
    """A SCHEMAFULL table does not define that field, or it is READONLY and would change.

    Detail: table, field, wanted, found.
    """


class RestoreRefused(Refusal, status=422):
    """A script to restore contains a statement that does not only create."""


class BackupCut(Refusal, status=422):
    """A backup file is truncated."""


class BackupCorrupt(Refusal, status=422):
    """A backup file is damaged; the message says where."""


class WrongKey(Refusal, status=422):
    """An encrypted store or backup needs another key, or a vault another passphrase."""


class Sealed(Refusal, status=423):
    """The vault is sealed."""


class TooManyTries(Refusal, status=429, retry=True, retry_after_s=30):
    """Too many sign-ins of this user or from this address were waiting before this one."""


class UpgradeRequired(Refusal, status=426):
    """This route speaks only WebSocket, version 13."""


class HeadTooLarge(Refusal, status=431):
    """The head of the HTTP request is over its limit."""


class Failed(Refusal, status=500):
    """A bug in the node; the stack trace is on its standard error."""


class UnknownOutcome(Refusal, status=500):
    """The outcome of a commit is unknown: it may have happened. It was on its way to the disk or to
    followers when the wait for it ended. Causes: the log failed, the request timed out or was
    killed, in-sync replicas did not acknowledge in time, or the node lost its leadership.
    detail.sequence is the number of the commit."""


class NotImplementedHere(Refusal, status=501):
    """A transfer coding or method that the node does not speak, or a statement that this version
    parses but cannot execute."""


class Busy(Refusal, status=503, retry=True, retry_after_s=1):
    """The node cannot do this at present: a limit of concurrent work or memory is reached
    (backpressure), or its cluster has no known leader."""


class Full(Refusal, status=503, retry=True, retry_after_s=1):
    """The surface is at its limit of connections, or the topic at its limit of bytes."""


class Draining(Refusal, status=503, retry=True, retry_after_s=1):
    """The node is stopping or has no role."""


class NotEnoughReplicas(Refusal, status=503, retry=True, retry_after_s=1):
    """Too few followers are in sync. Nothing was written; or the answer would rest on commits that
    they do not hold yet.

    Detail: followers, acks.
    """


class AuditRefused(Refusal, status=503, retry=True, retry_after_s=1):
    """The audit entry could not be written."""


class DiskFull(Refusal, status=503, retry=True, retry_after_s=1):
    """The disk has no space for the log; reads still work."""


class VersionNotSupported(Refusal, status=505):
    """A protocol version that the node does not speak."""


ENDED: Final = (Cancelled, SessionEnded, StatementTimeout)
"""Refusals of requests that were ended midway: cancelled, with their session, or timed out."""
FROM_OUTSIDE: Final = (*ENDED, DiskFull, Draining)
"""Refusals that do not depend on any data read, and so disclose none."""
POSTPONES: Final = (
    NotWritable, NotEnoughReplicas, Conflict, Busy, DiskFull, UnknownOutcome, Failed, Draining,
)  # fmt: skip
"""Refusals of a commit of the node's own work after which it is tried again later."""
