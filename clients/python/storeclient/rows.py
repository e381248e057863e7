"""Concurrent requests that must be executed in order."""

from __future__ import annotations

import asyncio


class RequestPipeline:
    """A sequence of requests, sent concurrently on one connection, which executes them in order. A
    request to be retried waits until each of the others was answered or waits too. Then the first
    of these is sent alone, and finds the right node; once it has an outcome all others are sent.

    A request before one that was executed is not retried: it has lost its place. A request that was
    executed in part keeps its place.

    :param count: number of requests
    """

    def __init__(self, count: int) -> None:
        self.places = [PendingRow(self, number) for number in range(count)]
        self._under_way = set(range(count))
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """Requests to be retried."""
        self._last_done = -1

    async def again(self, number: int) -> bool:
        """Wait for the retry of a request; see `PendingRow.again`."""
        waits = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._under_way.discard(number)
        self._let_go(all_of_them=False)
        await waits
        return number >= self._last_done

    def done(self, number: int) -> None:
        """Record that a request was executed; see `PendingRow.done`."""
        self._last_done = max(self._last_done, number)

    def over(self, number: int) -> None:
        """End a request; see `PendingRow.over`."""
        self._under_way.discard(number)
        self._waiting.pop(number, None)
        self._let_go(all_of_them=True)

    def _let_go(self, all_of_them: bool) -> None:
        if self._under_way:
            return
        numbers = sorted(self._waiting)
        for number in numbers if all_of_them else numbers[:1]:
            waits = self._waiting.pop(number)
            self._under_way.add(number)
            if not waits.done():  # else the waiting task was cancelled, and calls `over`
                waits.set_result(None)


class PendingRow:
    """Place of one request in a `RequestPipeline`. Pending from its creation until `over`."""

    def __init__(self, row: RequestPipeline, number: int) -> None:
        self._row = row
        self._number = number

    async def again(self) -> bool:
        """Wait until the request may be retried. False: it has lost its place."""
        return await self._row.again(self._number)

    def done(self) -> None:
        """Record that the request, or a part of it, was executed."""
        self._row.done(self._number)

    def over(self) -> None:
        """End the request: it has an outcome, or its caller was cancelled."""
        self._row.over(self._number)
