"""Replies that are heard of where they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Heard = Callable[[asyncio.Future[Any]], None]
"""Hears of a reply that is there, or of why there is none."""


class Reply(asyncio.Future[T]):
    """A future whose hearers are called where it is answered, failed or cancelled.

    What stands with `add_done_callback`, or awaits it, is called a turn of the loop later. For an
    answer that is only written out that turn costs more than the writing, and those who were
    answered together write together only where they all hear of it in one turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._hearers: list[Heard] = []

    def hear(self, heard: Heard) -> None:
        """Have `heard` called with this when it is done, behind those who asked for that before.
        What it raises is raised where the answer is set. Only while it is not done."""
        assert not self.done(), "it has been heard of already"
        self._hearers.append(heard)

    def set_result(self, result: T, /) -> None:
        """Answer."""
        super().set_result(result)
        self._tell()

    def set_exception(self, exception: type | BaseException, /) -> None:
        """Say why there is no answer."""
        super().set_exception(exception)
        self._tell()

    def cancel(self, msg: Any | None = None) -> bool:
        """Nobody wants the answer. False: it is there."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._tell()
        return cancelled

    def _tell(self) -> None:
        hearers, self._hearers = self._hearers, []
        for heard in hearers:
            heard(self)
