"""Processes that share one stepped loop. Each of them can stand still while time goes on for the
others, as one does that was sent SIGSTOP, or whose machine was suspended; and each can die.

What a process does is told from what others do by the context that it was begun in: tasks and
callbacks take that with them, and so do the greenlets of scripts (`marked_greenlets`). What the
network and the agreement do on their way belongs to nobody: it has an empty context.
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

from actors.scripts.workers import Turns
from tests.simulation.loop import SteppedLoop

T = TypeVar("T")

_HERE: ContextVar[Process | None] = ContextVar("process", default=None)


class ProcessLoop(SteppedLoop):
    """The loop. Callbacks of a process that stands still are kept for when it goes on."""

    def __init__(self, seed: int, latency: Callable[[], float] | None = None) -> None:
        super().__init__(seed, latency)
        self.standing = 0
        """How many processes stand still."""
        self.on_round: Callable[[], None] = _nothing
        """Called in each round, before anything is done."""

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
        """Take callbacks that were kept."""
        base: Any = self
        base._ready.extend(kept)


def _nothing() -> None:
    """Nobody looks on."""


class Process:
    """One process: what is begun by `begin` is its own, and all that follows from that."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop), "its loop knows of processes"
        self._loop = loop
        self.stands = False
        self.kept: list[Any] = []
        self.dead: asyncio.Future[None] = loop.create_future()
        """Done when it has died: what it does after that nobody hears of."""
        self._context = copy_context()
        self._context.run(_HERE.set, self)

    @property
    def is_dead(self) -> bool:
        """Whether it has died."""
        return self.dead.done()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have it do something."""
        return self._loop.create_task(work, context=self._context.copy())

    def run(self, work: Callable[..., T], *args: Any) -> T:
        """Have it do something at once."""
        return self._context.copy().run(work, *args)

    def pause(self) -> None:
        """It stands still from the next round of the loop on."""
        if not self.stands:
            self.stands = True
            self._loop.standing += 1

    def resume(self) -> None:
        """It goes on, and finds that time has passed."""
        if self.stands:
            self.stands = False
            self._loop.standing -= 1
            kept, self.kept = self.kept, []
            self._loop.go_on(kept)

    def die(self) -> None:
        """It is no more. What is left of it goes on, so that it can be tidied away: whoever has it
        reach others asks before whether it is dead."""
        if not self.is_dead:
            self.dead.set_result(None)
        self.resume()


def here() -> Process | None:
    """The process that is at work; None: none is."""
    return _HERE.get()


@contextmanager
def marked_greenlets() -> Iterator[None]:
    """The greenlets of scripts are those of the process that they were begun in."""
    fine = Turns.worker

    def worker(turns: Turns) -> greenlet:
        made = fine(turns)
        made.gr_context = copy_context()
        return made

    with patch.object(Turns, "worker", worker):
        yield
