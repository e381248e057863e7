"""Queue of requests that share transactions: by group, and when to run them.

- Requests of one loop iteration run at its end, for one slice; the rest in the next one. The end is
  known early when the surface has handled all it read and the loop has no other callback.
- If several came together lately, the first wait for as many, one slice at most: clients answered
  together come again closely after each other, and a commit for the first alone would cost as much
  as one for all. A lone client never waits; after a crowd it waits once.
- While the log has a group, requests wait for its return: a commit would leave no sooner. They wait
  `HOLD_US` at most, so that a stalled disk does not hold reads.
- Groups take turns, one transaction each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from actors.commits.committer import NamedAuthor
from protocol import limits
from storage.txn.tickets import NO_COMMIT

if TYPE_CHECKING:
    from actors.commits.committer import Committer
    from actors.runtime import Runtime
    from storage.formats.entries import Entry
    from storage.txn.transaction import Transaction

HOLD_US: Final = 5_000
"""Longest wait for the log to return a group (µs)."""
CROWD_US: Final = limits.SLICE_US
"""Longest wait of the oldest request for a likely crowd (µs)."""
LESS: Final = 7 / 8
"""Factor by which the expected crowd decays with each run."""
MANY: Final = 4
"""After a wait in vain: expected crowd per request beside the first. A lone one expects none."""

R = TypeVar("R")


class SharedUnit(Generic[R]):
    """The first requests of a group, in one transaction.

    :param group: user, surface, and what else they have in common
    :param queue: requests of the group; the unit takes its own by `UnitQueue.pop`
    :param run_some: runs some of them, and adds them to `done` or `refused`; raises if nothing of
        the transaction may be committed
    :param text: returns the text and the reason of their commit
    """

    blocked_by_lock = False
    saw = NO_COMMIT
    wrote = False
    """True if the transaction has changes."""
    read = NO_COMMIT
    """Ticket that the requests `refused` depend on."""
    entry: Entry | None = None
    """Entry of their commit in the statement log."""

    def __init__(
        self,
        group: tuple[str, ...],
        queue: deque[R],
        run_some: Callable[[Transaction, SharedUnit[R]], None],
        text: Callable[[SharedUnit[R]], tuple[str, str | None]],
    ) -> None:
        self.group = group
        self.queue = queue
        self._run_some = run_some
        self._text = text
        self.done: list[R] = []
        """Requests that were run."""
        self.refused: list[R] = []
        """Requests refused apart from the others."""

    def work(self, tx: Transaction) -> None:
        self._run_some(tx, self)
        self.wrote = tx.size > 0

    def attribution(self) -> tuple[NamedAuthor, str, str | None, Entry | None]:
        return NamedAuthor(*self.group[:2]), *self._text(self), self.entry


class UnitQueue(Generic[R]):
    """Requests of one kind; on the loop only.

    :param run: runs a unit, by `Executor.transact`
    :param run_some, text: as for `SharedUnit`
    :param refuse: refuses a request: the node stops
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        run: Callable[[SharedUnit[R]], None],
        run_some: Callable[[Transaction, SharedUnit[R]], None],
        text: Callable[[SharedUnit[R]], tuple[str, str | None]],
        refuse: Callable[[R], None],
    ) -> None:
        self._loop = runtime.loop
        self._ready = runtime.ready
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._run_unit = run
        self._run_some = run_some
        self._text = text
        self._refuse = refuse
        self._queues: dict[tuple[str, ...], deque[R]] = {}
        self.waiting = 0
        """Requests in all queues."""
        self.until_us = 0
        """End of the slice under way."""
        self._together = 1.0
        """Number of requests that came together lately; decays."""
        self._scheduled = False
        self._running = False
        self._at_end: asyncio.Handle | None = None
        """Callback at the end of this loop iteration."""
        self._hold: asyncio.TimerHandle | None = None
        """Timer that ends the wait."""
        self._since_us: int | None = None
        """Arrival of the oldest request that has not run (µs); None: there is none."""
        self._stopped = False
        committer.on_group_returned.append(self._log_returned)

    def add(self, group: tuple[str, ...], request: R, *, first: bool = False) -> None:
        """Have a request run soon. :param first: before the others of its group, else after them"""
        queue = self._queues.get(group)
        if queue is None:
            queue = self._queues[group] = deque()
        if first:
            queue.appendleft(request)
        else:
            queue.append(request)
        self.waiting += 1
        self._schedule_run()

    def pop(self, queue: deque[R]) -> R:
        """Take the first request of a queue, to run it."""
        self.waiting -= 1
        return queue.popleft()

    def _run(self, group: tuple[str, ...], queue: deque[R]) -> None:
        self._run_unit(SharedUnit(group, queue, self._run_some, self._text))

    def run_alone(self, group: tuple[str, ...], request: R) -> None:
        """Run a request, popped before, at once in a transaction of its own."""
        self.waiting += 1
        self._run(group, deque((request,)))

    def stop(self) -> None:
        """Refuse all requests from now on: the node stops."""
        self._stopped = True
        self._let_go()
        self._refuse_all()

    def _refuse_all(self) -> None:
        # Emptied first: an answer may bring the next request of its client.
        queues, self._queues, self.waiting = self._queues, {}, 0
        for queue in queues.values():
            for request in queue:
                self._refuse(request)

    # --- when to run ----------------------------------------------------------------------------

    def _schedule_run(self) -> None:
        if self._running:
            return  # what comes of a run is run with it, or is left of it
        if self._since_us is None:
            self._since_us = self._monotonic_us()
        if self._scheduled:
            return
        # A hold goes on while its reason lasts: a group at the log, or a crowd not complete.
        if self._hold is None or not (self._committer.log_is_busy or self._awaits()):
            self._let_go()
            self._scheduled = True
            self._at_end = self._loop.call_soon(self._at_turn_end)

    def on_turn_end(self) -> None:
        """Run now if nothing else can come in this loop iteration: the surface has handled all it
        read."""
        at_end = self._at_end
        # The one callback that is ready is `_at_turn_end` itself.
        if at_end is not None and self._ready() == 1:
            at_end.cancel()
            self._at_turn_end()

    def _awaits(self) -> bool:
        """True if more requests are likely to come in a moment."""
        # Below two there is no crowd: a lone client never waits.
        return self._together >= 2 and self.waiting < self._together

    def _let_go(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def _at_turn_end(self) -> None:
        """Run the requests that came together, or hold them for more."""
        self._scheduled = False
        self._at_end = None
        if self._stopped:
            self._go()
        elif self._committer.log_is_busy:
            self._hold_for(HOLD_US)
        elif (left_us := self._worth_waiting_us()) > 0:
            self._hold_for(left_us)
        else:
            self._go()

    def _worth_waiting_us(self) -> int:
        """Return the time left to wait for a likely crowd (µs)."""
        if self._since_us is None or not self._awaits():
            return 0
        # From the arrival of the oldest: later arrivals do not prolong its wait.
        return self._since_us + CROWD_US - self._monotonic_us()

    def _hold_for(self, for_us: int) -> None:
        if self._hold is None:
            self._hold = self._loop.call_later(for_us / 1_000_000, self._held_long_enough)

    def _held_long_enough(self) -> None:
        self._hold = None
        # If few are here, the wait was in vain: the estimate falls, for a lone request to zero.
        self._together = min(self._together, MANY * (self.waiting - 1.0))
        self._go()

    def _log_returned(self) -> None:
        if self._hold is not None:
            self._let_go()
            self._at_turn_end()

    def _run_left(self) -> None:
        self._scheduled = False
        self._go()

    # --- one slice ------------------------------------------------------------------------------

    def _go(self) -> None:
        self._since_us = None
        # The estimate follows a growing crowd at once, and a shrinking one slowly.
        self._together = max(self.waiting, self._together * LESS)
        self._running = True
        try:
            self._run_slice()
        finally:
            self._running = False
        # The rest runs in the next iteration, so that other callbacks get the loop between slices.
        if self._queues and not self._scheduled and self._hold is None:
            self._scheduled = True
            self._loop.call_soon(self._run_left)

    def _run_slice(self) -> None:
        if self._stopped:
            self._refuse_all()
            return
        self.until_us = until_us = self._monotonic_us() + limits.SLICE_US
        queues = self._queues
        while queues:
            group = next(iter(queues))
            queue = queues.pop(group)
            queues[group] = queue  # round robin: the other groups get their commits first
            self._run(group, queue)
            if not queue and queues.get(group) is queue:
                del queues[group]
            if self._monotonic_us() >= until_us:
                break
