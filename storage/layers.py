"""What has been committed and is not yet in the engine, and how reads see through it.

A layer is what one transaction changed: first its range deletes, then its writes over them. Layers
lie over the engine, newer over older; `InFlight` also keeps them merged, so that a point read costs
one look-up however many commits are on their way to the disk.

A record in a layer begins with the sequence of the change *before* this one: its own is known only
at the commit. Whoever reads it from a commit, or writes it to the engine, stamps it then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from storage.effects import SEQUENCE_BYTES
from storage.engine import BATCH_PAIRS, Batch, Pair
from storage.keys import STAMPED, TAG_AT, Range

_FEW: Final = 16
"""Writes of a layer up to which looking at each beats sorting them."""
_MANY: Final = 4096
"""Writes in flight beyond which each layer is looked at by itself."""

_by_key: Final = itemgetter(0)


def stamped(key: bytes, value: bytes | None, sequence: int) -> bytes | None:
    """A value of commit `sequence` as the engine is to hold it."""
    if value is None or key[TAG_AT] not in STAMPED:
        return value
    return sequence.to_bytes(SEQUENCE_BYTES, "big") + value[SEQUENCE_BYTES:]


KEY_BYTES: Final = 200
"""What a key in flight takes in memory beside its own bytes and its value's: three entries in
dictionaries, and the heads of the objects. Measured."""
_NOTHING: Final[set[bytes]] = set()
"""Never added to: a layer that declares something gets a set of its own."""


class Layer:
    """The changes of one transaction. A value of None is a deletion."""

    __slots__ = ("_ordered", "catalog", "declared", "ranges", "sequence", "size", "writes")

    def __init__(self, sequence: int = 0) -> None:
        self.sequence = sequence
        self.writes: dict[bytes, bytes | None] = {}
        self.ranges: list[Range] = []
        self.size = 0
        """Bytes of its changes, about, once it is committed."""
        self.catalog = False
        """Whether a declaration is among what changed."""
        self.declared: set[bytes] = _NOTHING
        """`keys.declared` of the declarations that were written or deleted one by one."""
        self._ordered: list[bytes] | None = None

    def write(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""
        if self._ordered is not None and key not in self.writes:
            insort(self._ordered, key)
        self.writes[key] = value

    def touches(self, wanted: Collection[bytes]) -> bool:
        """Whether it may change any of some keys: not when it only writes others."""
        return bool(self.ranges) or not self.writes.keys().isdisjoint(wanted)

    def forget(self, key: bytes) -> None:
        """Take back a write, as if it had not been made."""
        del self.writes[key]
        self._ordered = None

    def write_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Set or delete many keys."""
        self.writes.update(rows)
        self._ordered = None

    def replace(self, gone: Iterable[bytes], rows: Mapping[bytes, bytes | None]) -> None:
        """Take back some writes, as if they had not been made, and make others instead."""
        for key in gone:
            self.writes.pop(key, None)
        self.write_all(rows)

    def delete_range(self, start: bytes, end: bytes) -> list[bytes]:
        """Delete a range; the writes inside it, which are dropped, are answered."""
        gone = self.within(start, end)
        for key in gone:
            del self.writes[key]
        if gone:
            self._ordered = None
        self.ranges.append((start, end))
        return gone

    def within(self, start: bytes, end: bytes) -> list[bytes]:
        """The keys of a range that were written or deleted one by one, sorted."""
        writes = self.writes
        if len(writes) <= _FEW:
            return sorted([key for key in writes if start <= key < end])
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = sorted(writes)
        return ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]

    def apply_ranges(self, batch: Batch) -> None:
        """Add the range deletes, which come before the writes, to a batch for the engine."""
        for start, end in self.ranges:
            batch.delete_range(start, end)

    def apply(self, batch: Batch) -> None:
        """Add the changes to a batch for the engine."""
        self.apply_ranges(batch)
        apply_writes(self.writes.items(), self.sequence, batch)


def apply_writes(writes: Iterable[tuple[bytes, bytes | None]], sequence: int, batch: Batch) -> None:
    """Add writes of commit `sequence` to a batch for the engine."""
    put, delete = batch.put, batch.delete
    stamp = sequence.to_bytes(SEQUENCE_BYTES, "big")
    for key, value in writes:
        if value is None:
            delete(key)
        elif key[TAG_AT] in STAMPED:
            put(key, stamp + value[SEQUENCE_BYTES:])
        else:
            put(key, value)


@dataclass(slots=True)
class Overlay:
    """What lies over the engine in one range, ready to be merged into a scan."""

    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)
    newest: int = 0
    """The highest sequence that contributed; 0 for none."""

    def lay(self, layer: Layer, start: bytes, end: bytes) -> None:
        """Put a newer layer on top."""
        for low, high in layer.ranges:
            if low < end and high > start:
                self._delete_range(low, high)
                self.newest = max(self.newest, layer.sequence)
        if layer.writes:
            keys = layer.within(start, end)
            if keys:
                self.newest = max(self.newest, layer.sequence)
                writes, sequence = layer.writes, layer.sequence
                if sequence == 0:  # not committed: records show the change before
                    self.writes.update((key, writes[key]) for key in keys)
                else:
                    self.writes.update((key, stamped(key, writes[key], sequence)) for key in keys)

    def _delete_range(self, low: bytes, high: bytes) -> None:
        for key in [key for key in self.writes if low <= key < high]:
            del self.writes[key]
        self.ranges.append((low, high))

    def over(self, rows: Iterator[list[Pair]], reverse: bool) -> Iterator[list[Pair]]:
        """The scan `rows` of the engine with this on top of it."""
        if not self.writes and not self.ranges:
            return rows
        return _merged(rows, self.writes, self.ranges, reverse)


def lookup(layers: Iterable[Layer], key: bytes) -> tuple[int, bytes | None] | None:
    """The sequence and value (None: deleted) that layers, the newest first, have for a key; None
    when they leave it as it is in the engine."""
    for layer in layers:
        writes = layer.writes
        if key in writes:
            return layer.sequence, stamped(key, writes[key], layer.sequence)
        for start, end in layer.ranges:
            if start <= key < end:
                return layer.sequence, None
    return None


class InFlight:
    """The layers between the newest commit and the engine, oldest first."""

    __slots__ = ("_ranges", "_sequences", "bytes", "layers", "values")

    def __init__(self) -> None:
        self.layers: deque[Layer] = deque()
        self.bytes = 0
        """Of the changes in all of them, about."""
        self.values: dict[bytes, bytes | None] = {}
        self._sequences: dict[bytes, int] = {}
        self._ranges: list[tuple[int, bytes, bytes]] = []

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.bytes + KEY_BYTES * len(self.values)

    def add(self, layer: Layer) -> None:
        """Put the newest commit on top."""
        sequence = layer.sequence
        assert not self.layers or self.layers[-1].sequence < sequence
        self.layers.append(layer)
        self.bytes += layer.size
        for start, end in layer.ranges:
            for key in [key for key in self.values if start <= key < end]:
                self.values[key] = None
                self._sequences[key] = sequence
            self._ranges.append((sequence, start, end))
        if self.values:
            self.values.update(layer.writes)
            self._sequences.update(dict.fromkeys(layer.writes, sequence))
        else:  # copied as it is, a third of the time that 100 000 keys take
            self.values = layer.writes.copy()
            self._sequences = dict.fromkeys(layer.writes, sequence)

    def get(self, key: bytes) -> tuple[int, bytes | None] | None:
        """As `lookup`, in one step."""
        sequence = self._sequences.get(key)
        if sequence is not None:
            return sequence, stamped(key, self.values[key], sequence)
        for sequence, start, end in reversed(self._ranges):
            if start <= key < end:
                return sequence, None
        return None

    def touches(self, wanted: Collection[bytes]) -> bool:
        """As `Layer.touches`, of all of them."""
        return bool(self._ranges) or not self.values.keys().isdisjoint(wanted)

    def overlay(self, start: bytes, end: bytes) -> Overlay:
        """What lies over a range of the engine."""
        over = Overlay()
        if self._ranges or len(self.values) > _MANY:
            for layer in self.layers:
                over.lay(layer, start, end)
            return over
        for key, value in self.values.items():
            if start <= key < end:
                sequence = self._sequences[key]
                over.writes[key] = stamped(key, value, sequence)
                over.newest = max(over.newest, sequence)
        return over

    def keep(self, upto: int) -> None:
        """Take away the layers of all commits after one: they never happened."""
        kept = [layer for layer in self.layers if layer.sequence <= upto]
        self.drop(len(self.layers))
        for layer in kept:
            self.add(layer)

    def drop(self, count: int) -> None:
        """Take away the `count` oldest layers: the engine has them."""
        layers = self.layers
        if count == len(layers):
            layers.clear()
            self.bytes = 0
            self.values = {}
            self._sequences = {}
            self._ranges = []
            return
        for _ in range(count):
            self._take_away(layers.popleft())

    def _take_away(self, layer: Layer) -> None:
        self.bytes -= layer.size
        sequence, sequences = layer.sequence, self._sequences
        for key in layer.writes:
            if sequences.get(key) == sequence:
                del sequences[key]
                del self.values[key]
        if self._ranges and self._ranges[0][0] == sequence:
            # Deletions that a range made of older writes go with it.
            for key in [key for key, at in sequences.items() if at == sequence]:
                del sequences[key]
                del self.values[key]
            self._ranges = [entry for entry in self._ranges if entry[0] != sequence]


def _merged(
    rows: Iterator[list[Pair]],
    writes: dict[bytes, bytes | None],
    ranges: list[Range],
    reverse: bool,
) -> Iterator[list[Pair]]:
    waiting = sorted(writes)
    low, high = 0, len(waiting)
    for step in rows:
        last = step[-1][0]
        if reverse:
            cut = bisect_left(waiting, last, low, high)
            due, high = waiting[cut:high], cut
        else:
            cut = bisect_right(waiting, last, low, high)
            due, low = waiting[low:cut], cut
        if ranges:
            step = _outside(step, ranges)
        if due:
            step = _with(step, due, writes, reverse)
        if step:
            yield step
    rest = waiting[low:high]
    if reverse:
        rest.reverse()
    for at in range(0, len(rest), BATCH_PAIRS):
        step = []
        for key in rest[at : at + BATCH_PAIRS]:
            value = writes[key]
            if value is not None:
                step.append((key, value))
        if step:
            yield step


def _with(
    step: list[Pair], due: list[bytes], writes: dict[bytes, bytes | None], reverse: bool
) -> list[Pair]:
    """A step of a scan with the writes that fall into it."""
    pairs = dict(step)
    for key in due:
        value = writes[key]
        if value is None:
            pairs.pop(key, None)
        else:
            pairs[key] = value
    return sorted(pairs.items(), key=_by_key, reverse=reverse)


def _outside(step: list[Pair], ranges: list[Range]) -> list[Pair]:
    """The pairs of a step that no range delete covers."""
    for start, end in ranges:
        step = [pair for pair in step if not start <= pair[0] < end]
    return step
