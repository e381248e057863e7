"""The command with its loop watched: `python -m bench.watched`, as bench/hostile.py runs it.

A beat every 20 ms, and a line on standard error where the next one comes late: `held`, and how long
the loop was held, by its thread's processor time and by the clock. Stacks stand before that line of
a beat that is 0.1 s late. A thread of C writes them, which needs nothing that the loop holds.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import time
from asyncio import AbstractEventLoop, BaseEventLoop
from typing import Final

BEAT_SECONDS: Final = 0.02
TOLD_SECONDS: Final = 0.02
"""A beat that is late by less is not told."""
STACKS_SECONDS: Final = 0.1
HELD: Final = "held"


class Beat:
    """Beats on a loop for as long as that runs."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._clock, self._busy = time.perf_counter(), time.thread_time()
        self.next()

    def next(self) -> None:
        """Tell if this one is late, and wait for the next one."""
        faulthandler.cancel_dump_traceback_later()
        clock, busy = time.perf_counter(), time.thread_time()
        late, held = clock - self._clock - BEAT_SECONDS, busy - self._busy
        if late > TOLD_SECONDS:
            print(HELD, f"{held * 1000:.1f} {late * 1000:.1f}", file=sys.stderr, flush=True)
        self._clock, self._busy = clock, busy
        faulthandler.dump_traceback_later(STACKS_SECONDS, repeat=True)
        self._loop.call_later(BEAT_SECONDS, self.next)


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
