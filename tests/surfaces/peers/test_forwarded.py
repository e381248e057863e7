"""Entries that another node brings over a real link: of an honest one, and of one that lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster.replica_senders import message_of
from protocol import limits
from protocol.links import (
    PREFIX_BYTES,
    Acknowledge,
    Attach,
    Attached,
    Entries,
    Frames,
    Hello,
    Link,
    LinkClosed,
    Message,
    Refused,
    encode,
)
from storage.formats.positions import EpochEnd
from tests.actors.cluster.test_trails import noted
from tests.logbook import Logbook
from tests.surfaces.peers.parts import Bare, FakePeering, listening
from tests.surfaces.peers.parts import at as address_of
from tests.surfaces.peers.test_nodes import Linked, joiner, linked, redeem

LIFE = bytes(range(16))
ONE = message_of(noted(1))


@pytest.fixture
async def leader(tmp_path: Path, logbook: Logbook) -> AsyncIterator[Linked]:
    logbook.allow("ended the connection|is no message|bytes are not a message|over the limit")
    async with linked(tmp_path / "leader") as found:
        yield found


def attach(leader: Linked) -> Attach:
    """As one that has all that the leader has, and shows it."""
    committer = leader.here.node.committer
    history: tuple[EpochEnd, ...] = tuple(committer.history())
    last = history[-1]
    return Attach([*history], last.last, 0, 0)


@asynccontextmanager
async def attached(leader: Linked, who: FakePeering) -> AsyncIterator[tuple[Link, int]]:
    """A link over which frames would come, and the epoch."""
    async with listening(who) as surface:
        mine = await surface.connect(address_of(leader.surface), [leader.shown])
        mine.send(attach(leader))
        answer = await mine.receive()
        assert isinstance(answer, Attached) and answer.keeps
        mine.send(Acknowledge(answer.epoch, answer.agree, 0))
        yield mine, answer.epoch
        mine.close()


async def kept(link: Link, upto: int) -> None:
    while True:
        heard = await link.receive()
        if isinstance(heard, Frames) and heard.kept >= upto:
            return


async def trail(leader: Linked) -> list[dict[str, Any]]:
    found = await leader.here.value("INFO FOR AUDIT LIMIT 1000")
    assert isinstance(found, list)
    return [one for one in found if one["node"] is not None]


async def test_what_it_brings_stands_under_its_own_name_and_once(leader: Linked) -> None:
    who = joiner()
    await redeem(who, await leader.token())
    for _ in range(2):
        async with attached(leader, who) as (link, epoch):
            link.send(Entries(epoch, LIFE, 1, [ONE, ONE]))
            await kept(link, 2)
    found = await trail(leader)
    assert [one["node"] for one in found] == [who.name] * 2
    assert {(one["user"], one["action"]) for one in found} == {("mem", "tried")}


async def test_of_another_life_numbers_begin_anew(leader: Linked) -> None:
    who = joiner()
    await redeem(who, await leader.token())
    for life in (LIFE, LIFE[::-1]):
        async with attached(leader, who) as (link, epoch):
            link.send(Entries(epoch, life, 1, [ONE]))
            await kept(link, 1)
    assert len(await trail(leader)) == 2


async def test_two_nodes_count_for_themselves(leader: Linked) -> None:
    for name in "ab":
        who = joiner(name)
        await redeem(who, await leader.token(f"n{name}"))
        async with attached(leader, who) as (link, epoch):
            link.send(Entries(epoch, LIFE, 1, [ONE]))
            await kept(link, 1)
    assert {one["node"] for one in await trail(leader)} == {joiner(name).name for name in "ab"}


async def test_who_does_not_wait_until_they_are_kept_is_refused(leader: Linked) -> None:
    who = joiner()
    await redeem(who, await leader.token())
    async with attached(leader, who) as (link, epoch):
        for number in range(50):
            link.send(Entries(epoch, LIFE, 1 + number, [ONE]))
        with pytest.raises(LinkClosed):
            while not isinstance(await link.receive(), Refused):
                pass
            await link.receive()
    assert len(await trail(leader)) <= 2


def altered(epoch: int, *, places: Any = ((),), count: int = 1, more: Any = 0) -> bytes:
    """An `Entries` that no node of ours says."""
    body: list[Any] = msgspec.msgpack.decode(encode(Entries(epoch, LIFE, 1, [ONE]))[PREFIX_BYTES:])
    entry = body[4][0]
    entry[10], entry[14] = places, more
    body[4] = [entry] * count
    return msgspec.msgpack.encode(body)


@pytest.mark.parametrize(
    "wrong",
    [
        {"places": ()}, {"places": ((1, 2, 3),)}, {"places": "all"}, {"more": -1},
        {"more": 2**63}, {"count": limits.ENTRIES_CARRIED + 1}, {"count": 0},
    ],
)  # fmt: skip
async def test_junk_ends_the_link_and_leaves_nothing(leader: Linked, wrong: dict[str, Any]) -> None:
    who = joiner()
    await redeem(who, await leader.token())
    before = leader.here.node.committer.committed
    bare = await Bare.connect(leader.surface, who.shown)
    await bare.say(who.hello)
    assert isinstance(await bare.hear(), Hello)
    await bare.say(attach(leader))
    answer = await bare.hear()
    assert isinstance(answer, Attached)
    await bare.say(Acknowledge(answer.epoch, answer.agree, 0))
    body = altered(answer.epoch, **wrong)
    await bare.say(len(body).to_bytes(PREFIX_BYTES, "big") + body)
    heard: Message | None = answer
    while heard is not None:
        heard = await bare.hear()
    assert await trail(leader) == []
    assert leader.here.node.committer.committed <= before + 1  # what it has shown is kept


async def test_what_waits_is_let_go_of_with_the_link(leader: Linked) -> None:
    """A leader that can commit nothing holds one message, as long as its sender is there."""
    who = joiner()
    await redeem(who, await leader.token())
    replica_senders = leader.here.node.cluster._replica_senders
    async with attached(leader, who) as (link, epoch):
        await leader.here.value("DEFINE NODE ROLES serving")
        link.send(Entries(epoch, LIFE, 1, [ONE]))
        (ships,) = replica_senders
        while ships._keeping is None:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
        keeping = ships._keeping  # type: ignore[attr-defined]
    while len(list(replica_senders)):
        await asyncio.sleep(0.001)
    assert keeping.cancelled()
    await leader.here.value("DEFINE NODE ROLES serving, writable")
    assert await trail(leader) == []
