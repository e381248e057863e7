"""Rows of a statement that is not grouped: those that its columns can't rule out, in id order.

They are read as records, and the statement runs over them as over those of an index: WHERE and
ORDER BY are evaluated again, so it is enough that no row of the answer is missing. WHERE rules out
the rows for which it is false. ORDER BY … LIMIT n rules out the rows that sort behind n others by
its first expression alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from language.columnar.expressions import Expressions, Part
from language.columnar.plan import ColumnPlan, Inexact, Scan, Unfit
from language.columnar.vectors import CODED, FLOAT, Array, Vector
from language.env import Env
from language.rows import Batch

_SHARE: Final = 5
"""A segment is read by row if more than one row of so many is left."""
_LEAST: Final = -(2**63)
_PLACES: Final = 65_536
"""Positions that a segment may have, to number the rows of all segments."""
_RANKED: Final = 4_096
"""Most texts that are sorted in one step."""


class Selection:
    """Rows of one run of a statement.

    :param order: first expression of ORDER BY, if LIMIT counts its rows
    :param most: rows that LIMIT and START need
    :param read: called with the number of rows read by column that are not read as records
    """

    def __init__(
        self,
        plan: ColumnPlan,
        where: Any,
        env: Env,
        read: Callable[[int], None],
        *,
        order: Any = None,
        descending: bool = False,
        most: int = 0,
    ) -> None:
        self._plan = plan
        self._where = where
        self._env = env
        self._read = read
        self._order, self._descending, self._most = order, descending, most
        self._expressions = Expressions(plan, env)
        self._seen: dict[tuple[Any, ...], Array] = {}
        self._held: list[Any] = []

    def batches(self, scan: Scan) -> Iterator[Batch]:
        """Yield the records of the rows that are left."""
        if self._order is not None:
            yield from self._first(scan)
            return
        for rows in scan.segments():
            yield from self._records(scan, rows, self._left(rows))

    def _records(self, scan: Scan, rows: Any, left: Array | None) -> Iterator[Batch]:
        """Yield the records at some positions of a segment; None: all of them."""
        if left is None or len(left) * _SHARE > rows.count:
            yield from scan.rows(rows)
            return
        self._read(rows.count - len(left))
        if len(left):
            yield from scan.fetch(rows.ids(left.tolist()))

    def _left(self, rows: Any) -> Array | None:
        """Return the positions of the rows that are left of a segment; None: not known."""
        if not rows.has(self._plan.names):
            return None
        if not rows.count:
            return np.zeros(0, np.int64)
        try:
            part = self._chosen(rows)
            if not part.count:
                return np.zeros(0, np.int64)
        except Unfit:
            return None
        return np.arange(rows.count) if part.positions is None else part.positions

    def _chosen(self, rows: Any) -> Part:
        """Return the rows that satisfy WHERE."""
        part = Part(rows)
        if self._where is None:
            return part
        mask = self._expressions.condition(self._where, part)
        if isinstance(mask, bool):
            return part if mask else Part(rows, np.zeros(0, np.int64))
        return part.where(mask)

    # --- ORDER BY … LIMIT -------------------------------------------------------------------------

    def _first(self, scan: Scan) -> Iterator[Batch]:
        """Yield the records that may be among the first ones, and segments that are not known."""
        keys: list[Array] = []
        places: list[Array] = []
        segments: list[tuple[Any, bool]] = []
        """Segments, and True if `places` has their rows."""
        like: tuple[Any, ...] | None = None
        for number, rows in enumerate(scan.segments()):
            segments.append((rows, not rows.count))
            if not rows.count or not rows.has(self._plan.names):
                continue
            try:
                part = self._chosen(rows)
                found, kind = self._keys(part) if part.count else (np.zeros(0), like)
            except Unfit:
                continue
            like = kind if like is None else like
            if kind != like:
                raise Inexact
            segments[-1] = (rows, True)
            if part.count:
                at = np.arange(rows.count) if part.positions is None else part.positions
                kept = self._best(found)
                keys.append(found[kept])
                places.append(number * _PLACES + at[kept])
        chosen = np.zeros(0, np.int64)
        if keys:
            together = np.concatenate(keys)
            chosen = np.sort(np.concatenate(places)[self._best(together)])
        numbers = chosen // _PLACES
        for number, (rows, known) in enumerate(segments):
            start, end = np.searchsorted(numbers, [number, number + 1]).tolist()
            left = chosen[start:end] % _PLACES if known else None
            yield from self._records(scan, rows, left)

    def _best(self, keys: Array) -> Array:
        """Return the positions of the first keys in the order, and of all that equal the last of
        these."""
        if len(keys) <= self._most:
            return np.arange(len(keys))
        if self._descending:
            bound = np.partition(keys, len(keys) - self._most)[len(keys) - self._most]
            return np.flatnonzero(keys >= bound)
        bound = np.partition(keys, self._most - 1)[self._most - 1]
        return np.flatnonzero(keys <= bound)

    def _keys(self, part: Part) -> tuple[Array, tuple[Any, ...]]:
        """Return numbers that sort as the first expression of ORDER BY does, and what they mean.

        :raises Unfit: there are none
        """
        vector = self._expressions.vector(self._order, part)
        if vector.kind == CODED:
            return self._ranks(vector)
        keys = vector.data
        if vector.state is not None:
            # NONE and NULL sort before all numbers. Ties are kept, so they may be equal here.
            if vector.kind == FLOAT:
                keys = np.where(vector.state == 2, keys, -np.inf)
            elif vector.bounds[0] > _LEAST:
                keys = np.where(vector.state == 2, keys, _LEAST)
            else:
                raise Unfit
        return keys, (vector.kind, vector.scale)

    def _ranks(self, vector: Vector) -> tuple[Array, tuple[Any, ...]]:
        codes = np.unique(vector.data).tolist()
        # Ranks of one segment mean nothing in another: only the values do.
        values = vector.values
        kinds = {type(values[code]) for code in codes}
        if kinds != {str}:
            raise Unfit
        key = (id(values), len(values))
        ranks = self._seen.get(key)
        if ranks is None:
            self._held.append(values)
            if len(values) > _RANKED or not all(type(value) is str for value in values):
                raise Unfit
            # Equal texts of different codes have one rank, since ties are kept.
            places = {value: place for place, value in enumerate(sorted(set(values)))}
            ranks = np.array([places[value] for value in values], np.int64)
            self._seen[key] = ranks
        return ranks[vector.data], key


__all__ = ["Selection"]
