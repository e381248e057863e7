"""Futures whose callbacks run synchronously, where the result is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Heard = Callable[[asyncio.Future[Any]], None]
"""Callback of a finished reply, successful or not."""


class Reply(asyncio.Future[T]):
    """A future whose callbacks run where it is answered, failed or cancelled.

    A callback of `add_done_callback`, or an awaiting coroutine, runs an iteration of the loop
    later. For an answer that is only written out that iteration costs more than the write. Answers
    of one commit also leave in one write only if all their callbacks run in one iteration.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._sync_callbacks: list[Heard] = []

    def add_callback(self, heard: Heard) -> None:
        """Have `heard` called with this future when it is done, after callbacks registered before.

        An exception of it is raised where the result is set. Only while the future is not done.
        """
        assert not self.done(), "it has been heard of already"
        self._sync_callbacks.append(heard)

    def set_result(self, result: T, /) -> None:
        """Set the answer, and run the callbacks."""
        super().set_result(result)
        self._run_callbacks()

    def set_exception(self, exception: type | BaseException, /) -> None:
        """Fail with an exception, and run the callbacks."""
        super().set_exception(exception)
        self._run_callbacks()

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel: the answer is not wanted. Return False if it is there already."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._run_callbacks()
        return cancelled

    def _run_callbacks(self) -> None:
        hearers, self._sync_callbacks = self._sync_callbacks, []
        for heard in hearers:
            heard(self)
