"""The rows of a topic's messages: how a message is stored, appended, found and read.

A message is an appended value (`appends.py`):

    0   8  when it was published, microseconds since 1970 of log time
    8   8  total: what all messages up to this one have taken
   16   8  log time before which no group hands it out; 0: none
   24   2  length of its key; 0: none
   26   2  length of its id; 0: none
   28   4  length of its headers; 0: none
   32   …  key · id · headers, msgpack · value, msgpack

Invariants: positions are dense between the last one trimmed and the last one given. Neither time
nor total falls from one message to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol import binary
from protocol.errors import BadRequest
from protocol.values import Tick, instant
from storage import keys
from storage.appends import HEAD, NUMBER, Append, unpack_counter
from storage.catalog import Database
from storage.topics import Place, Topic
from storage.transactions import Transaction

Answer = dict[str, Any]

_ROW: Final = Struct(">QQQHHI")
_BODY: Final = Struct(">QHHI")
assert _ROW.size == HEAD.size + _BODY.size == 32


class Held(NamedTuple):
    """What a topic holds."""

    messages: int
    last: int
    """The last position given; 0 for none."""
    size: int
    """What the messages take as they are stored."""

    def lag(self, position: int) -> int:
        """How many are held after a position."""
        return min(self.last - position, self.messages)


NOTHING_HELD: Final = Held(0, 0, 0)


def held_by_all(tx: Transaction, database: Database, tick: Tick) -> dict[int, Held]:
    """What the topics of a database hold, by the topic's id, but for those that never held
    anything. :param tick: called for each"""
    numbers = (database.namespace.id, database.id)
    trimmed = {
        keys.third(key): unpack_counter(row)
        for key, row in tx.rows(*keys.of_all(keys.TOPIC_TRIMMED, *numbers), tick)
    }
    found = {}
    for key, row in tx.rows(*keys.of_all(keys.TOPIC_LAST, *numbers), tick):
        id = keys.third(key)
        last, total = unpack_counter(row)
        before, gone = trimmed.get(id, (0, 0))
        found[id] = Held(last - before, last, total - gone)
    return found


class MessageRows:
    """The rows of one topic in one transaction."""

    __slots__ = ("_prefix", "_tx", "topic")

    def __init__(self, tx: Transaction, topic: Topic) -> None:
        self._tx = tx
        self._prefix = topic.messages
        self.topic = topic

    def end(self, exactly: bool = True) -> tuple[int, int]:
        """The last position given, and the total there. :param exactly: see `tx.appended`"""
        return unpack_counter(self._tx.appended(self.topic.last, exactly))

    def trimmed(self) -> tuple[int, int]:
        """The last position trimmed, and the total there."""
        return unpack_counter(self._tx.get(self.topic.trimmed))

    def put_trimmed(self, position: int, total: int) -> None:
        """Note the last position trimmed."""
        self._tx.put(self.topic.trimmed, HEAD.pack(position, total))

    def may_be_over(self) -> bool:
        """Whether the oldest may have to make room. It holds on to nothing, so publishers don't
        conflict; asked after the commit it counts what others have published meanwhile."""
        topic = self.topic
        if topic.max_bytes is None or topic.full != "DROP":
            return False
        _, gone = unpack_counter(self._tx.hint(topic.trimmed))
        return self.end(exactly=False)[1] - gone > topic.max_bytes

    def key(self, position: int) -> bytes:
        """The key of a message."""
        return self._prefix + NUMBER.pack(position)

    def get(self, position: int) -> bytes:
        """The row of a message that is held."""
        row = self._tx.get(self._prefix + NUMBER.pack(position))
        assert row is not None, "positions are dense"
        return row

    def append(self, bodies: Sequence[bytes]) -> Append:
        """Append messages made by `body`. :raises TooLarge: of the transaction"""
        return self._tx.append(self.topic.last, self._prefix, bodies)

    def span(self, begin: int, count: int, room: int) -> list[tuple[int, bytes]]:
        """Positions and rows of up to so many messages from one that is held on.

        :param room: what they may take together; one of them is answered though it takes more
        """
        last, _ = self.end(exactly=False)
        own = self._tx.appends.get(self.topic.last)
        if begin + count - 1 > (last if own is None else own.seen):
            # Fewer than were asked for, so whatever is published next would have been seen; or
            # some that others may yet come before.
            last, _ = self.end()
        count = min(count, last + 1 - begin)
        if count <= 0:
            return []
        if count > 1:
            count = self._fitting(begin, count, room)
        if count == 1:
            return [(begin, self.get(begin))]
        start, stop = NUMBER.pack(begin), NUMBER.pack(begin + count)
        rows = [
            value
            for pairs in self._tx.scan(self._prefix + start, self._prefix + stop)
            for _, value in pairs
        ]
        assert len(rows) == count, "positions are dense"
        return list(enumerate(rows, begin))

    def _fitting(self, begin: int, count: int, room: int) -> int:
        """How many messages from `begin` take no more than `room`, at least one."""
        first = self.get(begin)
        room += total(first) - len(first)
        if self._total(begin + count - 1) <= room:
            return count
        return max(self.first_where(begin, begin + count, lambda row: total(row) > room) - begin, 1)

    def _total(self, position: int) -> int:
        return total(self.get(position))

    def position_at(self, place: Place) -> int:
        """The position after which a place begins. :raises BadRequest: no such position"""
        if place.kind == "START":
            return self.trimmed()[0]
        last, _ = self.end()
        if place.kind == "END":
            return last
        if place.kind == "AFTER":
            if not 0 <= place.value <= last:
                raise BadRequest(
                    f"a position of topic {self.topic.path} is from 0 to {last}", last=last
                )
            return place.value
        begin = self.trimmed()[0] + 1
        return self.first_where(begin, last + 1, lambda row: time_us(row) >= place.value) - 1

    def each(self) -> Iterator[list[bytes]]:
        """The rows of all messages held, some at a time, in their order."""
        for pairs in self._tx.scan(*keys.within(self._prefix)):
            yield [row for _, row in pairs]

    def first_where(self, begin: int, end: int, holds: Callable[[bytes], bool]) -> int:
        """The first of the messages held in begin … end - 1 for which something holds that holds
        for all after it; `end` when there is none."""
        while begin < end:
            middle = (begin + end) // 2
            if holds(self.get(middle)):
                end = middle
            else:
                begin = middle + 1
        return begin


def body(
    values: Sequence[bytes],
    due_us: int = 0,
    key: str | None = None,
    id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[bytes]:
    """Messages of packed values as they are appended."""
    packed_key = b"" if key is None else key.encode()
    packed_id = b"" if id is None else id.encode()
    packed = binary.pack(dict(headers)) if headers else b""
    head = _BODY.pack(due_us, len(packed_key), len(packed_id), len(packed))
    head += packed_key + packed_id + packed
    return [head + value for value in values]


def with_headers(row: bytes, headers: Mapping[str, str]) -> bytes:
    """A message to be appended again, with other headers and no delay."""
    _, _, _, key, id, old = _ROW.unpack_from(row)
    at = _ROW.size + key + id
    packed = binary.pack(dict(headers)) if headers else b""
    head = _BODY.pack(0, key, id, len(packed))
    return head + row[_ROW.size : at] + packed + row[at + old :]


def time_us(row: bytes) -> int:
    """When a message was published."""
    return HEAD.unpack_from(row)[0]  # type: ignore[no-any-return]


def total(row: bytes) -> int:
    """What all messages up to this one have taken."""
    return HEAD.unpack_from(row)[1]  # type: ignore[no-any-return]


def due_us(row: bytes) -> int:
    """Log time before which no group hands a message out; 0: none."""
    return _ROW.unpack_from(row)[2]  # type: ignore[no-any-return]


def key_of(row: bytes) -> bytes:
    """The key of a message; empty: it has none."""
    length = _ROW.unpack_from(row)[3]
    return row[_ROW.size : _ROW.size + length]


def headers_of(row: bytes) -> dict[str, str]:
    """The headers of a message."""
    _, _, _, key, id, length = _ROW.unpack_from(row)
    at = _ROW.size + key + id
    return binary.unpack_object(row[at : at + length]) if length else {}


class Content(NamedTuple):
    """What somebody has published, as it is stored."""

    value: bytes
    """Packed."""
    key: str | None
    id: str | None
    headers: dict[str, str]
    due_us: int
    """Log time before which no group hands it out; 0: none."""


def content(row: bytes) -> Content:
    """What a message holds."""
    _, _, due_us, key, id, headers = _ROW.unpack_from(row)
    at_id = _ROW.size + key
    at_headers = at_id + id
    at = at_headers + headers
    return Content(
        row[at:],
        row[_ROW.size : at_id].decode() if key else None,
        row[at_id:at_headers].decode() if id else None,
        binary.unpack_object(row[at_headers:at]) if headers else {},
        due_us,
    )


def answer(position: int, row: bytes) -> Answer:
    """A message as it is answered; one that was delayed shows `due`."""
    at_us, _, due_us, key, id, headers = _ROW.unpack_from(row)
    at = _ROW.size
    made: Answer = {"position": position, "at": instant(at_us), "key": None, "id": None}
    if key:
        made["key"] = row[at : at + key].decode()
        at += key
    if id:
        made["id"] = row[at : at + id].decode()
        at += id
    made["headers"] = binary.unpack(row[at : at + headers]) if headers else {}
    made["value"] = binary.unpack(row[at + headers :])
    made["bytes"] = len(row)
    if due_us:
        made["due"] = instant(due_us)
    return made
