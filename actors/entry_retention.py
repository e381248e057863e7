"""Retention of the statement log and the audit trail: the oldest entries are removed.

The room for both is shared out. That for the statement log is between nodes: of each the newest are
kept, whoever has made them, and one that makes up what it brings has the room of one node. That for
the audit trail is between all who make entries: who makes many pushes out none of the others'.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from actors.commits import NODE, Committer
from actors.runtime import LoopActor, Runtime, handles, tell
from protocol import limits
from protocol.errors import (
    Busy,
    Conflict,
    DiskFull,
    Draining,
    Failed,
    NotEnoughReplicas,
    NotWritable,
    UnknownOutcome,
)
from storage.engine import EngineUnreadable
from storage.statements import AUDIT, STATEMENTS, Maker, forget, forget_each, makers, oldest
from storage.transactions import Transaction

log = structlog.get_logger("statements")

LOOK_SECONDS: Final = 60.0
"""How often it is looked whether there are more than are to be kept."""
_LATER: Final = (
    NotWritable, NotEnoughReplicas, Conflict, Busy, DiskFull, UnknownOutcome, Failed, Draining,
)  # fmt: skip
"""Why nothing is forgotten for now."""
SPARE_PART: Final = 10
"""There may be this part of them more until the oldest are forgotten: all at once, not singly."""
AT_ONCE: Final = 1_000
"""That are forgotten in one commit, each by itself; more than that in a row go as a range."""


@dataclass(frozen=True, slots=True)
class _Look:
    """Said to itself: it is time to see whether there are more entries than are to be kept."""


_Part = tuple[tuple[object, ...], Maker, int]
"""What is left of the way to whoever has made entries, who that is, and how many it has made."""


@dataclass(slots=True)
class _Count:
    """How many entries there are."""

    keep: int
    """As many are to be."""
    found: int = 0
    """Were found. Where another node leads, and forgets them, there are fewer by now."""
    upto: int = 0
    """Of commits up to that one."""

    def is_over(self) -> bool:
        """Whether some have to go."""
        return self.found - self.keep > self.keep // SPARE_PART


class _Going:
    """Those that have to go, told one after the other beside those that stay."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._singly: list[int] = []
        self._run: list[int] = []
        """Those behind the last one that stays; of many the first ones and the last."""

    def goes(self, sequence: int) -> None:
        """The next one has to go."""
        if len(self._run) > AT_ONCE:
            self._run[-1] = sequence
        else:
            self._run.append(sequence)

    def stays(self) -> None:
        """The next one stays, or there is none."""
        if len(self._run) > AT_ONCE:
            self._ranges.append((self._run[0], self._run[-1]))
        else:
            self._singly += self._run
        self._run = []

    def steps(self) -> Iterator[Callable[[Transaction, int], None]]:
        """What is to be done, each in a commit of its own."""
        for first, last in self._ranges:
            yield partial(forget, first=first, last=last)
        for at in range(0, len(self._singly), AT_ONCE):
            yield partial(forget_each, sequences=self._singly[at : at + AT_ONCE])


class EntryRetentionActor(LoopActor):
    """Looks now and then whether there are more than are to be kept.

    :param keep: entries of the statement log
    """

    def __init__(self, runtime: Runtime, committer: Committer, keep: int) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._counts = {STATEMENTS: _Count(keep), AUDIT: _Count(limits.ENTRIES_KEPT)}

    def on_start(self) -> None:
        """Begin to look."""
        self.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        tell(self.actor_ref, _Look())

    @handles(_Look)
    async def look(self, _message: _Look) -> None:
        """Look, and look again later."""
        try:
            for where, count in self._counts.items():
                await self._prune_readable(where, count)
        except _LATER as refusal:
            log.info("old entries are still kept", why=str(refusal))
        self.after(LOOK_SECONDS, self._look)

    async def _prune_readable(self, where: int, count: _Count) -> None:
        """Where one of both can't be read the other is looked after all the same."""
        try:
            await self._prune(where, count)
        except EngineUnreadable as error:
            self.runtime.noticed(type(self).__name__, error)

    async def _prune(self, where: int, count: _Count) -> None:
        committer, upto = self._committer, self._committer.released_upto
        with committer.begin() as tx:
            tx.pause()
            if upto > count.upto:
                for some in oldest(tx, where, count.upto, upto):
                    count.found += len(some)
                    await asyncio.sleep(0)
                count.upto = upto
            if not count.is_over():
                return
            shared = Counter[Maker]()
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
        with committer.begin() as tx:
            forget(tx, where)
            ticket = committer.commit(tx, NODE, reason="entries beyond those that are kept")
        await committer.released(ticket)


async def _oldest_of(
    every: Iterable[list[tuple[Maker, int]]], count: Mapping[Maker, int]
) -> _Going:
    """The oldest of each, so many as are said; some at a time."""
    left, all_left, going = dict(count), sum(count.values()), _Going()
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


def beyond(shared: Mapping[Maker, int], room: int) -> dict[Maker, int]:
    """How many entries of each have to go: those of whoever has made most. The room is shared out
    evenly, first between the nodes, then between the namespaces and the store itself, then between
    the databases of each, and at last between the users: nobody can push out another's by making
    many.

    :param shared: how many there are of each
    :param room: how many there may be
    """
    gone: dict[Maker, int] = {}
    _share([(maker, maker, count) for maker, count in shared.items()], room, gone)
    return gone


def _share(shared: list[_Part], room: int, gone: dict[Maker, int]) -> None:
    parts: dict[object, list[_Part]] = {}
    for way, maker, count in shared:
        parts.setdefault(way[0], []).append((way[1:], maker, count))
    by_size = sorted((_size(part), number) for number, part in enumerate(parts.values()))
    every = list(parts.values())
    for place, (size, number) in enumerate(by_size):
        # Who needs less than its share leaves the rest to those who come after it.
        share = min(size, room // (len(by_size) - place))
        room -= share
        part = every[number]
        if len(part) == 1:
            gone[part[0][1]] = size - share
        else:
            _share(part, share, gone)


def _size(part: list[_Part]) -> int:
    return sum(count for *_, count in part)
