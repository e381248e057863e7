"""Request to open a feed, with the interfaces of the surface that asks: encoding and transport."""

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
"""Reason why a before image is not shown: the log no longer has it, or it is too large."""


class FeedCursor(NamedTuple):
    """Cursor of a feed; with the store's id it is a position."""

    sequence: int
    epoch: int
    """Leader epoch in which that commit was written."""


NOTHING: Final = FeedCursor(0, 0)
"""Cursor of a reader that knows nothing of a table: before all that the log holds."""


class FeedOpened(NamedTuple):
    """Parameters of a feed that has begun, as reported to its reader."""

    seq: int
    """Sequence of the newest commit that the node shows."""
    start: int
    """Sequence after which the feed begins; 0: the reader knows nothing, the log holds all."""
    start_epoch: int
    """Epoch of `start`; 0 for 0."""
    begins: int
    """Sequence of the first commit that the log holds."""
    table: str
    created: int
    """Sequence of the commit that declared the table."""
    store: str
    """Id of the store; a reader sends it back with a position."""
    epoch: int
    """Epoch of the newest commit."""


class FeedChange(NamedTuple):
    """Change of one record, as a feed delivers it."""

    action: Action
    id: RecordId
    fields: bytes | None
    """Packed, without the id; None: the record is deleted, or no longer passes the filter."""
    before: bytes | None
    """Before image, where requested; None: the record did not exist, or is not shown."""
    missing: Missing | None
    shows_before: bool
    """True if the before image was requested."""


class CommitHead(NamedTuple):
    """Data of a commit that a feed delivers beside its changes."""

    place: FeedCursor
    time: int
    """Log time, µs since 1970."""
    by: str | None
    """Author; None for a reader without the privilege to see it."""
    reason: str | None


class CommitPart(NamedTuple):
    """Number of a part of a long commit."""

    number: int
    """Counted from 1."""
    of: int


class FeedEncoding(Protocol):
    """Encoding of a feed's output on a surface. The result can be sent to any feed of that surface,
    so that feeds with equal parameters share it."""

    def change(self, change: FeedChange) -> bytes:
        """Encode one change, as a part of a commit."""

    def commit(self, head: CommitHead, changes: Sequence[bytes], part: CommitPart | None) -> bytes:
        """Encode a commit, or a part of one."""

    def caught_up(self, place: FeedCursor) -> bytes:
        """Encode the notice that all up to here was delivered, and later commits are new."""

    def beat(self, place: FeedCursor) -> bytes:
        """Encode a heartbeat: all up to here was delivered."""


class FeedSink(Protocol):
    """Transport to a feed's reader."""

    @property
    def form(self) -> FeedEncoding: ...

    @property
    def waiting(self) -> int:
        """Bytes that the reader has not taken yet."""

    @property
    def ready(self) -> bool:
        """True if the reader keeps up, or nearly: little waits, and there is room for more."""

    def opened(self, opened: FeedOpened) -> None:
        """Report that the feed begins. Called once, before anything else. Raises like `send`."""

    def send(self, data: bytes) -> None:
        """Send encoded output.

        :raises TooSlow: there is no room for it; nothing of it is sent
        """

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call once, in another iteration of the loop, when it is `ready` again."""

    def ended(self, why: Refusal, place: FeedCursor) -> None:
        """Report that the feed is over. Called at most once, and never when the surface has closed
        it.

        :param place: the last commit delivered whole
        """


@dataclass(frozen=True, slots=True)
class OpenFeed(Request["object"]):
    """Follow a table; answered with its `Feed`."""

    caller: Caller
    request: str
    """Id of the request, for KILL."""
    namespace: str
    database: str
    table: str
    sink: FeedSink
    start: int | None = None
    """Sequence of the last commit that the reader knows; None: the newest; 0: as far back as the
    log goes."""
    store: str | None = None
    """Store id that `FeedOpened` reported with that position."""
    epoch: int | None = None
    """Epoch of that commit; or a later one, of the newest commit when the position was reported."""
    actions: frozenset[str] = frozenset(ACTIONS)
    before: bool = False
    """True if before images are requested."""
    where: str | None = None
    """Text of a condition that a record has to meet; None: no filter."""
    after: int | None = None
    """Sequence that the node has to show before the feed begins; it is waited for."""

    @property
    def text(self) -> str:
        """Description of the feed for people, without possibly secret parts."""
        return f"WATCH {self.table}{'' if self.where is None else ' WHERE ...'}"


@dataclass(frozen=True, slots=True)
class AuthorizeFeed(Request["None"]):
    """Refuse a feed that would not be opened; nothing is opened."""

    asked: OpenFeed
