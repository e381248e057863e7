"""Removal of expired keys: one actor for each space that has keys with an expiry.

A sweep removes a bounded slice of expired keys in a commit of its own, waits until that is durable,
and pauses as long as it took. Keys have no timers: a space has one, for its earliest expiry. A
space without expiries has no actor. Its actor starts with the first key that expires. It ends with
the last such key, with its space, or with the lead: another leader may give an id to another space
(`storage/txn/ids.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from actors.commits.committer import NODE, Committer
from actors.runtime import REST_SECONDS, LoopActor, Runtime, Slices, Supervised, handles, tell
from protocol import limits
from protocol.errors import Busy, NotWritable, Refusal
from protocol.values import unpaced
from storage.catalog import places as catalog_places
from storage.catalog import spaces
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.engine.engine import EngineUnreadable
from storage.formats.keys import expiry_time
from storage.keyspace.keyspace import SpaceKeys
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction

EXPIRED: Final = "expired"
"""Reason of commits by which the node removes expired keys."""


@dataclass(frozen=True, slots=True)
class StartSweep:
    """Start of a sweep, sent to a space's actor by its timer."""


@dataclass(frozen=True, slots=True)
class ExpiryWritten:
    """Notice to a space's actor that a key with an expiry was written."""

    at_us: int


@dataclass(eq=False, slots=True)
class SpaceSweep:
    """Schedule of one space's sweeps, as long as it has an actor."""

    space: Space
    place: Supervised[SweepActor] | None = None
    """Place of the actor; None: it has ended."""
    due_us: int | None = None
    """Log time of the actor's next look for expired keys."""


class Sweepers:
    """Registry of all sweep actors; on the loop only."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        self.runtime = runtime
        self.committer = committer
        self.sweeps: dict[int, SpaceSweep] = {}
        """Schedules by the space's id."""
        self._parting: set[asyncio.Task[None]] = set()
        self._leads = False
        """True if this node leads, and therefore sweeps."""
        self._leads_ended = 0
        """Times that the lead was lost."""
        self._stopped = False
        committer.on_roll_back.append(self.look_again)
        committer.on_lead_lost.append(self.end_actors)

    async def start_leading(self) -> None:
        """Start an actor for every space that has keys with an expiry, in slices."""
        self._leads, leads_ended = True, self._leads_ended
        with self.committer.begin_transaction() as tx:
            slices = Slices(self.runtime.clock, tx.pause)
            for space in _all(tx):
                if self._stopped or self._leads_ended != leads_ended:
                    return
                # A write since `start_leading` may have started the space's actor already.
                if space is not None and space.id not in self.sweeps and _has_expiries(tx, space):
                    self._place(space)
                await slices.tick()

    def end_actors(self) -> None:
        """End all actors: another node leads, and sweeps, until the next `start_leading`."""
        # The count also ends a `start_leading` that is in a pause.
        self._leads, self._leads_ended = False, self._leads_ended + 1
        for sweep in list(self.sweeps.values()):
            self.end(sweep)

    def expiring(self, space: Space, at_us: int) -> None:
        """Schedule a sweep: a key of a space expires at that log time."""
        # A follower gets the removals with its leader's log.
        if self._stopped or not self._leads:
            return
        sweep = self.sweeps.get(space.id)
        if sweep is None:
            self._place(space)  # it looks by itself when it starts
        elif sweep.due_us is None or sweep.due_us > at_us:
            self._notify_actor(sweep, at_us)

    def _notify_actor(self, sweep: SpaceSweep, at_us: int) -> None:
        assert sweep.place is not None, "it has ended"
        try:
            tell(sweep.place.ref, ExpiryWritten(at_us))
        except Busy:
            return  # it has much to do, and looks at the expiries after that

    def dropped(self, what: Namespace | Database | Space) -> None:
        """End the actors of a dropped space, database or namespace. Done once the drop is durable:
        a full disk may roll it back."""
        ids = _ids(what)
        gone = [one for one in self.sweeps.values() if _ids(one.space)[: len(ids)] == ids]
        if gone:
            committer = self.committer
            # The newest commit covers the drop.
            ticket = committer.ticket(committer.committed)
            committer.when_released(ticket, partial(self._end_dropped, gone))

    def _end_dropped(self, gone: list[SpaceSweep], lost: BaseException | None) -> None:
        if lost is None:
            for sweep in gone:
                self.end(sweep)

    def look_again(self) -> None:
        """Have all actors look again: pending commits were rolled back, and deleted keys may be
        there again."""
        now_us = self.committer.ledger.log_time()
        if self._stopped:
            return
        for sweep in self.sweeps.values():
            sweep.due_us = None
            self._notify_actor(sweep, now_us)

    def end(self, sweep: SpaceSweep) -> None:
        """End an actor: its space has no expiries, or was dropped."""
        if sweep.place is None or self._stopped:
            return
        # Out of the registry first: a key written from here on starts another actor.
        place, sweep.place = sweep.place, None
        del self.sweeps[sweep.space.id]
        parting = asyncio.ensure_future(place.stop(), loop=self.runtime.loop)
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

    def places(self) -> list[Supervised[SweepActor]]:
        """Return the places of all actors."""
        return [sweep.place for sweep in self.sweeps.values() if sweep.place is not None]

    async def stop(self) -> None:
        """Stop every actor."""
        self._stopped = True
        for place in self.places():
            await place.stop()
        await asyncio.gather(*self._parting)

    def _place(self, space: Space) -> None:
        sweep = self.sweeps[space.id] = SpaceSweep(space)
        sweep.place = Supervised(
            lambda: SweepActor.start(self.runtime, self, sweep), refoldable=True
        )


class SweepActor(LoopActor):
    """Sweeps one space."""

    def __init__(self, runtime: Runtime, sweepers: Sweepers, sweep: SpaceSweep) -> None:
        super().__init__(runtime)
        self._sweepers = sweepers
        self._committer = sweepers.committer
        self._sweep = sweep
        self._space = sweep.space
        self._timer: asyncio.TimerHandle | None = None
        self._due_us = 0
        """Log time that the timer is set for."""
        self._swept_us = 0
        self._rests_until_us = 0
        """Log time before which no sweep takes place, after the state could not be read."""
        self._swept_to = b""
        """Place before which the expiry index is empty."""
        self._written_us = limits.INT_MAX
        """Earliest expiry written since the last sweep began."""
        self.swept = 0
        """Keys swept since the start of this actor."""

    def on_start(self) -> None:
        """Set the timer for the first expiry."""
        self._disarm()  # a timer of a failed predecessor
        self._look_ahead()

    def on_stop(self) -> None:
        """Cancel the timer."""
        self._disarm()

    @handles(ExpiryWritten)
    def expiring(self, message: ExpiryWritten) -> None:
        """Set the timer for a key that was written with an expiry."""
        if self._sweep.place is not None:
            self._expires_at(message.at_us)
        else:  # it was let go while this was on its way
            self._sweepers.expiring(self._space, message.at_us)

    @handles(StartSweep)
    async def sweep(self, _message: StartSweep) -> None:
        """Remove a slice of expired keys; then do the next, or wait for the next expiry."""
        committer = self._committer
        began_us = self._monotonic_us()
        # Unless more keys are due, the next sweep begins `SWEEP_SECONDS` later at the earliest.
        self._swept_us = committer.ledger.log_time()
        # Before the transaction: expiries written during the wait below are noted.
        self._written_us = limits.INT_MAX
        try:
            with committer.begin_transaction() as tx:
                space = self._present(tx)
                if space is None:
                    self._end_unless_taken_back(tx)
                    return
                done, last = SpaceKeys(tx, space).sweep(limits.SWEEP_KEYS, self._swept_to)
                ticket = committer.commit(tx, NODE, reason=EXPIRED) if tx.size else None
            took_us = self._monotonic_us() - began_us
            if ticket is not None:
                # `_swept_to` moves after the release only: a roll back brings index entries back.
                await committer.released(ticket)
            # A key was written with an expiry up to that of `last`: the next sweep starts over.
            passed = last and self._written_us <= expiry_time(last)
            self._swept_to = b"" if passed else max(self._swept_to, last)
            self.swept += done
        except Refusal:
            # Refused or rolled back: the same keys are due again.
            self._arm(self._swept_us + limits.SWEEP_SECONDS * 1_000_000)
            return
        except EngineUnreadable as error:
            self._pause_sweeps(error)
            return
        if done < limits.SWEEP_KEYS:
            self._look_ahead()
        elif self.actor_ref.is_alive():
            # More are due. A pause as long as the sweep leaves half of the loop to others.
            self._timer = self.after(took_us / 1_000_000, self._time_to_sweep)
            self._due_us = self._swept_us

    def _present(self, tx: Transaction) -> Space | None:
        """Return the space as it is declared now; None: it was dropped."""
        space = self._space
        database = space.database
        found = find_space(tx, database.namespace.name, database.name, space.name)
        return found if found is not None and found.id == space.id else None

    def _look_ahead(self) -> None:
        try:
            self._schedule_next()
        except EngineUnreadable as error:
            self._pause_sweeps(error)

    def _pause_sweeps(self, error: EngineUnreadable) -> None:
        """Pause sweeps after an unreadable part of the state. Expired keys stay for that time,
        invisible to reads."""
        self.runtime.report_error(type(self).__name__, error)
        self._rests_until_us = self._committer.ledger.log_time() + int(REST_SECONDS * 1_000_000)
        self._arm(self._rests_until_us)

    def _schedule_next(self) -> None:
        """Set the timer for the next expiry, or end the actor. :raises EngineUnreadable:"""
        with self._committer.begin_transaction() as tx:
            space = self._present(tx)
            begin = self._swept_to
            at_us = SpaceKeys(tx, space).next_expiry_us(begin) if space is not None else None
            if at_us is not None:
                self._arm(at_us)
            else:
                self._end_unless_taken_back(tx)

    def _end_unless_taken_back(self, tx: Transaction) -> None:
        """End the actor: a transaction has found nothing to sweep. As long as a full disk may roll
        back commits it has read, look again instead: no other event would start an actor then."""
        if tx.saw > self._committer.commit_index:
            self._arm(self._committer.ledger.log_time())
        else:
            self._sweepers.end(self._sweep)

    def _expires_at(self, at_us: int) -> None:
        self._written_us = min(self._written_us, at_us)
        if self._swept_to and at_us <= expiry_time(self._swept_to):
            self._swept_to = b""  # written by a transaction that began before the sweep
        self._arm(at_us)

    def _arm(self, at_us: int) -> None:
        """Set the timer for that log time, or somewhat later: at most one sweep in
        `limits.SWEEP_SECONDS`."""
        soonest_us = self._swept_us + limits.SWEEP_SECONDS * 1_000_000
        at_us = max(at_us, soonest_us, self._rests_until_us)
        # An earlier timer stands: its sweep looks ahead by itself.
        if not self.actor_ref.is_alive() or (self._timer is not None and self._due_us <= at_us):
            return
        self._disarm()
        self._due_us = self._sweep.due_us = at_us
        wait_us = max(at_us - self._committer.ledger.log_time(), 0)
        self._timer = self.after(wait_us / 1_000_000, self._time_to_sweep)

    def _disarm(self) -> None:
        self._sweep.due_us = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_to_sweep(self) -> None:
        self._timer = None
        self._sweep.due_us = None
        try:
            tell(self.actor_ref, StartSweep())
        except Busy:
            self._arm(self._committer.ledger.log_time() + limits.SWEEP_SECONDS * 1_000_000)


def remove_expired(
    committer: Committer, lapsed: Sequence[tuple[Space, list[bytes]]]
) -> CommitTicket:
    """Remove expired keys that a read skipped, in one commit. Return the ticket that its answer
    must wait for. See `storage/keyspace/keyspace.py`.

    :raises Busy, NotEnoughReplicas, Draining: they can't be removed now, so that no answer may say
        that they are gone
    """
    with committer.begin_transaction() as tx:
        for space, names in lapsed:
            SpaceKeys(tx, space).remove_expired(names)
        tx.ignores_locks = True  # a read says that they are gone: they may not come back
        try:
            return committer.commit(tx, NODE, reason=EXPIRED)
        except NotWritable:
            return tx.ticket  # a node that takes no writes: see docs/cache.md


def find_space(tx: Transaction, namespace: str, database: str, name: str) -> Space | None:
    """Return a space by all its names, if there is one."""
    place = catalog_places.find_namespace(tx, namespace)
    within = catalog_places.find_database(tx, place, database) if place is not None else None
    return spaces.find_space(tx, within, name) if within is not None else None


def _ids(what: Namespace | Database | Space) -> tuple[int, ...]:
    """Return the ids of the enclosing namespace and database, and its own."""
    if isinstance(what, Namespace):
        return (what.id,)
    if isinstance(what, Database):
        return what.namespace.id, what.id
    return what.database.namespace.id, what.database.id, what.id


def _has_expiries(tx: Transaction, space: Space) -> bool:
    """True if a space has keys with an expiry; also if that can't be read: its actor reports it."""
    try:
        return SpaceKeys(tx, space).next_expiry_us() is not None
    except EngineUnreadable:
        return True


def _all(tx: Transaction) -> Iterator[Space | None]:
    """Every space, and None before those of each database: there may be many without any."""
    for database in catalog_places.every_database(tx, unpaced):
        yield None
        yield from spaces.spaces(tx, database, unpaced)
