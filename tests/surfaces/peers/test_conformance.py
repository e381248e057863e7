"""What a link is, tried on real ones and on the model of the simulation alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from protocol import limits
from protocol.errors import TooLarge
from protocol.links import (
    VERSION,
    Acknowledge,
    Attach,
    Frames,
    Hello,
    Link,
    LinkClosed,
    Links,
    NotKnown,
    Part,
    Redeem,
    Redeemed,
)
from tests.logbook import Logbook
from tests.simulation.links import LinksModel, ModelLinks
from tests.simulation.loop import run
from tests.surfaces.peers.parts import STORE, FakePeering, at, identity, listening

ATTACH = Attach([(1, 7, b"x" * 16)], 7, 7, 1)


@dataclass
class World:
    """Two nodes that know each other: `a` dials, `b` is at `address` and has `pin`.

    :ivar accepted: links that have come to `b`
    :ivar forget: makes one of both trust the other no more
    """

    links: Links
    address: str
    pin: str
    accepted: asyncio.Queue[Link]
    forget: Callable[[str], None]
    as_store: Callable[[str], None]

    async def linked(self) -> tuple[Link, Link]:
        """A link: the end of `a`, and that of `b`."""
        mine = await self.links.connect(self.address, [self.pin])
        mine.send(ATTACH)
        theirs = await self.accepted.get()
        assert await theirs.receive() == ATTACH
        return mine, theirs


@asynccontextmanager
async def real() -> AsyncIterator[World]:
    a, b = FakePeering("node-a", identity("a")), FakePeering("node-b", identity("b"))
    a.knows(b, "node-b")
    b.knows(a, "node-a")

    def forget(who: str) -> None:
        one, other = (a, b) if who == "a" else (b, a)
        one.trust.pinned.pop(other.shown.fingerprint)
        one.trust.changed()

    def as_store(store: str) -> None:
        b.store = store

    async with listening(b) as there, listening(a) as here:
        yield World(here, at(there), b.shown.fingerprint, b.accepted, forget, as_store)


@asynccontextmanager
async def model() -> AsyncIterator[World]:
    net = LinksModel(7)
    accepted: asyncio.Queue[Link] = asyncio.Queue()
    rows = {"a": {"fb": "row b"}, "b": {"fa": "row a"}}
    stores = {"a": STORE, "b": STORE}

    async def keep(link: Link) -> None:
        accepted.put_nowait(link)
        await asyncio.Event().wait()

    async def redeem(_asked: Redeem, _fingerprint: str) -> Redeemed:
        return Redeemed(STORE, "n2", "node-b")

    def node(name: str) -> ModelLinks:
        return net.node(
            f"{name}:1",
            lambda: Hello(VERSION, stores[name], f"node-{name}"),
            f"f{name}",
            lambda fingerprint: rows[name].get(fingerprint),
            keep,
            redeem,
        )

    made = {name: node(name) for name in "ab"}

    def forget(who: str) -> None:
        rows[who].clear()
        made[who].judge()

    def as_store(store: str) -> None:
        stores["b"] = store

    try:
        yield World(made["a"], "b:1", "fb", accepted, forget, as_store)
    finally:
        for one in made.values():
            one.close()


Scenario = Callable[[World], Awaitable[None]]
Within = Callable[[Scenario], None]
Made = Callable[[], AbstractAsyncContextManager[World]]


def _play(make: Made, runner: Callable[[Any], Any], scenario: Scenario) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), make() as world:
            await scenario(world)

    runner(main())


@pytest.fixture(params=["real", "model"])
def within(request: pytest.FixtureRequest, logbook: Logbook) -> Within:
    """Plays a scenario in one of both."""
    logbook.allow("another node")
    if request.param == "real":
        return lambda scenario: _play(real, asyncio.run, scenario)
    return lambda scenario: _play(model, run, scenario)


def test_messages_come_whole_and_in_order_both_ways(within: Within) -> None:
    async def scenario(world: World) -> None:
        mine, theirs = await world.linked()
        said = [Part(n, bytes([n]) * (n * 10_000)) for n in range(40)]
        for part in said:
            mine.send(part)
            theirs.send(Acknowledge(1, part.offset, 0))
        assert [await theirs.receive() for _ in said] == said
        assert [await mine.receive() for _ in said] == [Acknowledge(1, n, 0) for n in range(40)]

    within(scenario)


def test_each_side_knows_the_other(within: Within) -> None:
    async def scenario(world: World) -> None:
        mine, theirs = await world.linked()
        assert (mine.peer.node, mine.peer.store) == ("node-b", STORE)
        assert (theirs.peer.node, theirs.peer.store) == ("node-a", STORE)
        assert mine.peer.fingerprint == world.pin and theirs.peer.row is not None

    within(scenario)


@pytest.mark.parametrize("closes", [0, 1])
def test_what_was_said_before_the_end_comes_before_it(within: Within, closes: int) -> None:
    async def scenario(world: World) -> None:
        ends = await world.linked()
        said = [Part(n, bytes(100_000)) for n in range(5)]
        for part in said:
            ends[closes].send(part)
        ends[closes].close("enough")
        ends[closes].close()
        assert [await ends[1 - closes].receive() for _ in said] == said
        for end in ends:
            with pytest.raises(LinkClosed):
                await end.receive()
            with pytest.raises(LinkClosed):
                await end.drained()
            end.send(said[0])

    within(scenario)


@pytest.mark.parametrize("who", ["a", "b"])
def test_it_ends_at_once_when_trust_does(within: Within, who: str) -> None:
    async def scenario(world: World) -> None:
        ends = await world.linked()
        world.forget(who)
        for end in ends:
            with pytest.raises(LinkClosed):
                await end.receive()

    within(scenario)


def test_nobody_is_linked_who_is_not_known(within: Within) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(LinkClosed):
            await world.links.connect(world.address, ["0" * 64])
        with pytest.raises(LinkClosed):
            await world.links.connect(world.address, [])
        with pytest.raises(LinkClosed):
            await world.links.connect("127.0.0.1:1", [world.pin])
        world.forget("b")
        with pytest.raises(NotKnown):
            await world.links.connect(world.address, [world.pin])
        assert world.accepted.empty()

    within(scenario)


def test_nobody_of_another_store(within: Within) -> None:
    async def scenario(world: World) -> None:
        world.as_store(STORE.replace("1", "9"))
        with pytest.raises(LinkClosed, match="another store"):
            await world.links.connect(world.address, [world.pin])
        world.as_store("")
        await world.linked()

    within(scenario)


def test_a_wait_that_is_given_up_loses_nothing(within: Within) -> None:
    async def scenario(world: World) -> None:
        mine, theirs = await world.linked()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await theirs.receive()
        mine.send(ATTACH)
        assert await theirs.receive() == ATTACH

    within(scenario)


def test_who_sends_waits_for_who_takes(within: Within) -> None:
    async def scenario(world: World) -> None:
        mine, theirs = await world.linked()
        part = Part(0, bytes(limits.MIB))
        sent = 0
        waiting: asyncio.Task[None] | None = None
        while waiting is None:
            mine.send(part)
            sent += 1
            task = asyncio.ensure_future(mine.drained())
            done, _ = await asyncio.wait([task], timeout=0.05)
            if not done:
                waiting = task
            assert sent < 200, "nobody takes it, and everybody may go on"
        for _ in range(sent):
            assert await theirs.receive() == part
        await waiting

    within(scenario)


def test_one_that_is_too_long_is_not_sent(within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        mine, theirs = await world.linked()
        monkeypatch.setattr(limits, "LINK_MESSAGE_BYTES", limits.MIB)
        with pytest.raises(TooLarge):
            mine.send(Part(0, bytes(limits.MIB)))
        mine.send(Frames(1, 1))
        assert await theirs.receive() == Frames(1, 1)

    within(scenario)


def test_a_peer_that_takes_nothing_ends_it(within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        mine, _ = await world.linked()
        monkeypatch.setattr(limits, "LINK_UNSENT_BYTES", 30 * limits.MIB)
        for _ in range(60):
            mine.send(Part(0, bytes(limits.MIB)))
        with pytest.raises(LinkClosed, match="read"):
            await mine.receive()

    within(scenario)


def test_a_token_is_redeemed(within: Within) -> None:
    async def scenario(world: World) -> None:
        asked = Redeem(VERSION, "n2.secret", "node-a")
        found = await world.links.redeem(world.address, world.pin, asked)
        assert found == Redeemed(STORE, "n2", "node-b")
        with pytest.raises(LinkClosed):
            await world.links.redeem(world.address, "0" * 64, asked)

    within(scenario)
