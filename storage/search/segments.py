"""Segments: immutable parts of a FULLTEXT index, each with the terms of up to 65 536 records.

The records of a segment are numbered by their ids. Keys, after the prefix of the index's entries:

| side | then | value |
|---|---|---|
| 4 | id | fresh marker, see `storage/indexes/text_markers.py` |
| 5 | segment (4) | head: msgpack, see `Head` |
| 6 | segment (4) field (1) term | numbers (2 each) of the records, then counts (1 each) |
| 8 | segment (4) field (1) | words (2) of each record in that field |
| 9 | segment (4) chunk (2) | 256 ids, each behind its length less one (1) |
| A | segment (4) | the first id of each chunk, in the same form |

A segment without a head does not exist: the head is written last, and removed first. Numbers and
counts that don't fit are held at their largest value. Integers in values are little-endian.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol import binary
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes.text_markers import FRESH
from storage.txn.transaction import Transaction

HEAD: Final = b"\5"
POSTINGS: Final = b"\6"
LENGTHS: Final = b"\x08"
IDS: Final = b"\x09"
FIRST_IDS: Final = b"\x0a"
OF_SEGMENTS: Final = (HEAD, POSTINGS, LENGTHS, IDS, FIRST_IDS)

RECORDS: Final = 65_536
"""Most records of a segment."""
CHUNK: Final = 256
"""Ids in one key."""
_COUNT_MAX: Final = 255
_LENGTH_MAX: Final = 65_535

Get = Callable[[bytes], bytes | None]
Scan = Callable[[bytes, bytes], Iterator[list[Pair]]]


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
    """Words of all its records, by field."""
    digest: bytes
    """Digest of the analyzer; terms of another one are not read."""
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
        return Head(self.number, self.records, self.words, self.digest, gone)

    def pack(self) -> bytes:
        """Return its value."""
        return binary.pack(
            {
                "records": self.records,
                "words": list(self.words),
                "digest": self.digest,
                "deleted": self.deleted.to_bytes((self.deleted.bit_length() + 7) // 8, "little"),
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
        int.from_bytes(row["deleted"], "little"),
    )


# --- writing --------------------------------------------------------------------------------------


class SegmentBuilder:
    """Collects the terms of records, which are added in the order of their ids."""

    def __init__(self, fields: int) -> None:
        self._ids: list[bytes] = []
        self._terms: list[dict[str, tuple[array[int], bytearray]]] = [{} for _ in range(fields)]
        self._lengths: list[array[int]] = [array("H") for _ in range(fields)]
        self._words = [0] * fields

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: bytes, fields: Sequence[tuple[Mapping[str, Sequence[int]], int]]) -> None:
        """Add a record. :param fields: of each field its terms with their places, and its words"""
        number = len(self._ids)
        assert number < RECORDS, "a segment is full"
        self._ids.append(id)
        for at, (postings, words) in enumerate(fields):
            terms = self._terms[at]
            for term, places in postings.items():
                row = terms.get(term)
                if row is None:
                    row = terms[term] = array("H"), bytearray()
                row[0].append(number)
                row[1].append(min(len(places), _COUNT_MAX))
            self._lengths[at].append(min(words, _LENGTH_MAX))
            self._words[at] += words

    def head(self, number: int, digest: bytes) -> Head:
        """Return the head of the segment."""
        return Head(number, len(self._ids), tuple(self._words), digest)

    def pairs(self, prefix: bytes, number: int) -> Iterator[Pair]:
        """Yield all pairs but the head. :param prefix: of the index"""
        of = name(number)
        for field, terms in enumerate(self._terms):
            start = prefix + POSTINGS + of + bytes((field,))
            for term, (numbers, counts) in terms.items():
                # A lone surrogate is no Unicode, but a string may hold one.
                key = start + term.encode("utf-8", "surrogatepass")
                yield key, _packed(numbers) + bytes(counts)
        for field, lengths in enumerate(self._lengths):
            yield prefix + LENGTHS + of + bytes((field,)), _packed(lengths)
        firsts: list[bytes] = []
        for chunk, at in enumerate(range(0, len(self._ids), CHUNK)):
            some = self._ids[at : at + CHUNK]
            firsts.append(some[0])
            yield prefix + IDS + of + chunk.to_bytes(2, "big"), _joined(some)
        yield prefix + FIRST_IDS + of, _joined(firsts)


def _packed(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array("H", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(raw: bytes) -> array[int]:
    found = array("H")
    found.frombytes(raw)
    if sys.byteorder == "big":
        found.byteswap()
    return found


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
    """A segment, read through a transaction or a view of the engine."""

    def __init__(self, get: Get, scan: Scan, prefix: bytes, head: Head) -> None:
        self.head = head
        self._get, self._scan = get, scan
        self._prefix, self._of = prefix, name(head.number)
        self._firsts: list[bytes] | None = None

    @property
    def records(self) -> int:
        """Number of its records, deleted ones included."""
        return self.head.records

    def numbers(self, field: int, term: str) -> frozenset[int]:
        """Return the numbers of the records that have a term in a field."""
        raw = self._get(self._start(field) + term.encode("utf-8", "surrogatepass"))
        return frozenset() if raw is None else frozenset(_unpacked(raw[: len(raw) // 3 * 2]))

    def terms(self, field: int, start: str) -> Iterator[str]:
        """Yield the terms of a field that begin with a text."""
        whole = self._start(field)
        encoded = whole + start.encode("utf-8", "surrogatepass")
        for pairs in self._scan(*keys.within(encoded)):
            for key, _ in pairs:
                yield key[len(whole) :].decode("utf-8", "surrogatepass")

    def _start(self, field: int) -> bytes:
        return self._prefix + POSTINGS + self._of + bytes((field,))

    def live_ids(self, numbers: set[int] | frozenset[int] | range) -> Iterator[bytes]:
        """Yield the ids of records that are not deleted, in order."""
        chunk, some = -1, []
        size = (self.head.records + 7) // 8
        deleted = self.head.deleted.to_bytes(size, "little")
        for number in sorted(numbers):
            if deleted[number // 8] >> number % 8 & 1:
                continue
            if number // CHUNK != chunk:
                chunk = number // CHUNK
                some = self._chunk(chunk)
            yield some[number % CHUNK]

    def live_number(self, id: bytes) -> int | None:
        """Return the number of a record; None: it is deleted here, or has none."""
        if self._firsts is None:
            self._firsts = _split(self._get(self._prefix + FIRST_IDS + self._of) or b"")
        chunk = bisect_right(self._firsts, id) - 1
        if chunk < 0:
            return None
        some = self._chunk(chunk)
        at = bisect_right(some, id) - 1
        number = chunk * CHUNK + at
        if at < 0 or some[at] != id or self.head.deleted >> number & 1:
            return None
        return number

    def _chunk(self, chunk: int) -> list[bytes]:
        return _split(self._get(self._prefix + IDS + self._of + chunk.to_bytes(2, "big")) or b"")


def heads(scan: Scan, prefix: bytes) -> list[Head]:
    """Return the heads of an index in the order of their numbers."""
    return [
        read_head(prefix, key, value)
        for pairs in scan(*keys.within(prefix + HEAD))
        for key, value in pairs
    ]


def of_index(tx: Transaction, prefix: bytes) -> list[Segment]:
    """Return the segments of an index as a transaction sees them."""
    return [Segment(tx.get, tx.scan, prefix, head) for head in heads(tx.scan, prefix)]


def fresh_ids(scan: Scan, prefix: bytes) -> Iterator[list[bytes]]:
    """Yield the ids of marked records in order, in lists.

    In a transaction the range joins the read set: text that another commit changes is a conflict.
    """
    start = len(prefix) + len(FRESH)
    for pairs in scan(*keys.within(prefix + FRESH)):
        yield [key[start:] for key, _ in pairs]
