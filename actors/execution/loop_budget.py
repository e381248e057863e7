"""Time that many short calls share in one iteration of the loop.

Each is short, but a thousand ready ones are not, and the loop serves all of them before anything
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from actors.execution.scheduler import UserQueues


class LoopBudget:
    """A call that finds the budget spent queues here, by user. The queue comes first in the next
    iteration, up to the budget, so that no call waits behind those that are ready later.

    :param limit_us: time of one iteration (µs)
    """

    def __init__(self, limit_us: int) -> None:
        self.limit_us = limit_us
        self.spent_us = 0
        self._renews = False
        self._lines = UserQueues()

    @property
    def is_spent(self) -> bool:
        """True if the budget of this iteration is used up."""
        return self.spent_us >= self.limit_us

    def spend(self, us: int) -> None:
        """Count time against the budget of this iteration."""
        self.spent_us += us
        # Not at each call: scheduling costs as much as a GET.
        if self.spent_us > self.limit_us >> 2 and not self._renews:
            self._renew_soon()

    def later(self, user: str, call: Callable[[], None]) -> None:
        """Make a short call in a later iteration. :param user: user whose work it is"""
        self._lines.add(user, call)
        if not self._renews:
            self._renew_soon()

    def _renew_soon(self) -> None:
        self._renews = True
        asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renews = False
        self.spent_us = 0
        try:
            while self._lines and not self.is_spent:
                self._lines.pop()()
        finally:
            if self._lines and not self._renews:
                self._renew_soon()
