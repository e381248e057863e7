"""The attempts of one transaction of a script: what it does about races that it loses.

1. Lost: it runs again, in slices twice as long each time. What fits into one slice can't lose.
2. Lost `limits.BARRIER_AFTER` times: it stands in line for a barrier. While that stands nobody
   commits to what it reads, so it runs in short slices again, and gets every second one.
3. Barred, by another's barrier: it waits until that has gone. This is no lost race.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.commits.barriers import Place
from protocol import limits
from protocol.errors import Conflict, Refusal

if TYPE_CHECKING:
    from actors.commits import Committer
    from actors.scripts.turns import Turn
    from storage.read_set import ReadSet
    from storage.transactions import Transaction


class Attempts:
    """See the head of the file. Everything is called inside the script's greenlet.

    :param request: for the log
    """

    def __init__(self, committer: Committer, turn: Turn, request: str) -> None:
        self._committer = committer
        self._turn = turn
        self._request = request
        self._lost = 0
        self._barred = False
        self._place: Place | None = None
        self._reads: ReadSet
        """Of the last attempt."""

    @property
    def barrier(self) -> bool:
        """Whether its barrier stands."""
        return self._place is not None and self._place.stands

    def begins(self, transaction: Transaction) -> None:
        """The next attempt."""
        if self._place is not None:
            self._place.barrier.holds_for(transaction)

    def may_go_on(self, refusal: Refusal, transaction: Transaction, *, lost: bool) -> bool:
        """Whether the transaction may run again after what has ended an attempt.

        :param transaction: that attempt's
        :param lost: whether it was ended by a race
        """
        self._reads = transaction.reads  # and nothing else of it: it may hold 64 MiB of changes
        self._barred = type(refusal) is Conflict and transaction.barred
        if self._barred:
            return True
        if not lost or self._lost == limits.COMMIT_RETRIES:
            return False
        self._lost += 1
        return True

    @property
    def must_wait(self) -> bool:
        """Whether it holds nothing now and has to wait before it may run again: `wait`."""
        return self._barred or (self._lost >= limits.BARRIER_AFTER and not self.barrier)

    def wait(self) -> None:
        """Until it isn't barred any more, or its barrier stands. :raises Refusal: it is ended"""
        if self._barred:
            self._wait_until_gone()
            self._barred = False
        else:
            self._stand_in_line()

    def rest(self) -> None:
        """Before it runs again. :raises Refusal: it is ended"""
        if self.barrier:
            self._turn.slice_us, self._turn.hurries = limits.SLICE_US, True
        else:
            self._turn.slice_us = min(limits.SLICE_US << self._lost, limits.RETRY_SLICE_US)
            self._turn.hurries = False
        self._turn.rest()

    def leave(self) -> None:
        """It has ended, or waits for something else: it holds nobody back."""
        self._turn.slice_us, self._turn.hurries = limits.SLICE_US, False
        if self._place is not None:
            self._place.leave()
            self._place = None

    def _wait_until_gone(self) -> None:
        gone: list[None] = []

        def told() -> None:
            gone.append(None)
            self._turn.wake()

        self._committer.barriers.tell_gone(told)
        while not gone:
            self._turn.park()

    def _stand_in_line(self) -> None:
        self.leave()
        line = self._committer.barriers
        self._place = place = Place(line, self._request, self._reads, self._turn.wake)
        line.join(place)
        while not place.came:
            self._turn.park()
