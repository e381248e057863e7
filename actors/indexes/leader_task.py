"""Work of the leader on indexes made of segments: on one at a time, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from actors.commits.committer import Committer
from actors.runtime import Runtime
from storage.indexes import index_rows
from storage.indexes.entries import FAILED, Index


class LeaderTask:
    """Task that works on one index, chosen in turn from those that are declared.

    :param wants: returns True if there is work on an index
    :param work: works on it. Errors are reported under the name of its function
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        wants: Callable[[Index], bool],
        work: Callable[[Index], Coroutine[Any, Any, None]],
    ) -> None:
        self._runtime, self._committer = runtime, committer
        self._wants, self._work = wants, work
        self._task: asyncio.Task[None] | None = None
        self._looked = 0
        """Declarations that were looked at."""

    @property
    def is_running(self) -> bool:
        """True while an index is worked on."""
        return self._task is not None

    def start(self, declared: list[bytes]) -> None:
        """Start work if one of the next few indexes wants it, and this node may write.

        :param declared: keys of the declarations
        """
        if self._task is not None or self._committer.not_writable() is not None:
            return
        engine = self._committer.ledger.state.engine
        for _ in range(min(len(declared), _LOOKED)):
            self._looked += 1
            key = declared[self._looked % len(declared)]
            value = engine.get(key)
            index = None if value is None else index_rows.read(key, value)
            if index is None or not index.is_complete or index.state == FAILED:
                continue
            if self._wants(index):
                self._task = self._runtime.loop.create_task(self._work(index))
                self._task.add_done_callback(self._ended)
                return

    def close(self) -> asyncio.Task[None] | None:
        """End the work: nothing of it is kept. Return its task, while that ends."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._runtime.report_error(self._work.__qualname__, error)


_LOOKED: Final = 16
"""Indexes that are looked at in one step."""
