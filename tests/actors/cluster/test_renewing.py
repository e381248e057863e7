"""The certificate that a node shows is looked after, whatever comes in the middle of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from actors.cluster.identity import CheckCertificate, RenewingActor
from actors.node import Node
from actors.runtime import stop, tell
from protocol.errors import UnknownOutcome
from protocol.values import instant
from storage.files import peer_file
from storage.files.peer_file import Identities, Identity
from storage.txn.tickets import CommitTicket
from tests.actors.cluster.whole import cluster
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.environment import SeededRng


def made(node: Node, seed: int) -> Identity:
    now = instant(node.environment.clock.wall_us())
    return peer_file.make(node.roles.node_id, now, SeededRng(seed))


@asynccontextmanager
async def renewing(node: Node, shown: Identity) -> AsyncIterator[Any]:
    """What a node was given is looked after."""
    peering, no_file = node.peering, None
    peering.is_given = True
    peering.show(Identities(shown))
    place = RenewingActor.start(node.runtime, peering, node.committer, no_file)
    peering.renew_soon = lambda: tell(place, CheckCertificate())
    try:
        yield place
    finally:
        await stop(place)


def test_one_that_is_given_while_another_comes_into_the_row_is_shown() -> None:
    async def main() -> None:
        async with cluster(count=1, founded=False) as trio:
            node = trio.named("a").runs
            peering, committer = node.peering, node.committer
            first, second, third = (made(node, seed) for seed in range(3))
            async with renewing(node, first):
                await trio.until(lambda: first.fingerprint in peering.trust.pins_of(peering.node))
                before = committer.committed
                peering.accept_certificate(second)
                while committer.committed == before:
                    await asyncio.sleep(0)
                peering.accept_certificate(third)
                await trio.until(lambda: peering.shown == third)

    stepped.run(main(), 1)


def test_one_that_is_given_while_a_check_fails_is_shown(logbook: Logbook) -> None:
    logbook.allow("certificate failed")

    async def main() -> None:
        async with cluster(count=1, founded=False) as trio:
            node = trio.named("a").runs
            peering, committer = node.peering, node.committer
            first, second, third = (made(node, seed) for seed in range(3))
            in_time = committer.released_in_time

            async def fails(_ticket: CommitTicket) -> None:
                committer.released_in_time = in_time  # type: ignore[method-assign]
                peering.accept_certificate(third)
                await asyncio.sleep(0.01)
                raise UnknownOutcome("the disk took too long")

            async with renewing(node, first):
                await trio.until(lambda: first.fingerprint in peering.trust.pins_of(peering.node))
                committer.released_in_time = fails  # type: ignore[assignment,method-assign]
                peering.accept_certificate(second)
                async with asyncio.timeout(60):
                    await trio.until(lambda: peering.shown == third)

    stepped.run(main(), 1)


def test_followers_that_are_lost_do_not_keep_it_from_looking(logbook: Logbook) -> None:
    """What looks after it looks at dates too, and ends links whose certificates have run out."""
    logbook.allow("releases nothing|leads no more|nobody leads|does not answer|was not renewed")
    logbook.allow("certificate failed|stopped following|was not answered")

    async def main() -> None:
        async with cluster() as trio:
            leader = (await trio.led()).runs
            looks = list[int]()
            leader.peering.on_look.append(lambda: looks.append(1))
            before = leader.committer.committed
            for name in "bc":
                trio.named(name).cut()
            async with renewing(leader, made(leader, 1)) as place:
                await trio.until(lambda: leader.committer.committed > before)
                await asyncio.sleep(60)
                count = len(looks)
                tell(place, CheckCertificate())
                await trio.until(lambda: len(looks) > count)

    stepped.run(main(), 1)
