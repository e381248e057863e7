"""Engine: the ordered key-value store that holds the state, as one small interface.

Two engines implement it: `rocksdb.RocksEngine` (RocksDB, an LSM tree on disk) and
`memory.MemoryEngine`. `sealed.SealedEngine` encrypts either. All pass one conformance suite.
Keys and values are bytes; keys sort bytewise; a range is half-open, `start <= key < end`.

Every engine guarantees three properties that the layers above rely on:

- Atomic batches: a write batch is applied whole or not at all, together with its sequence.
- Snapshot reads: later writes do not disturb an open scan or view.
- Prefix recovery: after a crash, the state is that after some batch. That batch is no older than
  the last one covered by a finished `flush`; `applied` is its sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from protocol.environment import Room
from storage.formats.keys import Pair

BATCH_PAIRS: Final = 512
"""Pairs per step of a scan: amortizes the cost of a step, yet bounds the memory held."""
BATCH_BYTES: Final = 1 << 22
"""Bytes of values per step of a scan; the last pair of a step may exceed it. A step does not yield
to other tasks and is held in memory whole: 512 records of the largest size would be 4 GiB."""

APPLIED_KEY: Final = b"\0\0applied"
"""Key of the engine's own applied sequence. It sorts below every key of
`storage/formats/keys.py`."""


class EngineFailed(Exception):
    """The engine can't read or write its data: damaged files or an I/O error."""


class EngineUnreadable(EngineFailed):
    """A part of the data can't be read, by a damaged block or a bad sector. The rest can."""


class EngineSpoiled(EngineFailed):
    """The engine accepts no more writes: its background work met data that it can't read."""


class Batch(Protocol):
    """Write batch, made by `Engine.batch`. A later change overrides an earlier one."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""

    def delete(self, key: bytes) -> None:
        """Delete a key, which may be absent."""

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete every key with start <= key < end."""


class EngineReader(Protocol):
    """Read access to the current state or to a snapshot."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None. :raises EngineFailed: it can't be read"""

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        """Yield the pairs of a range in key order, or in descending order with `reverse`, as
        non-empty lists. The snapshot is taken by this call, not by the first step.

        :raises EngineFailed: from any step; a scan that ends without it was complete
        """


class EngineSnapshot(EngineReader, Protocol):
    """Snapshot: the state at the time it was taken."""

    def close(self) -> None:
        """Release the snapshot; a second call has no effect."""


class Engine(EngineReader, Protocol):
    """The current state. One thread reads and writes; `flush` may be called from another."""

    @property
    def applied(self) -> int:
        """Sequence of the last batch written; 0 for an empty engine."""

    def none_in(self, start: bytes, end: bytes) -> bool:
        """Return True if a range is known to be empty after a cheap check. False: it holds keys, or
        the check was abandoned.

        :raises EngineFailed: the range can't be read
        """

    def batch(self) -> Batch:
        """Return an empty batch."""

    def takes_writes(self) -> bool:
        """Return False if the engine applies backpressure: a write would block its thread, and
        every task on it, until flushes or compaction catch up."""

    def write(self, batch: Batch, applied: int) -> None:
        """Apply a batch and set the applied sequence to `applied`.

        :raises EngineFailed: nothing was applied
        """

    def snapshot(self) -> EngineSnapshot:
        """Return a snapshot of the current state."""

    def flush(self, room: Room | None = None) -> None:
        """Make all writes before this call durable. Blocks. May run on its own thread while others
        read and write.

        :param room: free space on the disk. While it is low, the engine starts no background work
            (compaction) that needs more than the flush; a flush that finds more room allows it
            again
        :raises DiskFull: there is no room for it; the engine has lost nothing by it
        :raises EngineFailed: the engine may refuse further writes; its data can still be read
        """

    def leave_alone(self) -> None:
        """Stop background work that reads data no request needs (compaction), because a part of the
        data is unreadable. Meeting that part would make the engine refuse all further writes."""

    def flush_bytes(self) -> int:
        """Return the bytes that every flush writes, however little has changed; 0: only the
        changes."""

    def flushed_sequence(self) -> int:
        """Return a lower bound of the applied sequence after a crash at this moment."""

    def unflushed_bytes(self) -> int:
        """Return an upper bound of the disk space a flush needs, in bytes. 0: it may fail for lack
        of space."""

    def holds(self, count: int) -> bool:
        """Return True if `count` more bytes surely fit in memory until the next explicit flush. On
        a full disk the engine must not start a flush by itself."""

    def checkpoint(self, path: str) -> None:
        """Copy the current state to the directory `path`, which must not exist yet."""

    def stored_bytes(self) -> int:
        """Return an estimate of the stored bytes of all keys and values, possibly compressed."""

    def memory_bytes(self) -> int:
        """Return an estimate of the memory held for the state, caches included, in bytes."""

    def close(self) -> None:
        """Flush and close. All views and scans must have ended.

        :raises EngineFailed: the flush failed; the engine is closed all the same
        """
