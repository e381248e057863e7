"""Tests of the simulated network: faults by seed and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.links import VERSION, Acknowledge, Hello, Link, LinkClosed
from tests.simulation.links import LinksModel, ModelLinks, Weather
from tests.simulation.loop import run


class Pair:
    def __init__(self, seed: int, weather: Weather | None = None) -> None:
        self.net = LinksModel(seed, weather)
        self.came: asyncio.Queue[Link] = asyncio.Queue()
        self.a, self.b = self._node("a"), self._node("b")

    def _node(self, name: str) -> ModelLinks:
        return self.net.node(
            name, lambda: Hello(VERSION, "s", f"node-{name}"), f"f{name}", lambda fp: fp, self._keep
        )

    async def _keep(self, link: Link) -> None:
        self.came.put_nowait(link)
        await asyncio.Event().wait()

    async def linked(self) -> tuple[Link, Link]:
        mine = await self.a.connect("b", ["fb"])
        return mine, await self.came.get()


def play(scenario: Callable[[Pair], Awaitable[None]], *args: object, seed: int = 1) -> None:
    async def main() -> None:
        await scenario(Pair(seed, *args))  # type: ignore[arg-type]

    run(main(), seed)


def said(count: int) -> list[Acknowledge]:
    return [Acknowledge(1, n, 0) for n in range(count)]


async def heard(link: Link) -> list[object]:
    found: list[object] = []
    try:
        while True:
            found.append(await link.receive())
    except LinkClosed:
        return found


def test_the_same_seed_is_the_same_network() -> None:
    async def story(seed: int) -> list[tuple[float, int]]:
        pair = Pair(seed, Weather(breaks=0.01))
        told: list[tuple[float, int]] = []
        for _ in range(20):
            try:
                mine, theirs = await pair.linked()
            except LinkClosed:
                continue
            for one in said(50):
                mine.send(one)
            mine.close()
            found = await heard(theirs)
            told.append((asyncio.get_running_loop().time(), len(found)))
        return told

    first, again, other = (run(story(seed), seed) for seed in (3, 3, 4))
    assert first == again != other
    assert {count for _, count in first} - {50}, "no link ever broke"


def test_a_link_that_breaks_loses_an_end_and_no_middle() -> None:
    for seed in range(30):

        async def scenario(pair: Pair) -> None:
            try:
                mine, theirs = await pair.linked()
            except LinkClosed:
                return
            for one in said(100):
                mine.send(one)
            mine.close()
            found = await heard(theirs)
            assert found == said(100)[: len(found)]

        play(scenario, Weather(delays=(0, 1), breaks=0.01), seed=seed)


def test_a_cut_has_a_direction_and_loses_nothing() -> None:
    async def scenario(pair: Pair) -> None:
        mine, theirs = await pair.linked()
        pair.net.cut("a", "b")
        mine.send(said(1)[0])
        theirs.send(said(1)[0])
        assert await mine.receive() == said(1)[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await theirs.receive()
        pair.net.mend("a", "b")
        assert await theirs.receive() == said(1)[0]

    play(scenario)


def test_who_sends_into_a_cut_for_long_gives_up_and_who_hears_nothing_does_not_know() -> None:
    async def scenario(pair: Pair) -> None:
        mine, theirs = await pair.linked()
        pair.net.cut("a", "b")
        mine.send(said(1)[0])
        with pytest.raises(LinkClosed, match="reads nothing"):
            await mine.receive()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1_000):
                await theirs.receive()
        with pytest.raises(LinkClosed, match="in time"):
            await pair.a.connect("b", ["fb"])
        pair.net.mend("a", "b")
        with pytest.raises(LinkClosed):
            await theirs.receive()

    play(scenario)


def test_a_node_that_is_paused_hears_all_of_it_later() -> None:
    async def scenario(pair: Pair) -> None:
        mine, theirs = await pair.linked()
        pair.net.pause("b")
        for one in said(5):
            mine.send(one)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await theirs.receive()
        pair.net.resume("b")
        assert [await theirs.receive() for _ in range(5)] == said(5)

    play(scenario)


def test_a_node_that_is_gone_takes_its_links_with_it() -> None:
    async def scenario(pair: Pair) -> None:
        mine, _ = await pair.linked()
        pair.net.leave("b")
        with pytest.raises(LinkClosed):
            await mine.receive()
        with pytest.raises(LinkClosed, match="nobody"):
            await pair.a.connect("b", ["fb"])

    play(scenario)
