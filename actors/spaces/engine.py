"""Engine for operations on keys that come without a script: run synchronously, on the loop.

Scripts work on keys through their own transactions, by the same rules (`perform`). The ledger
validates both, so that neither depends on the other for correctness.

- `run` returns the answer when all that the answer shows is released; otherwise the caller is
  notified later: see `actors/commits/requesters.py`.
- Keys may take one slice of the loop at a time (`limits.SLICE_US`). Requests beyond that are put
  off for an iteration of the loop, and later ones too: none overtakes.
- Operations blocked by another's priority lock wait for its end, and so do later ones for the same
  space.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from actors.commits.committer import NODE, Committer
from actors.commits.requesters import Requester
from actors.execution.blocking import CallbackWait
from actors.execution.loop_budget import LoopBudget
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime
from actors.sessions import Sessions
from actors.spaces.access_cache import CallerOrToken, Names, SpaceAccessCache
from actors.spaces.operations import listed
from actors.spaces.sweeping import EXPIRED, Sweepers
from actors.spaces.work import Answers, SpaceRequest
from actors.statements import Statements
from protocol import limits
from protocol.errors import (
    Busy,
    Draining,
    NotWritable,
    Refusal,
    UnknownOutcome,
)
from protocol.spaces import KeyOperation, ListKeys, Room
from storage.catalog.spaces import Space
from storage.keyspace.keyspace import SpaceKeys
from storage.txn.tickets import CommitTicket


class SpaceEngine:
    """Operations on the keys of all spaces; on the loop only."""

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        roles: Roles,
        sessions: Sessions,
        rights: Rights,
        statements: Statements,
    ) -> None:
        self.statements = statements
        self.runtime = runtime
        self.committer = committer
        self.sessions = sessions
        self.access_cache = SpaceAccessCache(committer, roles, sessions, rights)
        self.sweepers = Sweepers(runtime, committer)
        self.start_leading = self.sweepers.start_leading
        self.expiring = self.sweepers.expiring
        self.dropped = self.sweepers.dropped
        self._monotonic_us = runtime.clock.monotonic_us
        self._budget = LoopBudget(limits.SLICE_US)
        self._put_off: deque[SpaceRequest] = deque()
        self._put_off_scheduled = False
        """True if `_run_put_off` is scheduled."""
        self._late: dict[Names, deque[SpaceRequest]] = {}
        """Requests held back by priority locks, and later ones for the same spaces."""
        self._listing: dict[asyncio.Task[None], SpaceRequest] = {}
        self._stopped = False

    def run(
        self,
        asker: Requester[Answers],
        who: CallerOrToken,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room | None = None,
    ) -> Answers | None:
        """Run operations on the keys of one space in order, each atomic by itself: a refusal of one
        is its answer.

        :param who: a caller, or the digest of a token
        :param names: of namespace, database and space
        :param room: byte budget of the answers. Operations after the one that fills it are not done
            and get no answer. While any budget is left, at least one is done.
        :returns: the answers, if all they show is released; None: the caller is notified later
        :raises Refusal: of the request as a whole, without effect: SessionEnded, NotASpace,
            Draining, Busy, or a refusal of the log
        """
        began_us = self._monotonic_us()
        work = SpaceRequest(self, asker, who, names, operations, room, began_us)
        # One test for the common case: no queue, no lock, slice not used up.
        if self._put_off or self._late or self._budget.is_spent or self._stopped:
            if self._stopped:
                raise Draining("the node is stopping and accepts no new requests")
            if self._put_off_if_behind(work):
                return None
        # A loop busy with keys would keep the GIL from the thread of the log.
        urgent = self.runtime.urgent
        if urgent is not None and urgent.since_us:
            urgent.yield_gil(began_us)
        try:
            self._do(work, began_us + limits.SLICE_US)
        finally:
            self._budget.spend(self._monotonic_us() - began_us)
        if work.answered:
            return work.outcome()
        work.promised = True
        return None

    def _put_off_if_behind(self, work: SpaceRequest) -> bool:
        """Put a request off that must not overtake earlier ones, or that comes after the slice is
        used up. Return False if it can run now.

        :raises Busy: too many are put off
        """
        # A queue alone suffices: even with time left no request overtakes.
        if self._put_off or self._budget.is_spent:
            if len(self._put_off) >= limits.MAILBOX:
                raise Busy(f"too many requests on keys wait: the limit is {limits.MAILBOX}")
            self._put_off.append(work)
            work.enlist()
            self._schedule_put_off()
        elif work.names in self._late:
            self._hold_back(work)
        else:
            return False
        work.promised = True
        return True

    def _schedule_put_off(self) -> None:
        if not self._put_off_scheduled:
            self._put_off_scheduled = True
            self.runtime.loop.call_soon(self._run_put_off)

    def _run_put_off(self) -> None:
        """Run a slice of the requests put off."""
        self._put_off_scheduled = False
        began_us = self._monotonic_us()
        until_us = began_us + limits.SLICE_US
        put_off = self._put_off
        while put_off:
            work = put_off.popleft()
            # A lock may block its space since it was put off.
            if work.names in self._late:
                self._hold_back(work)
            else:
                self._do_late(work, until_us)
            if self._monotonic_us() >= until_us:
                break
        # Requests that still come in this iteration find this slice used up.
        self._budget.spend(self._monotonic_us() - began_us)
        if put_off:
            self._schedule_put_off()
        urgent = self.runtime.urgent
        if urgent is not None and urgent.since_us:
            urgent.yield_gil(self._monotonic_us())

    def _do_late(self, work: SpaceRequest, until_us: int) -> None:
        """Run a request whose caller waits already."""
        try:
            self._do(work, until_us)
        except Exception as error:
            work.on_result(error)

    def _do(self, work: SpaceRequest, until_us: int) -> None:
        """Run a request, and answer it or arrange for a later answer."""
        try:
            work.run(until_us)
        except Refusal:
            if not work.blocked_by_lock:
                work.let_go()
                raise
            # Blocked, it has had no effect: it runs again from its beginning.
            work.forget()
            self._hold_back(work)
            return
        except Exception as error:
            work.let_go()
            self.runtime.report_error(type(self).__name__, error)
            raise
        # Before the release: after a roll back the sweep looks in vain, and no expiry is missed.
        if work.soonest_us:
            self.expiring(work.space, work.soonest_us)
        if work.long:
            task = self.runtime.loop.create_task(self._list_on(work))
            self._listing[task] = work
            work.enlist()
            task.add_done_callback(self._listed)
        else:
            work.answer()

    # --- requests put off -----------------------------------------------------------------------

    def take_out(self, work: SpaceRequest) -> bool:
        """Remove a request that waits for its turn. Return False if it does not wait."""
        for line in (self._late.get(work.names), self._put_off):
            if line is not None and work in line:
                line.remove(work)
                return True
        return False

    def end_listing(self, work: SpaceRequest, why: Refusal) -> bool:
        """End a listing. Return False if it does not run, or was ended before."""
        for task, each in self._listing.items():
            if each is work and work.ended_for is None:
                work.ended_for = why
                task.cancel()
                return True
        return False

    # --- blocked by priority locks --------------------------------------------------------------

    def _hold_back(self, work: SpaceRequest) -> None:
        if work.names not in self._late:
            self._late[work.names] = deque()
            self.committer.priority_locks.block(CallbackWait(self._on_lock_released))
        self._late[work.names].append(work)
        work.enlist()

    def _on_lock_released(self, _lost: BaseException | None) -> None:
        """Resume requests that a priority lock held back, before all that were put off since."""
        late, self._late = self._late, {}
        for held_back in late.values():
            # `extendleft` reverses: `reversed` keeps the order of arrival.
            self._put_off.extendleft(reversed(held_back))
        if self._put_off:
            self._schedule_put_off()

    # --- long listings --------------------------------------------------------------------------

    async def _list_on(self, work: SpaceRequest) -> None:
        """Finish listings that take more than a slice; yield after each slice."""
        for number, tx in work.long:
            operation = work.operations[number]
            assert isinstance(operation, ListKeys)
            found: list[str] = []
            with tx:
                keys = SpaceKeys(tx, work.space)
                until_us = self._monotonic_us() + limits.SLICE_US
                for part in listed(keys, operation):
                    found += part
                    if self._monotonic_us() >= until_us:
                        # The snapshot is pinned, so commits during the yield do not show.
                        await asyncio.sleep(0)
                        until_us = self._monotonic_us() + limits.SLICE_US
                work.rest_on(tx.ticket)
            work.answers[number] = {"keys": found}
            if keys.lapsed:
                work.remove_expired(keys.lapsed)
        work.answer()

    def _listed(self, task: asyncio.Task[None]) -> None:
        work = self._listing.pop(task)
        work.let_go()
        if task.cancelled():
            stopped = UnknownOutcome("the node stopped before this was done")
            work.on_result(stopped if work.ended_for is None else work.why_ended(work.ended_for))
            return
        error = task.exception()
        if error is not None:
            if not isinstance(error, Refusal):
                self.runtime.report_error(type(self).__name__, error)
            work.on_result(error)

    # --- expired keys ---------------------------------------------------------------------------

    def remove_expired(self, lapsed: Sequence[tuple[Space, list[bytes]]]) -> CommitTicket:
        """Remove expired keys that a read skipped, in one commit. Return the ticket that its answer
        must wait for. See `storage/keyspace/keyspace.py`.

        :raises Busy, NotEnoughReplicas, Draining: they can't be removed now, so that no answer may
            say that they are gone
        """
        with self.committer.begin_transaction() as tx:
            for space, names in lapsed:
                SpaceKeys(tx, space).remove_expired(names)
            tx.ignores_locks = True  # a read says that they are gone: they may not come back
            try:
                return self.committer.commit(tx, NODE, reason=EXPIRED)
            except NotWritable:
                return tx.ticket  # a node that takes no writes: see docs/cache.md

    # --- the end --------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop: run requests put off, refuse those held back, end those that wait, then stop
        sweeping."""
        self._stopped = True
        # Their callers were promised an answer.
        while self._put_off:
            self._run_put_off()
        late, self._late = self._late, {}
        for held_back in late.values():
            for work in held_back:
                work.on_result(Draining("the node is stopping and accepts no new requests"))
        for task in list(self._listing):
            task.cancel()
        # A cancelled task leaves in `_listed`, an iteration later.
        while self._listing:
            await asyncio.sleep(0)
        for waiter in list(self.committer.waiters):
            if isinstance(waiter, SpaceRequest):
                waiter.end(Draining("the node is stopping"))
        await self.sweepers.stop()
