"""Timeouts of a peer: for a frame to come whole, to take answers, to read the last word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from protocol import limits
from protocol.conversation import Conversation
from surfaces.wire.outgoing import Outgoing

LINGER_SECONDS: Final = 2
"""How long a connection that has been told its last word stays open for it to be read. Closing at
once would answer what the peer is still sending with a reset, which can overtake that word."""


class FrameTime:
    """A frame that has begun to come has a time to be whole.

    :param talk: what it comes to
    :param late: called when it is not
    """

    def __init__(self, talk: Conversation, late: Callable[[], None]) -> None:
        self._talk = talk
        self._late = late
        self._loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        """Runs while one is awaited."""

    def begin(self) -> None:
        """It runs now, if one has begun and it does not yet."""
        awaited = self._talk.awaited
        if awaited and self.timer is None:
            seconds = limits.BODY_SECONDS + awaited / limits.BODY_SECONDS_BYTES
            self.timer = self._loop.call_later(seconds, self._over)

    def _over(self) -> None:
        self.timer = None
        self._late()

    def stop(self) -> None:
        """It is whole, or not awaited any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class TakingTime:
    """A peer that has answers to take has a time to take some, from when it last did.

    :param outgoing: what there is to take
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self.runs = False
        """Whether somebody looks, now and then, whether it is over."""
        self._took = 0
        self._took_at = 0.0

    def begin(self) -> bool:
        """It runs from now on; False: it did already."""
        if self.runs:
            return False
        self.runs = True
        self._took, self._took_at = self._outgoing.taken, self._loop.time()
        return True

    def ran_out(self) -> bool:
        """Whether the peer has taken nothing for as long as it may. If it has taken some, its time
        begins anew."""
        taken = self._outgoing.taken
        if taken != self._took:
            self._took, self._took_at = taken, self._loop.time()
            return False
        return self._loop.time() - self._took_at >= limits.WRITE_SECONDS


class Linger:
    """Cuts the connection when its time is over, or when the peer takes nothing more.

    :param outgoing: what there is to take
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The last word is said."""
        waiting = self._outgoing.unsent > 0
        seconds = limits.WRITE_SECONDS if waiting else LINGER_SECONDS
        judge = partial(self._judge, self._outgoing.taken, waiting)
        self._timer = self._loop.call_later(seconds, judge)

    def _judge(self, taken_before: int, waited: bool) -> None:
        if waited and self._outgoing.taken > taken_before:
            self.begin()
        else:
            self._outgoing.transport.abort()

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
