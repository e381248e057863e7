"""Processes that share one stepped loop. Each can be paused while time goes on for the others
(SIGSTOP, or a suspended machine), and each can die.

Work belongs to the process whose context it was started in: tasks and callbacks inherit the
context, and so do the greenlets of scripts (`marked_greenlets`). Messages in transit, in the
network or to etcd, belong to no process: they have an empty context.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar
from unittest.mock import patch

from greenlet import greenlet

from actors.execution.scheduler import FiberScheduler
from tests.simulation.loop import SteppedLoop

T = TypeVar("T")

_HERE: ContextVar[Process | None] = ContextVar("process", default=None)


class ProcessLoop(SteppedLoop):
    """The loop. Callbacks of a paused process are kept until it resumes."""

    def __init__(self, seed: int, latency: Callable[[], float] | None = None) -> None:
        super().__init__(seed, latency)
        self.standing = 0
        """Number of paused processes."""
        self.on_round: Callable[[], None] = _nothing
        """Called in each round, before any callback runs."""

    def _process_events(self, events: list[Any]) -> None:
        super()._process_events(events)
        self.on_round()
        if not self.standing:
            return
        base: Any = self  # asyncio's own field
        ready, base._ready = base._ready, deque[Any]()
        for handle in ready:
            process = None if handle._context is None else handle._context.get(_HERE)
            if process is not None and process.stands:
                process.kept.append(handle)
            else:
                base._ready.append(handle)

    def go_on(self, kept: list[Any]) -> None:
        """Schedule callbacks that were kept."""
        base: Any = self
        base._ready.extend(kept)


def _nothing() -> None:
    """Do nothing: the default of `on_round`."""


class Process:
    """A process: owns everything started by `begin`, and all that follows from it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop), "its loop knows of processes"
        self._loop = loop
        self.stands = False
        self.kept: list[Any] = []
        self.dead: asyncio.Future[None] = loop.create_future()
        """Done once it has died; later output of it is ignored."""
        self._context = copy_context()
        self._context.run(_HERE.set, self)

    @property
    def is_dead(self) -> bool:
        return self.dead.done()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self._loop.create_task(work, context=self._context.copy())

    def run(self, work: Callable[..., T], *args: Any) -> T:
        return self._context.copy().run(work, *args)

    def pause(self) -> None:
        """Pause the process, from the next round of the loop on."""
        if not self.stands:
            self.stands = True
            self._loop.standing += 1

    def resume(self) -> None:
        """Resume the process; its clock shows the time that has passed."""
        if self.stands:
            self.stands = False
            self._loop.standing -= 1
            kept, self.kept = self.kept, []
            self._loop.go_on(kept)

    def die(self) -> None:
        """End the process. Remaining tasks run on for their cleanup.

        Code that sends on its behalf checks `is_dead` first.
        """
        if not self.is_dead:
            self.dead.set_result(None)
        self.resume()


def here() -> Process | None:
    """Return the process that runs now; None: none does."""
    return _HERE.get()


@contextmanager
def marked_greenlets() -> Iterator[None]:
    """Assign the greenlets of scripts to the process that started them."""
    fine = FiberScheduler.worker

    def worker(turns: FiberScheduler) -> greenlet:
        made = fine(turns)
        made.gr_context = copy_context()
        return made

    with patch.object(FiberScheduler, "worker", worker):
        yield
