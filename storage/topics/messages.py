"""Messages of a topic: publish, read, trim, redrive; and its readers.

- A message's position is final at the commit; so are the positions of `PublishResult`.
- Messages are removed from the front only, by retention, TRIM and REDRIVE, together with the
  deliveries of all groups (`deliveries.group.trim`).
- An id is remembered for `Topic.dedup_us` of log time after its first message (idempotent publish).
  It has two rows, which always change together: by id, and by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from struct import Struct
from typing import Any, Final

from protocol import binary, limits
from protocol.errors import (
    AlreadyExists,
    AssertFailed,
    BadRequest,
    Full,
    TooLarge,
    TypeRefused,
    Unknown,
)
from protocol.text import check_name
from protocol.values import NONE, Tick, Value, check, check_unicode, type_name, without_none
from storage.catalog.places import Database, IfExists, each_named
from storage.formats import keys
from storage.topics import groups
from storage.topics.deliveries import group as group_deliveries
from storage.topics.deliveries.expiry import DEAD_HEADERS
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.message_rows import (
    MessageRows,
    TopicContents,
    answer,
    body,
    headers_of,
    time_us,
    total,
    with_headers,
)
from storage.topics.topics import START, StartPosition, Topic
from storage.txn.appends import HEAD, NUMBER, Append
from storage.txn.transaction import Transaction

Answer = dict[str, Any]

_ID: Final = Struct(">QQ")
"""Value of a remembered id: position and time of its message."""
_STEP: Final = 256
"""Messages processed between two ticks: about half a millisecond of work."""
_REDRIVEN_BYTES: Final = 16 * limits.MIB
"""Approximate bytes moved by one REDRIVE; well below the limit of a transaction."""


class PublishResult:
    """Result of a publish. If the transaction paused, read the positions only after its commit."""

    __slots__ = ("_append", "_first", "count", "duplicate")

    def __init__(
        self, first: int, count: int, append: Append | None, duplicate: bool = False
    ) -> None:
        """:param append: append that assigned the position and may shift it at the commit; None: an
        earlier commit assigned it
        """
        self._first = first
        self._append = append
        self.count = count
        self.duplicate = duplicate
        """True if the topic held a message of that id already; `first` is then its position."""

    @property
    def first(self) -> int:
        """Position of the first message."""
        return self._first + (0 if self._append is None else self._append.shift)

    @property
    def last(self) -> int:
        """Position of the last message."""
        return self.first + self.count - 1


class TopicMessages:
    """Messages of one topic in one transaction. A call that raises a refusal changes nothing."""

    __slots__ = ("_rows", "_tx", "topic", "wakes")

    def __init__(self, tx: Transaction, topic: Topic) -> None:
        self._tx = tx
        self._rows = MessageRows(tx, topic)
        self.topic = topic
        self.wakes = False
        """True if a message was published, so that waiting consumers may be woken."""

    # --- figures --------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """First position held; `last` + 1 if the topic is empty."""
        return self._rows.trimmed()[0] + 1

    @property
    def last(self) -> int:
        """Last position assigned; 0: none."""
        return self._rows.end()[0]

    def pin(self) -> None:
        """Add the last position to the read set, so that concurrent publishes conflict.

        Needed when the transaction uses the positions that it was given.
        """
        self._rows.end()

    @property
    def held(self) -> TopicContents:
        """Contents of the topic."""
        (last, total), (trimmed, gone) = self._rows.end(), self._rows.trimmed()
        return TopicContents(last - trimmed, last, total - gone)

    def may_be_over(self) -> bool:
        return self._rows.may_be_over()

    # --- publishing -----------------------------------------------------------------------------

    def publish(
        self,
        values: Sequence[Value],
        *,
        key: Any = None,
        id: Any = None,
        headers: Any = None,
        due_us: int = 0,
        expect: int | None = None,
        tick: Tick | None = None,
    ) -> PublishResult:
        """Append messages, all with the same key, headers and due time.

        Validates the caller's input.

        :param tick: called from time to time while many values are packed
        :param id: only with a single message
        :param due_us: log time before which no group delivers it; a past time means no delay
        :param expect: refuse unless the last position equals this one
        :raises BadRequest: no values, too many, an id with several; a key or id of invalid length
        :raises TypeRefused: a value of NONE; a key, id or headers that are no strings
        :raises TooLarge: a message over `Topic.largest` or `Topic.max_bytes`; headers over their
            limits
        :raises AssertFailed: the last position is not `expect`
        :raises Full: the topic would exceed `Topic.max_bytes`, and it is declared to refuse then
        """
        bodies = self._bodies(values, key, id, headers, due_us, tick)
        if id is not None:
            # Before EXPECT and the check of room: neither may refuse a repeated publish.
            known = self._known(id)
            if known is not None:
                return known
        if expect is not None:
            self._check_expect(expect)
        self._check_room(bodies)
        append = self._rows.append(bodies)
        count = len(bodies)
        # Provisional: earlier publishes of this transaction come before it under one counter.
        first = append.seen + append.count - count + 1
        if id is not None and self.topic.dedup_us is not None:
            self._remember(id, append, first)
        self.wakes = True
        return PublishResult(first, count, append)

    def _bodies(
        self,
        values: Sequence[Value],
        key: Any,
        id: Any,
        headers: Any,
        due_us: int,
        tick: Tick | None,
    ) -> list[bytes]:
        if not 1 <= len(values) <= limits.MESSAGES_PUBLISHED:
            raise BadRequest(
                f"PUBLISH takes 1 to {limits.MESSAGES_PUBLISHED} values, not {len(values)}",
                limit=limits.MESSAGES_PUBLISHED,
            )
        if key is not None:
            check_message_name(key, "KEY")
        if id is not None:
            check_message_name(id, "ID")
            if len(values) > 1:
                raise BadRequest("ID names one message, not several")
        if headers is not None:
            check_headers(headers)
        now_us = self._tx.now_us
        if due_us > now_us + limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("a message is delayed by at most 1000 years")
        # A past time is no delay, and answers show no `due` then.
        if due_us <= now_us:
            due_us = 0
        packed: list[bytes] = []
        for start in range(0, len(values), _STEP):
            packed += [_packed(value) for value in values[start : start + _STEP]]
            if tick is not None:
                tick()
        bodies = body(packed, due_us, key, id, headers)
        self.check_sizes(bodies)
        return bodies

    def check_sizes(self, bodies: Sequence[bytes], begin: int | None = None) -> None:
        """Check message sizes against LARGEST, and against BYTES, the bound of the whole topic.

        A message over BYTES would be acknowledged and trimmed at once.

        :param begin: position of the first message in the topic it is moved from, for the error
        :raises TooLarge: a message is over either bound
        """
        topic = self.topic
        bound, setting = topic.largest, "LARGEST"
        if topic.max_bytes is not None and topic.max_bytes < bound:
            bound, setting = topic.max_bytes, "BYTES"
        sizes = [len(body) + HEAD.size for body in bodies]
        if max(sizes) <= bound:
            return
        number, size = next(found for found in enumerate(sizes) if found[1] > bound)
        which, detail = "this one", {}
        if begin is not None:
            which, detail = f"that at position {begin + number}", {"position": begin + number}
        raise TooLarge(
            f"a message of topic {topic.path} takes at most {bound} bytes ({setting}), {which}"
            f" {size}",
            limit=bound,
            size=size,
            **detail,
        )

    def _known(self, id: str) -> PublishResult | None:
        """Return the message that had the id within the deduplication window, or None."""
        topic, tx = self.topic, self._tx
        if topic.dedup_us is None:
            return None
        # In the read set: of two concurrent publishes of one id, the later commit runs again.
        row = tx.get(topic.ids + id.encode())
        if row is None:
            return None
        position, at_us = _ID.unpack(row)
        if tx.now_us >= at_us + topic.dedup_us:
            return None
        # The position of an own message may still move at the commit, and so must this answer.
        append = tx.appends.get(topic.last)
        own = append is not None and position > append.seen
        return PublishResult(position, 1, append if own else None, duplicate=True)

    def _remember(self, id: str, append: Append, position: int) -> None:
        topic, tx, name = self.topic, self._tx, id.encode()
        before = tx.get(topic.ids + name)
        # Past its window but not swept: its row by time would later delete the new one by id.
        if before is not None:
            tx.delete(_id_time(topic, _ID.unpack(before)[1], name))
        tx.mark(
            append,
            position,
            lambda position, at_us: {
                topic.ids + name: _ID.pack(position, at_us),
                _id_time(topic, at_us, name): b"",
            },
        )

    def _check_expect(self, expect: int) -> None:
        found = self.last
        if found != expect:
            raise AssertFailed(
                f"the last position of topic {self.topic.path} is {found}, not {expect}",
                expected=expect,
                found=found,
            )

    def _check_room(self, bodies: list[bytes]) -> None:
        topic = self.topic
        if topic.full == "DROP" or topic.max_bytes is None:
            return
        # `held` reads the end exactly: publishers conflict here, or they exceed BYTES together.
        if self.held.size + sum(map(len, bodies)) + HEAD.size * len(bodies) > topic.max_bytes:
            raise Full(
                f"topic {topic.path} is full: it holds at most {topic.max_bytes} bytes, its BYTES",
                limit=topic.max_bytes,
            )

    # --- reading --------------------------------------------------------------------------------

    def read(self, after: int, limit: int = limits.MESSAGES_READ_DEFAULT) -> list[Answer]:
        """Read messages at positions over `after`: up to `limit`, and `limits.MESSAGES_READ_BYTES`.

        :raises BadRequest: a limit outside 1 … `limits.MESSAGES_READ`, a negative position
        """
        if not 1 <= limit <= limits.MESSAGES_READ:
            raise BadRequest(f"LIMIT is from 1 to {limits.MESSAGES_READ}", limit=limit)
        if after < 0:
            raise BadRequest("a position is 0 or more", position=after)
        # A reader behind the trimmed messages continues at the oldest one left.
        begin = max(after, self._rows.trimmed()[0]) + 1
        return [
            answer(position, row)
            for position, row in self._rows.span(begin, limit, limits.MESSAGES_READ_BYTES)
        ]

    def position_at(self, place: StartPosition) -> int:
        """Return the position just before a place.

        :raises BadRequest: the topic has no such position
        """
        return self._rows.position_at(place)

    # --- readers --------------------------------------------------------------------------------

    def define_reader(
        self, name: str, place: StartPosition = START, taken: IfExists = IfExists.REFUSE
    ) -> int:
        """Declare a reader. Return its position; overwriting a reader moves it to `place`.

        :raises AlreadyExists, NameRefused, BadRequest:
        """
        check_name(name, "reader")
        present = self._tx.get(self.key_of_reader(name))
        if present is not None:
            if taken is IfExists.REFUSE:
                path = f"{self.topic.path}.{name}"
                raise AlreadyExists(f"reader {path} exists", kind="reader", name=path)
            if taken is IfExists.SKIP:
                return keys.unpack_counter(present)
        return self._put_reader(name, self.position_at(place))

    def reader(self, name: str) -> int:
        """Return the position of a reader: the last message it has processed.

        :raises Unknown:
        """
        row = self._tx.get(self.key_of_reader(name))
        if row is None:
            path = f"{self.topic.path}.{name}"
            raise Unknown(f"there is no reader {path}", kind="reader", name=path)
        return keys.unpack_counter(row)

    def key_of_reader(self, name: str) -> bytes:
        """Return the state key of a reader's position, existing or not."""
        return self.topic.readers + name.encode()

    def readers(self, tick: Tick) -> Iterator[tuple[str, int]]:
        """Yield all readers and their positions, by name.

        :param tick: called for each
        """
        for name, row in each_named(self._tx, *keys.within(self.topic.readers), tick):
            yield name, keys.unpack_counter(row)

    def commit_reader(self, name: str, position: int) -> int:
        """Move a reader to a position from 0 to `last`.

        :raises Unknown, BadRequest:
        """
        return self.move_reader(name, StartPosition("AFTER", position))

    def move_reader(self, name: str, place: StartPosition) -> int:
        """Move a reader to a place. Return its position.

        :raises Unknown, BadRequest:
        """
        # Refuses an unknown reader: a move must not create one.
        self.reader(name)
        return self._put_reader(name, self.position_at(place))

    def drop_reader(self, name: str) -> None:
        """Drop a reader.

        :raises Unknown:
        """
        self.reader(name)
        self._tx.delete(self.key_of_reader(name))

    def lag(self, position: int) -> int:
        """Return the number of messages behind a position."""
        return self.last - max(position, self.first - 1)

    def _put_reader(self, name: str, position: int) -> int:
        self._tx.put(self.key_of_reader(name), keys.pack_counter(position))
        return position

    # --- trimming -------------------------------------------------------------------------------

    def trim(self, before: int) -> Iterator[int]:
        """Remove all messages before a position. Yields the numbers removed, to be added up.

        A position beyond the last + 1 counts as that.

        :raises BadRequest: the position is negative
        """
        if before < 0:
            raise BadRequest("a position is 0 or more", position=before)
        own = self.topic.last in self._tx.appends
        # Publishers only move the end up, so a trim below it needs no exact end.
        last, _ = self._rows.end(exactly=own)
        if before > last:
            last, _ = self._rows.end()
        yield from self._trim(min(before, last + 1))

    def _trim(self, first: int) -> Iterator[int]:
        """Make `first` the first position held, unless it is already trimmed."""
        tx, rows = self._tx, self._rows
        trimmed, _ = rows.trimmed()
        count = first - 1 - trimmed
        if count <= 0:
            return
        # Before the deletion: the total at the new border comes from a message that goes.
        rows.put_trimmed(first - 1, total(rows.get(first - 1)))
        if count <= limits.TRIM_MESSAGES:
            for position in range(trimmed + 1, first):
                tx.delete(rows.key(position))
        else:
            tx.delete_range(rows.key(trimmed + 1), rows.key(first))
        yield count
        # In the same commit: a delivery whose message is gone could not be delivered again.
        for group in groups.groups(tx, self.topic):
            for _ in group_deliveries.trim(DeliveryIndex(tx, group), first):
                yield 0

    def trim_due(self, most: int = limits.TRIM_MESSAGES) -> tuple[int, bool]:
        """Trim up to `most` messages beyond the topic's retention time or size.

        Return their number, and True if more are due.
        """
        rows = self._rows
        trimmed, _ = rows.trimmed()
        last, held_to = rows.end()
        now_us, topic = self._tx.now_us, self.topic
        too_old_us = -1 if topic.keep_us is None else now_us - topic.keep_us
        # Messages go while the total before them is below this. Totals count trimmed bytes too.
        too_much = held_to - self._kept_bytes(last)

        def stays(row: bytes) -> bool:
            return time_us(row) > too_old_us and total(row) - len(row) >= too_much

        end = min(last, trimmed + most) + 1
        if end == trimmed + 1 or stays(rows.get(trimmed + 1)):
            return 0, False
        # Age and total are monotonic, so the border of this slice is found by binary search.
        first = end if not stays(rows.get(end - 1)) else rows.first_where(trimmed + 1, end, stays)
        more = first == end <= last and not stays(rows.get(end))
        return sum(self._trim(first)), more

    def _kept_bytes(self, last: int) -> int:
        """Return the bytes that the messages may occupy before the oldest are trimmed.

        The newest message stays, even if it is a dead letter larger than the topic's bound.

        :param last: its position
        """
        topic, rows = self.topic, self._rows
        if topic.max_bytes is None or topic.full != "DROP":
            return limits.INT_MAX
        # The row of the newest is there unless the topic is empty.
        last_is_held = last > rows.trimmed()[0]
        return max(topic.max_bytes, len(rows.get(last)) if last_is_held else 0)

    def next_trim_us(self) -> int | None:
        """Return the log time when `trim_due` next has work, also if it has passed; None if never
        as things stand."""
        topic, rows = self.topic, self._rows
        trimmed, gone = rows.trimmed()
        last, held_to = rows.end()
        if last == trimmed:
            return None
        if held_to - gone > self._kept_bytes(last):
            return self._tx.now_us
        if topic.keep_us is None:
            return None
        return time_us(rows.get(trimmed + 1)) + topic.keep_us

    def sweep_ids(self, most: int, begin: bytes = b"") -> tuple[int, bytes]:
        """Forget up to `most` ids past the deduplication window.

        Return their number, and the key of the last one.

        :param begin: key returned by the previous sweep, b"" for the first of this process; entries
            before it need not be scanned again
        """
        topic, tx = self.topic, self._tx
        # Without a window, after an ALTER, all remembered ids are due.
        over_us = tx.now_us - (topic.dedup_us or 0)
        end = topic.id_times + NUMBER.pack(max(over_us + 1, 0))
        done, last = 0, begin
        for pairs in tx.scan(max(topic.id_times, begin), end):
            for key, _ in pairs[: most - done]:
                tx.delete(key)
                tx.delete(topic.ids + key[len(topic.id_times) + NUMBER.size :])
                last = key
            done += len(pairs[: most - done])
            if done >= most:
                break
        return done, last

    def next_id_us(self, begin: bytes = b"") -> int | None:
        """Return the log time when the next id is to be forgotten; None if none is remembered."""
        topic = self.topic
        start, end = keys.within(topic.id_times)
        for pairs in self._tx.scan(max(start, begin), end):
            (at_us,) = NUMBER.unpack_from(pairs[0][0], len(start))
            return int(at_us) + (topic.dedup_us or 0)
        return None

    # --- for INFO -------------------------------------------------------------------------------

    def figures(self, tick: Tick) -> Answer:
        """Return the figures of `INFO FOR TOPIC`; `bytes` only if the topic has a size bound.

        `{name, messages, first_position, last_position, bytes, keep, max_bytes, largest, dedup,
        full, comment, readers, groups, lag}`

        :param tick: called for each reader and group
        """
        topic = self.topic
        last, held_to = self._rows.end()
        trimmed, gone = self._rows.trimmed()
        readers = [
            {"name": name, "position": position, "lag": last - max(position, trimmed)}
            for name, position in self.readers(tick)
        ]
        shared = [
            group_deliveries.figures(DeliveryIndex(self._tx, group, tick))
            for group in groups.each(self._tx, topic, tick)
        ]
        return {
            "name": topic.name,
            "messages": last - trimmed,
            "first_position": trimmed + 1,
            "last_position": last,
            **bounded_bytes(topic, held_to - gone),
            "keep": _span(topic.keep_us),
            "max_bytes": topic.max_bytes,
            "largest": topic.largest,
            "dedup": _span(topic.dedup_us),
            "full": topic.full,
            "comment": topic.comment,
            "readers": readers,
            "groups": shared,
            "lag": max((one["lag"] for one in chain(readers, shared)), default=0),
        }


def readers_of_all(tx: Transaction, database: Database, tick: Tick) -> Iterator[tuple[int, int]]:
    """Yield the topic ids and positions of a database's readers.

    :param tick: called for each
    """
    numbers = (database.namespace.id, database.id)
    for key, row in tx.rows(*keys.of_all(keys.READER, *numbers), tick):
        yield keys.third(key), keys.unpack_counter(row)


def bounded_bytes(topic: Topic, held: int) -> Answer:
    """Return the `bytes` entry of INFO for a topic; empty if the topic has no size bound."""
    return {} if topic.max_bytes is None else {"bytes": held}


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """Result of REDRIVE. As in `PublishResult`, positions are final after the commit."""

    moved: int
    published: PublishResult | None
    """None if no message was moved."""


def redrive(
    tx: Transaction, dead: Topic, topic: Topic, limit: int = 1000, tick: Tick | None = None
) -> RedriveResult:
    """Move the oldest messages of a dead letter topic into another topic.

    Their dead letter headers are removed.

    :param tick: called from time to time
    :param limit: largest number of messages
    :raises BadRequest: the same topic; a limit outside 1 … `limits.REDRIVEN`
    :raises Full: the other topic is full
    :raises TooLarge: a message exceeds the other topic's bound; `position` in the detail names it.
        No message is moved then; a smaller LIMIT moves those before it.
    """
    if dead.id == topic.id:
        raise BadRequest("REDRIVE needs another topic as its target")
    if not 1 <= limit <= limits.REDRIVEN:
        raise BadRequest(f"LIMIT is from 1 to {limits.REDRIVEN}", limit=limit)
    # Collect, bounded by bytes and number.
    source = MessageRows(tx, dead)
    begin = source.trimmed()[0] + 1
    bodies: list[bytes] = []
    room = _REDRIVEN_BYTES
    while len(bodies) < limit and room > 0:
        found = source.span(begin + len(bodies), min(limit - len(bodies), _STEP), room)
        if not found:
            break
        bodies += [with_headers(row, _redriven(headers_of(row))) for _, row in found]
        room -= sum(len(row) for _, row in found)
        if tick is not None:
            tick()
    if not bodies:
        return RedriveResult(0, None)
    # All checks before the first write: a refusal leaves both topics as they were.
    target = TopicMessages(tx, topic)
    target.check_sizes(bodies, begin)
    target._check_room(bodies)
    append = MessageRows(tx, topic).append(bodies)
    first = append.seen + append.count - len(bodies) + 1
    # One commit appends and trims, so a message is never in both topics or in neither.
    for _ in TopicMessages(tx, dead).trim(begin + len(bodies)):
        if tick is not None:
            tick()
    return RedriveResult(len(bodies), PublishResult(first, len(bodies), append))


def _redriven(headers: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name not in DEAD_HEADERS}


def check_message_name(name: Any, what: str) -> str:
    """Check a KEY or an ID of a message, and return it.

    :raises TypeRefused, BadRequest:
    """
    if type(name) is not str:
        raise TypeRefused(f"{what} takes a string, not {type_name(name)}", found=type_name(name))
    size = len(name)
    if not name.isascii():
        check_unicode(name)
        size = len(name.encode())
    if not 1 <= size <= limits.MESSAGE_NAME_BYTES or "\0" in name:
        raise BadRequest(
            f"{what} takes 1 to {limits.MESSAGE_NAME_BYTES} bytes without a NUL", bytes=size
        )
    return name


def check_headers(headers: Any) -> None:
    """Check the headers of a message.

    :raises TypeRefused: no object of strings
    :raises TooLarge: too many, or too long
    """
    if type(headers) is not dict:
        raise TypeRefused(
            f"HEADERS takes an object, not {type_name(headers)}", found=type_name(headers)
        )
    for name, text in headers.items():
        if type(name) is not str or type(text) is not str:
            raise TypeRefused(f"a header is a string, not {type_name(text)}", header=name)
    check(headers)
    if len(headers) > limits.HEADERS:
        raise TooLarge(f"a message has at most {limits.HEADERS} headers", limit=limits.HEADERS)
    size = len(binary.pack(headers))
    if size > limits.HEADERS_BYTES:
        raise TooLarge(
            f"the headers of a message take at most {limits.HEADERS_BYTES} bytes, these take"
            f" {size}",
            limit=limits.HEADERS_BYTES,
            size=size,
        )


def _packed(value: Value) -> bytes:
    """Encode a value for storage.

    :raises TypeRefused, NumberTooLarge, TooLarge:
    """
    if value is NONE:
        raise TypeRefused("the value of a message cannot be NONE", found="none")
    check(value)
    if type(value) is dict or type(value) is list:
        # Wrapped, because the function works on the fields of an object.
        value = without_none({"value": value})["value"]
    return binary.pack(value)


def _id_time(topic: Topic, at_us: int, name: bytes) -> bytes:
    return topic.id_times + NUMBER.pack(at_us) + name


def _span(span_us: int | None) -> timedelta | None:
    return None if span_us is None else timedelta(microseconds=span_us)
