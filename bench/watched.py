"""The storenode command with its loop watched: `python -m bench.watched`, as bench/hostile.py runs
it.

A turn of the loop is all that it runs between two looks for input. For each turn that lasts longer
than 5 ms a line is written to standard error: `held`, and the length of the turn, by its thread's
processor time and by the clock. If a turn lasts 0.1 s, stacks precede that line. A thread of
Python's own writes them, as soon as a call into C lets it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from asyncio import BaseEventLoop
from collections.abc import Callable
from typing import Any, Final

TOLD_SECONDS: Final = 0.005
"""Length of a turn from which on it is reported, seconds."""
STACKS_SECONDS: Final = 0.1
HELD: Final = "held"
STACK: Final = "stack, most recent call first:"


class Turns:
    """Times the turns of a loop as long as that runs.

    :param loop: of the current thread
    """

    def __init__(self, loop: Any) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._clock, self._busy = time.perf_counter(), time.thread_time()
        self._is_waiting = False
        self._select: Callable[[float | None], Any] = loop._selector.select
        loop._selector.select = self.select
        threading.Thread(target=self._look, name="turns", daemon=True).start()

    def select(self, timeout: float | None = None) -> Any:
        """Report the turn that has ended if it was long, and wait for input."""
        late, held = time.perf_counter() - self._clock, time.thread_time() - self._busy
        if late > TOLD_SECONDS:
            _tell(f"{HELD} {held * 1000:.1f} {late * 1000:.1f}")
        self._is_waiting = True
        found = self._select(timeout)
        self._clock, self._busy = time.perf_counter(), time.thread_time()
        self._is_waiting = False
        return found

    def _look(self) -> None:
        while not self._loop.is_closed():
            time.sleep(STACKS_SECONDS)
            if not self._is_waiting and time.perf_counter() - self._clock > STACKS_SECONDS:
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
        loop.call_soon(Turns, loop)
        run(loop)

    asyncio.BaseEventLoop.run_forever = run_forever  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    watch()
    from surfaces.command.main import main

    sys.exit(main(sys.argv[1:]))
