"""The error catalogue: every refusal of the node is a class here, with a stable code, an HTTP
status and a meaning.

The class is the row: its name is the code, its docstring the meaning, so neither can exist without
the other. `docs/errors.md` is made from this file.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Final, Self


class Refusal(Exception):
    """What the node answers instead of doing what was asked.

    Raised where it is known, turned into an answer in one place on each surface.

    :param message: for people; shows the offending value, never a secret
    :param detail: for programs; its keys are stable for a code
    """

    status: ClassVar[int]
    retry: ClassVar[bool]
    """Whether the same request may succeed when it is sent again unchanged."""
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
        """Where in the text of the script the expression stands that was refused, if one was."""

    @property
    def code(self) -> str:
        """The stable name."""
        return type(self).__name__

    @property
    def without_place(self) -> str:
        """The message without the place in a text, and the line of it, that a text which does not
        parse ends its message with."""
        line, column = self.detail.get("line"), self.detail.get("column")
        return self.message.partition("\n")[0].removesuffix(f" (line {line}, column {column})")

    def also(self, **detail: object) -> Self:
        """The same with more detail, as a refusal of its own: one object may be told to many."""
        told = copy(self)
        told.detail = {**self.detail, **detail}
        told.__cause__ = self.__cause__
        return told

    def answer(self, request: str | None = None) -> dict[str, object]:
        """The one shape of an error on every surface (what stands under `error`).

        A refusal inside a script says beside it which `statement` (from 1), and at which `line`
        and `column`. Once the script has committed something, `detail.committed` is the newest
        sequence of it that is on the disk, and `retry` is false: sent again unchanged, that would
        be done twice.

        Message and detail show what was sent, so they may hold what no answer can carry: strings in
        them are made such that UTF-8 can, tuples and sets become lists.
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
"""In the detail of what a script stopped at: the newest commit of the script's own."""

LEADER: Final = "leader"
"""In the detail of `NotWritable`, of a node in a cluster: endpoints of the node that takes changes,
a list of `host:port`; none while nobody is known to."""

_WHERE: Final[tuple[str, ...]] = ("statement", "line", "column")


def _shown(item: object) -> object:
    if isinstance(item, str):
        # JSON brings halves of surrogate pairs, which UTF-8 can't carry: they show as \ud800.
        return item if item.isascii() else item.encode("utf-8", "backslashreplace").decode()
    if isinstance(item, list | tuple | set | frozenset):
        return [_shown(part) for part in item]
    if isinstance(item, dict):
        return {_shown(name): _shown(part) for name, part in item.items()}
    return item


CATALOGUE: Final[dict[str, type[Refusal]]] = {}
"""Every class below, by its code."""


def after(refusal: Refusal, committed: int) -> Refusal:
    """A refusal of a script that has committed that much before; 0: nothing."""
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
    """A place or table has no history; a record has."""


class NotInTransaction(Refusal, status=400):
    """The statement does not fit where it stands in a transaction."""


class SignInRefused(Refusal, status=401):
    """User and password do not match, or no credential was given."""


class SessionEnded(Refusal, status=401):
    """The token is unknown, ended or expired."""


class NotAllowed(Refusal, status=403):
    """The caller lacks a grant; detail.needs names it."""


class ForeignOrigin(Refusal, status=403):
    """A page of another site asked, through the browser of somebody who can reach this node."""


class Unknown(Refusal, status=404):
    """No such thing, or none that the caller may see."""


class NoKey(Refusal, status=404):
    """The cache space has no such key."""


class NotASpace(Refusal, status=404):
    """The path names no cache space."""


class NoSuchRoute(Refusal, status=404):
    """No such path."""


class WrongMethod(Refusal, status=405):
    """The path exists, with other methods; see Allow."""


class StatementTimeout(Refusal, status=408):
    """The statement used up its TIMEOUT; the node did not show in time what the request was to come
    after; or what it has read was not held in time by the followers that have to.

    Detail of the second: after, and seq, what the node shows. Nothing was run.
    """


class Cancelled(Refusal, status=408):
    """The caller cancelled the request or went away."""


class TooSlow(Refusal, status=408):
    """The reader of a feed did not keep up: it can come back with the last sequence that it was
    sent."""


class RequestTimeout(Refusal, status=408):
    """The request did not arrive in time."""


class NotWritable(Refusal, status=409):
    """The node lacks the writable role, or another takes changes in its place.

    Detail of the latter: leader, its endpoints; none while no node is known to.
    """

    @property
    def leader(self) -> tuple[str, ...]:
        """Endpoints of the node that takes changes, as far as this one knows."""
        found = self.detail.get(LEADER)
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


class NotHeldHere(Refusal, status=409):
    """The node does not hold all of what was asked for."""


class BackupExists(Refusal, status=409):
    """A file exists at that backup name."""


class NoBackupFolder(Refusal, status=409):
    """The node was started without --backup-dir."""


class RestoreTargetExists(Refusal, status=409):
    """A database that the script creates exists."""


class Conflict(Refusal, status=409, retry=True):
    """Another commit won every retry of this transaction."""


class AlreadyExists(Refusal, status=409):
    """Something of that name or id exists."""


class Duplicate(Refusal, status=409):
    """A unique index holds these values already."""


class LastOwner(Refusal, status=409):
    """The store's last owner can't be removed or demoted."""


class GrantOutsideSpace(Refusal, status=409):
    """A grant would reach beyond the user's space."""


class NotANumber(Refusal, status=409):
    """A counter's value is not an integer."""


class NumberTooLarge(Refusal, status=409):
    """A number left its range: 64-bit integers, 34-digit decimals."""


class DivisionByZero(Refusal, status=409):
    """A division by zero."""


class Thrown(Refusal, status=409):
    """The script's own THROW; detail.value is what it threw."""


class StillHeld(Refusal, status=409):
    """Something is still in use."""


class LogPruned(Refusal, status=410):
    """The log begins later; the message says where."""


class Diverged(Refusal, status=410):
    """The position to go on from is not of this history: it is another store's, or this one was
    restored or has gone on otherwise since. What was made of it has to be made anew."""


class Stranded(Refusal, status=410):
    """What the node has shown is not in the log of its leader: without a fault it never comes to
    that. Nothing was cut; the node has to be copied anew."""


class AnswerTooLarge(Refusal, status=413):
    """The answer is larger than a wire frame, or finds no room; the message says its size.

    What a script writes is refused before it is committed, when the frame is what is too small.
    """


class TooLarge(Refusal, status=413):
    """A request, record, transaction or working set is over its limit."""


class MisdirectedRequest(Refusal, status=421):
    """The Host named is not this node."""


class TypeRefused(Refusal, status=422):
    """A value has the wrong type for what is done with it, or for the field of a table.

    Detail of a field: table, field, wanted, found.
    """


class AssertFailed(Refusal, status=422):
    """A field's ASSERT does not hold, or the EXPECT of a PUBLISH.

    Detail: table, field, wanted, found; of a PUBLISH: expected, found.
    """


class FieldRefused(Refusal, status=422):
    """A SCHEMAFULL table does not define that field, or it is READONLY and would change.

    Detail: table, field, wanted, found.
    """


class RestoreRefused(Refusal, status=422):
    """A script to restore does something other than create."""


class BackupCut(Refusal, status=422):
    """A backup file ends early."""


class BackupCorrupt(Refusal, status=422):
    """A backup file is damaged; the message says where."""


class WrongKey(Refusal, status=422):
    """A sealed file opens under another key."""


class Sealed(Refusal, status=423):
    """The vault is sealed."""


class TooManyTries(Refusal, status=429, retry=True, retry_after_s=30):
    """Too many sign-ins of this user or from this address stood before this one."""


class UpgradeRequired(Refusal, status=426):
    """Only a WebSocket of version 13 is spoken on this route."""


class HeadTooLarge(Refusal, status=431):
    """The head of a request is over its limit."""


class Failed(Refusal, status=500):
    """A bug in the node; the trace is on its standard error."""


class UnknownOutcome(Refusal, status=500):
    """The commit was on its way to the disk, or to followers, when the log failed, the request's
    time was over, followers had not held it in time, it was killed, or the node led no more: it may
    have happened. detail.sequence is its number."""


class NotImplementedHere(Refusal, status=501):
    """A transfer coding or method that the node does not speak, or a statement that this version
    reads and can't carry out."""


class Busy(Refusal, status=503, retry=True, retry_after_s=1):
    """The node is doing as much as it will."""


class Full(Refusal, status=503, retry=True, retry_after_s=1):
    """The surface holds as many connections as it will, or the topic as many bytes."""


class Draining(Refusal, status=503, retry=True, retry_after_s=1):
    """The node is stopping or has no role."""


class NotEnoughReplicas(Refusal, status=503, retry=True, retry_after_s=1):
    """Too few followers are in sync: nothing was written; or what was to be answered rests on what
    they don't hold yet.

    Detail: followers, acks.
    """


class AuditRefused(Refusal, status=503, retry=True, retry_after_s=1):
    """The audit entry could not be written."""


class DiskFull(Refusal, status=503, retry=True, retry_after_s=1):
    """No room for the log; reads go on."""


class VersionNotSupported(Refusal, status=505):
    """A protocol version that the node does not speak."""


ENDED: Final = (Cancelled, SessionEnded, StatementTimeout)
"""Refusals of what was ended in the middle: by somebody, with its session, or by its time."""
FROM_OUTSIDE: Final = (*ENDED, DiskFull, Draining)
"""Refusals that rest on nothing that was read, and say nothing of it."""
