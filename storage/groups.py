"""The rules of groups: consumers that share a topic's messages between them.

A group hands each message out to one member at a time, until it is acknowledged: see
`hand_outs.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol import limits
from storage.catalog import Taken
from storage.topics import Place, Topic
from storage.transactions import Transaction


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
