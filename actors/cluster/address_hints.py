"""Address hints: asks known nodes for the current leader and the addresses of etcd.

For a node whose log lacks the frames that say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from protocol.links import AskWay, Leads, LinkClosed, Links, Way
from storage.catalog.replicas import Replica

SECONDS: Final = 5.0
"""Timeout of one request (s)."""

PinsOf = Callable[[str], Collection[str]]
"""Returns the fingerprints of the certificates that a node may show, by its id."""


async def ways(links: Links, rows: Iterable[Replica], pins_of: PinsOf) -> list[Way]:
    """Ask nodes, all at once, and return their answers. Unreachable nodes are left out.

    :param rows: replica rows of the nodes to ask
    """
    asked = [_said(links, row.peer, pins_of(row.node)) for row in rows if row.node is not None]
    # All at once, so that any number of dead nodes cost one timeout.
    return [way for way in await asyncio.gather(*asked) if way is not None]


async def ask_for_leader(
    links: Links, rows: Iterable[Replica], pins_of: PinsOf, leader: str
) -> Leads | None:
    """Return the address of the leader as another node reports it, or None if no node knows.

    :param rows: as in `ways`
    :param leader: id of the leader to look for
    """
    found = await ways(links, rows, pins_of)
    # Other nodes may still follow an earlier leader: only answers about this one count.
    return next((way.leader for way in found if way.leader and way.leads == leader), None)


async def _said(links: Links, address: str, pins: Collection[str]) -> Way | None:
    """Ask one node. None: it is unreachable, or does not know this request."""
    try:
        async with asyncio.timeout(SECONDS):
            link = await links.connect(address, pins)
            try:
                link.send(AskWay())
                answer = await link.receive()
            finally:
                link.close()
    except (LinkClosed, TimeoutError):
        return None
    return answer if isinstance(answer, Way) else None
