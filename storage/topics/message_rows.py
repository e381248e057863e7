"""Rows of a topic's messages: their format, append, search and reads.

A message is an appended value (`appends.py`):

    0   8  publish time, microseconds since 1970 of log time
    8   8  total: bytes of all messages up to and including this one
   16   8  log time before which no group delivers it; 0: none
   24   2  length of its key; 0: none
   26   2  length of its id; 0: none
   28   4  length of its headers; 0: none
   32   …  key · id · headers, msgpack · value, msgpack

Invariants: positions are dense between the last one trimmed and the last one assigned. Neither time
nor total falls from one message to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol import binary
from protocol.errors import BadRequest
from protocol.values import Tick, instant
from storage.catalog.places import Database
from storage.formats import keys
from storage.topics.topics import StartPosition, Topic
from storage.txn.appends import HEAD, NUMBER, Append, unpack_counter
from storage.txn.transaction import Transaction

Answer = dict[str, Any]

_ROW: Final = Struct(">QQQHHI")
_BODY: Final = Struct(">QHHI")
assert _ROW.size == HEAD.size + _BODY.size == 32


class TopicContents(NamedTuple):
    """Contents of a topic."""

    messages: int
    last: int
    """Last position assigned; 0: none."""
    size: int
    """Bytes of the messages as stored."""

    def lag(self, position: int) -> int:
        """Return the number of messages behind a position."""
        return min(self.last - position, self.messages)


NOTHING_HELD: Final = TopicContents(0, 0, 0)


def held_by_all(tx: Transaction, database: Database, tick: Tick) -> dict[int, TopicContents]:
    """Return the contents of a database's topics, by topic id.

    Topics without any message yet are left out.

    :param tick: called for each topic
    """
    numbers = (database.namespace.id, database.id)
    # Two scans for all topics, not two gets for each.
    trimmed = {
        keys.third(key): unpack_counter(row)
        for key, row in tx.rows(*keys.of_all(keys.TOPIC_TRIMMED, *numbers), tick)
    }
    found = {}
    for key, row in tx.rows(*keys.of_all(keys.TOPIC_LAST, *numbers), tick):
        id = keys.third(key)
        last, total = unpack_counter(row)
        before, gone = trimmed.get(id, (0, 0))
        found[id] = TopicContents(last - before, last, total - gone)
    return found


class MessageRows:
    """Message rows of one topic in one transaction."""

    __slots__ = ("_prefix", "_tx", "topic")

    def __init__(self, tx: Transaction, topic: Topic) -> None:
        self._tx = tx
        self._prefix = topic.messages
        self.topic = topic

    def end(self, exactly: bool = True) -> tuple[int, int]:
        """Return the last assigned position, and the total bytes there.

        :param exactly: see `tx.appended`
        """
        return unpack_counter(self._tx.appended(self.topic.last, exactly))

    def trimmed(self) -> tuple[int, int]:
        """Return the last trimmed position, and the total bytes there."""
        return unpack_counter(self._tx.get(self.topic.trimmed))

    def put_trimmed(self, position: int, total: int) -> None:
        """Write the last trimmed position."""
        self._tx.put(self.topic.trimmed, HEAD.pack(position, total))

    def may_be_over(self) -> bool:
        """True if the topic may exceed its size, so that the oldest messages must be trimmed.

        Adds nothing to the read set, so publishers don't conflict. After the commit, the result
        includes messages that other transactions published meanwhile.
        """
        topic = self.topic
        if topic.max_bytes is None or topic.full != "DROP":
            return False
        _, gone = unpack_counter(self._tx.hint(topic.trimmed))
        return self.end(exactly=False)[1] - gone > topic.max_bytes

    def key(self, position: int) -> bytes:
        """Return the state key of a message."""
        return self._prefix + NUMBER.pack(position)

    def get(self, position: int) -> bytes:
        """Return the row of a message, which must not be trimmed."""
        row = self._tx.get(self._prefix + NUMBER.pack(position))
        assert row is not None, "positions are dense"
        return row

    def append(self, bodies: Sequence[bytes]) -> Append:
        """Append messages encoded by `body`.

        :raises TooLarge: the transaction exceeds its limit
        """
        return self._tx.append(self.topic.last, self._prefix, bodies)

    def span(self, begin: int, count: int, room: int) -> list[tuple[int, bytes]]:
        """Return positions and rows of up to `count` messages from `begin` on.

        The message `begin` must not be trimmed.

        :param room: bytes for all of them; the first is returned even if it is larger
        """
        last, _ = self.end(exactly=False)
        own = self._tx.appends.get(self.topic.last)
        # Committed messages below the end are final, so a read of them depends on no publisher.
        if begin + count - 1 > (last if own is None else own.seen):
            # The result ends with the last message, so a concurrent publish would have changed it;
            # or it includes own messages, which a concurrent publish may still shift.
            last, _ = self.end()
        count = min(count, last + 1 - begin)
        if count <= 0:
            return []
        if count > 1:
            count = self._fitting(begin, count, room)
        # A get costs less than a scan of one row.
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
        """Return how many messages from `begin` fit into `room` bytes, at least one."""
        first = self.get(begin)
        # `room` becomes a running total: the highest that a message in the result may have.
        room += total(first) - len(first)
        # One more read in the common case; else a binary search over the totals.
        if self._total(begin + count - 1) <= room:
            return count
        return max(self.first_where(begin, begin + count, lambda row: total(row) > room) - begin, 1)

    def _total(self, position: int) -> int:
        return total(self.get(position))

    def position_at(self, place: StartPosition) -> int:
        """Return the position just before a place.

        :raises BadRequest: the topic has no such position
        """
        if place.kind == "START":
            return self.trimmed()[0]
        # Exact: the place depends on the end, so a concurrent publish conflicts.
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
        # Publish times never fall with the position, so the search may be binary.
        return self.first_where(begin, last + 1, lambda row: time_us(row) >= place.value) - 1

    def each(self) -> Iterator[list[bytes]]:
        """Yield the rows of all messages in order, in steps."""
        for pairs in self._tx.scan(*keys.within(self._prefix)):
            yield [row for _, row in pairs]

    def first_where(self, begin: int, end: int, holds: Callable[[bytes], bool]) -> int:
        """Binary search in begin … end - 1: return the first position that satisfies `holds`.

        Return `end` if there is none.

        :param holds: monotonic predicate: if true for a message, it is true for all later ones
        """
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
    """Encode messages for `append`, from packed values."""
    packed_key = b"" if key is None else key.encode()
    packed_id = b"" if id is None else id.encode()
    packed = binary.pack(dict(headers)) if headers else b""
    head = _BODY.pack(due_us, len(packed_key), len(packed_id), len(packed))
    head += packed_key + packed_id + packed
    return [head + value for value in values]


def with_headers(row: bytes, headers: Mapping[str, str]) -> bytes:
    """Encode a stored message for another append, with other headers and no delay."""
    _, _, _, key, id, old = _ROW.unpack_from(row)
    at = _ROW.size + key + id
    packed = binary.pack(dict(headers)) if headers else b""
    # Key and id are copied as they are; the id is not remembered for deduplication.
    head = _BODY.pack(0, key, id, len(packed))
    return head + row[_ROW.size : at] + packed + row[at + old :]


def time_us(row: bytes) -> int:
    """Return the publish time of a message (µs of log time)."""
    return HEAD.unpack_from(row)[0]  # type: ignore[no-any-return]


def total(row: bytes) -> int:
    """Return the total bytes of all messages up to and including this one."""
    return HEAD.unpack_from(row)[1]  # type: ignore[no-any-return]


def due_us(row: bytes) -> int:
    """Return the log time (µs) before which no group delivers the message; 0: none."""
    return _ROW.unpack_from(row)[2]  # type: ignore[no-any-return]


def key_of(row: bytes) -> bytes:
    """Return the key of a message; empty if it has none."""
    length = _ROW.unpack_from(row)[3]
    return row[_ROW.size : _ROW.size + length]


def headers_of(row: bytes) -> dict[str, str]:
    """Return the headers of a message."""
    _, _, _, key, id, length = _ROW.unpack_from(row)
    at = _ROW.size + key + id
    return binary.unpack_object(row[at : at + length]) if length else {}


class MessageContent(NamedTuple):
    """Decoded message, as it was published."""

    value: bytes
    """Packed value."""
    key: str | None
    id: str | None
    headers: dict[str, str]
    due_us: int
    """Log time (µs) before which no group delivers it; 0: none."""


def content(row: bytes) -> MessageContent:
    """Decode a message row."""
    _, _, due_us, key, id, headers = _ROW.unpack_from(row)
    at_id = _ROW.size + key
    at_headers = at_id + id
    at = at_headers + headers
    return MessageContent(
        row[at:],
        row[_ROW.size : at_id].decode() if key else None,
        row[at_id:at_headers].decode() if id else None,
        binary.unpack_object(row[at_headers:at]) if headers else {},
        due_us,
    )


def answer(position: int, row: bytes) -> Answer:
    """Return a message as responses show it; a delayed one has `due`."""
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
