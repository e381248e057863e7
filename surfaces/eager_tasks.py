"""Eager tasks: coroutines begin at once, and a task is made only of what is left of them.

To make a task and have its turn come costs more than a short request does, and most of these wait
for nothing. (`asyncio.eager_task_factory` does so from Python 3.12 on.)
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a coroutine up to where it first waits. What is left of it, for a task; None: nothing is,
    it has ended. Raises what it raises.

    Until it first waits it is in no task, so a time limit of asyncio's has no place there.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _Rest(work, awaited)


class _Rest(Coroutine[Any, Any, None]):
    """What is left of a coroutine that waits for something, which it has said already."""

    def __init__(self, work: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited
        self._said = False

    def send(self, value: Any) -> Any:
        """Say what it waits for; from then on as the coroutine itself."""
        if self._said:
            return self._work.send(value)
        self._said = True
        return self._awaited

    def throw(self, error: Any, /, *more: Any) -> Any:
        """Have it go on with an error."""
        self._said = True
        return self._work.throw(error, *more)

    def close(self) -> None:
        """End it where it waits."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("what is left of a coroutine is for a task")
