"""The request to open a feed, and what the surface brings that asks: the form in which its reader
is told, and the way there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from protocol.errors import Refusal
from protocol.requests import Caller, Request
from protocol.values import RecordId

Action = Literal["create", "update", "delete"]
ACTIONS: Final[tuple[Action, ...]] = ("create", "update", "delete")

Missing = Literal["pruned", "omitted"]
"""Why a record as it was is not shown: the log no longer has it, or it is too large."""


class Place(NamedTuple):
    """Where a feed has come to: with the store's id it is a position."""

    sequence: int
    epoch: int
    """In which that commit was written."""


NOTHING: Final = Place(0, 0)
"""Where somebody stands who knows nothing of a table: before all that the log holds."""


class Opened(NamedTuple):
    """How a feed begins."""

    seq: int
    """The newest commit that the node shows."""
    start: int
    """What is told comes after this one; 0: the reader knows nothing yet, and the log holds all."""
    start_epoch: int
    """The epoch of that one; of 0 it is 0."""
    begins: int
    """The first commit that the log holds."""
    table: str
    created: int
    """The commit that declared the table."""
    store: str
    """The id of the store, which comes back with a position."""
    epoch: int
    """Of the newest commit."""


class Change(NamedTuple):
    """What became of one record, as a feed is to tell it."""

    action: Action
    id: RecordId
    fields: bytes | None
    """Packed, without the id; None: it is no more, or not among what is let through."""
    before: bytes | None
    """As it was, when that is asked for; None: it was not there, or it is not shown."""
    missing: Missing | None
    shows_before: bool
    """Whether that is asked for."""


class Head(NamedTuple):
    """What a feed tells of a commit beside its changes."""

    place: Place
    time: int
    """Log time, microseconds since 1970."""
    by: str | None
    """None to whom may not know."""
    reason: str | None


class Part(NamedTuple):
    """Which part of a commit."""

    number: int
    """From 1."""
    of: int


class Form(Protocol):
    """How a surface writes what a feed tells. Whatever it writes can be sent to any of its feeds,
    so that feeds that want the same share it."""

    def change(self, change: Change) -> bytes:
        """One change, to stand in a commit."""

    def commit(self, head: Head, changes: Sequence[bytes], part: Part | None) -> bytes:
        """A commit, or a part of one."""

    def caught_up(self, place: Place) -> bytes:
        """All up to here was told, and what comes now is new."""

    def beat(self, place: Place) -> bytes:
        """All up to here was told."""


class Sink(Protocol):
    """The way to a feed's reader."""

    @property
    def form(self) -> Form: ...

    @property
    def waiting(self) -> int:
        """Bytes that the reader has not taken yet."""

    @property
    def ready(self) -> bool:
        """Whether the reader keeps up, or nearly: little waits, and there is room for more."""

    def opened(self, opened: Opened) -> None:
        """The feed begins. Called once, before anything else. Raises as `send`."""

    def send(self, data: bytes) -> None:
        """Send what the form has written.

        :raises TooSlow: there is no room for it; nothing of it is sent
        """

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call once, in another turn of the loop, when it is `ready` again."""

    def ended(self, why: Refusal, place: Place) -> None:
        """The feed is over. Called at most once, and never when the surface has closed it.

        :param place: the last commit that was told whole
        """


@dataclass(frozen=True, slots=True)
class OpenFeed(Request["object"]):
    """Follow a table; answered with its `Feed`."""

    caller: Caller
    request: str
    """Names it, as KILL does."""
    namespace: str
    database: str
    table: str
    sink: Sink
    start: int | None = None
    """The last commit that is known; None: the newest there is; 0: as far back as the log goes."""
    store: str | None = None
    """As `Opened` has told it when that position was given."""
    epoch: int | None = None
    """Of that commit; or a later one, in which the newest was when it was told of."""
    actions: frozenset[str] = frozenset(ACTIONS)
    before: bool = False
    """Whether the record as it was is told too."""
    where: str | None = None
    """The text of a condition that the record has to meet."""
    after: int | None = None
    """A sequence that the node has to show before the feed begins; it is waited for."""

    @property
    def text(self) -> str:
        """What it is, for people; nothing of what may be secret."""
        return f"WATCH {self.table}{'' if self.where is None else ' WHERE ...'}"


@dataclass(frozen=True, slots=True)
class JudgeFeed(Request["None"]):
    """Refuse a feed that would not be opened; nothing is opened."""

    asked: OpenFeed
