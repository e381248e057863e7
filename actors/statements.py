"""Statement log and audit trail: entries of statements, sign-ins and refusals.

A statement that changes the store has its entry in its own commit. Refusals, sign-ins, and reads
that are to be audited get commits of their own, which no request waits for; one loop iteration
gathers them. Entries that a client can cause by the thousand are limited to a few a second of each
kind. The next one kept reports how many were dropped.

Entries that this node can't commit, because it does not lead or its disk is full, wait in its
`backlog`. They are forwarded to the leader (`actors/cluster/replica_receiver.py`), or committed
here once that is possible. They then record the node and time of the event.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from actors import backlog
from actors.backlog import Backlog, EntryBatch, PendingEntry, distrusted
from actors.commits.committer import Committer, NamedAuthor
from actors.entry_views import Ids
from actors.execution.request import Requester, RequestOrigin
from actors.rate_limited_log import RateLimitedLog
from actors.rights import Rights, ids_of
from actors.runtime import Runtime
from actors.sign_in_throttle import network
from protocol.environment import Rng
from protocol.errors import NotAllowed, Refusal
from protocol.requests import Caller, Surface
from storage.audit.trail import after
from storage.catalog import users
from storage.catalog.spaces import Space
from storage.formats.entries import AUDIT, STATEMENTS, Entry
from storage.txn.transaction import Transaction

BURST: Final = 20
"""Entries of one kind and user kept in a burst; then one each second (token bucket)."""
REMEMBERED: Final = 1_024
"""Number of token buckets kept."""
WAITING: Final = 1_024
"""Maximum entries that wait for the next loop iteration."""
LATER_SECONDS: Final = 1.0
"""Interval, in seconds, between retries of failed commits."""
LAST_SECONDS: Final = 1.0
"""Seconds that a stopping node waits for the leader to accept its backlog."""
Places = tuple[Ids, ...]
"""All namespaces and databases that an entry has touched, by their ids."""
_NOT_KEPT: Final = "entries of the statement log were not kept"


@dataclass(slots=True)
class _Allowance:
    """Token bucket of the entries of one kind and user."""

    left: float
    since_us: int
    more: Counter[Places]
    """Entries dropped since the last one kept, by the namespaces and databases they touched: the
    owner of one is shown its number."""


class Statements:
    """Maker of the entries.

    :param rights: knows which namespaces and databases a transaction has touched
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
        self._waiting: list[PendingEntry] = []
        self._turn: asyncio.Handle | None = None
        self.backlog = Backlog(runtime.clock, rng)
        """Entries that could not be committed here yet."""
        committer.on_roll_back.append(self._distrust_places)
        self._again: asyncio.TimerHandle | None = None
        """Timer of the next retry, while the backlog is not empty."""
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
        """Return the entry of a statement that was run."""
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
        """Keep an entry of a statement that changed nothing: it was refused, or is audited.

        :param tx: its transaction, which may have ended
        """
        places = ((),) if tx.reads.rolled_back else self._rights.places(tx)
        code = "" if refusal is None else refusal.code
        more = self._admit(("statement", caller.user, code, places), places)
        if more is None:
            return
        origin = RequestOrigin(request, caller.surface, caller.address)
        entry = _entry(origin, places, place, audited, refusal)
        self._add(caller.user, caller.surface, statement, reason, entry, more)

    def denied(
        self, user: str, asker: Requester[Any], space: Space, statement: str, refusal: NotAllowed
    ) -> None:
        """Keep an entry of an operation on keys that was refused for a missing privilege.

        Its origin is read in a later loop iteration: before it is answered, a request may have no
        name yet.
        """
        places: Places = (ids_of(space.database),)
        more = self._admit(("statement", user, refusal.code, places), places)
        if more is None:
            return
        # After a roll back the ids of the database may belong to another one: attribute to the
        # store.
        generation = self._committer.generation

        def keep() -> None:
            origin, database = asker.origin, space.database
            place = database.namespace.name, database.name
            is_as_it_was = self._committer.generation == generation
            entry = _entry(origin, places if is_as_it_was else ((),), place, True, refusal)
            self._add(user, origin.surface, statement, None, entry, more)

        self._runtime.loop.call_soon(keep)

    def of_itself(self, tx: Transaction, caller: Caller) -> Entry:
        """Return the entry of a user's change of itself: its password."""
        places = self._rights.home(tx, caller.user)
        return Entry(STATEMENTS | AUDIT, "", caller.address, None, None, places)

    def record_access(
        self, action: str, name: str, surface: Surface, address: str, refused: str = ""
    ) -> None:
        """Keep an audit trail entry of a sign-in or sign-out, done or refused.

        :param name: as given; not kept if there is no such user, for it may be a password typed
            into the wrong field
        :param refused: code of the refusal
        """
        with self._committer.begin_transaction() as tx:
            places = self._rights.home(tx, name)
            known = users.is_taken(tx, name)
        # Refused sign-ins share one bucket for all databases. Whether an entry is kept shows in the
        # public sequence, and must not reveal if or where a user of that name exists.
        kind = (action, network(address), refused) if refused else (action, name, places)
        more = self._admit(kind, places)
        if more is None:
            return
        entry = Entry(AUDIT, "", address, None, None, places, action, refused or None)
        self._add(name if known else "", surface, None, None, entry, more)

    def did(self, action: str) -> None:
        """Keep an audit trail entry of an operator's command to the node."""
        more = self._admit((action,), ((),))
        if more is not None:
            entry = Entry(AUDIT, "", "local", None, None, ((),), action)
            self._add("", "command", None, None, entry, more)

    def _admit(self, kind: tuple[object, ...], places: Places) -> int | None:
        """Admit an entry through its token bucket.

        :param kind: key of the bucket
        :returns: number of like entries with the same `places` that were dropped since the last one
            kept; None: this one is dropped too
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
        """Queue an entry for a commit in a later turn. :param more: result of `_admit`"""
        if more:
            entry = after(entry, more)
        at_us = self._runtime.clock.wall_us()
        noted = PendingEntry(user, surface, statement, reason, entry, at_us)
        if len(self._waiting) >= WAITING:
            self._hold([noted], "too many entries at once")
            return
        self._waiting.append(noted)
        if self._turn is None:
            self._turn = self._runtime.loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._turn = None
        waiting, self._waiting = self._waiting, []
        for number, noted in enumerate(waiting):
            with self._committer.begin_transaction() as tx:
                try:
                    by = NamedAuthor(noted.user, noted.surface)
                    ticket = self._committer.commit(
                        tx, by, noted.statement, noted.reason, noted.entry
                    )
                except Refusal as refusal:
                    self._hold(waiting[number:], str(refusal))
                    return
            self._committer.when_released(ticket, partial(self._committed, noted))

    def _committed(self, noted: PendingEntry, lost: BaseException | None) -> None:
        """Handle the end of an entry's commit. A roll back, as far as is known, queues it again: an
        entry is rather stored twice than lost."""
        if lost is not None:
            self._hold([noted], str(lost))

    def _distrust_places(self) -> None:
        """Attribute waiting entries to the store, like `Backlog.distrust_places`."""
        self._waiting = [distrusted(one) for one in self._waiting]
        self.backlog.distrust_places()

    # --- backlog ----------------------------------------------------------------------------------

    def _hold(self, noted: Sequence[PendingEntry], why: str) -> None:
        missed = sum(not self.backlog.add(one) for one in noted)
        if missed:
            self._limited_log.warning(_NOT_KEPT, count=missed, why=why)
        self._later()

    def _later(self) -> None:
        if self._again is None and not self._over:
            self._again = self._runtime.loop.call_later(LATER_SECONDS, self._try)

    def _try(self) -> None:
        """Commit a batch of the backlog here."""
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

    def _tried(self, batch: EntryBatch, lost: BaseException | None) -> None:
        if lost is not None:
            self._later()
        else:
            self.backlog.done(batch.last)
            self._runtime.loop.call_soon(self._try)

    async def close(self) -> None:
        """Commit the waiting entries: the node stops. Give the leader a moment to accept the
        backlog."""
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
    origin: RequestOrigin,
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
