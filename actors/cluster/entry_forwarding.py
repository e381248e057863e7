"""Entry forwarding: statement-log and audit entries of followers, committed by the leader.

The leader's part. The leader trusts a follower only about events at that follower; its node id
comes from the link. The rate for each node is limited across reconnects, and one message of each
node is held at most. So a faulty or hostile follower fills only its own share.
"""

from __future__ import annotations

import asyncio
from typing import Final

from actors.backlog import EntryBatch, PendingEntry, commit
from actors.commits import Committer
from actors.runtime import Runtime
from protocol import limits
from protocol.errors import Refusal
from protocol.links import Entries, EntryTold
from storage.formats.entries import Entry

AGAIN_SECONDS: Final = 1.0
"""Interval of retrying a refused commit (s): the disk is full, or too few followers are attached.
"""


class EntryForwarding:
    """On the loop only."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._allowed: dict[str, tuple[float, int]] = {}
        """Token bucket of each node: entries it may still send at once, and the time of that count
        (µs). One for each row at most."""

    async def keep(self, node: str, said: Entries) -> None:
        """Commit the entries of a follower; return once they are released. Idempotent.

        Cancel it when this node no longer leads.

        :param node: id of the follower
        """
        # The wait slows the follower too: it sends no batch until this one is confirmed.
        await self._wait_for_allowance(node, len(said.entries))
        batch = EntryBatch(said.life, said.first, tuple(map(_from_message, said.entries)))
        while True:
            try:
                await self._committer.released(commit(self._committer, node, batch))
                return
            except Refusal:
                # Repeating is safe: commits record the entry numbers, so an entry is stored once.
                await asyncio.sleep(AGAIN_SECONDS)

    async def _wait_for_allowance(self, node: str, count: int) -> None:
        rate, now_us = limits.ENTRIES_CARRIED_A_SECOND, self._monotonic_us()
        left, since_us = self._allowed.get(node, (limits.ENTRIES_CARRIED_AT_ONCE, now_us))
        gained = (now_us - since_us) / 1_000_000 * rate
        # The count may fall below zero: a large batch is paid for by the wait after it.
        left = min(limits.ENTRIES_CARRIED_AT_ONCE, left + gained) - count
        self._allowed[node] = left, now_us
        if left < 0:
            await asyncio.sleep(-left / rate)


def message_of(noted: PendingEntry) -> EntryTold:
    """Return an entry in the form of a link message."""
    entry = noted.entry
    return EntryTold(
        noted.at_us, noted.user, noted.surface, noted.statement, noted.reason,  # type: ignore[arg-type]
        entry.kept, entry.request, entry.address, entry.namespace, entry.database, entry.places,
        entry.action, entry.refused, entry.needs, entry.more,
    )  # fmt: skip


def _from_message(told: EntryTold) -> PendingEntry:
    entry = Entry(
        told.kept, told.request, told.address, told.namespace, told.database, told.places,
        told.action, told.refused, told.needs, told.more,
    )  # fmt: skip
    return PendingEntry(told.user, told.surface, told.statement, told.reason, entry, told.at)
