"""Eager tasks: a coroutine starts at once, and becomes a task only if it blocks.

Making and scheduling a task costs more than a short request, and most requests never block.
(`asyncio.eager_task_factory` does the same from Python 3.12 on.)
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


def start(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a coroutine up to its first await. Return the remainder, to be run as a task, or None if
    it has ended. Raises the coroutine's own exceptions.

    Up to its first await it runs in no task, so asyncio timeouts must not be used there.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _Rest(work, awaited)


class _Rest(Coroutine[Any, Any, None]):
    """Remainder of a suspended coroutine, whose first awaitable has already been yielded."""

    def __init__(self, work: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited
        self._said = False

    def send(self, value: Any) -> Any:
        """Yield the pending awaitable first, then resume the coroutine as usual."""
        if self._said:
            return self._work.send(value)
        self._said = True
        return self._awaited

    def throw(self, error: Any, /, *more: Any) -> Any:
        """Throw an exception into the coroutine."""
        self._said = True
        return self._work.throw(error, *more)

    def close(self) -> None:
        """Close the coroutine at its await."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("what is left of a coroutine is for a task")
