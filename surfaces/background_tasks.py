"""Background tasks of a surface: they outlast the call that began them, and end before it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from actors.rate_limited_log import RateLimitedLog
from actors.runtime import Reply
from protocol import limits
from surfaces.eager_tasks import begin

Then = Callable[[asyncio.Future[Any]], None]
"""What follows when something is done."""

_SLICE_SECONDS: Final = limits.SLICE_US / 1_000_000


class BackgroundTasks:
    """All of it.

    :param limited_log: hears of work that failed: it should have answered for itself
    :param none_left: called each time that something ends and nothing is left
    """

    def __init__(
        self, limited_log: RateLimitedLog, none_left: Callable[[], None] | None = None
    ) -> None:
        self._limited_log = limited_log
        self._none_left = none_left
        self._futures: set[asyncio.Future[Any]] = set()
        self._spent = 0.0
        """Of the slice that work takes before it is a task."""
        self._renews = False
        """Whether the loop knows that there is to be another slice, which it is told once half of
        one is used up."""

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self._futures)

    def begin(self, work: Coroutine[Any, Any, None], waits: Callable[[], None]) -> None:
        """As `spawn`, but it begins before this returns (`eager_tasks.py`), as long as what has
        begun so did not take a slice since others had their turn.

        :param waits: called where it waits for something, before the loop knows of its task
        """
        loop = asyncio.get_running_loop()
        if self._spent >= _SLICE_SECONDS:
            self.spawn(work)
            return
        began, rest = loop.time(), None
        try:
            rest = begin(work)
        except asyncio.CancelledError:
            pass  # as of a task: what it had asked for was ended before it was awaited
        except Exception as error:
            self._failed(error)
        if rest is not None:
            waits()
            self.spawn(rest)
        self._spent += loop.time() - began
        if self._spent > _SLICE_SECONDS / 2 and not self._renews:
            self._renews = True
            loop.call_soon(self._renew)

    def _renew(self) -> None:
        """Others had their turn."""
        self._spent, self._renews = 0.0, False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` until it ends, or the surface does."""
        task = asyncio.get_running_loop().create_task(work)
        self.follow(task)
        task.add_done_callback(self._report)
        return task

    def follow(self, future: asyncio.Future[Any], then: Then | None = None) -> None:
        """Count `future` among what is under way until it is done.

        :param then: called with it when it is, before it counts no more: each callback of a future
            takes a turn of the loop, but those of a `Reply`, which call it at once
        """
        self._futures.add(future)
        ended = self._ended if then is None else partial(self._go_on, then)
        if type(future) is Reply and not future.done():
            future.hear(ended)
        else:
            future.add_done_callback(ended)

    def cancel(self) -> None:
        """End all of it."""
        for future in list(self._futures):
            future.cancel()

    async def ended(self) -> None:
        """Wait until all that is under way has ended, however it did."""
        await asyncio.gather(*self._futures, return_exceptions=True)

    def _go_on(self, then: Then, future: asyncio.Future[Any]) -> None:
        try:
            then(future)
        finally:
            self._ended(future)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._futures.discard(future)
        if self._none_left is not None and not self._futures:
            self._none_left()

    def _report(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._limited_log.error("work for a connection failed", exc_info=error)
