"""Sequence waiters: requests that wait until this node shows a sequence (causal token).

The sequence may be one that no commit here has yet: a follower receives it later. So it is no
ticket (`tickets.py`). A roll back does not end the wait: the sequence is assigned again. Callers
bound the number of waiters.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import NamedTuple


class SequenceWaiter(NamedTuple):
    """A waiter for one sequence."""

    sequence: int
    number: int
    """Serial number; orders waiters for the same sequence."""


class SequenceWaiters:
    """Waiters for sequences, nearest first.

    :param report_error: receives the exceptions of `wake`
    """

    def __init__(self, report_error: Callable[[BaseException], None]) -> None:
        self._report_error = report_error
        self._made = 0
        self._order: list[SequenceWaiter] = []
        """Waiters, nearest sequence first."""
        self._wakes: dict[SequenceWaiter, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def expect(self, sequence: int, wake: Callable[[], None]) -> SequenceWaiter:
        """Have `wake` called once when that is shown, short and on the loop; to be left then too.

        :param sequence: one that is not shown yet
        """
        self._made += 1
        arrival = SequenceWaiter(sequence, self._made)
        # The serial number makes each entry unique, so that bisection finds exactly one.
        insort(self._order, arrival)
        self._wakes[arrival] = wake
        return arrival

    def leave(self, arrival: SequenceWaiter) -> None:
        """Wait no more. Leaving twice is fine, and so is leaving behind `wake`."""
        if self._wakes.pop(arrival, None) is not None:
            del self._order[bisect_left(self._order, arrival)]

    def wake_upto(self, sequence: int) -> None:
        """The node shows all up to a sequence."""
        order = self._order
        # The common case: each release asks, and few requests wait.
        if not order or order[0].sequence > sequence:
            return
        end = bisect_right(order, sequence, key=lambda arrival: arrival.sequence)
        # All are taken out first: a `wake` may leave, or expect another sequence.
        there, self._order = order[:end], order[end:]
        for wake in [self._wakes.pop(arrival) for arrival in there]:
            try:
                wake()
            except Exception as error:  # a bug of one who waits is not the others'
                self._report_error(error)
