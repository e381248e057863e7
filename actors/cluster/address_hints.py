"""Asks the nodes it has rows of where others are by now, for a node that lacks the part of the log
that says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from protocol.links import AskWay, Leads, LinkClosed, Links, Way
from storage.replicas import Replica

SECONDS: Final = 5.0
"""How long one of them is waited for."""

PinsOf = Callable[[str], Collection[str]]
"""The certificates that a node may show, by its id."""


async def ways(links: Links, rows: Iterable[Replica], pins_of: PinsOf) -> list[Way]:
    """What they say; who is not there says nothing.

    :param rows: of those who are asked, all at once
    """
    asked = [_said(links, row.peer, pins_of(row.node)) for row in rows if row.node is not None]
    return [way for way in await asyncio.gather(*asked) if way is not None]


async def ask_around(
    links: Links, rows: Iterable[Replica], pins_of: PinsOf, leader: str
) -> Leads | None:
    """Where who leads is, as somebody says; None: nobody knows, or is there.

    :param rows: as `ways`
    :param leader: the id of who is looked for
    """
    found = await ways(links, rows, pins_of)
    return next((way.leader for way in found if way.leader and way.leads == leader), None)


async def _said(links: Links, address: str, pins: Collection[str]) -> Way | None:
    """None: it is not there, or knows no such question."""
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
