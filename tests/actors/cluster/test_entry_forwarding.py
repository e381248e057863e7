"""Entries that followers bring: what a leader takes of one that lies, and how quickly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from actors.cluster.replica_senders import EntryForwarding, ReplicaSender, message_of
from actors.log_reads import LogReads
from protocol import limits
from protocol.links import (
    PREFIX_BYTES,
    Acknowledge,
    Attached,
    BadMessage,
    Entries,
    EntryTold,
    Frames,
    LinkClosed,
    Message,
    Refused,
    decode,
    encode,
)
from tests.actors.cluster.fleet import Fleet
from tests.actors.cluster.test_replica_sender import NOBODY
from tests.actors.cluster.test_trails import noted
from tests.actors.cluster.wires import wire
from tests.logbook import Logbook
from tests.simulation.loop import run

LIFE = bytes(16)
ONE = message_of(noted(1))
ID = "6f3a0000-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    logbook.allow("a follower is gone")


class EntryLeader:
    """A leader in epoch 1 whose follower is the test, and what that has brought."""

    def __init__(self, follower: str) -> None:
        fleet = Fleet(1, "ab", "a")
        node = fleet["a"]
        self.here, self.there = wire("a", follower)
        self.kept: list[tuple[str, Entries]] = []
        self.goes_on = asyncio.Event()
        self.shipping = ReplicaSender(
            node.runtime, node.committer, cast(LogReads, node.reads), self.here, 1,
            lambda *_: None, lambda *_: None, keep=self._keep,
        )  # fmt: skip
        self.task = asyncio.ensure_future(self.shipping.run(NOBODY))

    async def _keep(self, node: str, said: Entries) -> None:
        self.kept.append((node, said))
        await self.goes_on.wait()

    async def until_kept(self, upto: int) -> None:
        while True:
            heard = await self.there.receive()
            if isinstance(heard, Frames) and heard.kept == upto:
                return

    async def refuses(self) -> Refused:
        try:
            while True:
                heard = await self.there.receive()
                if isinstance(heard, Refused):
                    return heard
        except LinkClosed:
            raise AssertionError("it ended without a word") from None


@asynccontextmanager
async def leader(attached: bool = True, follower: str = ID) -> AsyncIterator[EntryLeader]:
    made = EntryLeader(follower)
    try:
        answer = await made.there.receive()
        assert isinstance(answer, Attached) and answer.keeps
        if attached:
            made.there.send(Acknowledge(1, 0, 0))
        yield made
    finally:
        made.task.cancel()
        await asyncio.wait([made.task])


def entries(first: int = 1, count: int = 1, epoch: int = 1) -> Entries:
    return Entries(epoch, LIFE, first, [ONE] * count)


def test_what_is_brought_is_of_who_brings_it_and_said_to_be_kept_once_it_is() -> None:
    async def main() -> None:
        async with leader() as at:
            at.there.send(entries(1, 3))
            while not at.kept:
                await asyncio.sleep(0.01)
            assert at.kept == [(ID, entries(1, 3))]
            assert at.shipping._kept == 0
            at.goes_on.set()
            await at.until_kept(3)
            at.there.send(entries(4, 1))
            await at.until_kept(4)

    run(main(), 1)


@pytest.mark.parametrize("wrong", ["before it is attached", "two at once", "another epoch"])
def test_who_brings_them_out_of_turn_is_refused(wrong: str) -> None:
    async def main() -> None:
        async with leader(attached=wrong != "before it is attached") as at:
            at.there.send(entries(epoch=2 if wrong == "another epoch" else 1))
            if wrong == "two at once":
                at.there.send(entries(2))
            assert (await at.refuses()).code == "BadRequest"
            await at.task
            assert len(at.kept) == (wrong == "two at once")

    run(main(), 1)


@pytest.mark.parametrize("name", ["", "b", "x 5", ID + " 7", ID.replace("-", " ")])
def test_who_has_no_id_brings_nothing(name: str) -> None:
    """What it says of itself stands in how an entry came, which has to be read again."""

    async def main() -> None:
        async with leader(follower=name) as at:
            at.there.send(entries())
            assert (await at.refuses()).code == "BadRequest"
            assert not at.kept

    run(main(), 1)


def altered(at: int, value: object) -> bytes:
    """An `Entries` whose one entry has another value in a place."""
    body: list[Any] = msgspec.msgpack.decode(encode(entries())[PREFIX_BYTES:])
    body[4][0][at] = value
    return msgspec.msgpack.encode(body)


FIELDS = {name: at for at, name in enumerate(EntryTold.__struct_fields__)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("at", -1), ("at", limits.WALL_US_MAX + 1), ("at", "now"), ("surface", "http other 5"),
        ("surface", ""), ("kept", 0), ("kept", 4), ("places", []), ("places", [[1, 2, 3]]),
        ("places", [[-1]]), ("places", [[]] * (limits.ENTRY_PLACES + 1)), ("more", -1),
        ("user", "x" * (limits.ENTRY_NAME_CHARACTERS + 1)), ("user", None), ("user", b"x"),
        ("statement", "x" * (limits.ENTRY_TEXT_CHARACTERS + 1)), ("action", 1), ("needs", []),
        ("reason", "x" * (limits.ENTRY_NAME_CHARACTERS + 1)),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_no_message(field: str, value: object) -> None:
    assert decode(altered(FIELDS["user"], "x")) != entries()
    with pytest.raises(BadMessage):
        decode(altered(FIELDS[field], value))


@pytest.mark.parametrize(
    "message",
    [
        entries(count=limits.ENTRIES_CARRIED + 1), Entries(1, LIFE, 1, []),
        Entries(1, LIFE[:15], 1, [ONE]), Entries(1, LIFE, 0, [ONE]),
        Entries(1, LIFE, 2**63, [ONE]),
    ],
)  # fmt: skip
def test_more_than_there_may_be_is_no_message(message: Message) -> None:
    with pytest.raises(BadMessage):
        decode(encode(message)[PREFIX_BYTES:])


def test_one_that_brings_without_end_is_taken_slowly_and_no_quicker_for_attaching_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        fleet = Fleet(1, "ab", "a")
        node = fleet["a"]
        committed: list[int] = []

        async def released(_: object) -> None:
            return None

        monkeypatch.setattr(
            "actors.cluster.replica_senders.commit", lambda *said: committed.extend(said[2].noted)
        )
        monkeypatch.setattr(node.committer, "released", released, raising=False)
        forwarding = EntryForwarding(node.runtime, cast(Any, node.committer))
        began_us = node.runtime.clock.monotonic_us()
        count = limits.ENTRIES_CARRIED
        while len(committed) < 2 * limits.ENTRIES_CARRIED_AT_ONCE:
            await forwarding.keep("b", entries(count=count))
        seconds = (node.runtime.clock.monotonic_us() - began_us) / 1_000_000
        least = limits.ENTRIES_CARRIED_AT_ONCE / limits.ENTRIES_CARRIED_A_SECOND
        assert least - 0.01 <= seconds <= least + 0.1
        await forwarding.keep("c", entries(count=count))
        assert (node.runtime.clock.monotonic_us() - began_us) / 1_000_000 == seconds

    run(main(), 1)
