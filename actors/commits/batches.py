"""Commits on their way to the log, gathered into batches.

A batch costs the same whether it holds one commit or fifty: a write and a sync, two wake-ups, and
the interpreter lock handed over and back four times. So at most one is out, and what is committed
meanwhile makes up the next. And while each turn of the loop brings another commit, a batch waits
for more of them, for as long as a slice: whoever is the only writer waits for nobody. Not even for
the next turn, where the surface says that it has done all that it read and the loop has nothing
else to call: who could commit in this turn has.

While a batch is out the loop lets the log's thread in now and then (`runtime.Urgent`), but not as
long as others commit: then it has work for writers, and when all of them wait it is idle anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from actors.runtime import Runtime
from protocol import limits
from protocol.errors import Busy
from storage.frames import Frame

GATHER_US: Final = limits.SLICE_US
"""How long the first commit of a batch waits for others, at most."""
FEW: Final = 2
"""Commits that go without waiting for the next turn, after a batch of no more: a message that is
published, and handed out to whoever waited for it. Where there are more, their clients come again
one closely after the other."""


class Batches:
    """What waits for the log, in the order of the sequences.

    :param send: gives a batch to the log; when it is durable, `returned` is called, and when the
        log had no room for it, `withdraw`
    """

    def __init__(self, runtime: Runtime, send: Callable[[list[Frame]], None]) -> None:
        self._loop = runtime.loop
        self._ready = runtime.ready
        self._monotonic_us = runtime.clock.monotonic_us
        self._urgent = runtime.urgent
        self._send = send
        self._waiting: list[Frame] = []
        self._out = 0
        """How many commits the batch has that is at the log; 0: none is."""
        self._before = 0
        """How many the one before had."""
        self.taken = 0
        """Number of commits that were ever taken."""
        self._gathering: asyncio.Handle | None = None
        """The next look at what waits, while a batch is gathered."""
        self._seen = 0
        """How many were waiting a turn ago."""
        self._since_us = 0

    @property
    def out(self) -> bool:
        """Whether one is at the log: what is committed now waits for its return."""
        return self._out > 0

    def add(self, frame: Frame) -> None:
        """Take the next commit. :raises Busy: too many wait already, and this one is not taken"""
        waiting = self._waiting
        if len(waiting) >= limits.MAILBOX:
            raise Busy(f"the log has {limits.MAILBOX} commits waiting")
        waiting.append(frame)
        self.taken += 1
        if self._out:
            if self._urgent is not None:
                self._urgent.postpone(self._monotonic_us())
        elif self._gathering is None:
            self._gather()

    def returned(self) -> None:
        """The log has finished the batch that was out."""
        self._before, self._out = self._out, 0
        if self._urgent is not None:
            self._urgent.settled()
        if self._waiting:
            self._gather()

    def withdraw(self) -> None:
        """What is out and what waits never happened."""
        self._waiting.clear()
        self._out = 0
        if self._urgent is not None:
            self._urgent.settled()

    def send_all(self) -> None:
        """Give the log all that waits, whatever is out: nothing follows it."""
        if self._waiting:
            self._send_waiting()

    def _gather(self) -> None:
        """Begin a batch: it is sent in the first turn that brings no further commit."""
        self._since_us = self._monotonic_us()
        # One that stands alone, after one that did too, is likely to be all there is.
        self._seen = 1 if self._before <= 1 else 0
        self._gathering = self._loop.call_soon(self._look)

    def turn_ends(self) -> None:
        """Who calls has done all that it will in this turn of the loop. Where nobody else is going
        to do anything in it, what waits goes now."""
        gathering = self._gathering
        if (
            gathering is not None
            and self._before <= FEW
            and len(self._waiting) <= FEW
            and self._ready() == 1  # the look at what waits
        ):
            gathering.cancel()
            self._gathering = None
            if self._waiting and not self._out:
                self._send_waiting()

    def _look(self) -> None:
        waiting = len(self._waiting)
        if waiting > self._seen and self._monotonic_us() - self._since_us < GATHER_US:
            self._seen = waiting
            self._gathering = self._loop.call_soon(self._look)
            return
        self._gathering = None
        if waiting and not self._out:
            self._send_waiting()

    def _send_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        self._out += len(batch)
        self._send(batch)
        if self._urgent is not None:
            self._urgent.handed_over(self._monotonic_us())
