"""Lineage: log position of the state (store, sequence, digest), noted in each batch.

    key 00 00 "lineage" · value 56 bytes

    ┌────────┬────┬──────────────────────────────────────────────────────────────┐
    │ offset │ n  │                                                              │
    ├────────┼────┼──────────────────────────────────────────────────────────────┤
    │      0 │ 16 │ store id                                                     │
    │     16 │  8 │ sequence: that of `applied`                                  │
    │     24 │ 16 │ digest of that frame                                         │
    │     40 │ 16 │ digest of the frame after it, if it is partly applied        │
    └────────┴────┴──────────────────────────────────────────────────────────────┘

A sequence alone proves nothing. Another store, a log that was restored and continued differently,
and a copy of the state from elsewhere all have a frame of that number. So an open requires the same
store, and in the log the very frame of the state's position. An older state of the same history
passes, and the missing frames are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from storage.engine.engine import Batch, Engine
from storage.faults import StateForeign
from storage.formats.frames import NO_DIGEST

NOTE_KEY: Final = b"\0\0lineage"
"""Key below all of `storage/formats/keys.py`, like the engine's own note, and no part of the state
hash."""
_NOTE: Final = Struct(">16sQ16s16s")


class Lineage(NamedTuple):
    """Log position of a state: store, sequence and frame digest."""

    store_id: bytes
    sequence: int = 0
    digest: bytes = NO_DIGEST
    begun: bytes = NO_DIGEST
    """Digest of the frame that is partly applied; zeros: none is."""

    @property
    def proves(self) -> int:
        """Highest sequence of which the state holds any effect, so that the log must have had it
        durably."""
        return self.sequence + (self.begun != NO_DIGEST)

    def note(self, batch: Batch) -> None:
        """Add the note to a batch that brings the state to `sequence`."""
        batch.put(NOTE_KEY, _NOTE.pack(*self))


def read(engine: Engine, store_id: bytes) -> Lineage:
    """Read the note of the state; of an empty state, return the beginning of the store.

    :raises StateForeign: the state is another store's, or has no note
    :raises EngineFailed:
    """
    stored = engine.get(NOTE_KEY)
    # An empty state fits every store: the replay begins with the first frame.
    if stored is None and engine.applied == 0:
        return Lineage(store_id)
    if stored is None or len(stored) != _NOTE.size:
        raise StateForeign(f"the state is at sequence {engine.applied}, but names no store")
    found = Lineage(*_NOTE.unpack(stored))
    if found.store_id != store_id:
        raise StateForeign(
            f"the state belongs to store {UUID(bytes=found.store_id)}, but the log to"
            f" {UUID(bytes=store_id)}. If the log is right, rebuild the state with"
            " --rebuild-state"
        )
    # Each batch writes both numbers, so no crash can make them differ.
    if found.sequence != engine.applied:
        raise StateForeign(
            f"the state is at sequence {engine.applied}, but its lineage names {found.sequence}"
        )
    return found


def require_joined(found: Lineage, digest_at: Callable[[int], bytes | None]) -> None:
    """Check that the state is a part of a log's history.

    Frames that the log has pruned or does not have yet are not compared; `Ledger` refuses those
    itself.

    :param digest_at: `Log.digest_at`; what it raises is passed on
    :raises StateForeign: the log has another frame at the state's position
    """
    # The frame begun counts too: a part of its effects is in the state.
    for sequence, digest in ((found.sequence, found.digest), (found.sequence + 1, found.begun)):
        there = digest_at(sequence)
        # Zeros name no frame: the beginning of the store, or no partly applied frame.
        if digest != NO_DIGEST and there is not None and there != digest:
            raise StateForeign(
                f"the state was built from another history than this log: frame {sequence} has"
                f" digest {there.hex()} in the log, but {digest.hex()} in the state. One of them"
                " is a copy from elsewhere, or from before a restore. If the log is right,"
                " rebuild the state with --rebuild-state"
            )
