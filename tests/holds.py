"""How long the loop is held: the longest time between two of its turns, as a figure to report.

A figure, never a condition of a test: what else the machine does is in it. So that figures of a
busy machine can still be compared it is measured twice, by the clock and by the processor time of
the loop's own thread, which leaves out what the machine gave to others.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from types import FrameType, TracebackType
from typing import Final

WATCH_SECONDS: Final = 0.002
"""How often the loop's thread is looked at while somebody wants to know what holds it."""


class Holds:
    """Measures inside a `with`, on the running loop.

    :param where: also find out what the loop was doing in the longest hold
    """

    def __init__(self, *, where: bool = False) -> None:
        self.longest_ms = 0.0
        """By the clock."""
        self.longest_busy_ms = 0.0
        """By the processor time of the loop's thread."""
        self.turns = 0
        self.where = ""
        """The stack in the middle of the longest hold, if it was asked for."""
        self._wanted = where
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None
        self._seen = ""

    def __enter__(self) -> Holds:
        self._clock, self._busy = time.perf_counter(), time.thread_time()
        if self._wanted:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
        self._next = self._loop.call_soon(self._turn)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._note()
        self._next.cancel()
        self._over.set()
        if self._watcher is not None:
            self._watcher.join()

    def __str__(self) -> str:
        return (
            f"held {self.longest_busy_ms:7.1f} ms busy, {self.longest_ms:7.1f} ms by the clock,"
            f" {self.turns} turns"
        )

    def _turn(self) -> None:
        self._note()
        self._next = self._loop.call_soon(self._turn)

    def _note(self) -> None:
        clock, busy = time.perf_counter(), time.thread_time()
        self.turns += 1
        self.longest_ms = max(self.longest_ms, (clock - self._clock) * 1000)
        if (busy - self._busy) * 1000 > self.longest_busy_ms:
            self.longest_busy_ms = (busy - self._busy) * 1000
            self.where = self._seen
        self._clock, self._busy, self._seen = clock, busy, ""

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            frame: FrameType | None = sys._current_frames().get(self._thread)
            self._seen = "".join(traceback.format_stack(frame, 8))
