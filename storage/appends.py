"""Values that are put under the next numbers of a counter, whatever others append meanwhile.

Which number is next is known at the commit. A transaction numbers what it appends on from what it
sees, and that is right unless it pauses and another commits first: then the ledger moves its
values on (`Append.settle`). So transactions that append to one counter don't conflict.

A value begins with

    0   8  when it was committed, microseconds since 1970 of log time
    8   8  total: what all values ever appended under the counter take, this one included

and the counter holds the last number given and the total there. Neither time nor total falls from
one number to the next, so both can be searched, and what any row of values takes is a subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from storage.layers import Layer

HEAD: Final = Struct(">QQ")
"""Time and total; of a counter: number and total."""
NUMBER: Final = Struct(">Q")
_NUMBER_AT: Final = -NUMBER.size

Rows = dict[bytes, bytes]
Mark = Callable[[int, int], Rows]
"""The rows that say where a value went, of its number and the time."""


class Append:
    """What one transaction has appended under one counter."""

    __slots__ = ("_keys", "_marks", "_prefix", "_seen_total", "_time_us", "count", "counter",
                 "seen", "shift", "total")  # fmt: skip

    def __init__(self, counter: bytes, prefix: bytes, seen: bytes | None, time_us: int) -> None:
        """:param seen: what the counter holds; :param prefix: what the keys of values begin with"""
        self.counter = counter
        self.seen: int
        self.seen, self._seen_total = unpack_counter(seen)
        """The last number before this transaction's own, as far as it can see."""
        self.count = 0
        self.total = self._seen_total
        self.shift = 0
        """How far the commit has moved the numbers on: other transactions' are in between."""
        self._prefix = prefix
        self._time_us = time_us
        self._keys: list[bytes] = []
        self._marks: list[tuple[int, Mark, Rows]] = []

    @property
    def last(self) -> int:
        """The last number, as far as it is known."""
        return self.seen + self.count + self.shift

    @property
    def row(self) -> bytes:
        """What the counter is to hold."""
        return HEAD.pack(self.last, self.total)

    def add(self, bodies: Sequence[bytes]) -> Rows:
        """Rows for values without their heads, under the next numbers."""
        prefix, number, total, time_us = self._prefix, self.last, self.total, self._time_us
        head, pack = HEAD.pack, NUMBER.pack
        rows: Rows = {}
        for body in bodies:
            number += 1
            total += len(body) + HEAD.size
            rows[prefix + pack(number)] = head(time_us, total) + body
        self.count += len(bodies)
        self.total = total
        self._keys += rows
        return rows

    def mark(self, number: int, mark: Mark) -> Rows:
        """Rows that name where the value of a number went. They move with it."""
        rows = mark(number, self._time_us)
        self._marks.append((number, mark, rows))
        return rows

    def late_keys(self, layer: Layer) -> list[bytes]:
        """The keys whose rows may change at the commit."""
        marked = [key for _, _, rows in self._marks for key in rows]
        return [key for key in (*self._keys, *marked, self.counter) if key in layer.writes]

    def settle(self, layer: Layer, present: bytes | None, time_us: int) -> None:
        """Move everything behind what others have appended, and note the time of the commit.

        :param present: what the counter holds now
        """
        number, total = unpack_counter(present)
        shift, more = number - self.seen, total - self._seen_total
        if not shift and time_us == self._time_us:
            return
        self.shift, self.total, self._time_us = shift, self.total + more, time_us
        writes = layer.writes
        rows: Rows = {}
        for key in self._keys:
            value = writes.get(key)
            if value is not None:  # else the transaction itself has removed it again
                (number,) = NUMBER.unpack(key[_NUMBER_AT:])
                _, total = HEAD.unpack_from(value)
                head = HEAD.pack(time_us, total + more)
                rows[self._prefix + NUMBER.pack(number + shift)] = head + value[HEAD.size :]
        gone, self._keys = self._keys, list(rows)
        marks, self._marks = self._marks, []
        for number, mark, before in marks:
            gone += before
            if all(key in writes for key in before):
                rows.update(self.mark(number + shift, mark))
        if self.counter in writes:  # else its topic was dropped since
            rows[self.counter] = self.row
        layer.replace(gone, rows)


def unpack_counter(row: bytes | None) -> tuple[int, int]:
    """The number and the total that a counter says; an absent one says 0."""
    if row is None:
        return 0, 0
    number, total = HEAD.unpack(row)
    return number, total
