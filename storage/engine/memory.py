"""In-memory engine for tests and simulation; a crash loses exactly the unflushed writes.

The pairs are in chunks of sorted keys. A write never changes a chunk or the list of chunks: it
builds a new `_Version` from the old one and replaces it in one step (copy on write). So a view, a
scan and the flushed state are each just an older version, and need no lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol.environment import Room
from storage.engine.engine import BATCH_PAIRS, Batch
from storage.formats.keys import Pair

CHUNK_KEYS: Final = 256
"""Keys of a chunk after a split; it is split when it grows past twice this."""

_Put = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class _Chunk:
    keys: list[bytes]
    values: list[bytes]


@dataclass(frozen=True, slots=True)
class _Version:
    """The whole state at one sequence. No chunk is empty; `firsts` are their first keys."""

    firsts: list[bytes]
    chunks: list[_Chunk]
    applied: int

    def get(self, key: bytes) -> bytes | None:
        # The last chunk that begins at or before the key.
        at = bisect_right(self.firsts, key) - 1
        if at < 0:
            return None
        chunk = self.chunks[at]
        place = bisect_left(chunk.keys, key)
        found = place < len(chunk.keys) and chunk.keys[place] == key
        return chunk.values[place] if found else None

    def none_in(self, start: bytes, end: bytes) -> bool:
        return next(self.scan(start, end, False), None) is None

    def scan(self, start: bytes, end: bytes, reverse: bool) -> Iterator[list[Pair]]:
        if start >= end:
            return
        # The range may begin inside a chunk.
        low = max(bisect_right(self.firsts, start) - 1, 0)
        high = bisect_left(self.firsts, end)
        for at in range(high - 1, low - 1, -1) if reverse else range(low, high):
            chunk = self.chunks[at]
            first = bisect_left(chunk.keys, start)
            stop = bisect_left(chunk.keys, end)
            if first < stop:
                pairs = list(zip(chunk.keys[first:stop], chunk.values[first:stop], strict=True))
                if reverse:
                    pairs.reverse()
                yield pairs


_EMPTY: Final = _Version([], [], 0)


class MemoryBatch:
    """Changes in the order they were made; an end of None marks a change of one key."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[tuple[bytes, bytes | None, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append((key, None, value))

    def delete(self, key: bytes) -> None:
        self.changes.append((key, None, None))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.changes.append((start, end, None))


class MemoryEngine:
    """In-memory `Engine` whose `crash` loses everything since the last flush."""

    def __init__(self) -> None:
        self._version = _EMPTY
        self._flushed = _EMPTY

    @property
    def applied(self) -> int:
        return self._version.applied

    def get(self, key: bytes) -> bytes | None:
        return self._version.get(key)

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        # Bound to the version of this call, although the generator runs later.
        return self._version.scan(start, end, reverse)

    def none_in(self, start: bytes, end: bytes) -> bool:
        return self._version.none_in(start, end)

    def batch(self) -> Batch:
        return MemoryBatch()

    def takes_writes(self) -> bool:
        return True

    def write(self, batch: Batch, applied: int) -> None:
        assert isinstance(batch, MemoryBatch)
        self._version = _changed(self._version, batch, applied)

    def snapshot(self) -> _MemoryView:
        return _MemoryView(self._version)

    def flush(self, room: Room | None = None) -> None:
        # A reference is enough: no write modifies a version.
        self._flushed = self._version

    def holds(self, count: int) -> bool:
        return True

    def leave_alone(self) -> None:
        return

    def flush_bytes(self) -> int:
        return 0

    def flushed_sequence(self) -> int:
        return self._flushed.applied

    def unflushed_bytes(self) -> int:
        # Each write makes a new version, so identity means that nothing was written.
        return 0 if self._flushed is self._version else self.memory_bytes()

    def checkpoint(self, path: str) -> None:
        raise NotImplementedError("the state in memory has no files to copy")

    def stored_bytes(self) -> int:
        return self.memory_bytes()

    def memory_bytes(self) -> int:
        return sum(
            sum(map(len, chunk.keys)) + sum(map(len, chunk.values))
            for chunk in self._version.chunks
        )

    def close(self) -> None:
        self.flush()

    def crash(self) -> None:
        """Lose all writes since the last flush, like a killed process."""
        self._version = self._flushed


class _MemoryView:
    def __init__(self, version: _Version) -> None:
        self._version: _Version | None = version

    def get(self, key: bytes) -> bytes | None:
        assert self._version is not None, "read from a closed view"
        return self._version.get(key)

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        assert self._version is not None, "scan of a closed view"
        return self._version.scan(start, end, reverse)

    def close(self) -> None:
        self._version = None


def _changed(old: _Version, batch: MemoryBatch, applied: int) -> _Version:
    # Copies of the lists only: unchanged chunks are shared with the old version.
    firsts, chunks = list(old.firsts), list(old.chunks)
    puts: dict[bytes, bytes | None] = {}
    for key, end, value in batch.changes:
        if end is None:
            puts[key] = value
        else:
            # Earlier changes first: the range delete removes those inside it.
            _put_all(firsts, chunks, puts)
            puts.clear()
            _cut(firsts, chunks, key, end)
    _put_all(firsts, chunks, puts)
    return _Version(firsts, chunks, applied)


def _put_all(firsts: list[bytes], chunks: list[_Chunk], puts: dict[bytes, bytes | None]) -> None:
    """Merge puts and deletes (None) into the chunks they belong to, each chunk once."""
    ordered = sorted(puts.items())
    done = 0
    while done < len(ordered):
        at = max(bisect_right(firsts, ordered[done][0]) - 1, 0)
        # All changes below the next chunk's first key belong to this chunk.
        stop = len(ordered)
        if at + 1 < len(firsts):
            stop = bisect_left(ordered, firsts[at + 1], lo=done, key=_key)
        old = chunks[at] if chunks else _Chunk([], [])
        _replace(firsts, chunks, at, _merged(old, ordered[done:stop]))
        done = stop


def _merged(old: _Chunk, changes: list[_Put]) -> _Chunk:
    pairs: dict[bytes, bytes | None] = dict(zip(old.keys, old.values, strict=True))
    pairs.update(changes)
    kept = sorted((key, value) for key, value in pairs.items() if value is not None)
    return _Chunk([key for key, _ in kept], [value for _, value in kept])


def _cut(firsts: list[bytes], chunks: list[_Chunk], start: bytes, end: bytes) -> None:
    at = max(bisect_right(firsts, start) - 1, 0)
    while at < len(chunks) and firsts[at] < end:
        keys, values = chunks[at].keys, chunks[at].values
        low, high = bisect_left(keys, start), bisect_left(keys, end)
        count = len(chunks)
        if low < high:
            rest = _Chunk(keys[:low] + keys[high:], values[:low] + values[high:])
            _replace(firsts, chunks, at, rest)
        # An emptied chunk was dropped, and the next one is in its place.
        at += 1 if len(chunks) == count else 0


def _replace(firsts: list[bytes], chunks: list[_Chunk], at: int, chunk: _Chunk) -> None:
    """Replace the chunk `at`: split the new one when large, drop it when empty."""
    # At least 1: an empty chunk has no parts, but `range` needs a step.
    size = CHUNK_KEYS if len(chunk.keys) > 2 * CHUNK_KEYS else max(len(chunk.keys), 1)
    parts = [
        _Chunk(chunk.keys[i : i + size], chunk.values[i : i + size])
        for i in range(0, len(chunk.keys), size)
    ]
    chunks[at : at + 1] = parts
    firsts[at : at + 1] = [part.keys[0] for part in parts]


def _key(pair: _Put) -> bytes:
    return pair[0]


assert 2 * CHUNK_KEYS <= BATCH_PAIRS, "a step of a scan is a chunk"
