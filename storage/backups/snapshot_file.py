"""Snapshots: all logged keys of one view in key order, or those of one namespace or database.

The stream of a snapshot is pairs (`storage/formats/container.py`). The state hash covers the same
bytes, so a restored store has the hash of its origin. Index entries are left out, as they are of
the log, and rebuilt when the records are loaded.

A snapshot reads one view of the state, at a committed sequence, while writes continue. Reading runs
on the loop, in slices (`pieces`); checksums, encryption and writing run in a thread
(`SnapshotWriter`). `write` does both, for callers with a thread of their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from protocol.environment import File, Rng
from protocol.errors import BackupCorrupt
from storage.backups import place_copy
from storage.engine.engine import EngineReader
from storage.formats import container, keys
from storage.formats.container import (
    BackupFileForm,
    BackupScope,
    ContainerWriter,
    Sink,
    SnapshotFacts,
    WrittenBackup,
    decode_pairs,
    pack_pairs,
)
from storage.formats.frames import BODY_BYTES_MAX
from storage.formats.keys import Pair
from storage.formats.sealing import Key

PAIR_BYTES_MAX: Final = BODY_BYTES_MAX
"""Largest valid pair: no commit could have written more, so a longer length is damage."""


class SnapshotPiece(NamedTuple):
    """Encoded pairs of the stream, with their numbers."""

    data: bytes
    pairs: int
    records: int


def pieces(view: EngineReader, place: BackupScope | None = None) -> Iterator[SnapshotPiece]:
    """Yield the pairs of a snapshot, some hundreds or some megabytes at a time.

    :param view: state at a commit, without any part of the next one
    :raises Unknown: the store has no such place; raised at the first step
    :raises EngineFailed: reading the view fails
    """
    found = _everything(view) if place is None else place_copy.pairs(view, place)
    return map(_piece, found)


def _everything(view: EngineReader) -> Iterator[list[Pair]]:
    # In ascending order: the state hash covers the pairs in key order.
    for start, end in keys.LOGGED:
        yield from view.scan(start, end)


def _piece(pairs: list[Pair]) -> SnapshotPiece:
    return SnapshotPiece(
        pack_pairs(pairs), len(pairs), sum(keys.is_record(key) for key, _ in pairs)
    )


class SnapshotWriter:
    """Writer of a snapshot.

    :param sink: takes the bytes of the file
    :param key: key that seals the file; None: in clear
    """

    def __init__(self, facts: SnapshotFacts, sink: Sink, rng: Rng, key: Key | None = None) -> None:
        self._facts = facts
        self._writer = ContainerWriter(facts, sink, rng, key)
        self._pairs = 0
        self._records = 0

    def add(self, piece: SnapshotPiece) -> None:
        """Append the next piece of `pieces`."""
        self._writer.add(piece.data)
        self._pairs += piece.pairs
        self._records += piece.records

    def end(self) -> WrittenBackup:
        """Finish the file after the last piece."""
        sequence = self._facts.at.sequence
        digest = self._writer.end(self._pairs, self._records, sequence)
        return WrittenBackup(
            BackupFileForm.SNAPSHOT,
            self._records,
            sequence,
            self._writer.size,
            digest,
            self._facts.version,
        )


def write(
    view: EngineReader, facts: SnapshotFacts, sink: Sink, rng: Rng, key: Key | None = None
) -> Generator[None, None, WrittenBackup]:
    """Write a snapshot. Yields between slices.

    :param view: state at `facts.at`
    :raises Unknown: the store has no such place; nothing was written
    :raises EngineFailed: reading the view fails
    """
    found = pieces(view, facts.place)
    # The first piece before the header: an unknown place refuses before a byte is written.
    first = next(found, SnapshotPiece(b"", 0, 0))
    snapshot = SnapshotWriter(facts, sink, rng, key)
    snapshot.add(first)
    yield
    for piece in found:
        snapshot.add(piece)
        yield
    return snapshot.end()


class SnapshotBackup:
    """Reader of a snapshot.

    :param file: closed by the caller
    :raises BackupCut, BackupCorrupt, WrongKey, StoreTooNew: as `container.Reader`
    """

    def __init__(self, file: File, key: Key | None = None) -> None:
        self._reader = container.ContainerReader(file, key)
        self.facts = self._reader.facts(SnapshotFacts)
        self.sealed = self._reader.header.sealed
        self.pairs = 0
        """Pairs read so far."""
        self.records = 0
        """Table records among them."""

    @property
    def offset(self) -> int:
        """Bytes of the file read so far."""
        return self._reader.offset

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes read so far."""
        return self._reader.sha256

    @property
    def stream(self) -> bytes:
        """Digest of the pairs read so far; at the end the state hash."""
        return self._reader.stream

    def lists(self) -> Iterator[list[Pair]]:
        """Yield the pairs in key order, about one chunk at a time.

        Exhaustion proves that all pairs were present.

        :raises BackupCut: the file ends early
        :raises BackupCorrupt: a pair is not as written
        """
        last = keys.EVERYTHING[0]
        waiting: list[bytes] = []
        size = needed = 0
        for chunk in self._reader.chunks():
            waiting.append(chunk)
            size += len(chunk)
            # Join once per pair: a large pair spans many chunks, and would be copied for each.
            if size < needed:
                continue
            data = b"".join(waiting)
            found, at, needed = decode_pairs(data)
            # A forged length would buffer the rest of the file in memory.
            if needed > PAIR_BYTES_MAX:
                raise self._corrupt("the length of a key-value pair is out of range")
            waiting, size = [data[at:]], len(data) - at
            for key, _ in found:
                # Strictly ascending: a key comes once. A key of the engine is no content.
                if not last < key or not _is_of_state(key):
                    raise self._corrupt(
                        "a key-value pair is out of order, or its key is not one of the state"
                    )
                last = key
                self.records += keys.is_record(key)
            self.pairs += len(found)
            yield found
        end = self._reader.end
        assert end is not None, "a stream ends with the file's end"
        told = (end.items, end.records, end.sequence)
        # Bytes left over are a pair that was begun and not finished.
        if size or told != (self.pairs, self.records, self.facts.at.sequence):
            raise self._corrupt("the end record does not match the data before it")

    def _corrupt(self, what: str) -> BackupCorrupt:
        at = self._reader.offset
        return BackupCorrupt(f"it is damaged before byte {at}: {what}", offset=at)


def _is_of_state(key: bytes) -> bool:
    """True if the log may contain this key: it is in the store's range and not derived."""
    if not key.startswith(keys.STORE_RANGE) or len(key) <= keys.TAG_AT or keys.is_derived(key):
        return False
    return len(key) > keys.RECORD_PREFIX_BYTES or not keys.is_record(key)
