"""Entries for the statement log and the audit trail that followers forward to who leads.

A leader's part. It believes a follower that this has happened at that follower, and nothing else:
at which node is known by the link that it came over. It takes so many in a second of each, however
often that attaches, and holds one message of each at most: a follower that makes things up fills
the room of one node.
"""

from __future__ import annotations

import asyncio
from typing import Final

from actors.backlog import Batch, Noted, commit
from actors.commits import Committer
from actors.runtime import Runtime
from protocol import limits
from protocol.errors import Refusal
from protocol.links import Entries, EntryTold
from storage.entries import Entry

AGAIN_SECONDS: Final = 1.0
"""How often it is tried to commit what could not be: the disk is full, too few follow."""


class EntryForwarding:
    """On the loop only."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._allowed: dict[str, tuple[float, int]] = {}
        """By node, how many more it may bring at once, and when that was so. As many as rows."""

    async def keep(self, node: str, said: Entries) -> None:
        """Returns once all of it is committed and released; to be cancelled where this node leads
        no more. What was brought before is not committed again.

        :param node: who has said it
        """
        await self._its_turn(node, len(said.entries))
        batch = Batch(said.life, said.first, tuple(map(_noted, said.entries)))
        while True:
            try:
                await self._committer.released(commit(self._committer, node, batch))
                return
            except Refusal:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _its_turn(self, node: str, count: int) -> None:
        rate, now_us = limits.ENTRIES_CARRIED_A_SECOND, self._monotonic_us()
        left, since_us = self._allowed.get(node, (limits.ENTRIES_CARRIED_AT_ONCE, now_us))
        gained = (now_us - since_us) / 1_000_000 * rate
        left = min(limits.ENTRIES_CARRIED_AT_ONCE, left + gained) - count
        self._allowed[node] = left, now_us
        if left < 0:
            await asyncio.sleep(-left / rate)


def told(noted: Noted) -> EntryTold:
    """An entry as a message has it."""
    entry = noted.entry
    return EntryTold(
        noted.at_us, noted.user, noted.surface, noted.statement, noted.reason,  # type: ignore[arg-type]
        entry.kept, entry.request, entry.address, entry.namespace, entry.database, entry.places,
        entry.action, entry.refused, entry.needs, entry.more,
    )  # fmt: skip


def _noted(told: EntryTold) -> Noted:
    entry = Entry(
        told.kept, told.request, told.address, told.namespace, told.database, told.places,
        told.action, told.refused, told.needs, told.more,
    )  # fmt: skip
    return Noted(told.user, told.surface, told.statement, told.reason, entry, told.at)
