"""Who takes the place of an actor that failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from pykka import ActorRef

from actors.runtime.actor import Actor
from actors.runtime.asking import stop

A = TypeVar("A", bound=Actor)


class Supervised(Generic[A]):
    """A place in the node that an actor fills, and that another one fills after it failed.

    :param begin: starts an actor for the place
    :param refoldable: whether a fresh actor may take the place; it may when all the failed one held
        can be had again from the store. Where it may not, the failure is the node's.
    """

    RESTARTS = 5
    WITHIN_US = 60_000_000

    def __init__(self, begin: Callable[[], ActorRef[A]], *, refoldable: bool) -> None:
        self._begin = begin
        self._refoldable = refoldable
        self._failures_us: deque[int] = deque(maxlen=self.RESTARTS)
        self._is_open = True
        self.ref = begin()

    def restart(self, now_us: int) -> bool:
        """Fill the place again. False when it must not be any more, or has been too often of
        late."""
        often = (
            len(self._failures_us) == self.RESTARTS
            and now_us - self._failures_us[0] < self.WITHIN_US
        )
        if not self._refoldable or not self._is_open or often:
            return False
        self._failures_us.append(now_us)
        self.ref = self._begin()
        return True

    async def stop(self) -> None:
        """Stop the actor in the place, which nobody fills from now on: one that failed before it
        stopped is reported a moment later, when whoever took its place would be stopped by none."""
        self._is_open = False
        await stop(self.ref)
