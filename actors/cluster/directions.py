"""Where who leads is reached, for a node that has no row of it: that is in a part of the log which
this one lacks. The others, of whom it has rows, may know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from protocol.links import Attach, Leads, Link, LinkClosed, Links, Refused
from storage.replicas import Replica

SECONDS: Final = 5.0
"""How long one of them is waited for."""


async def ask_around(
    links: Links, rows: Iterable[Replica], pins_of: Callable[[str], Collection[str]], leader: str
) -> Leads | None:
    """What the first says that knows; None: nobody does, or is there.

    :param rows: of those who are asked, one after the other
    :param leader: the id of who is looked for
    """
    for row in rows:
        if row.node is None:
            continue
        try:
            async with asyncio.timeout(SECONDS):
                found = await _asked(await links.connect(row.peer, pins_of(row.node)))
        except (LinkClosed, TimeoutError):
            continue
        if found is not None and found.node == leader:
            return found
    return None


async def _asked(link: Link) -> Leads | None:
    """Who does not lead refuses a follower, and says who does."""
    try:
        link.send(Attach([], 0, 0, 0))
        answer = await link.receive()
    finally:
        link.close()
    return Leads.of(answer.detail) if isinstance(answer, Refused) else None
