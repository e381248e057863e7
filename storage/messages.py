"""The rules of a topic's messages: published, read, trimmed, redriven; and of its readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol import limits
from protocol.values import Value
from storage.catalog import Taken
from storage.topics import START, Place, Topic
from storage.transactions import Transaction

Answer = dict[str, Any]


@dataclass(slots=True)
class Published:
    """What a publish answers. Of a transaction that paused, the positions are final only after its
    commit: read them then."""

    @property
    def first(self) -> int:
        """The position of the first message."""
        raise NotImplementedError

    @property
    def last(self) -> int:
        """The position of the last."""
        raise NotImplementedError

    count: int = 1
    duplicate: bool = False
    """Whether the topic held a message of that id already: `first` is its position."""


class Messages:
    """The messages of one topic in one transaction. What raises a refusal has changed nothing."""

    def __init__(self, tx: Transaction, topic: Topic) -> None:
        self.topic = topic
        self.wakes = False
        """Whether something was published: whoever waits for messages may find some."""

    # --- figures --------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The first position held; `last` + 1 when there is none."""
        raise NotImplementedError

    @property
    def last(self) -> int:
        """The last position given; 0 for none."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """What the messages take as they are stored."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """How many messages are held."""
        raise NotImplementedError

    # --- publishing -----------------------------------------------------------------------------

    def publish(
        self,
        values: Sequence[Value],
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        due_us: int = 0,
        expect: int | None = None,
    ) -> Published:
        """Append messages, which all get the same key, headers and due time.

        :param id: of a single message only
        :param due_us: log time before which no group hands it out; one in the past is none
        :param expect: refuse unless the last position is this one
        :raises BadRequest: no values, too many, an id with several; a key or id of a wrong length
        :raises TypeRefused: a value of NONE; a key, id or headers that are no strings
        :raises TooLarge: a message over `Topic.largest`; headers over their limits
        :raises AssertFailed: of `expect`
        :raises Full: it would take more than `Topic.max_bytes`, and the topic refuses
        """
        raise NotImplementedError

    # --- reading --------------------------------------------------------------------------------

    def read(self, after: int, limit: int = limits.MESSAGES_READ_DEFAULT) -> list[Answer]:
        """Messages with positions over `after`: up to `limit`, and `limits.MESSAGES_READ_BYTES`.

        :raises BadRequest: a limit outside 1 … `limits.MESSAGES_READ`, a negative position
        """
        raise NotImplementedError

    def position_at(self, place: Place) -> int:
        """The position after which a place begins. :raises BadRequest: no such position"""
        raise NotImplementedError

    # --- readers --------------------------------------------------------------------------------

    def define_reader(self, name: str, place: Place = START, taken: Taken = Taken.REFUSE) -> int:
        """Declare a reader; its position. One that is overwritten is moved to `place`.

        :raises AlreadyExists, NameRefused, BadRequest:
        """
        raise NotImplementedError

    def reader(self, name: str) -> int:
        """The position of a reader: what it has done. :raises Unknown:"""
        raise NotImplementedError

    def readers(self) -> list[tuple[str, int]]:
        """All readers and their positions, by name."""
        raise NotImplementedError

    def commit_reader(self, name: str, position: int) -> int:
        """Move a reader to a position from 0 to `last`. :raises Unknown, BadRequest:"""
        raise NotImplementedError

    def move_reader(self, name: str, place: Place) -> int:
        """Move a reader to a place; its position. :raises Unknown, BadRequest:"""
        raise NotImplementedError

    def drop_reader(self, name: str) -> None:
        """:raises Unknown:"""
        raise NotImplementedError

    def lag(self, position: int) -> int:
        """How many messages held lie after a position."""
        raise NotImplementedError

    # --- trimming -------------------------------------------------------------------------------

    def trim(self, before: int) -> Iterator[int]:
        """Remove every message before a position: how many there were, in parts to be added up.
        What is beyond the last position + 1 counts as that. :raises BadRequest: a negative one"""
        raise NotImplementedError

    def trim_due(self) -> tuple[int, bool]:
        """Remove a slice of what is too old or too much: how many messages, and whether more is
        due now."""
        raise NotImplementedError

    def next_trim_us(self) -> int | None:
        """Log time when `trim_due` will next have something to do, now or in the past included;
        None while nothing that is held makes it."""
        raise NotImplementedError

    def sweep_ids(self, most: int, begin: bytes = b"") -> tuple[int, bytes]:
        """Forget up to so many ids whose time is over: how many, and the place of the last one.

        :param begin: the place that the sweep before this one answered, b"" for the first of this
            process: what lies before it need not be looked at again
        """
        raise NotImplementedError

    def next_id_us(self, begin: bytes = b"") -> int | None:
        """Log time when the next id is to be forgotten; None when none is remembered."""
        raise NotImplementedError

    # --- for INFO -------------------------------------------------------------------------------

    def figures(self) -> Answer:
        """`{name, messages, first_position, last_position, bytes, keep, max_bytes, largest, dedup,
        full, comment, readers, groups, lag}` as `INFO FOR TOPIC` answers it."""
        raise NotImplementedError


@dataclass(slots=True)
class Redriven:
    """What REDRIVE answers, final after the commit as `Published` is."""

    moved: int
    published: Published | None
    """None when nothing was moved."""


def redrive(tx: Transaction, dead: Topic, topic: Topic, limit: int = 1000) -> Redriven:
    """Move the oldest messages of one topic into another, without what made them dead letters.

    :raises BadRequest: the same topic; a limit outside 1 … `limits.REDRIVEN`
    :raises Full: of the other topic
    """
    raise NotImplementedError
