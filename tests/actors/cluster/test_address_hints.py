"""Where who leads is reached, when no row says so here: others are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from actors.cluster.discovery import PeerAddresses, ask_for_leader
from protocol.links import Link, LinkClosed, Links
from storage.catalog.replicas import Replica
from tests.actors.cluster.whole import ClusterMachine, Dial, Trio, cluster
from tests.logbook import Logbook
from tests.simulation import loop as stepped


def test_who_follows_says_where_who_leads_is_reached(logbook: Logbook) -> None:
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|does not answer|was not renewed")

    async def main() -> None:
        async with cluster() as trio:
            leader = await trio.led()
            b, c = trio.named("b"), trio.named("c")
            await trio.in_sync("a", "b", "c")
            for one in trio.machines:
                one.runs.peering.trust.pins_of = _pins  # type: ignore[method-assign]
            found = await asked(c, rows(trio, "b"), leader.id)
            assert found == (leader.id, leader.address, tuple(_pins(leader.id)))
            assert await asked(c, rows(trio, "b"), c.id) is None, "who is meant does not lead"
            assert await asked(c, rows(trio, "a"), leader.id) == found, "who leads says it too"
            b.cut()
            assert await asked(c, rows(trio, "b"), leader.id) is None, "nobody is there"
            b.mend()

    stepped.run(main(), 1)


def test_who_leads_is_found_where_it_has_moved_to(logbook: Logbook) -> None:
    """Its row as a node has it that was away is of before."""
    logbook.allow("leads no more|nobody leads|does not answer|was not renewed")

    async def main() -> None:
        async with cluster() as trio:
            leader, away = await trio.led(), trio.named("c")
            await leader.value("ALTER REPLICA a SET PEER 'old:1'")
            await trio.until(lambda: _peer(away, leader) == "old:1")
            await away.stop()
            await trio.in_sync("a", "b")
            await leader.value("ALTER REPLICA a SET PEER 'a:1'")
            await trio.until(lambda: _peer(trio.named("b"), leader) == "a:1")
            trio.named("b").runs.peering.trust.pins_of = _pins  # type: ignore[method-assign]
            await away.start()
            await trio.in_sync("a", "b", "c")
            await trio.until(lambda: _peer(away, leader) == "a:1")

    stepped.run(main(), 1)


class Shows(Dial):
    """The door to others, of whom one shows a certificate."""

    def __init__(self, door: Links, address: str, shown: str) -> None:
        super().__init__(door)
        self._address, self._shown = address, shown

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        """See `Links.connect`."""
        if address == self._address and self._shown not in pins:
            raise LinkClosed("the certificate is not the one that is known")
        return await super().connect(address, pins)


def test_who_leads_is_found_by_what_it_shows_since(logbook: Logbook) -> None:
    """A node that was away for longer than its next certificate was in its row."""
    logbook.allow("leads no more|nobody leads|does not answer|was not renewed")

    async def main() -> None:
        async with cluster() as trio:
            leader, away = await trio.led(), trio.named("c")
            await away.stop()
            await trio.in_sync("a", "b")
            await away.start()
            trio.named("b").runs.peering.trust.pins_of = _pins  # type: ignore[method-assign]
            door = away.runs.peering.links
            assert door is not None
            away.runs.peering.links = Shows(door, leader.address, *_pins(leader.id))
            await trio.in_sync("a", "b", "c")

    stepped.run(main(), 1)


def test_for_who_was_revoked_nobody_is_asked(logbook: Logbook) -> None:
    """Another may not have heard of it yet, and name what it shows."""
    logbook.allow("leads no more|nobody leads|does not answer|was not renewed")

    async def main() -> None:
        async with cluster() as trio:
            leader, node = await trio.led(), trio.named("c").runs
            await trio.in_sync("a", "b", "c")
            trio.named("b").runs.peering.trust.pins_of = _pins  # type: ignore[method-assign]
            door = node.peering.links
            assert door is not None
            node.peering.links = Shows(door, leader.address, *_pins(leader.id))
            for certificate, finds in ((None, True), ("ab" * 32, False)):
                row = node.member.row_of(leader.id)
                assert row is not None
                changed = replace(row, certificate=certificate)
                node.member.row_of = lambda _, row=changed: row  # type: ignore[misc,method-assign]
                places = PeerAddresses(node.environment.clock, node.member, node.peering)
                for _ in range(40):
                    await asyncio.sleep(1)
                    with suppress(LinkClosed):
                        (await places.connect(leader.id, None)).close()
                        break
                else:
                    assert not finds, "it is found where another says that it is"
                    continue
                assert finds

    stepped.run(main(), 1)


def test_what_was_revoked_since_others_have_named_it_is_expected_nowhere(logbook: Logbook) -> None:
    logbook.allow("leads no more|nobody leads|does not answer|was not renewed")

    async def main() -> None:
        async with cluster() as trio:
            leader, node = await trio.led(), trio.named("c").runs
            await trio.in_sync("a", "b", "c")
            trio.named("b").runs.peering.trust.pins_of = _pins  # type: ignore[method-assign]
            door = node.peering.links
            assert door is not None
            node.peering.links = Shows(door, leader.address, *_pins(leader.id))
            places = PeerAddresses(node.environment.clock, node.member, node.peering)

            async def is_linked() -> bool:
                for _ in range(40):
                    await asyncio.sleep(1)
                    with suppress(LinkClosed):
                        (await places.connect(leader.id, None)).close()
                        return True
                return False

            assert await is_linked(), "another says where, and what is shown there"
            revoked = _pins(leader.id)
            node.peering.trust.is_revoked = lambda fingerprint: fingerprint in revoked  # type: ignore[method-assign]
            assert not await is_linked()

    stepped.run(main(), 1)


def _peer(machine: ClusterMachine, other: ClusterMachine) -> str | None:
    row = machine.runs.member.row_of(other.id)
    return None if row is None else row.peer


def _pins(node: str) -> frozenset[str]:
    return frozenset({f"pin of {node}"})


def rows(trio: Trio, *names: str) -> list[Replica]:
    """Those rows."""
    found = [trio.named("c").runs.member.row_of(trio.named(name).id) for name in names]
    return [row for row in found if row is not None]


async def asked(machine: ClusterMachine, others: list[Replica], leader: str) -> object:
    """What a node is told."""
    peering = machine.runs.peering
    assert peering.links is not None
    return await ask_for_leader(peering.links, others, peering.trust.pins_of, leader)
