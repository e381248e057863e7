"""The command with its loop watched: `python -m bench.watched`, as bench/hostile.py runs it.

A beat every 20 ms, and a line on standard error where the next one comes late: `held`, and how long
the loop was held, by its thread's processor time and by the clock. Stacks stand before that line of
a beat that is 0.1 s late. A thread of Python's own writes them, as soon as a call into C lets it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from asyncio import AbstractEventLoop, BaseEventLoop
from typing import Final

BEAT_SECONDS: Final = 0.02
TOLD_SECONDS: Final = 0.02
"""A beat that is late by less is not told."""
STACKS_SECONDS: Final = 0.1
HELD: Final = "held"
STACK: Final = "stack, most recent call first:"


class Beat:
    """Beats on a loop for as long as that runs."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._clock, self._busy = time.perf_counter(), time.thread_time()
        threading.Thread(target=self._look, name="beat", daemon=True).start()
        self.next()

    def next(self) -> None:
        """Tell if this one is late, and wait for the next one."""
        clock, busy = time.perf_counter(), time.thread_time()
        late, held = clock - self._clock - BEAT_SECONDS, busy - self._busy
        if late > TOLD_SECONDS:
            _tell(f"{HELD} {held * 1000:.1f} {late * 1000:.1f}")
        self._clock, self._busy = clock, busy
        self._loop.call_later(BEAT_SECONDS, self.next)

    def _look(self) -> None:
        while not self._loop.is_closed():
            time.sleep(STACKS_SECONDS)
            if time.perf_counter() - self._clock > STACKS_SECONDS:
                found = traceback.extract_stack(sys._current_frames()[self._thread])
                lines = [f'  File "{at.filename}", line {at.lineno} in {at.name}' for at in found]
                _tell("\n".join([STACK, *reversed(lines)]))


def _tell(text: str) -> None:
    """In one write: the node's log is written to the same, by a thread of its own."""
    os.write(sys.stderr.fileno(), f"{text}\n".encode())


def watch() -> None:
    """Have every loop of this process watched that begins to run."""
    run = BaseEventLoop.run_forever

    def run_forever(loop: BaseEventLoop) -> None:
        loop.call_soon(Beat, loop)
        run(loop)

    asyncio.BaseEventLoop.run_forever = run_forever  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    watch()
    from surfaces.command.main import main

    sys.exit(main(sys.argv[1:]))
