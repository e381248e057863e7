"""Timeouts of a peer: for a complete frame, for reading responses, for reading the last message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from protocol import limits
from protocol.conversation import Conversation
from surfaces.wire.write_buffer import WireWriteBuffer

LINGER_SECONDS: Final = 2
"""Seconds that a connection stays half-closed so that its last message can be read. Closing at once
would answer bytes still under way with a reset, which can overtake that message."""


class FrameTime:
    """Timer of an incomplete frame.

    :param talk: conversation that receives the frame
    :param late: called when the frame is not complete in time
    """

    def __init__(self, talk: Conversation, late: Callable[[], None]) -> None:
        self._talk = talk
        self._late = late
        self._loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        """Runs while a frame is incomplete."""

    def start(self) -> None:
        """Start the timer if a frame is incomplete and it does not run yet."""
        awaited = self._talk.awaited
        if awaited and self.timer is None:
            seconds = limits.BODY_SECONDS + awaited / limits.BODY_SECONDS_BYTES
            self.timer = self._loop.call_later(seconds, self._over)

    def _over(self) -> None:
        self.timer = None
        self._late()

    def stop(self) -> None:
        """Stop the timer: the frame is complete, or not awaited any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class TakingTime:
    """Time limit of a peer with unread responses, counted from its last progress.

    :param outgoing: write buffer of the peer
    """

    def __init__(self, outgoing: WireWriteBuffer) -> None:
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self.runs = False
        """True while the peer is checked periodically."""
        self._took = 0
        self._took_at = 0.0

    def start(self) -> bool:
        """Start; return False if it was running already."""
        if self.runs:
            return False
        self.runs = True
        self._took, self._took_at = self._outgoing.taken, self._loop.time()
        return True

    def ran_out(self) -> bool:
        """True if the peer has read nothing for WRITE_SECONDS. Progress restarts the time."""
        taken = self._outgoing.taken
        if taken != self._took:
            self._took, self._took_at = taken, self._loop.time()
            return False
        return self._loop.time() - self._took_at >= limits.WRITE_SECONDS


class Linger:
    """Aborts a half-closed connection when its time is over, or when the peer makes no more
    progress.

    :param outgoing: write buffer of the peer
    """

    def __init__(self, outgoing: WireWriteBuffer) -> None:
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start after the last message."""
        waiting = self._outgoing.unsent > 0
        seconds = limits.WRITE_SECONDS if waiting else LINGER_SECONDS
        judge = partial(self._judge, self._outgoing.taken, waiting)
        self._timer = self._loop.call_later(seconds, judge)

    def _judge(self, taken_before: int, waited: bool) -> None:
        if waited and self._outgoing.taken > taken_before:
            self.start()
        else:
            self._outgoing.transport.abort()

    def stop(self) -> None:
        """Stop: the connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
