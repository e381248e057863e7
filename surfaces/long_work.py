"""Long work of a surface, such as parsing a body of megabytes: cooperatively scheduled in slices.

It is plain synchronous code that calls a `tick` function, and is scheduled like scripts: see
`actors/execution/fiber.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from actors.execution.fiber import Fiber
from actors.execution.scheduler import SURFACE, FiberScheduler

Found = TypeVar("Found")


class LongWork:
    """Runs long work of one surface."""

    def __init__(self, scheduler: FiberScheduler) -> None:
        self._scheduler = scheduler
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by user, kept while a task holds or awaits them."""

    def reading_of(self, user: str) -> asyncio.Lock:
        """Return the user's lock for reads whose memory need is known only afterwards. A user has
        one such read at a time, in order of arrival."""
        found = self._reading.get(user)
        if found is None:
            found = self._reading[user] = asyncio.Lock()
        return found

    async def run(self, user: str, work: Callable[[Callable[[], None]], Found]) -> Found:
        """Run `work(tick)` in slices. Return its result, or raise its exception. If the awaiting
        task is cancelled, the work ends at its next slice.

        :param user: user whose work it is
        """
        fiber, found = Fiber(self._scheduler, SURFACE, user), list[Found]()
        fiber.start_in_line(lambda: found.append(work(fiber.tick)), _nothing)
        try:
            await asyncio.wait((fiber.outcome,))
        finally:
            if not fiber.ended:
                fiber.cancel()
            # A cancelled caller gets no result, even if the work failed in this very slice.
            fiber.outcome.add_done_callback(asyncio.Future.exception)
        fiber.outcome.result()
        return found.pop()


def _nothing() -> None:
    """Do nothing before the loop runs on."""
