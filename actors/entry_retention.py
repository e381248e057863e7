"""Retention of the statement log and the audit trail: the oldest entries are removed. Segments of
the write-ahead log are pruned elsewhere: `storage/log/retention.py`.

The capacity of each is divided fairly. The statement log divides it between nodes: of each node the
newest entries are kept, whichever users made them. So a node that forwards made-up entries uses the
share of one node. The audit trail divides it between all makers of entries: a user with many
entries displaces no entries of others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from actors.commits.committer import NODE, Committer
from actors.runtime import LoopActor, Runtime, handles, tell
from protocol import limits
from protocol.errors import POSTPONES
from storage.audit.trail import EntryOrigin, forget, forget_each, makers, oldest
from storage.engine.engine import EngineUnreadable
from storage.formats.entries import AUDIT, STATEMENTS
from storage.txn.transaction import Transaction

log = structlog.get_logger("statements")

LOOK_SECONDS: Final = 60.0
"""Interval, in seconds, between checks of the number of entries."""
SPARE_PART: Final = 10
"""Divisor of the excess (1/10 of the limit) that is tolerated before entries are removed in bulk,
not one by one."""
AT_ONCE: Final = 1_000
"""Entries removed one by one in one commit; a longer consecutive run is removed as a range."""


@dataclass(frozen=True, slots=True)
class _CheckEntries:
    """Message of the actor to itself: check the number of entries."""


_Part = tuple[tuple[object, ...], EntryOrigin, int]
"""Remaining path to a maker, the maker (user in a database on a node), and its number of
entries."""


@dataclass(slots=True)
class _EntryCount:
    """Number of entries of the statement log or the audit trail."""

    keep: int
    """Limit."""
    found: int = 0
    """Entries counted. If another node leads and prunes, there may be fewer by now."""
    upto: int = 0
    """Sequence up to which entries were counted."""

    def is_over(self) -> bool:
        """True if entries have to be removed."""
        return self.found - self.keep > self.keep // SPARE_PART


class _RemovalPlan:
    """Builder of the removals, fed with each entry in order: it goes or it stays."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._singly: list[int] = []
        self._run: list[int] = []
        """Entries to remove since the last one that stays; of a long run, the first ones and the
        last."""

    def goes(self, sequence: int) -> None:
        """Note that the next entry has to be removed."""
        if len(self._run) > AT_ONCE:
            self._run[-1] = sequence
        else:
            self._run.append(sequence)

    def stays(self) -> None:
        """Note that the next entry stays, or that there is none."""
        if len(self._run) > AT_ONCE:
            self._ranges.append((self._run[0], self._run[-1]))
        else:
            self._singly += self._run
        self._run = []

    def steps(self) -> Iterator[Callable[[Transaction, int], None]]:
        """Yield the removals, each for a commit of its own."""
        for first, last in self._ranges:
            yield partial(forget, first=first, last=last)
        for at in range(0, len(self._singly), AT_ONCE):
            yield partial(forget_each, sequences=self._singly[at : at + AT_ONCE])


class EntryRetentionActor(LoopActor):
    """Checks periodically and removes the entries above the limits.

    :param keep: limit of the statement log, in entries
    """

    def __init__(self, runtime: Runtime, committer: Committer, keep: int) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._counts = {STATEMENTS: _EntryCount(keep), AUDIT: _EntryCount(limits.ENTRIES_KEPT)}

    def on_start(self) -> None:
        """Schedule the first check."""
        self.after(LOOK_SECONDS, self._send_check)

    def _send_check(self) -> None:
        tell(self.actor_ref, _CheckEntries())

    @handles(_CheckEntries)
    async def prune_entries(self, _message: _CheckEntries) -> None:
        """Prune, and schedule the next check."""
        try:
            for where, count in self._counts.items():
                await self._prune_readable(where, count)
        except POSTPONES as refusal:
            log.info("old entries could not be removed yet", why=str(refusal))
        self.after(LOOK_SECONDS, self._send_check)

    async def _prune_readable(self, where: int, count: _EntryCount) -> None:
        """Prune one of both; unreadable data in it does not keep the other from being pruned."""
        try:
            await self._prune(where, count)
        except EngineUnreadable as error:
            self.runtime.report_error(type(self).__name__, error)

    async def _prune(self, where: int, count: _EntryCount) -> None:
        committer, upto = self._committer, self._committer.commit_index
        with committer.begin_transaction() as tx:
            tx.pause()
            if upto > count.upto:
                for some in oldest(tx, where, count.upto, upto):
                    count.found += len(some)
                    await asyncio.sleep(0)
                count.upto = upto
            if not count.is_over():
                return
            shared = Counter[EntryOrigin]()
            for made in makers(tx, where, upto):
                shared.update(maker for maker, _ in made)
                await asyncio.sleep(0)
            count.found = shared.total()
            if not count.is_over():
                return
            going = await _oldest_of(makers(tx, where, upto), beyond(shared, count.keep))
        for step in going.steps():
            await self._forget(step, where)
        count.found = count.keep

    async def _forget(self, forget: Callable[[Transaction, int], None], where: int) -> None:
        committer = self._committer
        with committer.begin_transaction() as tx:
            forget(tx, where)
            ticket = committer.commit(tx, NODE, reason="entries beyond those that are kept")
        await committer.released(ticket)


async def _oldest_of(
    every: Iterable[list[tuple[EntryOrigin, int]]], count: Mapping[EntryOrigin, int]
) -> _RemovalPlan:
    """Return the removals of each maker's oldest entries, `count` of each. Yields the loop between
    parts."""
    left, all_left, going = dict(count), sum(count.values()), _RemovalPlan()
    for some in every:
        for maker, sequence in some:
            if left[maker]:
                left[maker] -= 1
                all_left -= 1
                going.goes(sequence)
            else:
                going.stays()
        if not all_left:
            break
        await asyncio.sleep(0)
    going.stays()
    return going


def beyond(shared: Mapping[EntryOrigin, int], room: int) -> dict[EntryOrigin, int]:
    """Return how many entries to remove of each maker, taken from those with the most entries.

    The room is divided evenly: first between the nodes, then between the namespaces and the store
    itself, then between the databases of each, and last between the users. So no user can displace
    another's entries by making many.

    :param shared: number of entries of each maker
    :param room: limit of all entries together
    """
    gone: dict[EntryOrigin, int] = {}
    _share([(maker, maker, count) for maker, count in shared.items()], room, gone)
    return gone


def _share(shared: list[_Part], room: int, gone: dict[EntryOrigin, int]) -> None:
    parts: dict[object, list[_Part]] = {}
    for way, maker, count in shared:
        parts.setdefault(way[0], []).append((way[1:], maker, count))
    by_size = sorted((_size(part), number) for number, part in enumerate(parts.values()))
    every = list(parts.values())
    for place, (size, number) in enumerate(by_size):
        # Smallest first: a part that needs less than its share leaves the rest to later ones.
        share = min(size, room // (len(by_size) - place))
        room -= share
        part = every[number]
        if len(part) == 1:
            gone[part[0][1]] = size - share
        else:
            _share(part, share, gone)


def _size(part: list[_Part]) -> int:
    return sum(count for *_, count in part)
