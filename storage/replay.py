"""Frames of the log on their way back into the state: at a start, and wherever a log is followed.

Many frames go to the engine in one write. What indexes hold is made of all their records at once,
as they were before the first frame and are after the last. A frame that declares or builds an
index, or deletes records or entries by ranges, has a write to itself: what it means for entries
depends on what is there right after it. So has one of which the engine holds a part already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from storage import derived, effects, keys
from storage.derived import Followed, Kept
from storage.effects import SEQUENCE_BYTES, Derive, Effect
from storage.engine import Batch, Engine
from storage.layers import Layer
from storage.transactions import Transaction

_DECISIVE: Final = frozenset({keys.RECORD, keys.INDEX, keys.INDEX_ENTRY})
"""Tags of which a deleted range decides what indexes hold."""


def stands_alone(found: Iterable[Effect]) -> bool:
    """Whether a frame has to have a write to itself."""
    return any(
        effect[0] == effects.DERIVE
        or effect[1][keys.TAG_AT] == keys.INDEX
        or (effect[0] == effects.DELETE_RANGE and keys.touches(effect[1], effect[2], _DECISIVE))
        for effect in found
    )


def fold(found: Iterable[Effect], layer: Layer) -> list[Derive]:
    """Make the effects of a frame the changes of a layer, as they were at its commit but for what
    indexes hold. Answers what was built of indexes."""
    derives: list[Derive] = []
    writes: dict[bytes, bytes | None] = {}
    for effect in found:
        op, key = effect[0], effect[1]
        if op == effects.PUT_RECORD:
            writes[key] = effect[3].to_bytes(SEQUENCE_BYTES, "big") + effect[2]
        elif op == effects.PUT:
            writes[key] = effect[2]
            layer.catalog = layer.catalog or keys.is_catalog(key)
        elif op == effects.DERIVE:
            derives.append(Derive(*effect[1:]))
        elif op == effects.DELETE_RANGE:
            layer.write_all(writes)
            writes.clear()
            layer.delete_range(key, effect[2])
            layer.catalog = layer.catalog or keys.touches_catalog(key, effect[2])
        else:
            writes[key] = None
            layer.catalog = layer.catalog or keys.is_catalog(key)
    layer.write_all(writes)
    return derives


class Replay:
    """What has been replayed since the last write of the engine.

    :param begin: a transaction on what the engine holds
    """

    def __init__(self, engine: Engine, begin: Callable[[], Transaction]) -> None:
        self._engine = engine
        self._begin = begin
        self._batch: Batch = engine.batch()
        self._tables: dict[bytes, Kept | None] = {}
        """By what the keys of their records begin with."""
        self._changed: dict[bytes, dict[bytes, bytes | None]] = {}
        """By their tables: records as they are now."""
        self._made: set[bytes] = set()
        """Those of them that were not there before."""

    def add(self, found: list[Effect], sequence: int) -> bool:
        """Add a frame to those before it. Whether it touched the catalog."""
        catalog = effects.apply(found, sequence, self._batch)
        stamp = bytes(SEQUENCE_BYTES)
        for effect in found:
            op, key = effect[0], effect[1]
            if op == effects.PUT_RECORD:
                self._note(key, stamp + effect[2], effect[3])
            elif op == effects.DELETE_RECORD:
                self._note(key, None, effect[2])
        return catalog

    def _note(self, key: bytes, value: bytes | None, previous: int) -> None:
        prefix = key[: keys.RECORD_PREFIX_BYTES]
        if key[keys.TAG_AT] != keys.RECORD or self._kept(prefix) is None:
            return
        records = self._changed.setdefault(prefix, {})
        if previous == 0 and key not in records:
            self._made.add(key)
        records[key] = value

    def add_alone(self, found: list[Effect], sequence: int) -> bool:
        """Add a frame that stands alone: nothing has been added since the last write."""
        assert not self._changed, "what stands alone was added to others"
        tx = self._begin()
        layer = tx.own = Layer(sequence)
        derives = fold(found, layer)
        if layer.catalog:
            self._tables.clear()
        for prefix, records in _records(layer).items():
            kept = self._kept(prefix, tx)
            if kept is not None:
                changed = [Followed(key, tx.beneath(key), layer.writes[key]) for key in records]
                layer.write_all(kept.follow(changed, tx.beneath))
        for derive in derives:
            kept = self._kept(derive.start[: keys.RECORD_PREFIX_BYTES], tx)
            if kept is not None:
                kept.of_range(tx, derive)
        layer.apply(self._batch)
        return layer.catalog

    def take(self) -> Batch:
        """All that has been added, to be written now."""
        batch, get = self._batch, self._engine.get
        for prefix, records in self._changed.items():
            kept = self._tables[prefix]
            assert kept is not None, "records without an index were noted"
            changed = [
                Followed(key, None if key in self._made else get(key), value)
                for key, value in records.items()
            ]
            for entry, holder in kept.follow(changed, get).items():
                if holder is None:
                    batch.delete(entry)
                else:
                    batch.put(entry, holder)
        self._batch, self._changed, self._made = self._engine.batch(), {}, set()
        return batch

    def put(self, rows: dict[bytes, bytes]) -> None:
        """Set what comes of a frame beside its effects."""
        for key, row in rows.items():
            self._batch.put(key, row)

    def _kept(self, prefix: bytes, tx: Transaction | None = None) -> Kept | None:
        if prefix not in self._tables:
            self._tables[prefix] = derived.kept(tx or self._begin(), prefix)
        return self._tables[prefix]


def _records(layer: Layer) -> dict[bytes, list[bytes]]:
    """The records that a frame changes, by their tables."""
    found: dict[bytes, list[bytes]] = {}
    for key in layer.writes:
        if key[keys.TAG_AT] == keys.RECORD:
            found.setdefault(key[: keys.RECORD_PREFIX_BYTES], []).append(key)
    return found
