"""The storenode command with its loop watched: `python -m bench.watched`, as bench/hostile.py runs
it.

A beat every 20 ms, and a line on standard error if the next one is late: `held`, and how long the
loop was held, by its thread's processor time and by the clock. If a beat is 0.1 s late, stacks
precede that line. A thread of Python's own writes them, as soon as a call into C lets it.
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
"""Delay of a beat from which on it is reported, seconds."""
STACKS_SECONDS: Final = 0.1
HELD: Final = "held"
STACK: Final = "stack, most recent call first:"


class Beat:
    """Beats on a loop as long as that runs."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._clock, self._busy = time.perf_counter(), time.thread_time()
        threading.Thread(target=self._look, name="beat", daemon=True).start()
        self.next()

    def next(self) -> None:
        """Report this beat if it is late, and wait for the next one."""
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
    """Report in a single write: a thread of the node logs to the same stream."""
    os.write(sys.stderr.fileno(), f"{text}\n".encode())


def watch() -> None:
    """Watch every loop of this process that starts to run."""
    run = BaseEventLoop.run_forever

    def run_forever(loop: BaseEventLoop) -> None:
        loop.call_soon(Beat, loop)
        run(loop)

    asyncio.BaseEventLoop.run_forever = run_forever  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    watch()
    from surfaces.command.main import main

    sys.exit(main(sys.argv[1:]))
