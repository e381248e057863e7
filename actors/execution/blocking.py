"""Blocked requests: the one way to wait.

A wait stands in one queue, may have one deadline, and ends once: it is resumed with a result, or
cancelled by KILL, its deadline or its client. A queue belongs to the part of the node that resumes
its waits.

| reason | queue | resumed when |
|---|---|---|
| commit | by sequence | the commit index reaches it, or it is rolled back |
| sequence | by sequence, of any node's commits | the node shows it |
| read index | by round | the in-sync replicas have echoed it |
| priority lock | line | the lock is granted, or free |
| messages | line of a group; readers of a topic, by position | there may be some |

Queues call `resume` inside the code that unblocks: a thousand answers of one group leave in one
iteration of the loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from protocol.environment import Clock

ReportError = Callable[[Exception], None]
"""Takes the exception of a `resume`, which is a bug: the other waits go on."""
Resume = Callable[[BaseException | None], None]
"""Callback of a wait. None: what it waited for is there; else the reason why it will not be."""

STALE: Final = 64
"""Entries of ended waits that a heap may hold beside as many as there are live ones."""


class Wait(ABC):
    """A wait of a request, which may wait again after it was resumed."""

    # Class attributes are defaults: a GET makes a wait too, and never sets them.

    began_us = -1
    """Start of the request, on the monotonic clock; -1: the node's own work, without a time-out."""
    deadline_us: int | None = None
    """Its deadline, on the monotonic clock; None: it has none. See `Deadlines`."""
    deadline = 0
    """Number of that deadline."""
    key = 0
    """Number that it waits for."""
    queue: Queue | None = None
    """Queue that it stands in; None: it was resumed, or waits for nothing."""

    @abstractmethod
    def resume(self, lost: BaseException | None) -> None:
        """Go on. :param lost: the reason why the wait is in vain; None: it is not"""

    def on_deadline(self) -> None:
        """End: its deadline is over. By default `resume` gets a TimeoutError."""
        self.cancel()
        self.queue = None
        self.resume(TimeoutError())

    def cancel(self) -> bool:
        """Leave the queue without a call of `resume`. False: it was resumed already, or is about
        to be."""
        queue = self.queue
        return queue is not None and queue.remove(self)


class CallbackWait(Wait):
    """Wait that calls a function.

    :param began_us: as in `Wait`
    """

    def __init__(self, resume: Resume, began_us: int = -1) -> None:
        self._resume = resume
        self.began_us = began_us

    def resume(self, lost: BaseException | None) -> None:
        self._resume(lost)


class FutureWait(Wait):
    """Wait of a coroutine, for a future.

    :param began_us: as in `Wait`
    """

    def __init__(self, future: asyncio.Future[None], began_us: int = -1) -> None:
        self.future = future
        self.began_us = began_us

    def resume(self, lost: BaseException | None) -> None:
        future = self.future
        # Cancelled by its coroutine meanwhile.
        if future.done():
            return
        if lost is None:
            future.set_result(None)
        else:
            future.set_exception(lost)


def raise_error(error: Exception) -> None:
    """Raise a bug where the waits are unblocked: nothing there is in the middle of anything."""
    raise error


class Queue(ABC):
    """Waits of one reason.

    :param report_error: as `ReportError`
    """

    def __init__(self, report_error: ReportError) -> None:
        self._report_error = report_error

    @abstractmethod
    def remove(self, wait: Wait) -> bool:
        """Remove a wait. False: it does not stand here."""

    def unblock_one(self, wait: Wait, lost: BaseException | None = None) -> bool:
        """Resume one wait, wherever it stands. False: it does not stand here.

        :param lost: as in `Wait.resume`
        """
        if not self.remove(wait):
            return False
        self._resume(wait, lost)
        return True

    def _resume(self, wait: Wait, lost: BaseException | None) -> None:
        wait.queue = None
        try:
            wait.resume(lost)
        except Exception as error:  # a bug of one wait is not the others'
            self._report_error(error)


class Line(Queue):
    """Waits in the order of arrival."""

    def __init__(self, report_error: ReportError) -> None:
        super().__init__(report_error)
        self._waits: OrderedDict[Wait, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waits)

    def __iter__(self) -> Iterator[Wait]:
        """Iterate over a copy, in order: waits may be resumed meanwhile."""
        return iter(list(self._waits))

    def block(self, wait: Wait, *, first: bool = False) -> None:
        """Have a wait resumed once.

        :param first: it stands before the others, else behind them
        """
        wait.queue = self
        self._waits[wait] = None
        if first:
            self._waits.move_to_end(wait, last=False)

    def remove(self, wait: Wait) -> bool:
        if wait not in self._waits:
            return False
        del self._waits[wait]
        return True

    def unblock(self) -> None:
        """Resume all, and none that comes meanwhile."""
        waits, self._waits = self._waits, OrderedDict()
        for wait in waits:
            self._resume(wait, None)

    def take_first(self) -> Wait | None:
        """Remove the first, to be resumed by the caller. None: there is none."""
        if not self._waits:
            return None
        wait, _ = self._waits.popitem(last=False)
        wait.queue = None
        return wait


class NumberedQueue(Queue):
    """Waits by number, those of one number in the order of arrival."""

    def __init__(self, report_error: ReportError) -> None:
        super().__init__(report_error)
        self._waits: dict[int, dict[Wait, None]] = {}
        self._numbers: list[int] = []
        """Heap of the numbers; some may have no wait any more."""

    def __len__(self) -> int:
        return sum(map(len, self._waits.values()))

    def __iter__(self) -> Iterator[Wait]:
        """Iterate over a copy, the first number first: waits may be resumed meanwhile."""
        return iter([wait for number in sorted(self._waits) for wait in self._waits[number]])

    def block(self, wait: Wait, number: int) -> None:
        """Have a wait resumed once, at `number`."""
        wait.queue = self
        wait.key = number
        waits = self._waits.get(number)
        if waits is None:
            self._waits[number] = {wait: None}
            heappush(self._numbers, number)
        else:
            waits[wait] = None

    def remove(self, wait: Wait) -> bool:
        waits = self._waits.get(wait.key)
        if waits is None or wait not in waits:
            return False
        del waits[wait]
        if not waits:
            del self._waits[wait.key]
            # A caller may wait for any number, once a second, and never reach it.
            if len(self._numbers) > 2 * len(self._waits) + STALE:
                self._numbers = list(self._waits)
                heapify(self._numbers)
        return True

    def unblock(self) -> None:
        """Resume all, and none that comes meanwhile."""
        waits, self._waits, self._numbers = self._waits, {}, []
        for number in sorted(waits):
            for wait in waits[number]:
                self._resume(wait, None)

    def unblock_upto(self, number: int) -> None:
        """Resume all up to a number, the first number first."""
        numbers = self._numbers
        while numbers and numbers[0] <= number:
            waits = self._waits.pop(heappop(numbers), None)
            if waits is None:
                continue
            # They are in no queue any more, so nothing changes this dict.
            for wait in waits:
                # As `_resume`, without a call for each answer.
                wait.queue = None
                try:
                    wait.resume(None)
                except Exception as error:  # a bug of one wait is not the others'
                    self._report_error(error)
            # Made anew if a `resume` has removed many others.
            numbers = self._numbers

    def fail(self, after: int, why: Callable[[int], BaseException]) -> None:
        """Fail all behind a number.

        :param why: makes the reason for a number
        """
        # Collect all of them first: a wait that is resumed may commit at once, and wait for one of
        # these sequences, which rolled-back commits had before.
        failed = [number for number in sorted(self._waits) if number > after]
        for number, waits in [(number, self._waits.pop(number)) for number in failed]:
            for wait in waits:
                self._resume(wait, why(number))


class Deadlines:
    """Deadlines of waits, with one timer for the nearest."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, report_error: ReportError
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._report_error = report_error
        self._heap: list[tuple[int, int]] = []
        """Deadlines, each with its number; some are of ended waits."""
        self._waits: dict[int, Wait] = {}
        """Waits with a deadline, by its number. The heap holds none: an ended wait may be that of
        an answer of many megabytes."""
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_us = 0
        """Time that the timer is set for."""

    def set(self, wait: Wait, until_us: int) -> None:
        """Set the deadline of a wait, in place of an earlier one. A past one is due in the next
        iteration of the loop, never inside this call."""
        if wait.deadline_us is not None:
            del self._waits[wait.deadline]
        number = self._number = self._number + 1
        wait.deadline_us, wait.deadline = until_us, number
        self._waits[number] = wait
        heappush(self._heap, (until_us, number))
        self._arm_next()

    def clear(self, wait: Wait) -> None:
        """Remove the deadline of a wait, if it has one."""
        if wait.deadline_us is None:
            return
        wait.deadline_us = None
        del self._waits[wait.deadline]
        if len(self._heap) > 2 * len(self._waits) + STALE:
            self._heap = [each for each in self._heap if each[1] in self._waits]
            heapify(self._heap)

    def _arm(self, until_us: int) -> None:
        self._armed_us = until_us
        left_us = max(until_us - self._clock.monotonic_us(), 0)
        self._timer = self._loop.call_later(left_us / 1_000_000, self._end_due)

    def _end_due(self) -> None:
        self._timer = None
        # The timer may fire a moment before its time.
        now_us = max(self._clock.monotonic_us(), self._armed_us)
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now_us:
            due.append(heappop(self._heap)[1])
        # Collected first: a deadline that is set meanwhile is due in a later iteration.
        for number in due:
            wait = self._waits.pop(number, None)
            # The wait has ended, or has another deadline.
            if wait is None:
                continue
            wait.deadline_us = None
            try:
                wait.on_deadline()
            except Exception as error:  # a bug of one wait is not the others'
                self._report_error(error)
        self._arm_next()

    def _arm_next(self) -> None:
        if not self._heap:
            return
        until_us = self._heap[0][0]
        # A deadline that was set meanwhile has armed it, maybe for later than this one.
        if self._timer is None:
            self._arm(until_us)
        elif until_us < self._armed_us:
            self._timer.cancel()
            self._arm(until_us)

    def close(self) -> None:
        """Cancel the timer: the node stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
