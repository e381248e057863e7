"""Blocking twins of what iterates: whoever is interrupted while it waits hears of that and of
nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

import unasync
from storeclient import Closed, RecordId
from storeclient.blocking import Mirror
from storeclient.twins import Twin

T = TypeVar("T")


class Numbers:
    """What is iterated over: it has something left to do where it is cancelled."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        """Whether its reader waits for more than there is."""
        self.closed = False

    async def each(self) -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
            self.waits.set()
            try:
                await asyncio.sleep(3_600)
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
        finally:
            self.closed = True


class Interrupted(Future[T]):
    """As one whose thread is interrupted while it waits."""

    def __init__(self, work: Future[T], waits: threading.Event) -> None:
        super().__init__()
        self._work, self._waits = work, waits

    def result(self, timeout: float | None = None) -> T:
        while not self._work.done():
            if self._waits.is_set():
                self._waits.clear()
                raise KeyboardInterrupt
            self._waits.wait(0.01)
        return self._work.result(timeout)

    def cancel(self) -> bool:
        return self._work.cancel()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    found = asyncio.new_event_loop()
    thread = threading.Thread(target=found.run_forever)
    thread.start()
    yield found
    found.call_soon_threadsafe(found.stop)
    thread.join()
    found.close()


def test_the_blocking_client_is_the_one_that_is_generated() -> None:
    assert unasync.generate() == unasync.TARGET.read_text("utf-8")


def test_who_is_interrupted_has_it_end_and_then_closes_it(
    loop: asyncio.AbstractEventLoop,
) -> None:
    for _ in range(20):
        numbers, heard = Numbers(), list[int]()

        def submit(work: Coroutine[Any, Any, T], numbers: Numbers = numbers) -> Future[T]:
            return Interrupted(asyncio.run_coroutine_threadsafe(work, loop), numbers.waits)

        with pytest.raises(KeyboardInterrupt):
            for number in Twin(numbers, submit)._each(numbers.each()):
                heard.append(number)
        assert heard == [0, 1, 2] and numbers.closed


def test_who_leaves_has_it_closed(loop: asyncio.AbstractEventLoop) -> None:
    numbers = Numbers()
    twin = Twin(numbers, lambda work: asyncio.run_coroutine_threadsafe(work, loop))
    for number in (each := twin._each(numbers.each())):
        assert number == 0
        break
    each.close()  # type: ignore[attr-defined]
    assert numbers.closed


def test_one_that_is_collected_in_the_thread_of_its_loop_is_closed_there(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """As the collector does, which may run anywhere: that thread can't wait for itself."""
    numbers = Numbers()
    twin = Twin(numbers, lambda work: asyncio.run_coroutine_threadsafe(work, loop))
    each = twin._each(numbers.each())
    assert next(each) == 0
    ended = threading.Event()

    def collect() -> None:
        each.close()  # type: ignore[attr-defined]
        ended.set()

    loop.call_soon_threadsafe(collect)
    assert ended.wait(10)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
    assert numbers.closed


def test_a_mirror_is_iterated_over_as_of_one_commit() -> None:
    """Whatever is committed meanwhile."""

    class Rows(dict[RecordId, dict[str, Any]]):
        lock = threading.Lock()

    twin = Rows({RecordId("t", n): {"n": n} for n in range(3)})
    mirror = Mirror(twin, lambda work: Future())  # type: ignore[arg-type]
    pairs, values = iter(mirror.items()), iter(mirror.values())
    assert next(pairs) == (RecordId("t", 0), {"n": 0}) and next(values) == {"n": 0}
    equal = mirror.items()
    twin.clear()
    twin[RecordId("t", 9)] = {"n": 9}
    assert [row["n"] for _, row in pairs] == [row["n"] for row in values] == [1, 2]
    assert len(equal) == 3 and mirror == {RecordId("t", 9): {"n": 9}}


def test_a_client_that_was_closed_meanwhile_has_closed_it() -> None:
    def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
        work.close()
        raise Closed("the client has been closed")

    with pytest.raises(Closed):
        next(iter(Twin(None, submit)._each(Numbers().each())))
