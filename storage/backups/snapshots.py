"""Snapshots: every logged key of one view, in key order, or those of one place.

The stream of a snapshot is pairs: length of the key (4), length of the value (4), key, value. They
are what the state hash is made of, so a store made of them has the hash that its origin had. What
indexes hold is left out, as it is of the log, and made again by whoever loads the records.

What is read is one view of the state, at a commit that is released, while others write on. Reading
is the loop's work, in slices (`pieces`); checks, seals and writing are a thread's (`Snapshot`).
`write` does both, for who has a thread to itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import Struct
from typing import Final, NamedTuple

from protocol.doors import File, Rng
from protocol.errors import BackupCorrupt
from storage import keys
from storage.backups import container, places
from storage.backups.container import Sink, Writer
from storage.backups.facts import Place, SnapshotFacts, Written
from storage.backups.forms import Form
from storage.engine import Pair, Reader
from storage.frames import BODY_BYTES_MAX
from storage.sealing import Key

LENGTHS: Final = Struct(">II")
"""Before each pair."""
PAIR_BYTES_MAX: Final = BODY_BYTES_MAX
"""What no commit could have written stands in no state. A longer length is damage."""


class Piece(NamedTuple):
    """Some pairs, as the stream has them."""

    data: bytes
    pairs: int
    records: int


def pieces(view: Reader, place: Place | None = None) -> Iterator[Piece]:
    """The pairs of a snapshot, some hundreds at a time, or some megabytes.

    :param view: what a commit left, and no part of the one after it
    :raises Unknown: the store has no such place; at the first step
    :raises EngineFailed: the view can't be read
    """
    found = _everything(view) if place is None else places.pairs(view, place)
    return map(_piece, found)


def _everything(view: Reader) -> Iterator[list[Pair]]:
    for start, end in keys.LOGGED:
        yield from view.scan(start, end)


def _piece(pairs: list[Pair]) -> Piece:
    return Piece(packed(pairs), len(pairs), sum(keys.is_record(key) for key, _ in pairs))


def packed(pairs: list[Pair]) -> bytes:
    """Pairs as the stream has them."""
    pack = LENGTHS.pack
    parts: list[bytes] = []
    for key, value in pairs:
        parts += (pack(len(key), len(value)), key, value)
    return b"".join(parts)


class Snapshot:
    """A snapshot on its way into a file.

    :param sink: takes the bytes of the file
    :param key: what it is sealed with; None: it is not
    """

    def __init__(self, facts: SnapshotFacts, sink: Sink, rng: Rng, key: Key | None = None) -> None:
        self._facts = facts
        self._writer = Writer(facts, sink, rng, key)
        self._pairs = 0
        self._records = 0

    def add(self, piece: Piece) -> None:
        """The next of `pieces`."""
        self._writer.add(piece.data)
        self._pairs += piece.pairs
        self._records += piece.records

    def end(self) -> Written:
        """All of them were added."""
        sequence = self._facts.at.sequence
        digest = self._writer.end(self._pairs, self._records, sequence)
        return Written(
            Form.SNAPSHOT,
            self._records,
            sequence,
            self._writer.size,
            digest,
            self._facts.version,
        )


def write(
    view: Reader, facts: SnapshotFacts, sink: Sink, rng: Rng, key: Key | None = None
) -> Generator[None, None, Written]:
    """Write a snapshot, giving control back between slices.

    :param view: stands at `facts.at`
    :raises Unknown: the store has no such place. Nothing was written
    :raises EngineFailed: the view can't be read
    """
    found = pieces(view, facts.place)
    first = next(found, Piece(b"", 0, 0))
    snapshot = Snapshot(facts, sink, rng, key)
    snapshot.add(first)
    yield
    for piece in found:
        snapshot.add(piece)
        yield
    return snapshot.end()


class SnapshotBackup:
    """A snapshot that is read.

    :param file: stays the caller's to close
    :raises BackupCut, BackupCorrupt, WrongKey, StoreTooNew: as `container.Reader`
    """

    def __init__(self, file: File, key: Key | None = None) -> None:
        self._reader = container.Reader(file, key)
        self.facts = self._reader.facts(SnapshotFacts)
        self.sealed = self._reader.header.sealed
        self.pairs = 0
        """Read so far …"""
        self.records = 0
        """… and records of tables among them."""

    @property
    def offset(self) -> int:
        """How many bytes of the file have been read."""
        return self._reader.offset

    @property
    def sha256(self) -> bytes:
        """Of what was read so far."""
        return self._reader.sha256

    @property
    def stream(self) -> bytes:
        """Digest of the pairs that were read: of all of them the hash of the state."""
        return self._reader.stream

    def lists(self) -> Iterator[list[Pair]]:
        """The pairs in key order, those of a chunk at a time. When it ends, all of them were there.

        :raises BackupCut: the file ends early
        :raises BackupCorrupt: at what was not written so
        """
        last = keys.EVERYTHING[0]
        waiting: list[bytes] = []
        size = needed = 0
        for chunk in self._reader.chunks():
            waiting.append(chunk)
            size += len(chunk)
            if size < needed:
                continue
            data = b"".join(waiting)
            found, at, needed = taken_apart(data)
            if needed > PAIR_BYTES_MAX:
                raise self._corrupt("the length of a pair is impossible")
            waiting, size = [data[at:]], len(data) - at
            for key, _ in found:
                if not last < key or not _is_of_state(key):
                    raise self._corrupt("a pair stands where it can't")
                last = key
                self.records += keys.is_record(key)
            self.pairs += len(found)
            yield found
        end = self._reader.end
        assert end is not None, "a stream ends with the file's end"
        told = (end.items, end.records, end.sequence)
        if size or told != (self.pairs, self.records, self.facts.at.sequence):
            raise self._corrupt("its end is not that of what comes before it")

    def _corrupt(self, what: str) -> BackupCorrupt:
        at = self._reader.offset
        return BackupCorrupt(f"it is damaged before byte {at}: {what}", offset=at)


def _is_of_state(key: bytes) -> bool:
    """Whether a key may be one that the log speaks of."""
    if not key.startswith(keys.STORE_RANGE) or len(key) <= keys.TAG_AT or keys.is_derived(key):
        return False
    return len(key) > keys.RECORD_PREFIX_BYTES or not keys.is_record(key)


def taken_apart(data: bytes) -> tuple[list[Pair], int, int]:
    """The pairs of a stretch of the stream that are whole, where they end, and how many bytes from
    there the next one has, as far as that is known."""
    pairs: list[Pair] = []
    at, size, unpack = 0, len(data), LENGTHS.unpack_from
    while at + LENGTHS.size <= size:
        key_bytes, value_bytes = unpack(data, at)
        begins = at + LENGTHS.size
        middle = begins + key_bytes
        end = middle + value_bytes
        if end > size:
            return pairs, at, end - at
        pairs.append((data[begins:middle], data[middle:end]))
        at = end
    return pairs, at, LENGTHS.size
