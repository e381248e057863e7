"""The rules of groups: consumers that share a topic's messages between them.

A group hands each message out to one member at a time, until it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol import limits
from storage.catalog import Taken
from storage.topics import Place, Published, Topic
from storage.transactions import Transaction

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A declared group. `dataclasses.replace` and `alter_group` change its settings."""

    id: int
    topic: Topic
    name: str
    deadline_us: int
    """For how long a hand-out may stay without an answer."""
    in_flight: int = limits.GROUP_IN_FLIGHT_DEFAULT
    """Hand-outs that may be out at once."""
    deliveries: int | None = None
    """After so many hand-outs without an ACK a message is a dead letter; None: never."""
    dead_letter: str | None = None
    """The topic of the same database that gets dead letters; None: they are dropped."""
    backoff_us: tuple[int, ...] = ()
    """What passes before hand-out 2, 3, … of a message; the last holds for all after it."""
    ordered: bool = False
    """Whether a message waits for all earlier ones of its key."""


def group(tx: Transaction, topic: Topic, name: str) -> Group:
    """The group of that name on a topic. :raises Unknown:"""
    raise NotImplementedError


def find_group(tx: Transaction, topic: Topic, name: str) -> Group | None:
    """The group of that name on a topic, if there is one."""
    raise NotImplementedError


def groups(tx: Transaction, topic: Topic) -> list[Group]:
    """The groups of a topic, by name."""
    raise NotImplementedError


def define_group(
    tx: Transaction,
    topic: Topic,
    name: str,
    *,
    deadline_us: int,
    in_flight: int = limits.GROUP_IN_FLIGHT_DEFAULT,
    deliveries: int | None = None,
    dead_letter: str | None = None,
    backoff_us: tuple[int, ...] = (),
    ordered: bool = False,
    place: Place | None = None,
    taken: Taken = Taken.REFUSE,
) -> Group:
    """Declare a group, as `catalog.define_namespace` does. One that is overwritten keeps what it
    has handed out, unless a place is given or `ordered` changes: then it is moved.

    :param place: where it begins; None: at the start of the topic
    :raises BadRequest: a setting out of its range; a dead letter topic that is its own topic
    :raises Unknown: no such dead letter topic
    """
    raise NotImplementedError


def alter_group(tx: Transaction, changed: Group) -> None:
    """Declare a group that there is as it is here. :raises BadRequest, Unknown: of its settings"""
    raise NotImplementedError


def drop_group(tx: Transaction, group: Group) -> None:
    """Drop a group with its hand-outs."""
    raise NotImplementedError


class HandOuts:
    """What a group hands out, in one transaction. What raises a refusal has changed nothing."""

    def __init__(self, tx: Transaction, group: Group) -> None:
        self.group = group
        self.wakes = False
        """Whether a TAKE that waits may find something now: a message to be handed out again, or
        room for more in flight."""
        self.dead: Topic | None = None
        """The topic into which a dead letter was put: whoever waits for its messages may find it.
        """
        self.more = False
        """Whether a `take` or `lapse` stopped at the end of its slice: there is more to look at,
        so a `take` that found nothing is to be called again."""

    def take(self, count: int = 1, member: str | None = None) -> list[Answer]:
        """Hand out up to so many messages, as `Messages.read` answers them with `receipt`,
        `attempt`, `deadline` and `member`. Writes nothing when there is nothing.

        :raises BadRequest: a count outside 1 … `limits.MESSAGES_READ`, a member's name too long
        """
        raise NotImplementedError

    def ack(self, receipts: Sequence[str]) -> Answer:
        """`{acked, stale}`. :raises BadRequest: what is no receipt, too many of them"""
        raise NotImplementedError

    def nack(
        self, receipts: Sequence[str], delay_us: int | None = None, error: str | None = None
    ) -> Answer:
        """`{nacked, stale}`: to be handed out again after `delay_us`; None: after the group's
        backoff. :raises BadRequest: as `ack`; an error too long, a negative delay"""
        raise NotImplementedError

    def extend(self, receipts: Sequence[str], by_us: int) -> Answer:
        """`{extended, stale}`: due `by_us` from now. :raises BadRequest: as `ack`; of `by_us`"""
        raise NotImplementedError

    def give_up(self, receipts: Sequence[str], error: str | None = None) -> Answer:
        """`{given_up, stale}`: dead letters at once. :raises BadRequest: as `nack`"""
        raise NotImplementedError

    def lapse(self, most: int = limits.LAPSE_HAND_OUTS) -> int:
        """Take back about so many hand-outs whose deadline has passed; how many there were."""
        raise NotImplementedError

    def move(self, place: Place) -> int:
        """Begin anew at a place; its position. Every receipt given before goes stale.

        :raises BadRequest: no such position
        """
        raise NotImplementedError

    def next_due_us(self) -> int | None:
        """Log time when the next hand-out lapses or is ready to be handed out again, now and the
        past included; None when there is neither. Messages not yet looked at are not considered.
        """
        raise NotImplementedError

    def figures(self) -> Answer:
        """`{name, handed_out, committed, lag, in_flight, width, redelivered, dead_lettered,
        deadline, max_in_flight, deliveries, dead_letter, epoch}` and `backoff, ordered`, as
        `INFO FOR GROUP` answers them; deadline and backoff are durations."""
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
