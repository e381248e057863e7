"""Requests that are under way together, and are to be done in the order in which they stand."""

from __future__ import annotations

import asyncio


class Row:
    """All of them leave at once, in order, and on one connection they are done so. What has to be
    asked again waits until each of the others was answered or waits likewise. Then the first of
    those leaves, alone, and finds out where to; once it has its outcome all others do.

    What stands before one that was done is not asked again: it has lost its place. One of which a
    part was done has it still.

    :param count: how many there are
    """

    def __init__(self, count: int) -> None:
        self.places = [Place(self, number) for number in range(count)]
        self._under_way = set(range(count))
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """Those that are to be asked again."""
        self._last_done = -1

    async def again(self, number: int) -> bool:
        """As `Place.again`."""
        waits = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._under_way.discard(number)
        self._let_go(all_of_them=False)
        await waits
        return number >= self._last_done

    def done(self, number: int) -> None:
        """As `Place.done`."""
        self._last_done = max(self._last_done, number)

    def over(self, number: int) -> None:
        """As `Place.over`."""
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
            if not waits.done():  # else who waits was cancelled, and is over soon
                waits.set_result(None)


class Place:
    """That of one of them. Made by `Row`, and under way from then on until it is `over`."""

    def __init__(self, row: Row, number: int) -> None:
        self._row = row
        self._number = number

    async def again(self) -> bool:
        """Wait until it may be asked again. False: it can't have its place any more."""
        return await self._row.again(self._number)

    def done(self) -> None:
        """It, or a part of it, was done."""
        self._row.done(self._number)

    def over(self) -> None:
        """It has its outcome, or nobody waits for that any more."""
        self._row.over(self._number)
