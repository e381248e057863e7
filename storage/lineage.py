"""Which history the state belongs to: a note that each batch writes beside `applied`.

    key 00 00 "lineage" · value 56 bytes

    ┌────────┬────┬──────────────────────────────────────────────────────────────┐
    │ offset │ n  │                                                              │
    ├────────┼────┼──────────────────────────────────────────────────────────────┤
    │      0 │ 16 │ store id                                                     │
    │     16 │  8 │ sequence: that of `applied`                                  │
    │     24 │ 16 │ digest of that frame                                         │
    │     40 │ 16 │ digest of the frame after it, when parts of that are in too  │
    └────────┴────┴──────────────────────────────────────────────────────────────┘

A sequence alone says nothing: another store, a log that was put back and went on differently, and a
copy of the state from elsewhere all have a frame of that number. So at an open the store must be
the same, and the log must hold the very frame that the state stands at. An older state of the same
history does: what it lacks is replayed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from storage.engine import Batch, Engine
from storage.faults import StateForeign
from storage.frames import NO_DIGEST
from storage.histories import LogEnd
from storage.log import Log
from storage.log_reading import LogReader

NOTE_KEY: Final = b"\0\0lineage"
"""Below every key of `storage/keys.py`, like the engine's own note: no part of the state hash."""
_NOTE: Final = Struct(">16sQ16s16s")


class Lineage(NamedTuple):
    """Where a state stands, and in which history."""

    store_id: bytes
    sequence: int = 0
    digest: bytes = NO_DIGEST
    begun: bytes = NO_DIGEST
    """Zeros: nothing of the next frame is in the state."""

    @property
    def proves(self) -> int:
        """The highest sequence of which the state holds anything: the log had it durably."""
        return self.sequence + (self.begun != NO_DIGEST)

    def note(self, batch: Batch) -> None:
        """Add it to a batch that brings the state to `sequence`."""
        batch.put(NOTE_KEY, _NOTE.pack(*self))


def read(engine: Engine, store_id: bytes) -> Lineage:
    """What the state says of itself; of an empty one, that it is at the beginning of the store.

    :raises StateForeign: it is another store's, or does not say whose
    :raises EngineFailed:
    """
    stored = engine.get(NOTE_KEY)
    if stored is None and engine.applied == 0:
        return Lineage(store_id)
    if stored is None or len(stored) != _NOTE.size:
        raise StateForeign(f"the state stands at {engine.applied} and does not say of which store")
    found = Lineage(*_NOTE.unpack(stored))
    if found.store_id != store_id:
        raise StateForeign(
            f"the state is that of store {UUID(bytes=found.store_id)},"
            f" and the log that of {UUID(bytes=store_id)}. If the log is right,"
            " --rebuild-state makes the state anew"
        )
    if found.sequence != engine.applied:
        raise StateForeign(f"the state stands at {engine.applied} and says {found.sequence}")
    return found


def end_of_released(found: Lineage, log: LogReader) -> LogEnd:
    """How far a log is to be brought to the state where what lies behind may have to give way: what
    it says was released, and what the state holds anything of. Nothing goes there before it is
    released, and the part of a commit that is in it is never taken out again.

    :raises LogPruned, LogDamaged: as `end_at`
    """
    return log.end_at(max(log.released, found.proves))


def require_joined(found: Lineage, log: Log) -> None:
    """Refuse a state that is not a part of this log's history. What the log no longer holds or does
    not hold yet is not looked at: `Ledger` refuses that by itself.

    :raises StateForeign: the log has another frame where the state stands
    :raises LogDamaged: the frame can't be read
    """
    for sequence, digest in ((found.sequence, found.digest), (found.sequence + 1, found.begun)):
        there = log.digest_at(sequence)
        if digest != NO_DIGEST and there is not None and there != digest:
            raise StateForeign(
                f"the state was made of another history than this log: frame {sequence} has digest"
                f" {there.hex()} in the log, and {digest.hex()} in the state. One of the two is a"
                " copy from elsewhere, or from before the store was put back. If the log is right,"
                " --rebuild-state makes the state anew"
            )
