"""What the node keeps of statements and of who came: the statement log and the audit trail.

What changes the store has its entry in its own commit. Refusals, sign-ins, and what was asked to be
kept though it only read, have commits of their own, which nobody waits for: a turn of the loop
gathers them. Of what somebody could make by the thousand a few a second are kept for each, and the
next one that is kept says how many were not.

A node that takes no changes keeps none of these: what it refuses stands in its own output.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog

from actors.commits import NODE, Asker, By, Committer, Origin
from actors.rights import Ids, Rights
from actors.runtime import LoopActor, Runtime, handles, tell
from actors.tries import network
from protocol import limits
from protocol.errors import (
    Busy,
    Conflict,
    DiskFull,
    Failed,
    NotAllowed,
    NotWritable,
    Refusal,
    UnknownOutcome,
)
from protocol.requests import Caller, Surface
from storage import users
from storage.catalog import Space
from storage.entries import Entry
from storage.statements import AUDIT, STATEMENTS, Maker, after, forget, forget_each, makers, oldest
from storage.transactions import Transaction

log = structlog.get_logger("statements")

BURST: Final = 20
"""Of one kind, of one user, that are kept however quickly they come; then one for each second."""
REMEMBERED: Final = 1_024
"""Of whom it is remembered how many came."""
WAITING: Final = 1_024
"""Entries that wait for their turn of the loop."""
LOOK_SECONDS: Final = 60.0
"""How often it is looked whether there are more than are to be kept."""
_LATER: Final = (NotWritable, Conflict, Busy, DiskFull, UnknownOutcome, Failed)
"""Why nothing is forgotten for now."""
SPARE_PART: Final = 10
"""There may be this part of them more until the oldest are forgotten: all at once, not singly."""
AT_ONCE: Final = 1_000
"""Of the audit trail that are forgotten in one commit."""


@dataclass(slots=True)
class _Allowance:
    """How many more entries somebody may make at once."""

    left: float
    since_us: int
    more: int = 0
    """That came since the last one that was kept."""


@dataclass(frozen=True, slots=True)
class _Own:
    """An entry that waits for a commit of its own."""

    by: By
    statement: str | None
    reason: str | None
    entry: Entry


class Statements:
    """:param rights: says what a transaction has touched"""

    def __init__(self, runtime: Runtime, committer: Committer, rights: Rights) -> None:
        self._runtime = runtime
        self._committer = committer
        self._rights = rights
        self._allowances: OrderedDict[tuple[object, ...], _Allowance] = OrderedDict()
        self._waiting: list[_Own] = []
        self._turn: asyncio.Handle | None = None

    def of(
        self,
        tx: Transaction,
        caller: Caller,
        request: str,
        place: tuple[str | None, str | None],
        audited: bool,
    ) -> Entry:
        """The entry of a statement that was run."""
        kept = STATEMENTS | AUDIT if audited else STATEMENTS
        places = self._rights.places(tx)
        return Entry(kept, request, caller.address, place[0], place[1], places)

    def keep(
        self,
        tx: Transaction,
        caller: Caller,
        request: str,
        place: tuple[str | None, str | None],
        statement: str,
        reason: str | None = None,
        *,
        audited: bool = False,
        refusal: Refusal | None = None,
    ) -> None:
        """Keep an entry of what changes nothing: it was refused, or is to be kept all the same.

        :param tx: that it was run in, which may have ended
        """
        places = self._rights.places(tx)
        code = "" if refusal is None else refusal.code
        more = self._admit(("statement", caller.user, code, places))
        if more is None:
            return
        origin = Origin(request, caller.surface, caller.address)
        entry = _entry(origin, places, place, audited, refusal)
        self._add(_Own(By(caller.user, caller.surface), statement, reason, entry), more)

    def denied(
        self, user: str, asker: Asker[Any], space: Space, statement: str, refusal: NotAllowed
    ) -> None:
        """Keep an entry of an operation on keys that a right was missing for. Where it came from is
        asked in a turn of its own: before its answer a request may have no name yet."""
        places = (self._rights.ids(space.database),)
        more = self._admit(("statement", user, refusal.code, places))
        if more is None:
            return

        def keep() -> None:
            origin, database = asker.origin, space.database
            place = database.namespace.name, database.name
            entry = _entry(origin, places, place, True, refusal)
            self._add(_Own(By(user, origin.surface), statement, None, entry), more)

        self._runtime.loop.call_soon(keep)

    def of_itself(self, tx: Transaction, caller: Caller) -> Entry:
        """The entry of what a user changes of itself: its password."""
        places = self._rights.home(tx, caller.user)
        return Entry(STATEMENTS | AUDIT, "", caller.address, None, None, places)

    def came(
        self, action: str, name: str, surface: Surface, address: str, refused: str = ""
    ) -> None:
        """Keep an entry of the audit trail of who has come or gone, or was not let in.

        :param name: as it was given: where there is no such user it is not kept, for it may be a
            password that went into the wrong field
        :param refused: the code of the refusal
        """
        with self._committer.begin() as tx:
            places = self._rights.home(tx, name)
            known = users.is_taken(tx, name)
        more = self._admit((action, network(address) if refused else name, refused, places))
        if more is None:
            return
        by = By(name if known else "", surface)
        entry = Entry(AUDIT, "", address, None, None, places, action, refused or None)
        self._add(_Own(by, None, None, entry), more)

    def _admit(self, kind: tuple[object, ...]) -> int | None:
        """How many like it were not kept since the last that was; None: this one is not either.

        :param kind: what makes one like another; the place is part of it, for the number is told to
            whoever owns that
        """
        now_us = self._runtime.clock.monotonic_us()
        allowance = self._allowances.get(kind)
        if allowance is None:
            if len(self._allowances) >= REMEMBERED:
                self._allowances.popitem(last=False)
            allowance = self._allowances[kind] = _Allowance(BURST, now_us)
        self._allowances.move_to_end(kind)
        allowance.left = min(BURST, allowance.left + (now_us - allowance.since_us) / 1_000_000)
        allowance.since_us = now_us
        if allowance.left < 1:
            allowance.more += 1
            return None
        allowance.left -= 1
        more, allowance.more = allowance.more, 0
        return more

    def did(self, action: str) -> None:
        """Keep an entry of the audit trail of what whoever runs the node has had it do."""
        more = self._admit((action,))
        if more is not None:
            entry = Entry(AUDIT, "", "local", None, None, ((),), action)
            self._add(_Own(By("", "command"), None, None, entry), more)

    def _add(self, own: _Own, more: int) -> None:
        if len(self._waiting) >= WAITING:
            return
        if more:
            own = replace(own, entry=after(own.entry, more))
        self._waiting.append(own)
        if self._turn is None:
            self._turn = self._runtime.loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._turn = None
        waiting, self._waiting = self._waiting, []
        for number, own in enumerate(waiting):
            with self._committer.begin() as tx:
                try:
                    self._committer.commit(tx, own.by, own.statement, own.reason, own.entry)
                except Refusal as refusal:
                    log.info(
                        "entries of the statement log were not kept",
                        count=len(waiting) - number,
                        why=str(refusal),
                    )
                    return

    def close(self) -> None:
        """The node stops: what waits is committed now."""
        if self._turn is not None:
            self._turn.cancel()
            self._commit()


def _entry(
    origin: Origin,
    places: tuple[Ids, ...],
    place: tuple[str | None, str | None],
    audited: bool,
    refusal: Refusal | None,
) -> Entry:
    kept = STATEMENTS | AUDIT if audited or type(refusal) is NotAllowed else STATEMENTS
    refused = needs = None
    if refusal is not None:
        refused, needs = refusal.code, refusal.detail.get("needs")
    needed = needs if isinstance(needs, str) else None
    return Entry(kept, origin.request, origin.address, *place, places, None, refused, needed)


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


class StatementsActor(LoopActor):
    """Forgets the oldest entries when there are more than are to be kept, some at a time.

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
