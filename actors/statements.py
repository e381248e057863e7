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
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from actors.commits import Asker, By, Committer, Origin
from actors.rights import Ids, Rights, ids_of
from actors.runtime import Runtime
from actors.tries import network
from protocol.errors import NotAllowed, Refusal
from protocol.requests import Caller, Surface
from storage import users
from storage.catalog import Space
from storage.entries import Entry
from storage.statements import AUDIT, STATEMENTS, after
from storage.transactions import Transaction

log = structlog.get_logger("statements")

BURST: Final = 20
"""Of one kind, of one user, that are kept however quickly they come; then one for each second."""
REMEMBERED: Final = 1_024
"""Of whom it is remembered how many came."""
WAITING: Final = 1_024
"""Entries that wait for their turn of the loop."""


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
        places = (ids_of(space.database),)
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

    def did(self, action: str) -> None:
        """Keep an entry of the audit trail of what whoever runs the node has had it do."""
        more = self._admit((action,))
        if more is not None:
            entry = Entry(AUDIT, "", "local", None, None, ((),), action)
            self._add(_Own(By("", "command"), None, None, entry), more)

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
