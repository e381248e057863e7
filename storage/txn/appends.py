"""Appends: values stored under consecutive numbers of a counter, without conflicts.

The next number is known only at commit. A transaction numbers its values from the counter it sees.
If it pauses and another transaction commits first, the ledger renumbers its values
(`Append.renumber`). So concurrent appends to one counter do not conflict.

A value begins with

    0   8  log time of its commit, microseconds since 1970
    8   8  running total: bytes of all values ever appended under the counter, up to this one

and the counter holds the last number and the running total there. Time and total never decrease
with the number, so both can be binary searched. The size of any run of values is a subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from storage.txn.write_set import WriteSet

HEAD: Final = Struct(">QQ")
"""Head of a value: time and total. Row of a counter: number and total."""
NUMBER: Final = Struct(">Q")
_NUMBER_AT: Final = -NUMBER.size

Rows = dict[bytes, bytes]
Mark = Callable[[int, int], Rows]
"""Function that maps a value's number and time to extra rows that point to it."""


class Append:
    """The values that one transaction has appended under one counter."""

    __slots__ = ("_keys", "_marks", "_prefix", "_seen_total", "_time_us", "count", "counter",
                 "seen", "shift", "total")  # fmt: skip

    def __init__(self, counter: bytes, prefix: bytes, seen: bytes | None, time_us: int) -> None:
        """Start from the counter as the transaction sees it.

        :param prefix: key prefix of the values
        :param seen: row of the counter; None: absent
        """
        self.counter = counter
        self.seen: int
        self.seen, self._seen_total = unpack_counter(seen)
        """Last number before this transaction's own, as it sees the counter."""
        self.count = 0
        self.total = self._seen_total
        self.shift = 0
        """Offset added to the numbers at commit, for values that other transactions appended first.
        """
        self._prefix = prefix
        self._time_us = time_us
        self._keys: list[bytes] = []
        self._marks: list[tuple[int, Mark, Rows]] = []

    @property
    def last(self) -> int:
        """Last number, provisional until commit."""
        return self.seen + self.count + self.shift

    @property
    def row(self) -> bytes:
        """Row to store for the counter."""
        return HEAD.pack(self.last, self.total)

    def add(self, bodies: Sequence[bytes]) -> Rows:
        """Return the rows for `bodies`, values without heads, under the next numbers."""
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
        """Return extra rows that point to the value of a number; renumbering rebuilds them."""
        rows = mark(number, self._time_us)
        self._marks.append((number, mark, rows))
        return rows

    def late_keys(self, write_set: WriteSet) -> list[bytes]:
        """Return the keys whose rows may change at commit."""
        marked = [key for _, _, rows in self._marks for key in rows]
        # `undo_writes` and range deletes may have taken some of them out of the write set.
        return [key for key in (*self._keys, *marked, self.counter) if key in write_set.writes]

    def renumber(self, write_set: WriteSet, present: bytes | None, time_us: int) -> None:
        """Renumber everything to follow the values of other commits, and set the commit time.

        :param present: row of the counter at commit
        """
        number, total = unpack_counter(present)
        # Values and bytes that other commits appended since this transaction's snapshot.
        shift, more = number - self.seen, total - self._seen_total
        # Usual without a pause: numbers and time are those that the rows have already.
        if not shift and time_us == self._time_us:
            return
        self.shift, self.total, self._time_us = shift, self.total + more, time_us
        writes = write_set.writes
        rows: Rows = {}
        for key in self._keys:
            value = writes.get(key)
            if value is not None:  # else the transaction itself deleted it again
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
        if self.counter in writes:  # else this transaction has dropped the topic since
            rows[self.counter] = self.row
        # Old and new numbers may overlap: `replace` undoes all old rows before it writes.
        write_set.replace(gone, rows)


def unpack_counter(row: bytes | None) -> tuple[int, int]:
    """Decode a counter into its number and total; an absent counter is (0, 0)."""
    if row is None:
        return 0, 0
    number, total = HEAD.unpack(row)
    return number, total
