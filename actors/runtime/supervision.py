"""Supervision: restarts failed actors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from pykka import ActorRef

from actors.runtime.actor import Actor
from actors.runtime.asking import stop

A = TypeVar("A", bound=Actor)


class Supervised(Generic[A]):
    """A place in the node for one actor, filled again by another after it failed.

    :param begin: starts an actor for the place
    :param refoldable: True if a fresh actor may take the place: all that the failed one held can be
        read again from the store. If False, its failure is that of the node.
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
        """Start another actor in the place. Return False if that is not allowed, or `RESTARTS` took
        place within `WITHIN_US`."""
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
        """Stop the actor, and leave the place empty from now on. A failure shortly before the stop
        is reported a moment later; an actor started then would never be stopped."""
        self._is_open = False
        await stop(self.ref)
