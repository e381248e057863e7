"""Batching: many small calls become few requests. Items put while a batch is sent join the next
one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Batches(Generic[Item, Outcome]):
    """Sends items in order, one batch after the other, up to `most` items each.

    A single item does not wait: batches fill by themselves while the previous one is sent.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome | Exception]]],
        most: int,
        linger: float = 0.0,
    ) -> None:
        """:param send: returns an outcome or exception for each item; if it raises, all items fail
        :param linger: seconds that an incomplete batch waits for more items
        """
        self._send = send
        self._most = most
        self._linger = linger
        self._waiting: deque[tuple[Item, asyncio.Future[Outcome]]] = deque()
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def put(self, item: Item) -> asyncio.Future[Outcome]:
        """Add an item to the next batch. Return a future of its outcome."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        if len(self._waiting) >= self._most:
            self._full.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return outcome

    async def drained(self) -> None:
        """Wait until all items have an outcome."""
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
        """Wait for more items."""
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
