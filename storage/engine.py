"""The ordered key-value engine that holds the state, as one small interface.

Two engines implement it, `rocks.RocksEngine` and `memory.MemoryEngine`, and pass one suite; so does
`sealed_state.SealedEngine`, over either. Keys and values are bytes; keys sort bytewise; a range is
`start <= key < end`.

An engine promises three things that everything above it rests on:

- a batch is applied whole or not at all, with the sequence it brings the state to;
- a scan or a view, once begun, is not disturbed by later writes;
- after a crash it comes back as it was after some batch, not before the last one that a finished
  `flush` covered, and `applied` says after which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from protocol.doors import Room

Pair = tuple[bytes, bytes]
"""A key and its value."""

BATCH_PAIRS: Final = 512
"""Pairs in one step of a scan: enough that the cost of a step vanishes, few enough to hold."""
BATCH_BYTES: Final = 1 << 22
"""… and bytes of their values, which the last one may pass: what goes over a step gives nobody a
turn before its end, and holds all of it. 512 records of the largest size would be 4 GiB."""

APPLIED_KEY: Final = b"\0\0applied"
"""The engine's own note of the sequence it stands at: below every key of `storage/keys.py`."""


class EngineFailed(Exception):
    """The engine can't read or write what it holds: damaged files, an I/O error."""


class EngineUnreadable(EngineFailed):
    """Something that the engine holds can't be read: a damaged block, a bad sector. What else it
    holds can."""


class EngineSpoiled(EngineFailed):
    """The engine takes nothing more, since its own work met something that it can't read."""


class Batch(Protocol):
    """Changes to be applied together, later ones over earlier ones. Made by `Engine.batch`."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""

    def delete(self, key: bytes) -> None:
        """Remove a key; absent is fine."""

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove every key with start <= key < end."""


class Reader(Protocol):
    """What can be read from."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key. :raises EngineFailed: it can't be read"""

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        """The pairs of a range in key order, or from the highest down, in lists that are never
        empty. The view is taken by this call, not by the first step.

        :raises EngineFailed: from any step; a scan that ends without it was complete
        """


class View(Reader, Protocol):
    """The state as it was when the view was taken."""

    def close(self) -> None:
        """Let go of it. Closing twice is fine."""


class Engine(Reader, Protocol):
    """The state. One thread reads and writes; `flush` may be called from another."""

    @property
    def applied(self) -> int:
        """The sequence of the last batch written; 0 for an empty engine."""

    def none_in(self, start: bytes, end: bytes) -> bool:
        """Whether a range is empty, when that is quickly found out; False when it is not.

        :raises EngineFailed:
        """

    def batch(self) -> Batch:
        """An empty batch."""

    def takes_writes(self) -> bool:
        """Whether a write is taken at once. False: it would wait until the disk has caught up, and
        everybody with it that shares its thread."""

    def write(self, batch: Batch, applied: int) -> None:
        """Apply a batch and note that the state now stands at sequence `applied`.

        :raises EngineFailed: nothing was applied
        """

    def snapshot(self) -> View:
        """A view of the present state."""

    def flush(self, room: Room | None = None) -> None:
        """Make durable what was written before this call. Blocks; may be called from a thread of
        its own while others read and write.

        :param room: what the disk has left. With little, the engine does not begin work of its own
            that needs more than the flush, until a flush finds more
        :raises DiskFull: there is no room for it, and the engine has lost nothing by it
        :raises EngineFailed: the engine may take nothing more; what it held can still be read
        """

    def leave_alone(self) -> None:
        """A part of what it holds can't be read: from now on do no work of its own that reads what
        nobody asked for, and that would end it there."""

    def flush_bytes(self) -> int:
        """What a flush writes however little has changed since the last one; 0: only that."""

    def flushed_sequence(self) -> int:
        """The sequence that the state would stand at, at least, after a crash now."""

    def unflushed_bytes(self) -> int:
        """The room that a flush must find on the disk, at most; 0: it may fail for want of it."""

    def holds(self, count: int) -> bool:
        """Whether so many bytes more are surely kept in memory until somebody asks for a flush: on
        a full disk the engine must not begin one by itself."""

    def checkpoint(self, path: str) -> None:
        """A copy of the present state as a directory of its own, which must not exist yet."""

    def stored_bytes(self) -> int:
        """An estimate of what all keys and values take, as the engine has them."""

    def memory_bytes(self) -> int:
        """An estimate of the memory held for the state, caches included."""

    def close(self) -> None:
        """Flush and let go. Every view and scan must have ended before.

        :raises EngineFailed: it could not be flushed; it is closed all the same
        """
