"""Many small calls made few: what is asked while a batch is under way goes with the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Batches(Generic[Item, Outcome]):
    """Sends items in the order they are put, one batch after the other, at most so many together.

    A lone item waits for nobody: batches grow by themselves as long as the one before is under way.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome | Exception]]],
        most: int,
        linger: float = 0.0,
    ) -> None:
        """:param send: answers an outcome for each item, or what it failed with; what `send` itself
            raises is the failure of all
        :param linger: seconds to wait for company before a batch leaves that is not full
        """
        self._send = send
        self._most = most
        self._linger = linger
        self._waiting: deque[tuple[Item, asyncio.Future[Outcome]]] = deque()
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def put(self, item: Item) -> asyncio.Future[Outcome]:
        """Send an item with the next batch; its outcome, or what it failed with."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        if len(self._waiting) >= self._most:
            self._full.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return outcome

    async def drained(self) -> None:
        """Wait until all that has been put has its outcome."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                count = min(self._most, len(self._waiting))
                await self._send_batch([self._waiting.popleft() for _ in range(count)])
        finally:
            self._task = None
            for _, outcome in self._waiting:  # only when this task was cancelled
                outcome.cancel()
            self._waiting.clear()

    async def _gather(self) -> None:
        """Wait for company."""
        if self._linger:
            self._full.clear()
            if len(self._waiting) < self._most:
                try:
                    async with asyncio.timeout(self._linger):
                        await self._full.wait()
                except TimeoutError:
                    pass

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        found: Sequence[Outcome | Exception]
        try:
            found = await self._send([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, outcome in batch:
                outcome.cancel()
            raise
        except Exception as error:
            found = [error] * len(batch)
        for (_, outcome), one in zip(batch, found, strict=True):
            if outcome.done():
                continue
            if isinstance(one, Exception):
                outcome.set_exception(one)
            else:
                outcome.set_result(one)
