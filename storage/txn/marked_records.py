"""Fresh markers of indexes made of segments, followed in memory from one fold to the next.

The ledger notes each key that it applies to the engine (`MarkedRecords.note`). A fold begins at a
view of the engine, and removes at its end all markers up to a key, but those that were noted since:
it need not read them again. Once a fold has taken all markers of an index, those noted since are
known to be all (`IndexMarks.keys`), and readers need not search the engine for them, where the
removed ones are still in the way.

A reader may also meet markers of commits that it doesn't see: the record itself is read then, as it
was. So only a fold ends the validity of what is known, for readers of a view from before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from storage.formats import keys
from storage.formats.keys import INDEX_ENTRY, TAG_AT, Pair, Range
from storage.txn.write_set import KeyOrder

PREFIX_BYTES: Final = len(keys.of_index(INDEX_ENTRY, 0, 0, 0, 0)) + 1
"""Length of the prefix of an index's markers."""
KNOWN: Final = 8_192
"""Most markers that are known of an index; statements search the engine for more."""
ALL_KNOWN: Final = 65_536
"""Most markers that are known of all indexes."""
LATE: Final = 2_048
"""Most markers that stay at the end of a fold, which writes them again in one step. With more, the
fold removes fewer markers."""
_STEP: Final = 512
"""Markers in a list of `rows`."""


class IndexMarks:
    """Markers of one index in the newest applied state.

    :param prefix: of their keys
    """

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.name = object()
        """Name of this index in caches: another store may have one with the same prefix."""
        self.keys: dict[bytes, None] | None = None
        """All markers; None: not known, or too many."""
        self.late: dict[bytes, None] | None = None
        """Markers below `end` that were noted since a fold began; None: no fold is running."""
        self.end = keys.within(prefix)[1]
        """Key below which the fold removes markers."""
        self.version = 0
        """Version of the last change by a fold: see `MarkedRecords.version`."""
        self._order = KeyOrder()
        self._rows: list[list[Pair]] | None = None

    def know(self, marked: Iterable[bytes]) -> None:
        """Take over all markers."""
        self.keys, self._order, self._rows = dict.fromkeys(marked), KeyOrder(), None
        self._order.add(self.keys, self.keys)

    def forget(self) -> None:
        """Drop the markers. Those of a running fold stay."""
        self.keys, self._order, self._rows = None, KeyOrder(), None

    def rows(self) -> list[list[Pair]] | None:
        """Return all markers as a scan of the engine does; None: they are not known."""
        if self._rows is None and self.keys is not None:
            ordered = self._order.all(self.keys)
            self._rows = [
                [(key, b"") for key in ordered[at : at + _STEP]]
                for at in range(0, len(ordered), _STEP)
            ]
        return self._rows

    def note(self, key: bytes) -> None:
        """Note a marker that a commit has put into the engine."""
        if self.keys is not None and key not in self.keys:
            self.keys[key], self._rows = None, None
            self._order.add((key,), self.keys)
            if len(self.keys) > KNOWN:
                self.forget()
        if self.late is not None and key < self.end:
            self.late[key] = None
            if len(self.late) > LATE:
                self._narrow()

    def _narrow(self) -> None:
        """Have the fold remove fewer markers, so that fewer stay."""
        assert self.late is not None
        ordered = sorted(self.late)
        half = len(ordered) // 2
        self.end, self.late = ordered[half], dict.fromkeys(ordered[:half])

    def begin_fold(self) -> None:
        """Begin a fold of all markers in the engine, at this moment."""
        self.late, self.end = {}, keys.within(self.prefix)[1]

    def limit_fold(self, end: bytes) -> None:
        """Have the fold remove markers below a key only."""
        if end < self.end:
            self.end = end
            self.late = {key: None for key in self.late or () if key < end}

    def end_fold(self) -> None:
        """End a fold, whether it has removed its markers or not."""
        self.late = None

    def remove(self) -> None:
        """Remove the markers that the fold has taken: all below `end` but the late ones."""
        assert self.late is not None, "no fold is running"
        if self.end == keys.within(self.prefix)[1]:
            self.know(self.late)
        elif self.keys is not None:
            self.know([*(key for key in self.keys if key >= self.end), *self.late])


class MarkedRecords:
    """Markers of all indexes of a node that folds have seen, by the prefix of their keys."""

    def __init__(self) -> None:
        self.indexes: dict[bytes, IndexMarks] = {}
        self.version = 0
        """Number of changes by folds so far."""
        self._noted = 0
        """Most markers that can be known of all indexes."""

    def of(self, prefix: bytes) -> IndexMarks:
        """Return the markers of an index."""
        found = self.indexes.get(prefix)
        if found is None:
            found = self.indexes[prefix] = IndexMarks(prefix)
            self.changed(found)
        return found

    def changed(self, index: IndexMarks) -> None:
        """Note that a fold has changed the segments of an index, and perhaps its markers."""
        self.version += 1
        index.version = self.version

    def note(self, written: Iterable[bytes]) -> None:
        """Note keys that a commit has written or deleted in the engine."""
        indexes = self.indexes
        for key in written:
            if key[TAG_AT] == INDEX_ENTRY:
                found = indexes.get(key[:PREFIX_BYTES])
                if found is not None:
                    found.note(key)
                    self._noted += 1
        if self._noted > ALL_KNOWN:
            self._bound()

    def _bound(self) -> None:
        """Keep the number of all markers within its bound: forget those of the largest backlog."""
        known = {one: len(one.keys) for one in self.indexes.values() if one.keys}
        self._noted = sum(known.values())
        while self._noted > ALL_KNOWN:
            most = max(known, key=lambda one: known[one])
            most.forget()
            self._noted -= known.pop(most)

    def note_ranges(self, ranges: Sequence[Range]) -> None:
        """Note deleted ranges: the markers of indexes within them are dropped."""
        for start, end in ranges:
            for prefix in list(self.indexes):
                if start < keys.within(prefix)[1] and end > prefix:
                    del self.indexes[prefix]
