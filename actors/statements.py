"""What the node keeps of statements and of who came: the statement log and the audit trail.

What changes the store has its entry in its own commit. Refusals, sign-ins, and what was asked to be
kept though it only read, have commits of their own, which nobody waits for: a turn of the loop
gathers them. Of what somebody could make by the thousand a few a second are kept for each, and the
next one that is kept says how many were not.

What a node can't commit, since another leads, or nobody, or its disk is full, waits in its
`backlog`: it is carried to who leads (`actors/cluster/receiving.py`), or committed here once that
can be, and says then where and when it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from actors import backlog
from actors.backlog import Backlog, Batch, Noted, distrusted
from actors.commits import Asker, By, Committer, Origin
from actors.entry_views import Ids
from actors.rate_limited_log import RateLimitedLog
from actors.rights import Rights, ids_of
from actors.runtime import Runtime
from actors.sign_in_throttle import network
from protocol.doors import Rng
from protocol.errors import NotAllowed, Refusal
from protocol.requests import Caller, Surface
from storage import users
from storage.catalog import Space
from storage.entries import Entry
from storage.statements import AUDIT, STATEMENTS, after
from storage.transactions import Transaction

BURST: Final = 20
"""Of one kind, of one user, that are kept however quickly they come; then one for each second."""
REMEMBERED: Final = 1_024
"""Of whom it is remembered how many came."""
WAITING: Final = 1_024
"""Entries that wait for their turn of the loop."""
LATER_SECONDS: Final = 1.0
"""How often it is tried to commit what could not be."""
LAST_SECONDS: Final = 1.0
"""How long a node that stops waits for who leads to have what it carries there."""
Places = tuple[Ids, ...]
"""What an entry has touched, all of it."""
_NOT_KEPT: Final = "entries of the statement log were not kept"


@dataclass(slots=True)
class _Allowance:
    """How many more entries somebody may make at once."""

    left: float
    since_us: int
    more: Counter[Places]
    """That came since the last one that was kept, of each place: the number is told to whoever owns
    that."""


class Statements:
    """:param rights: says what a transaction has touched
    :param node: the id of this node
    """

    def __init__(
        self, runtime: Runtime, committer: Committer, rights: Rights, node: str, rng: Rng
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._rights = rights
        self._node = node
        self._allowances: OrderedDict[tuple[object, ...], _Allowance] = OrderedDict()
        self._waiting: list[Noted] = []
        self._turn: asyncio.Handle | None = None
        self.backlog = Backlog(runtime.clock, rng)
        """What could not be committed here, so far."""
        committer.on_withdraw.append(self._distrust_places)
        self._again: asyncio.TimerHandle | None = None
        """Runs while there is any of it."""
        self._over = False
        self._limited_log = RateLimitedLog("statements")

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
        places = ((),) if tx.withdrawn else self._rights.places(tx)
        code = "" if refusal is None else refusal.code
        more = self._admit(("statement", caller.user, code, places), places)
        if more is None:
            return
        origin = Origin(request, caller.surface, caller.address)
        entry = _entry(origin, places, place, audited, refusal)
        self._add(caller.user, caller.surface, statement, reason, entry, more)

    def denied(
        self, user: str, asker: Asker[Any], space: Space, statement: str, refusal: NotAllowed
    ) -> None:
        """Keep an entry of an operation on keys that a right was missing for. Where it came from is
        asked in a turn of its own: before its answer a request may have no name yet."""
        places: Places = (ids_of(space.database),)
        more = self._admit(("statement", user, refusal.code, places), places)
        if more is None:
            return
        generation = self._committer.generation

        def keep() -> None:
            origin, database = asker.origin, space.database
            place = database.namespace.name, database.name
            is_as_it_was = self._committer.generation == generation
            entry = _entry(origin, places if is_as_it_was else ((),), place, True, refusal)
            self._add(user, origin.surface, statement, None, entry, more)

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
        # Those refused of all places together: by whether one more is kept, which the sequence
        # shows to everybody, nobody learns whether there is a user of that name, and where.
        kind = (action, network(address), refused) if refused else (action, name, places)
        more = self._admit(kind, places)
        if more is None:
            return
        entry = Entry(AUDIT, "", address, None, None, places, action, refused or None)
        self._add(name if known else "", surface, None, None, entry, more)

    def did(self, action: str) -> None:
        """Keep an entry of the audit trail of what whoever runs the node has had it do."""
        more = self._admit((action,), ((),))
        if more is not None:
            entry = Entry(AUDIT, "", "local", None, None, ((),), action)
            self._add("", "command", None, None, entry, more)

    def _admit(self, kind: tuple[object, ...], places: Places) -> int | None:
        """How many like it, on the same places, were not kept since the last that was; None: this
        one is not either.

        :param kind: what makes one like another, of which so many are kept
        """
        now_us = self._runtime.clock.monotonic_us()
        allowance = self._allowances.get(kind)
        if allowance is None:
            if len(self._allowances) >= REMEMBERED:
                self._allowances.popitem(last=False)
            allowance = self._allowances[kind] = _Allowance(BURST, now_us, Counter())
        self._allowances.move_to_end(kind)
        allowance.left = min(BURST, allowance.left + (now_us - allowance.since_us) / 1_000_000)
        allowance.since_us = now_us
        if allowance.left < 1:
            if len(allowance.more) >= REMEMBERED and places not in allowance.more:
                allowance.more.clear()
            allowance.more[places] += 1
            return None
        allowance.left -= 1
        return allowance.more.pop(places, 0)

    def _add(
        self,
        user: str,
        surface: str,
        statement: str | None,
        reason: str | None,
        entry: Entry,
        more: int,
    ) -> None:
        """Have an entry committed in a turn of its own. :param more: as `_admit` answers"""
        if more:
            entry = after(entry, more)
        at_us = self._runtime.clock.wall_us()
        noted = Noted(user, surface, statement, reason, entry, at_us)
        if len(self._waiting) >= WAITING:
            self._hold([noted], "too many come at once")
            return
        self._waiting.append(noted)
        if self._turn is None:
            self._turn = self._runtime.loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._turn = None
        waiting, self._waiting = self._waiting, []
        for number, noted in enumerate(waiting):
            with self._committer.begin() as tx:
                try:
                    by = By(noted.user, noted.surface)
                    ticket = self._committer.commit(
                        tx, by, noted.statement, noted.reason, noted.entry
                    )
                except Refusal as refusal:
                    self._hold(waiting[number:], str(refusal))
                    return
            self._committer.when_released(ticket, partial(self._committed, noted))

    def _committed(self, noted: Noted, lost: BaseException | None) -> None:
        """What was committed is on the disk; or it was taken back, as far as is known, and waits
        again: an entry is rather there twice than lost."""
        if lost is not None:
            self._hold([noted], str(lost))

    def _distrust_places(self) -> None:
        """As `Backlog.distrust_places`, also of what waits for its turn of the loop."""
        self._waiting = [distrusted(one) for one in self._waiting]
        self.backlog.distrust_places()

    # --- what could not be committed --------------------------------------------------------------

    def _hold(self, noted: Sequence[Noted], why: str) -> None:
        missed = sum(not self.backlog.add(one) for one in noted)
        if missed:
            self._limited_log.warning(_NOT_KEPT, count=missed, why=why)
        self._later()

    def _later(self) -> None:
        if self._again is None and not self._over:
            self._again = self._runtime.loop.call_later(LATER_SECONDS, self._try)

    def _try(self) -> None:
        """Commit some of it here."""
        self._again = None
        batch = self.backlog.oldest()
        if batch is None or self._over:
            return
        try:
            ticket = backlog.commit(self._committer, self._node, batch)
        except Refusal:
            self._later()
            return
        self._committer.when_released(ticket, partial(self._tried, batch))

    def _tried(self, batch: Batch, lost: BaseException | None) -> None:
        if lost is not None:
            self._later()
        else:
            self.backlog.done(batch.last)
            self._runtime.loop.call_soon(self._try)

    async def close(self) -> None:
        """The node stops: what waits is committed now; what can't be is brought to who leads, if
        that takes a moment only."""
        if self._turn is not None:
            self._turn.cancel()
            self._commit()
        self._over = True
        if self._again is not None:
            self._again.cancel()
        until_us = self._runtime.clock.monotonic_us() + LAST_SECONDS * 1_000_000
        while self.backlog and self.backlog.is_carried:
            if self._runtime.clock.monotonic_us() >= until_us:
                break
            await asyncio.sleep(0.01)
        if self.backlog:
            self._limited_log.info(_NOT_KEPT, count=len(self.backlog), why="the node stops")
        self._limited_log.close()


def _entry(
    origin: Origin,
    places: Places,
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
