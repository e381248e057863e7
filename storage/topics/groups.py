"""Consumer groups: members that share the messages of a topic.

A group delivers each message to one member at a time until it is acknowledged (at-least-once): see
`storage/topics/deliveries/`. This module declares groups and defines the row of a group's state:

    0   8  epoch: number of times the group was positioned, from 1
    8   8  cursor: last position examined. Every message up to it is done or has a delivery
   16   8  last position delivered
   24   8  committed: the position before the first message that is not done
   32   8  number of redeliveries
   40   8  number of dead letters
   48   8  log time before which the index of ack deadlines has no entries
   56   8  log time before which the index of messages to redeliver has no entries
   64   4  number of deliveries
   68   4  of these, in flight (unacknowledged)
   72   4  of these, parked behind an earlier message of their key

The two times are where scans start. Before them lie the tombstones of acknowledged deliveries; a
million tombstones take 35 ms to skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, Final

from protocol import binary, limits
from protocol.errors import AlreadyExists, BadRequest, Unknown
from protocol.text import check_name
from protocol.values import Tick, unpaced
from storage.catalog.places import Database, IfExists, each_named
from storage.formats import keys
from storage.topics import topics
from storage.topics.message_rows import MessageRows
from storage.topics.topics import START, StartPosition, Topic, check_span, declared_of_topic
from storage.topics.topics import topic as topic_of
from storage.txn.ids import next_id
from storage.txn.transaction import Transaction

_STATE: Final = Struct(">QQQQQQQQIII")
assert _STATE.size == 76
_FROM: Final = 48
_READY: Final = 56
_COUNTS: Final = 64
"""Byte offsets of the two times and of the counts."""


@dataclass(frozen=True, slots=True)
class Group:
    """A declared group. Change its settings with `dataclasses.replace` and `alter_group`."""

    id: int
    topic: Topic
    name: str
    deadline_us: int
    """Ack deadline (visibility timeout) of a delivery, in µs."""
    in_flight: int = limits.GROUP_IN_FLIGHT_DEFAULT
    """Maximum number of unacknowledged deliveries."""
    deliveries: int | None = None
    """Deliveries without an ACK after which a message becomes a dead letter; None: unlimited."""
    dead_letter: str | None = None
    """Dead letter topic, in the same database; None: dead letters are dropped."""
    backoff_us: tuple[int, ...] = ()
    """Delays in µs before delivery 2, 3, … of a message; the last one applies to all later ones."""
    ordered: bool = False
    """True if a message waits until all earlier ones of its key are done."""
    state: bytes = field(default=b"", repr=False, compare=False)
    """Key of its state row."""
    hand_outs: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its deliveries."""
    deadlines: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of the index of unacknowledged deliveries, by ack deadline."""
    ready: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of the index of messages to redeliver, by due time."""
    heads: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of the heads: for each ordering key, its first delivery that is not done."""
    parked: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of the deliveries parked behind an earlier one of their key."""

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """Ids of namespace, database, topic and group."""
        return *self.topic.numbers, self.id


@dataclass(slots=True)
class GroupState:
    """State of a group; the head of the module defines the fields."""

    epoch: int
    cursor: int
    handed_out: int
    committed: int
    redelivered: int = 0
    dead_lettered: int = 0
    deadlines_from_us: int = 0
    ready_from_us: int = 0
    hand_outs: int = 0
    out: int = 0
    parked: int = 0

    @staticmethod
    def unpack(row: bytes) -> GroupState:
        """Decode a state row."""
        return GroupState(*_STATE.unpack(row))

    def pending(self, last: int) -> int:
        """Return the number of messages not yet done. :param last: last position of the topic"""
        # Each delivery is an examined message that is not done; add those past the cursor.
        return self.hand_outs + last - max(self.cursor, self.committed)

    def pack(self) -> bytes:
        """Encode the state row."""
        return _STATE.pack(
            self.epoch, self.cursor, self.handed_out, self.committed, self.redelivered,
            self.dead_lettered, self.deadlines_from_us, self.ready_from_us, self.hand_outs,
            self.out, self.parked,
        )  # fmt: skip


def state_of(tx: Transaction, group: Group) -> tuple[GroupState, bytes]:
    """Return the state of a group, and its row."""
    row = tx.get(group.state)
    assert row is not None, "a group that is declared stands somewhere"
    return GroupState.unpack(row), row


def standing_of_all(
    tx: Transaction, database: Database, tick: Tick
) -> Iterator[tuple[int, int, GroupState]]:
    """Yield topic id, group id and state of each group in a database.

    :param tick: called for each
    """
    numbers = (database.namespace.id, database.id)
    for key, row in tx.rows(*keys.of_all(keys.GROUP_STATE, *numbers), tick):
        yield keys.third(key), keys.fourth(key), GroupState.unpack(row)


def numbered(database: Database, topic: int, id: int) -> Group:
    """Return a group for access to its rows by ids alone; it has no name and no settings."""
    return _placed(Group(id, topics.numbered(database, topic), "", 0))


def differ(before: bytes, row: bytes) -> bool:
    """Return True if a changed row must be written. A later start time of an index only shortens
    scans, so it alone is not written; an earlier one is."""
    if before == row:
        return False
    same = before[:_FROM] == row[:_FROM] and before[_COUNTS:] == row[_COUNTS:]
    # Compared as bytes: numbers are big-endian, so byte order is number order.
    earlier = (
        row[_FROM:_READY] < before[_FROM:_READY] or row[_READY:_COUNTS] < before[_READY:_COUNTS]
    )
    return not same or earlier


# --- looking up ---------------------------------------------------------------------------------


def group(tx: Transaction, topic: Topic, name: str) -> Group:
    """Return a group of a topic by name. :raises Unknown: it does not exist"""
    found = find_group(tx, topic, name)
    if found is None:
        path = f"{topic.path}.{name}"
        raise Unknown(f"there is no group {path}", kind="group", name=path)
    return found


def find_group(tx: Transaction, topic: Topic, name: str) -> Group | None:
    """Return a group of a topic by name, or None."""
    at = ("group", topic.id, name)
    found: Group | None = tx.known(at)
    if found is None:
        key = _key(topic, name)
        value = tx.get(key)
        if value is not None:
            # Absence is not cached: the key in the read set conflicts with a declaration.
            found = _unpacked(topic, name, value)
            tx.remember(at, found, key, *declared_of_topic(topic))
    return found


def groups(tx: Transaction, topic: Topic) -> list[Group]:
    """Return the groups of a topic, ordered by name; the look-up is cached."""
    at = ("groups", topic.id)
    found: list[Group] | None = tx.known(at)
    if found is None:
        found = list(each(tx, topic, unpaced))
        tx.remember(at, found, _key(topic, ""), *declared_of_topic(topic))
    # A copy: the cached list is shared with other transactions.
    return list(found)


def each(tx: Transaction, topic: Topic, tick: Tick) -> Iterator[Group]:
    """Yield the groups of a topic lazily; there may be very many. :param tick: called for each"""
    for name, value in each_named(tx, *keys.within(_key(topic, "")), tick):
        yield _unpacked(topic, name, value)


# --- declaring ----------------------------------------------------------------------------------


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
    place: StartPosition | None = None,
    taken: IfExists = IfExists.REFUSE,
) -> Group:
    """Declare a group, as `places.define_namespace` does. Replacing a declaration keeps the
    deliveries, unless a place is given or `ordered` changes; then the group is repositioned.

    :param place: start position; None: the start of the topic for a new group
    :raises BadRequest: a setting is out of range, or the dead letter topic is the group's own
    :raises Unknown: the dead letter topic does not exist
    """
    check_name(name, "group")
    present = find_group(tx, topic, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            path = f"{topic.path}.{name}"
            raise AlreadyExists(f"group {path} exists", kind="group", name=path)
        if taken is IfExists.SKIP:
            return present
    made = Group(
        0 if present is None else present.id,
        topic, name, deadline_us, in_flight, deliveries, dead_letter, backoff_us, ordered,
    )  # fmt: skip
    # Before anything is written.
    _check(tx, made)
    position = None
    if place is not None or present is None:
        position = MessageRows(tx, topic).position_at(place or START)
    if present is None:
        made = replace(made, id=_next_id(tx, topic))
    made = _placed(made)
    _put(tx, made)
    if position is not None:
        reset_group(tx, made, position)
    elif present is not None and present.ordered != ordered:
        # Deliveries of the other mode can't be kept. Acknowledged messages after `committed` are
        # delivered again.
        reset_group(tx, made, state_of(tx, made)[0].committed)
    return made


def _next_id(tx: Transaction, topic: Topic) -> int:
    """Allocate a group id unused in the topic, above the store-wide ids of old versions."""
    return next_id(
        tx,
        keys.of_topic(keys.GROUP_IDS, *topic.numbers),
        after=keys.unpack_counter(tx.get(keys.ALL_GROUP_IDS)),
    )


def alter_group(tx: Transaction, changed: Group) -> None:
    """Replace the declaration of an existing group. :raises BadRequest, Unknown: bad settings"""
    _check(tx, changed)
    _put(tx, changed)


def drop_group(tx: Transaction, group: Group) -> None:
    """Drop a group with its deliveries."""
    # The id counter of the topic stays, so no later group accepts these receipts.
    for start, end in keys.in_group(*group.numbers):
        tx.delete_range(start, end)
    tx.delete(group.state)
    tx.delete(_key(group.topic, group.name))


def reset_group(tx: Transaction, group: Group, position: int) -> None:
    """Position a group after `position` and delete its deliveries; a new epoch makes receipts
    stale."""
    # The cursor must not point at messages that are gone: reads rely on dense positions.
    position = max(position, MessageRows(tx, group.topic).trimmed()[0])
    row = tx.get(group.state)
    if row is None:
        made = GroupState(1, position, position, position)
    else:
        before = GroupState.unpack(row)
        for start, end in keys.in_group(*group.numbers):
            tx.delete_range(start, end)
        # Both time indexes were just deleted: start their scans after the tombstones.
        made = GroupState(
            before.epoch + 1, position, position, position,
            before.redelivered, before.dead_lettered, tx.now_us, tx.now_us,
        )  # fmt: skip
    tx.put(group.state, made.pack())


def _check(tx: Transaction, group: Group) -> None:
    check_span(group.deadline_us, "DEADLINE")
    _check_count(group.in_flight, limits.GROUP_IN_FLIGHT, "IN FLIGHT")
    if group.deliveries is not None:
        _check_count(group.deliveries, limits.GROUP_DELIVERIES, "DELIVERIES")
    if len(group.backoff_us) > limits.GROUP_BACKOFF:
        raise BadRequest(f"BACKOFF has at most {limits.GROUP_BACKOFF} steps")
    for step_us in group.backoff_us:
        if not 0 <= step_us <= limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("BACKOFF takes durations of up to 1000 years")
    if group.dead_letter is not None:
        if group.dead_letter == group.topic.name:
            raise BadRequest("DEAD LETTER must name another topic than the group's own")
        # The look-up enters the read set, so a concurrent DROP TOPIC of it conflicts.
        topic_of(tx, group.topic.database, group.dead_letter)


def _check_count(count: int, most: int, what: str) -> None:
    if not 1 <= count <= most:
        raise BadRequest(f"{what} is from 1 to {most}", limit=most)


def _key(topic: Topic, name: str) -> bytes:
    return keys.of_topic(keys.GROUP, *topic.numbers) + name.encode()


def _put(tx: Transaction, group: Group) -> None:
    settings: dict[str, Any] = {
        "id": group.id,
        "deadline": group.deadline_us,
        "in_flight": group.in_flight,
        "deliveries": group.deliveries,
        "dead_letter": group.dead_letter,
        "backoff": list(group.backoff_us),
        "ordered": group.ordered,
    }
    tx.put(_key(group.topic, group.name), binary.pack(settings))


def _unpacked(topic: Topic, name: str, value: bytes) -> Group:
    kept = binary.unpack_object(value)
    return _placed(
        Group(
            kept["id"], topic, name, kept["deadline"], kept["in_flight"], kept["deliveries"],
            kept["dead_letter"], tuple(kept["backoff"]), kept["ordered"],
        )
    )  # fmt: skip


def _placed(group: Group) -> Group:
    """Return a group with the keys derived from its ids."""
    numbers = group.numbers
    return replace(
        group,
        state=keys.of_group(keys.GROUP_STATE, *numbers),
        hand_outs=keys.of_group(keys.HAND_OUT, *numbers),
        deadlines=keys.of_group(keys.DEADLINE, *numbers),
        ready=keys.of_group(keys.READY, *numbers),
        heads=keys.of_group(keys.KEY_HEAD, *numbers),
        parked=keys.of_group(keys.KEY_PARKED, *numbers),
    )
