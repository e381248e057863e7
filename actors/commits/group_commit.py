"""Group commit: commits on their way to the log thread share one write and one sync.

A group costs the same for one commit or fifty: a write and a sync, two thread wake-ups, four
hand-overs of the GIL. So at most one group is out; commits that come meanwhile form the next. While
each loop iteration brings another commit a group waits for more, one slice at most. A lone writer
waits for no other: its group leaves at once when the surface has handled all it read and the loop
has no other callback.

While a group is out the loop yields the GIL to the log thread (`runtime.GilYield`), unless more
commits keep coming: then the loop has work, and once every writer waits it is idle anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from actors.runtime import Runtime
from protocol import limits
from protocol.errors import Busy
from storage.formats.frames import Frame

GATHER_US: Final = limits.SLICE_US
"""Longest wait of a group's first commit for others (µs)."""
FEW: Final = 2
"""Largest group that leaves without another loop iteration, if the one before was no larger. Two: a
publish, and the delivery to a consumer that waited. Clients of larger groups send their next
requests closely after each other, so waiting pays."""


class GroupCommit:
    """Commits that wait for the log, in sequence order.

    :param send: gives a group to the log thread, which answers with `returned` once it is synced,
        or with `roll_back` if the log had no room
    """

    def __init__(self, runtime: Runtime, send: Callable[[list[Frame]], None]) -> None:
        self._loop = runtime.loop
        self._ready = runtime.ready
        self._monotonic_us = runtime.clock.monotonic_us
        self._urgent = runtime.urgent
        self._send = send
        self._waiting: list[Frame] = []
        self._out = 0
        """Number of commits in the group that is at the log; 0: none is out."""
        self._before = 0
        """Number of commits in the group before."""
        self.taken = 0
        """Number of commits that were ever taken."""
        self._gathering: asyncio.Handle | None = None
        """Scheduled look at the group being formed."""
        self._seen = 0
        """Number of waiting commits one loop iteration ago."""
        self._since_us = 0

    @property
    def out(self) -> bool:
        """True while a group is at the log: later commits wait for its return."""
        return self._out > 0

    def add(self, frame: Frame) -> None:
        """Take the next commit. :raises Busy: too many wait already, and this one is not taken"""
        waiting = self._waiting
        if len(waiting) >= limits.MAILBOX:
            raise Busy(f"too many commits wait for the log: the limit is {limits.MAILBOX}")
        waiting.append(frame)
        self.taken += 1
        if self._out:
            # The loop still has requests to serve: its next yield of the GIL is put off.
            if self._urgent is not None:
                self._urgent.postpone(self._monotonic_us())
        elif self._gathering is None:
            self._gather()

    def returned(self) -> None:
        """The log has finished the batch that was out."""
        self._before, self._out = self._out, 0
        if self._urgent is not None:
            self._urgent.end_batch()
        if self._waiting:
            self._gather()

    def roll_back(self) -> None:
        """Drop all commits, out and waiting: they were rolled back."""
        self._waiting.clear()
        # The group at the log reports nothing that counts: its generation is over.
        self._out = 0
        if self._urgent is not None:
            self._urgent.end_batch()

    def send_all(self) -> None:
        """Give the log all that waits, whatever is out: nothing follows it."""
        if self._waiting:
            self._send_waiting()

    def _gather(self) -> None:
        """Begin a batch: it is sent in the first loop iteration that brings no further commit."""
        self._since_us = self._monotonic_us()
        # One that stands alone, after one that did too, is likely to be all there is.
        self._seen = 1 if self._before <= 1 else 0
        self._gathering = self._loop.call_soon(self._check_group)

    def on_turn_end(self) -> None:
        """Send the group now if nothing else can join it in this loop iteration. Called by a
        surface that has handled all it read."""
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

    def _check_group(self) -> None:
        waiting = len(self._waiting)
        # This iteration brought another commit, so the next one may bring more.
        if waiting > self._seen and self._monotonic_us() - self._since_us < GATHER_US:
            self._seen = waiting
            self._gathering = self._loop.call_soon(self._check_group)
            return
        self._gathering = None
        # A roll back or `send_all` may have come since the look was scheduled.
        if waiting and not self._out:
            self._send_waiting()

    def _send_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        # Added up: `send_all` may send beside a group that is out.
        self._out += len(batch)
        self._send(batch)
        if self._urgent is not None:
            self._urgent.begin_batch(self._monotonic_us())
