"""ORDER BY over batches, in memory: a merge of sorted runs, or a top-N selection if LIMIT is small.

Not an external sort: nothing spills to the disk. All entries count against the memory budget of the
statement (`budget.py`); one that exceeds it fails with `TooLarge`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

from language.budget import Budget
from language.sizing import PART_BYTES
from protocol.values import FEW

Entry = tuple[Any, ...]
"""Sort keys of an item in order of significance, then the item."""

_RUN: Final = 4096
"""Number of entries sorted at once: longer sorts would block the event loop."""


class Sorter:
    """Stable sort: collects entries and returns their items in order.

    :param descending: direction of each key
    :param most: maximum number of items that will be taken; None: all
    """

    def __init__(
        self,
        descending: tuple[bool, ...],
        most: int | None,
        budget: Budget,
        tick: Callable[[], None],
    ) -> None:
        self._descending = descending
        self._most = most
        self._budget = budget
        self._tick = tick
        self._few = most is not None and most <= _RUN
        self._waiting: list[Entry] = []
        self._runs: list[list[Entry]] = []
        self._bound: Any = None
        self._kept = 0
        """Bytes of the retained entries of a top-N selection."""
        self._pending = 0
        """Estimated bytes of the entries waiting to be sorted."""
        self._large = False

    def add(self, entries: list[Entry], *, large: bool = False) -> None:
        """Add a batch of entries.

        :param large: True if some entries are so large that each is weighed
        :raises TooLarge: over the statement's memory limit
        """
        if self._bound is not None:
            bound = self._bound
            if self._descending[0]:
                entries = [entry for entry in entries if entry[0] >= bound]
            else:
                entries = [entry for entry in entries if entry[0] <= bound]
        self._waiting += entries
        self._large = self._large or large
        size = self._budget.size(entries, each=large, samples=2)
        self._pending += size
        self._budget.hold_for_now(size)
        if len(self._waiting) >= _RUN or self._pending > PART_BYTES:
            self._end_run()

    def _end_run(self) -> None:
        run = self._sorted(self._waiting)
        self._waiting = []
        pending, self._pending = self._pending, 0
        self._budget.hold_for_now(-pending)
        if self._few:
            # What is kept comes first again: later equal entries must stay behind it.
            self._waiting = run[: self._most]
            if self._most and len(self._waiting) == self._most:
                self._bound = self._waiting[-1][0]
            kept = self._budget.size(self._waiting, each=self._large)
            self._budget.hold(kept - self._kept)
            self._kept = kept
            return
        self._budget.hold(pending)
        self._runs.append(run)
        self._tick()

    def _sorted(self, entries: list[Entry]) -> list[Entry]:
        # Least significant key first: each stable pass keeps the order of equal entries.
        for number in reversed(range(len(self._descending))):
            entries.sort(key=itemgetter(number), reverse=self._descending[number])
        return entries

    def items(self) -> Iterator[Any]:
        """Return the items in order."""
        last = self._sorted(self._waiting)
        if not self._runs:
            return (entry[-1] for entry in last[: self._most])
        return self._merged([*self._runs, last])

    def _merged(self, runs: list[list[Entry]]) -> Iterator[Any]:
        directions = set(self._descending)
        width = len(self._descending)
        key: Callable[[Entry], Any] = itemgetter(slice(width))
        if len(directions) == 2:
            key = self._turned
        merged = heapq.merge(*runs, key=key, reverse=directions == {True})
        for number, entry in enumerate(merged):
            if number == self._most:
                return
            if number % FEW == 0:
                self._tick()
            yield entry[-1]

    def _turned(self, entry: Entry) -> tuple[Any, ...]:
        return tuple(
            _Turned(part) if descending else part
            for part, descending in zip(entry, self._descending, strict=False)
        )


class _Turned:
    """Sort key with reversed order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Turned) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Turned) and bool(self.key == other.key)

    __hash__ = None  # type: ignore[assignment]
