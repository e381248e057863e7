"""The rules of groups: consumers that share a topic's messages between them.

A group hands each message out to one member at a time, until it is acknowledged: see
`hand_outs/`. Here is how groups are declared, and the row that says where one stands:

    0   8  epoch: which begin of the group this is, from 1
    8   8  cursor: the last position looked at. Every message up to it is done or has a hand-out
   16   8  the last position handed out
   24   8  committed: the position before the first that is not done
   32   8  redelivered
   40   8  dead lettered
   48   8  log time before which nothing stands in the index of deadlines
   56   8  log time before which nothing stands in the index of what waits
   64   4  hand-outs: how many there are
   68   4  of them out
   72   4  of them parked

The two times are where scans begin: what was answered long ago lies before them, and a million
tombstones take 35 ms to pass over.
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
from storage import keys, topics
from storage.catalog import Database, Taken, each_named
from storage.ids import next_id
from storage.message_rows import MessageRows
from storage.topics import START, Place, Topic, check_span, declared_of_topic
from storage.topics import topic as topic_of
from storage.transactions import Transaction

_STATE: Final = Struct(">QQQQQQQQIII")
assert _STATE.size == 76
_FROM: Final = 48
_READY: Final = 56
_COUNTS: Final = 64
"""Where the two times and the counts stand."""


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
    state: bytes = field(default=b"", repr=False, compare=False)
    """Where it stands."""
    hand_outs: bytes = field(default=b"", repr=False, compare=False)
    """What the keys of its hand-outs begin with."""
    deadlines: bytes = field(default=b"", repr=False, compare=False)
    """The same, of those that are out, by deadline."""
    ready: bytes = field(default=b"", repr=False, compare=False)
    """The same, of those to be handed out again, by when."""
    heads: bytes = field(default=b"", repr=False, compare=False)
    """The same, of the hand-outs that keys wait for."""
    parked: bytes = field(default=b"", repr=False, compare=False)
    """The same, of those that wait for an earlier one of their key."""

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The ids of namespace, database, topic and group."""
        return *self.topic.numbers, self.id


@dataclass(slots=True)
class Standing:
    """Where a group stands; the head of the file says what the fields mean."""

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
    def unpack(row: bytes) -> Standing:
        """What a row says."""
        return Standing(*_STATE.unpack(row))

    def pending(self, last: int) -> int:
        """How many messages it is not done with. :param last: the last position of the topic"""
        # A row is a message that was looked at and is not done; past the cursor none was.
        return self.hand_outs + last - max(self.cursor, self.committed)

    def pack(self) -> bytes:
        """The row."""
        return _STATE.pack(
            self.epoch, self.cursor, self.handed_out, self.committed, self.redelivered,
            self.dead_lettered, self.deadlines_from_us, self.ready_from_us, self.hand_outs,
            self.out, self.parked,
        )  # fmt: skip


def standing(tx: Transaction, group: Group) -> tuple[Standing, bytes]:
    """Where a group stands, and the row that says so."""
    row = tx.get(group.state)
    assert row is not None, "a group that is declared stands somewhere"
    return Standing.unpack(row), row


def standing_of_all(
    tx: Transaction, database: Database, tick: Tick
) -> Iterator[tuple[int, int, Standing]]:
    """Where the groups of a database stand, with the ids of topic and group. :param tick: called
    for each"""
    numbers = (database.namespace.id, database.id)
    for key, row in tx.rows(*keys.of_all(keys.GROUP_STATE, *numbers), tick):
        yield keys.third(key), keys.fourth(key), Standing.unpack(row)


def numbered(database: Database, topic: int, id: int) -> Group:
    """The group of these ids, for what its rows say: it has no name, and no settings."""
    return _placed(Group(id, topics.numbered(database, topic), "", 0))


def differ(before: bytes, row: bytes) -> bool:
    """Whether a row says what the one before it did not. That nothing stands in an index up to a
    later time is no reason to write, only what makes scans shorter; an earlier time is."""
    if before == row:
        return False
    same = before[:_FROM] == row[:_FROM] and before[_COUNTS:] == row[_COUNTS:]
    earlier = (
        row[_FROM:_READY] < before[_FROM:_READY] or row[_READY:_COUNTS] < before[_READY:_COUNTS]
    )
    return not same or earlier


# --- looking up ---------------------------------------------------------------------------------


def group(tx: Transaction, topic: Topic, name: str) -> Group:
    """The group of that name on a topic. :raises Unknown:"""
    found = find_group(tx, topic, name)
    if found is None:
        path = f"{topic.path}.{name}"
        raise Unknown(f"there is no group {path}", kind="group", name=path)
    return found


def find_group(tx: Transaction, topic: Topic, name: str) -> Group | None:
    """The group of that name on a topic, if there is one."""
    at = ("group", topic.id, name)
    found: Group | None = tx.known(at)
    if found is None:
        key = _key(topic, name)
        value = tx.get(key)
        if value is not None:
            found = _unpacked(topic, name, value)
            tx.remember(at, found, key, *declared_of_topic(topic))
    return found


def groups(tx: Transaction, topic: Topic) -> list[Group]:
    """The groups of a topic, by name, which are remembered."""
    at = ("groups", topic.id)
    found: list[Group] | None = tx.known(at)
    if found is None:
        found = list(each(tx, topic, unpaced))
        tx.remember(at, found, _key(topic, ""), *declared_of_topic(topic))
    return list(found)


def each(tx: Transaction, topic: Topic, tick: Tick) -> Iterator[Group]:
    """The same, as they are asked for: there may be very many. :param tick: called for each"""
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
    place: Place | None = None,
    taken: Taken = Taken.REFUSE,
) -> Group:
    """Declare a group, as `catalog.define_namespace` does. One that is overwritten keeps what it
    has handed out, unless a place is given or `ordered` changes: then it is moved.

    :param place: where it begins; None: at the start of the topic
    :raises BadRequest: a setting out of its range; a dead letter topic that is its own topic
    :raises Unknown: no such dead letter topic
    """
    check_name(name, "group")
    present = find_group(tx, topic, name)
    if present is not None:
        if taken is Taken.REFUSE:
            path = f"{topic.path}.{name}"
            raise AlreadyExists(f"group {path} exists", kind="group", name=path)
        if taken is Taken.SKIP:
            return present
    made = Group(
        0 if present is None else present.id,
        topic, name, deadline_us, in_flight, deliveries, dead_letter, backoff_us, ordered,
    )  # fmt: skip
    _check(tx, made)
    position = None
    if place is not None or present is None:
        position = MessageRows(tx, topic).position_at(place or START)
    if present is None:
        made = replace(made, id=_next_id(tx, topic))
    made = _placed(made)
    _put(tx, made)
    if position is not None:
        begin(tx, made, position)
    elif present is not None and present.ordered != ordered:
        begin(tx, made, standing(tx, made)[0].committed)
    return made


def _next_id(tx: Transaction, topic: Topic) -> int:
    """An id that no group of the topic has had. Once they were given out for the whole store."""
    return next_id(
        tx,
        keys.of_topic(keys.GROUP_IDS, *topic.numbers),
        after=keys.unpack_counter(tx.get(keys.ALL_GROUP_IDS)),
    )


def alter_group(tx: Transaction, changed: Group) -> None:
    """Declare a group that there is as it is here. :raises BadRequest, Unknown: of its settings"""
    _check(tx, changed)
    _put(tx, changed)


def drop_group(tx: Transaction, group: Group) -> None:
    """Drop a group with its hand-outs."""
    for start, end in keys.in_group(*group.numbers):
        tx.delete_range(start, end)
    tx.delete(group.state)
    tx.delete(_key(group.topic, group.name))


def begin(tx: Transaction, group: Group, position: int) -> None:
    """Let a group begin, or begin anew, after a position; what it has handed out is forgotten."""
    position = max(position, MessageRows(tx, group.topic).trimmed()[0])
    row = tx.get(group.state)
    if row is None:
        made = Standing(1, position, position, position)
    else:
        before = Standing.unpack(row)
        for start, end in keys.in_group(*group.numbers):
            tx.delete_range(start, end)
        made = Standing(
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
            raise BadRequest("BACKOFF takes durations up to 1000 years")
    if group.dead_letter is not None:
        if group.dead_letter == group.topic.name:
            raise BadRequest("DEAD LETTER names another topic than the group's own")
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
    """A group with the keys that follow from where it is declared."""
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
