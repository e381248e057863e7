"""Background tasks of a surface: they outlast the call that started them, and end before the
surface does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from actors.execution.loop_budget import LoopBudget
from actors.rate_limited_log import RateLimitedLog
from actors.runtime import Reply
from protocol import limits
from surfaces.eager_tasks import start

Then = Callable[[asyncio.Future[Any]], None]
"""Callback for a finished future."""


class BackgroundTasks:
    """Set of running background tasks and awaited futures.

    :param limited_log: logs work that raised: it should have handled its own errors
    :param none_left: called each time that the set becomes empty
    """

    def __init__(
        self, limited_log: RateLimitedLog, none_left: Callable[[], None] | None = None
    ) -> None:
        self._limited_log = limited_log
        self._none_left = none_left
        self._futures: set[asyncio.Future[Any]] = set()
        self._budget = LoopBudget(limits.SLICE_US)
        """Time of one iteration of the loop for eagerly started work."""

    def __bool__(self) -> bool:
        """True if any work is left."""
        return bool(self._futures)

    def start(self, work: Coroutine[Any, Any, None], waits: Callable[[], None]) -> None:
        """Start `work` before this returns (`eager_tasks.py`). Once eager work has used up its
        budget, only spawn it, like `spawn`.

        :param waits: called when the work first blocks, before the loop knows of its task
        """
        loop = asyncio.get_running_loop()
        if self._budget.is_spent:
            self.spawn(work)
            return
        began, rest = loop.time(), None
        try:
            rest = start(work)
        except asyncio.CancelledError:
            pass  # as in a task: its awaitable was cancelled before it was awaited
        except Exception as error:
            self._failed(error)
        if rest is not None:
            waits()
            self.spawn(rest)
        self._budget.spend(int((loop.time() - began) * 1_000_000))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a task until it ends, or the surface does."""
        task = asyncio.get_running_loop().create_task(work)
        self.follow(task)
        task.add_done_callback(self._report)
        return task

    def follow(self, future: asyncio.Future[Any], then: Then | None = None) -> None:
        """Track `future` until it is done.

        :param then: called with the future once it is done, before it leaves the set. A callback of
            an asyncio future costs an iteration of the loop; a `Reply` calls back at once.
        """
        self._futures.add(future)
        ended = self._ended if then is None else partial(self._call_then, then)
        if type(future) is Reply and not future.done():
            future.add_callback(ended)
        else:
            future.add_done_callback(ended)

    def cancel(self) -> None:
        """Cancel everything tracked."""
        for future in list(self._futures):
            future.cancel()

    async def ended(self) -> None:
        """Wait until everything tracked has ended, with any outcome."""
        await asyncio.gather(*self._futures, return_exceptions=True)

    def _call_then(self, then: Then, future: asyncio.Future[Any]) -> None:
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
