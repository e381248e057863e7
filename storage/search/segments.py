"""Segments: immutable parts of a FULLTEXT or VECTOR index, each of up to 65 536 records.

The records of a segment are numbered by their ids. Keys, after the prefix of the index's entries:

| side | then | value |
|---|---|---|
| 4 | id | fresh marker, see `storage/indexes/fresh_markers.py` |
| 5 | segment (4) | head: msgpack, see `Head` |
| 6 | segment (4) field (1) term | numbers (2 each) of the records, then counts (1 each) |
| 7 | segment (4) field (1) term | positions (2 each) by record, for phrases |
| 8 | segment (4) field (1) | words (2) of each record in that field, then larger ones (4 each) |
| 9 | segment (4) chunk (2) | 256 ids, each behind its length less one (1) |
| A | segment (4) | the first id of each chunk, in the same form |
| B | segment (4) field (1) term | counts (4 each), if one of them is 255 or more |

A VECTOR index has others at 6 and 8, see `vectors.py`.

A segment without a head does not exist: the head is written last, and removed first. Counts,
lengths and positions that don't fit are held at their largest value. Integers in values are
little-endian. `postings.py` reads them as arrays.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

from protocol import binary
from protocol.bounded_cache import BoundedCache
from protocol.values import Tick, paced
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes.fresh_markers import FRESH
from storage.search.caches import search_cache
from storage.txn.transaction import Transaction

HEAD: Final = b"\5"
POSTINGS: Final = b"\6"
POSITIONS: Final = b"\7"
LENGTHS: Final = b"\x08"
IDS: Final = b"\x09"
FIRST_IDS: Final = b"\x0a"
COUNTS: Final = b"\x0b"
OF_SEGMENTS: Final = (HEAD, POSTINGS, POSITIONS, LENGTHS, IDS, FIRST_IDS, COUNTS)

RECORDS: Final = 65_536
"""Most records of a segment."""
CHUNK: Final = 256
"""Ids in one key."""
LARGE_COUNT: Final = 255
LARGE: Final = 65_535
"""Length or position in the place of all that are as large or larger."""
_ADDED_AT_ONCE: Final = 1_024
"""Terms of a record that are added in one step."""
_ID_BYTES: Final = 48
"""Memory of an id in a list beside its own bytes, about."""
KEPT_BYTES: Final = 32 * 1024 * 1024
"""Memory of the decoded ids and lengths of segments."""
_kept: Final[BoundedCache[Any]] = search_cache(KEPT_BYTES)
"""Decoded parts of segments, by the digest of the segment's content and the part."""

Get = Callable[[bytes], bytes | None]
Scan = Callable[[bytes, bytes], Iterator[list[Pair]]]
Part = TypeVar("Part")


def name(number: int) -> bytes:
    """Return the number of a segment as its keys have it."""
    return number.to_bytes(4, "big")


def ranges(prefix: bytes, number: int) -> list[keys.Range]:
    """Return the ranges of a segment's keys, the head first. :param prefix: of the index"""
    return [keys.within(prefix + side + name(number)) for side in OF_SEGMENTS]


@dataclass(frozen=True, slots=True)
class Head:
    """Facts of a segment."""

    number: int
    records: int
    words: tuple[int, ...]
    """Words of all its records, by field; of vectors their numbers."""
    digest: bytes
    """Digest of the analyzer, or of the form of vectors; with another one it is not read."""
    content: bytes
    """Digest of all its other pairs."""
    terms: int
    """Terms of its fields; 0 of vectors."""
    size: int
    """Bytes of all its other pairs."""
    deleted: int = 0
    """Numbers of the records that are deleted, or newer in another segment, as a set of bits."""

    @property
    def live(self) -> int:
        """Number of its records that are not deleted."""
        return self.records - self.deleted.bit_count()

    def without(self, numbers: Sequence[int]) -> Head:
        """Return the head with further records deleted."""
        bits = bytearray((self.records + 7) // 8)
        for number in numbers:
            bits[number // 8] |= 1 << number % 8
        gone = self.deleted | int.from_bytes(bits, "little")
        return replace(self, deleted=gone)

    def pack(self) -> bytes:
        """Return its value."""
        return binary.pack(
            {
                "records": self.records,
                "words": list(self.words),
                "digest": self.digest,
                "deleted": self.deleted.to_bytes((self.deleted.bit_length() + 7) // 8, "little"),
                "content": self.content,
                "terms": self.terms,
                "size": self.size,
            }
        )


def read_head(prefix: bytes, key: bytes, value: bytes) -> Head:
    """Return a head from its pair. :param prefix: of the index"""
    row = binary.unpack_object(value)
    return Head(
        int.from_bytes(key[len(prefix) + 1 :], "big"),
        row["records"],
        tuple(row["words"]),
        row["digest"],
        row["content"],
        row["terms"],
        row["size"],
        int.from_bytes(row["deleted"], "little"),
    )


# --- writing --------------------------------------------------------------------------------------


Row: TypeAlias = "tuple[array[int], array[int], array[int]]"
"""Numbers of the records that have a term, its counts, and its positions in all of them."""


class SegmentBuilder(ABC):
    """Collects records, which are added in the order of their ids.

    :param fields: number of fields
    """

    def __init__(self, fields: int) -> None:
        self._ids: list[bytes] = []
        self._words = [0] * fields
        self._content = blake2b(digest_size=16)
        self._bytes = 0
        """Bytes of the pairs that were made."""
        self.size = 0
        """Occurrences of terms or numbers of vectors so far, of which each takes some bytes."""

    def __len__(self) -> int:
        return len(self._ids)

    def _number(self, id: bytes) -> int:
        """Return the number of a further record."""
        number = len(self._ids)
        assert number < RECORDS, "a segment is full"
        self._ids.append(id)
        return number

    def finish(self) -> Iterator[None]:
        """Prepare the pairs, in steps."""
        return iter(())

    def head(self, number: int, digest: bytes) -> Head:
        """Return the head of the segment, after all its pairs were made."""
        content, terms = self._content.digest(), self._term_count
        return Head(number, len(self._ids), tuple(self._words), digest, content, terms, self._bytes)

    @property
    def _term_count(self) -> int:
        """Terms of all fields."""
        return 0

    def pairs(self, prefix: bytes, number: int) -> Iterator[Pair]:
        """Yield all pairs but the head, once. :param prefix: of the index"""
        of = name(number)
        for side, key, value in chain(self._parts(), self._parts_of_ids()):
            # The same content has the same digest in every index and under every number.
            self._content.update(b"%b%d %d " % (side, len(key), len(value)))
            self._content.update(key + value)
            whole = prefix + side + of + key
            self._bytes += len(whole) + len(value)
            yield whole, value

    @abstractmethod
    def _parts(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield the pairs of the content: the side, the key behind the segment's number, and the
        value."""

    def _parts_of_ids(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        firsts: list[bytes] = []
        for chunk, at in enumerate(range(0, len(self._ids), CHUNK)):
            some = self._ids[at : at + CHUNK]
            firsts.append(some[0])
            yield IDS, chunk.to_bytes(2, "big"), _joined(some)
        yield FIRST_IDS, b"", _joined(firsts)


class TextBuilder(SegmentBuilder):
    """Collects the terms of records."""

    def __init__(self, fields: int) -> None:
        super().__init__(fields)
        self._terms: list[dict[str, Row]] = [{} for _ in range(fields)]
        self._lengths: list[array[int]] = [array("I") for _ in range(fields)]

    def add(
        self, id: bytes, fields: Sequence[tuple[Mapping[str, Sequence[int]], int]]
    ) -> Iterator[None]:
        """Add a record, in steps.

        :param fields: of each field its terms with their positions, and its words
        """
        number = self._number(id)
        for at, (postings, words) in enumerate(fields):
            terms = self._terms[at]
            for added, (term, positions) in enumerate(postings.items()):
                row = terms.get(term)
                if row is None:
                    row = terms[term] = array("H"), array("I"), array("H")
                row[0].append(number)
                row[1].append(len(positions))
                if positions[-1] < LARGE:
                    row[2].extend(positions)
                else:
                    row[2].extend([min(one, LARGE) for one in positions])
                self.size += len(positions)
                if added % _ADDED_AT_ONCE == _ADDED_AT_ONCE - 1:
                    yield
            self._lengths[at].append(words)
            self._words[at] += words

    @property
    def _term_count(self) -> int:
        return sum(map(len, self._terms))

    def _parts(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        for field, terms in enumerate(self._terms):
            which = bytes((field,))
            for term, (numbers, counts, positions) in terms.items():
                # A lone surrogate is no Unicode, but a string may hold one.
                key = which + term.encode("utf-8", "surrogatepass")
                large = max(counts) >= LARGE_COUNT
                few = bytes([min(one, LARGE_COUNT) for one in counts])
                yield POSTINGS, key, _packed(numbers) + few
                yield POSITIONS, key, _packed(positions)
                if large:
                    yield COUNTS, key, _packed(counts)
        for field, lengths in enumerate(self._lengths):
            short = array("H", [min(one, LARGE) for one in lengths])
            long = array("I", [one for one in lengths if one >= LARGE])
            yield LENGTHS, bytes((field,)), _packed(short) + _packed(long)


def _packed(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _joined(ids: Sequence[bytes]) -> bytes:
    return b"".join([bytes((len(one) - 1,)) + one for one in ids])


def _split(raw: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(raw):
        end = at + 2 + raw[at]
        found.append(raw[at + 1 : end])
        at = end
    return found


# --- reading --------------------------------------------------------------------------------------


class Segment:
    """A segment, read through a transaction or a view of the engine.

    :param keeps: True: decoded parts are taken from memory, and kept there
    """

    def __init__(
        self, get: Get, scan: Scan, prefix: bytes, head: Head, *, keeps: bool = False
    ) -> None:
        self.head = head
        self._keeps = keeps
        self._get, self._scan = get, scan
        self._prefix, self._of = prefix, name(head.number)
        self._firsts: list[bytes] | None = None

    @property
    def records(self) -> int:
        """Number of its records, deleted ones included."""
        return self.head.records

    def ids(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield the ids of records. :param numbers: best in order"""
        chunk, some = -1, []
        for number in numbers:
            if number // CHUNK != chunk:
                chunk = number // CHUNK
                some = self._chunk(chunk)
            yield some[number % CHUNK]

    def live_ids(self) -> Iterator[bytes]:
        """Yield the ids of records that are not deleted, in order."""
        size = (self.head.records + 7) // 8
        deleted = self.head.deleted.to_bytes(size, "little")
        live = (n for n in range(self.records) if not deleted[n // 8] >> n % 8 & 1)
        return self.ids(live)

    def numbers(self, ids: Sequence[bytes]) -> Iterator[int]:
        """Yield the numbers of the records among some, in order, that the segment has."""
        chunk, some, start = -1, [], 0
        for id in ids:
            at = bisect_right(self._first_ids(), id) - 1
            if at < 0:
                continue
            if at != chunk:
                chunk, some, start = at, self._chunk(at), 0
            start = bisect_left(some, id, start)
            if start < len(some) and some[start] == id:
                yield chunk * CHUNK + start

    def _first_ids(self) -> list[bytes]:
        if self._firsts is None:
            self._firsts = self._decoded(FIRST_IDS)
        return self._firsts

    def _chunk(self, chunk: int) -> list[bytes]:
        return self._decoded(IDS, chunk.to_bytes(2, "big"))

    def _decoded(self, side: bytes, part: bytes = b"") -> list[bytes]:
        def decode() -> tuple[list[bytes], int]:
            raw = self._get(self._prefix + side + self._of + part) or b""
            ids = _split(raw)
            return ids, len(raw) + _ID_BYTES * len(ids)

        return self.kept((side, part), decode)

    def get(self, side: bytes, part: bytes) -> bytes:
        """Return the value of a key; empty: there is none. :param part: behind the number"""
        return self._get(self._prefix + side + self._of + part) or b""

    def kept(self, part: Hashable, decode: Callable[[], tuple[Part, int]]) -> Part:
        """Return a decoded part, which is never changed.

        :param decode: makes it, with its bytes in memory; 0: its key is gone
        """
        if not self._keeps:
            return decode()[0]
        name = self.head.content, part
        found: Part | None = _kept.get(name)
        if found is None:
            found, size = decode()
            # Of an index that was dropped in between there is nothing.
            if size:
                _kept.keep(name, found, size)
        return found


class TextSegment(Segment):
    """A segment of a FULLTEXT index."""

    def value(self, side: bytes, field: int, term: str = "") -> bytes:
        """Return the value of a key of a field; empty: there is none."""
        key = self._start(side, field) + term.encode("utf-8", "surrogatepass")
        return self._get(key) or b""

    def terms(self, field: int, start: str) -> Iterator[tuple[str, bytes]]:
        """Yield the terms of a field that begin with a text, with the values of their postings."""
        whole = self._start(POSTINGS, field)
        encoded = whole + start.encode("utf-8", "surrogatepass")
        for pairs in self._scan(*keys.within(encoded)):
            for key, value in pairs:
                yield key[len(whole) :].decode("utf-8", "surrogatepass"), value

    def _start(self, side: bytes, field: int) -> bytes:
        return self._prefix + side + self._of + bytes((field,))


def heads(scan: Scan, prefix: bytes) -> list[Head]:
    """Return the heads of an index in the order of their numbers."""
    return [
        read_head(prefix, key, value)
        for pairs in scan(*keys.within(prefix + HEAD))
        for key, value in pairs
    ]


def heads_of(tx: Transaction, prefix: bytes) -> list[Head]:
    """Return the heads of an index as a transaction sees them, in the order of their numbers.

    Those of the newest state are kept from one statement to the next.
    """
    start, end = keys.within(prefix + HEAD)
    marks = tx.marks(prefix + FRESH)
    known = None if marks is None else _heads.get((marks.name, marks.version))
    if known is None:
        known = [
            (key, read_head(prefix, key, value))
            for pairs in tx.scan_applied(start, end)
            for key, value in pairs
        ]
        if marks is not None:
            size = sum(_HEAD_BYTES + head.deleted.bit_length() // 8 for _, head in known)
            _heads.keep((marks.name, marks.version), known, size)
    # A commit may have dropped the index.
    rows = tx.scan_over(iter([known] if known else ()), start, end)
    return [head for pairs in rows for _, head in pairs]


HEADS_BYTES: Final = 8 * 1024 * 1024
"""Memory of the decoded heads of indexes."""
_HEAD_BYTES: Final = 500
"""Memory of a head beside its set of deleted records, about."""
_heads: Final[BoundedCache[list[tuple[bytes, Head]]]] = search_cache(HEADS_BYTES, large_part=2)
"""Heads of indexes with their keys, by the index and the version of its last change."""


def live_count(scan: Scan, prefix: bytes) -> int:
    """Return the number of records in the segments of an index."""
    return sum(head.live for head in heads(scan, prefix))


def count_fresh(tx: Transaction, prefix: bytes, tick: Tick) -> int:
    """Return the number of marked records."""
    found = 0
    for ids in marked_ids(tx, prefix):
        found += len(ids)
        tick()
    return found


def fresh_backlog(tx: Transaction, records: bytes, prefix: bytes, tick: Tick) -> tuple[int, int]:
    """Return the number of marked records, and their bytes: an estimate beyond `WEIGHED` records.

    :param records: prefix of the records of the table
    """
    count, some = 0, list[bytes]()
    for ids in marked_ids(tx, prefix):
        count += len(ids)
        some += ids[: WEIGHED - len(some)]
        tick()
    size = sum(len(tx.get(records + id) or b"") for id in paced(some, tick))
    return count, size * count // len(some) if some else 0


WEIGHED: Final = 500
"""Marked records whose bytes are read."""


def fresh_ids(scan: Scan, prefix: bytes) -> Iterator[list[bytes]]:
    """Yield the ids of the marked records that a scan finds in order, in lists."""
    return _ids(scan(*keys.within(prefix + FRESH)), prefix)


def marked_ids(tx: Transaction, prefix: bytes) -> Iterator[list[bytes]]:
    """Yield the ids of marked records as a transaction sees them in order, in lists. There may be
    others among them, whose markers it does not see.

    The range joins the read set: text that another commit changes is a conflict.
    """
    marks = tx.marks(prefix + FRESH)
    known = None if marks is None else marks.rows()
    whole = keys.within(prefix + FRESH)
    return _ids(tx.scan(*whole) if known is None else tx.scan_over(iter(known), *whole), prefix)


def _ids(rows: Iterator[list[Pair]], prefix: bytes) -> Iterator[list[bytes]]:
    start = len(prefix) + len(FRESH)
    for pairs in rows:
        yield [key[start:] for key, _ in pairs]
