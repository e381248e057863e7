"""Where others are by now, for a node that lacks the part of the log that says so: those of whom it
has rows may know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Final

from protocol.links import AskWay, Leads, Link, LinkClosed, Links, Way
from storage.replicas import Replica

SECONDS: Final = 5.0
"""How long one of them is waited for."""

PinsOf = Callable[[str], Collection[str]]
"""The certificates that a node may show, by its id."""


async def ways(links: Links, rows: Iterable[Replica], pins_of: PinsOf) -> AsyncIterator[Way]:
    """What they say; who is not there says nothing.

    :param rows: of those who are asked, one after the other
    """
    for row in rows:
        if row.node is None:
            continue
        try:
            async with asyncio.timeout(SECONDS):
                way = await _asked(await links.connect(row.peer, pins_of(row.node)))
        except (LinkClosed, TimeoutError):
            continue
        if way is not None:
            yield way


async def ask_around(
    links: Links, rows: Iterable[Replica], pins_of: PinsOf, leader: str
) -> Leads | None:
    """Where who leads is, as the first says that knows; None: nobody does, or is there.

    :param rows: as `ways`
    :param leader: the id of who is looked for
    """
    async for way in ways(links, rows, pins_of):
        if way.leader is not None and way.leads == leader:
            return way.leader
    return None


async def _asked(link: Link) -> Way | None:
    """None: it knows no such question."""
    try:
        link.send(AskWay())
        answer = await link.receive()
    finally:
        link.close()
    return answer if isinstance(answer, Way) else None
