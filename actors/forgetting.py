"""Forgets the oldest entries of the statement log and the audit trail.

Of the statement log the newest are kept, whoever has made them. The room for the audit trail is
shared out: who makes many entries pushes out none of the others'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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
"""Of the audit trail that are forgotten in one commit."""


@dataclass(frozen=True, slots=True)
class _Look:
    """Said to itself: it is time to see whether there are more entries than are to be kept."""


_Part = tuple[tuple[object, ...], list[int]]
"""What is left of the way to whoever has made entries, and their sequences."""


@dataclass(slots=True)
class _Count:
    """How many entries there are."""

    keep: int
    """As many are to be."""
    found: int = 0
    upto: int = 0
    """Of commits up to that one."""


class ForgettingActor(LoopActor):
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
                await self._prune(where, count)
        except _LATER as refusal:
            log.info("old entries are still kept", why=str(refusal))
        self.after(LOOK_SECONDS, self._look)

    async def _prune(self, where: int, count: _Count) -> None:
        committer, upto = self._committer, self._committer.released_upto
        with committer.begin() as tx:
            tx.pause()
            if upto > count.upto:
                for some in oldest(tx, where, count.upto, upto):
                    count.found += len(some)
                    await asyncio.sleep(0)
                count.upto = upto
            excess = count.found - count.keep
            if excess <= count.keep // SPARE_PART:
                return
            if where == AUDIT:
                shared: dict[Maker, list[int]] = {}
                for entries in makers(tx, where, upto):
                    for maker, sequence in entries:
                        shared.setdefault(maker, []).append(sequence)
                    await asyncio.sleep(0)
            else:
                before = upto + 1
                for some in oldest(tx, where, 0, upto):
                    if len(some) > excess:
                        before = some[excess]
                        break
                    excess -= len(some)
                    await asyncio.sleep(0)
        if where == AUDIT:
            gone = beyond(shared, count.keep)
            for first in range(0, len(gone), AT_ONCE):
                await self._forget(
                    partial(forget_each, sequences=gone[first : first + AT_ONCE]), where
                )
        else:
            await self._forget(partial(forget, before=before), where)
        count.found = count.keep

    async def _forget(self, forget: Callable[[Transaction, int], None], where: int) -> None:
        committer = self._committer
        with committer.begin() as tx:
            forget(tx, where)
            promise = committer.commit(tx, NODE, reason="entries beyond those that are kept")
        await committer.released(promise)


def beyond(shared: Mapping[Maker, list[int]], room: int) -> list[int]:
    """Which entries of the audit trail have to go: the oldest of whoever has made most. The room
    is shared out evenly, first between the namespaces and the store itself, then between the
    databases of each, and at last between the users: nobody can push out another's by making
    many.

    :param shared: the sequences of each one's, the oldest first
    :param room: how many there may be
    """
    return _beyond([(maker, entries) for maker, entries in shared.items()], room)


def _beyond(shared: list[_Part], room: int) -> list[int]:
    parts: dict[object, list[_Part]] = {}
    for maker, entries in shared:
        parts.setdefault(maker[0], []).append((maker[1:], entries))
    gone: list[int] = []
    by_size = sorted((_size(part), number) for number, part in enumerate(parts.values()))
    every = list(parts.values())
    for place, (size, number) in enumerate(by_size):
        # Who needs less than its share leaves the rest to those who come after it.
        share = min(size, room // (len(by_size) - place))
        room -= share
        part = every[number]
        if len(part) == 1:
            gone += part[0][1][: size - share]
        elif size > share:
            gone += _beyond(part, share)
    return gone


def _size(part: list[_Part]) -> int:
    return sum(len(entries) for _, entries in part)
