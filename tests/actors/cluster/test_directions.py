"""Where who leads is reached, when no row says so here: others are asked."""

from __future__ import annotations

from actors.cluster.directions import ask_around
from storage.replicas import Replica
from tests.actors.cluster.whole import Machine, Trio, cluster
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
            assert await asked(c, rows(trio, "a"), leader.id) is None, "who leads asks for no other"
            b.cut()
            assert await asked(c, rows(trio, "b"), leader.id) is None, "nobody is there"
            b.mend()

    stepped.run(main(), 1)


def _pins(node: str) -> frozenset[str]:
    return frozenset({f"pin of {node}"})


def rows(trio: Trio, *names: str) -> list[Replica]:
    """Those rows."""
    found = [trio.named("c").runs.member.row_of(trio.named(name).id) for name in names]
    return [row for row in found if row is not None]


async def asked(machine: Machine, others: list[Replica], leader: str) -> object:
    """What a node is told."""
    peering = machine.runs.peering
    assert peering.links is not None
    return await ask_around(peering.links, others, peering.trust.pins_of, leader)
