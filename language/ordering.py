"""ORDER BY over batches: everything in order, or the first so many with only these held."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

from language.budget import Budget
from language.sizing import PART_BYTES
from protocol.values import FEW

Entry = tuple[Any, ...]
"""The keys of an item, in order of their weight, then the item."""

_RUN: Final = 4096
"""Entries sorted in one go; longer stretches would hold the loop."""


class Sorter:
    """Collects entries and gives their items back in order, equal ones as they came.

    :param descending: for each key
    :param most: how many items will be taken at most; None: all
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
        """What those that are kept of few weigh."""
        self._pending = 0
        """What waits beside them weighs, about."""
        self._large = False

    def add(self, entries: list[Entry], *, large: bool = False) -> None:
        """Take a batch of entries.

        :param large: whether some of them are so large that each is weighed
        :raises TooLarge: they are more than the statement may hold
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
            self._settle()

    def _settle(self) -> None:
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
        # The least of the keys first: each pass keeps the order of what it finds equal.
        for number in reversed(range(len(self._descending))):
            entries.sort(key=itemgetter(number), reverse=self._descending[number])
        return entries

    def items(self) -> Iterator[Any]:
        """The items in order."""
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
    """A key that sorts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Turned) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Turned) and bool(self.key == other.key)

    __hash__ = None  # type: ignore[assignment]
