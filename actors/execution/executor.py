"""Executor: the life of a request, written once. On the loop only.

    submit: run → wait for all that was seen → answer

- A request runs at once if it may, and its result is returned if it rests on nothing pending.
- All of them share one slice of the loop in each iteration (`limits.SLICE_US`). Requests beyond
  that are put off for an iteration, and later ones too: none overtakes.
- A script runs in a fiber from its start (`spawn`).
- A request that another's priority lock blocks has had no effect. It runs again when the lock is
  gone, before all that were put off since. Until then it holds up its lines alone: the requests of
  its connection that may not overtake it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from actors.commits.priority_locks import BlockedLines
from actors.execution.fiber import Fiber
from actors.execution.late_answers import waiting_answers
from actors.execution.loop_budget import LoopBudget
from actors.execution.request import (
    COMMITTING,
    DONE,
    QUEUED,
    RUNNING,
    ExecutedRequest,
    FiberRequest,
    OrderedRequest,
)
from actors.execution.scheduler import SCRIPT, FiberScheduler
from protocol import limits
from protocol.errors import Busy, Draining, Refusal, UnknownOutcome

if TYPE_CHECKING:
    from actors.commits.committer import Committer
    from actors.runtime import Runtime

PENDING: Final = None
"""Result of `submit` if the requester is notified later."""


class Executor:
    """Runs requests."""

    def __init__(self, runtime: Runtime, committer: Committer, scheduler: FiberScheduler) -> None:
        self._runtime = runtime
        self._committer = committer
        self._scheduler = scheduler
        self._monotonic_us = runtime.clock.monotonic_us
        self._urgent = runtime.urgent
        self.budget = LoopBudget(limits.SLICE_US)
        self._queue: deque[OrderedRequest] = deque()
        """Requests put off; the ended ones among them are passed over."""
        self._scheduled = False
        """True if `_run_queue` is scheduled."""
        self._blocked: BlockedLines[OrderedRequest] = BlockedLines(
            committer.priority_locks, self._unblock
        )
        self._fibers: dict[Fiber, None] = {}
        """Fibers of requests that were put off."""
        self._stopped = False

    # --- the life of a request ------------------------------------------------------------------

    def submit(self, request: OrderedRequest) -> Any:
        """Run a request. Return its result, or PENDING: the asker gets it later.

        :raises Refusal: nothing has happened
        """
        if self._stopped:
            raise _stopping()
        began_us, budget = request.began_us, self.budget
        # One test for the common case: nothing queued, slice not used up, no lock.
        is_busy = self._queue or budget.spent_us >= budget.limit_us or self._blocked.requests
        if is_busy and self._put_off(request):
            return PENDING
        # A busy loop would keep the GIL from the thread of the log.
        urgent = self._urgent
        if urgent is not None and urgent.since_us:
            urgent.yield_gil(began_us)
        try:
            self._run(request, began_us + limits.SLICE_US)
        finally:
            budget.spend(self._monotonic_us() - began_us)
        if request.state == DONE:
            return request.outcome()
        request.promised = True
        return PENDING

    def spawn(self, request: FiberRequest) -> Any:
        """Run a request in a fiber, from now on. Return its result, or PENDING, as `submit`."""
        request.state = RUNNING
        request.fiber = fiber = Fiber(self._scheduler, SCRIPT, request.user)
        fiber.start(partial(request.go_on, fiber), request.pause)
        if fiber.ended:
            # Most scripts end within their first slice.
            self._take_end(request, fiber.error)
            if request.state == DONE:
                return request.outcome()
        else:
            fiber.outcome.add_done_callback(partial(self._on_fiber_ended, request))
        request.promised = True
        return PENDING

    def _run(self, request: OrderedRequest, until_us: int) -> None:
        request.state = RUNNING
        try:
            is_done = request.run(until_us)
        except Refusal:
            if not request.blocked_by_lock:
                request.let_go()
                raise
            request.reset()
            self._block(request)
            return
        except Exception as error:
            request.let_go()
            self._runtime.report_error(type(self).__name__, error)
            raise
        if is_done:
            self.finish(request)
        else:
            self._go_on(request)

    def finish(self, request: ExecutedRequest) -> None:
        """Answer once all that the answer rests on is released."""
        ticket = request.shown
        sequence = ticket.sequence
        if not sequence or (
            sequence <= self._committer.commit_index and self._committer.is_released(ticket)
        ):
            if request.promised or request.listed:
                request.on_result(None)
            else:
                request.state = DONE
            return
        if request.listed:
            request.delist()  # entered anew: neither its credential nor a drain ends it
        request.state = COMMITTING
        request.wait_for_shown()

    # --- turns ----------------------------------------------------------------------------------

    def _put_off(self, request: OrderedRequest) -> bool:
        """Put a request off that may not overtake others, or comes after the slice. Return False if
        it can run now.

        :raises Busy: too many are put off
        """
        # A queue alone suffices: even with time left no request overtakes.
        if self._queue or self.budget.is_spent:
            if len(self._queue) >= limits.MAILBOX:
                raise Busy(f"too many requests wait for their turn: the limit is {limits.MAILBOX}")
            self._queue.append(request)
            request.enlist()
            self._schedule()
        elif self._blocked.holds_up(request.follows()):
            self._block(request)
        else:
            return False
        request.promised = True
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._runtime.loop.call_soon(self._run_queue)

    def _run_queue(self) -> None:
        """Run a slice of the requests put off."""
        self._scheduled = False
        began_us = self._monotonic_us()
        until_us = began_us + limits.SLICE_US
        queue = self._queue
        while queue:
            request = queue.popleft()
            if request.state == DONE:
                continue
            if self._blocked.requests and self._blocked.holds_up(request.follows()):
                self._block(request)
            else:
                self._run_late(request, until_us)
            if self._monotonic_us() >= until_us:
                break
        # Requests that still come in this iteration find this slice used up.
        self.budget.spend(self._monotonic_us() - began_us)
        if queue:
            self._schedule()
        urgent = self._urgent
        if urgent is not None and urgent.since_us:
            urgent.yield_gil(self._monotonic_us())

    def _run_late(self, request: OrderedRequest, until_us: int) -> None:
        """Run a request whose asker waits already."""
        try:
            self._run(request, until_us)
        except Exception as error:
            request.on_result(error)

    # --- blocked by priority locks --------------------------------------------------------------

    def _block(self, request: OrderedRequest) -> None:
        request.state = QUEUED
        self._blocked.block(request, request.takes())
        request.enlist()

    def _unblock(self, requests: list[OrderedRequest]) -> None:
        # `extendleft` reverses: `reversed` keeps the order of arrival.
        self._queue.extendleft(reversed(requests))
        self._schedule()

    # --- in a fiber -----------------------------------------------------------------------------

    def _go_on(self, request: OrderedRequest) -> None:
        request.fiber = fiber = Fiber(self._scheduler, SCRIPT, request.user)
        self._fibers[fiber] = None
        request.enlist()
        fiber.start_in_line(partial(request.go_on, fiber), request.pause)
        # On the loop: a callback may submit the next request.
        fiber.outcome.add_done_callback(partial(self._on_fiber_ended, request))

    def _on_fiber_ended(self, request: FiberRequest, outcome: asyncio.Future[None]) -> None:
        fiber = request.fiber
        assert fiber is not None
        self._fibers.pop(fiber, None)
        outcome.exception()  # retrieved, or asyncio would log it
        self._take_end(request, fiber.error)

    def _take_end(self, request: FiberRequest, error: Exception | None) -> None:
        """Answer a request whose fiber has ended."""
        request.fiber = None
        if error is not None and not isinstance(error, Refusal):
            self._runtime.report_error(type(request).__name__, error, request=request.id)
        lost = request.on_fiber_ended(error)
        if lost is None:
            self.finish(request)
        else:
            request.on_result(lost)

    # --- the end --------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop: run the requests put off, refuse those blocked, end those that wait."""
        self._stopped = True
        # Their askers were promised an answer.
        while self._queue:
            self._run_queue()
        for request in self._blocked.take_all():
            if request.state != DONE:
                request.on_result(_stopping())
        for fiber in list(self._fibers):
            fiber.cancel(UnknownOutcome("the node stopped before this was done"))
        while self._fibers:
            await asyncio.sleep(0)
        for waiter in list(waiting_answers(self._committer)):
            if isinstance(waiter, ExecutedRequest):
                waiter.end(Draining("the node is stopping"))


def _stopping() -> Draining:
    return Draining("the node is stopping and accepts no new requests")
