"""Operations on keys of one request, from their run to their answer.

- Operations that write share a commit (group commit). Each is atomic by itself all the same, and no
  answer leaves before all it shows is durable.
- A GET preceded by GETs only is read from the present state, without a transaction.
- A request that waits for the disk is listed in INFO FOR RUNNING and ended by KILL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.commits.committer import NamedAuthor
from actors.commits.requesters import Requester, described
from actors.commits.waiters import Waiter
from actors.execution.registry import credential_of
from actors.rights import Privileges
from actors.sessions import ENDED, session_name
from actors.spaces.access_cache import CallerOrToken, Names
from actors.spaces.operations import listed, perform, statements
from protocol import limits
from protocol.errors import NotAllowed, Refusal, SessionEnded
from protocol.requests import Caller
from protocol.spaces import GetKey, KeyAnswer, KeyOperation, ListKeys, LockKey, Room
from protocol.values import Value
from storage.catalog.spaces import Space
from storage.keyspace.keyspace import SpaceKeys, SpaceReader
from storage.txn.latest import LatestState
from storage.txn.tickets import NO_COMMIT, CommitTicket
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.spaces.engine import SpaceEngine

COMMIT_BYTES: Final = 4 * limits.MIB
"""Bytes that operations of one request put into one commit before the next one begins."""

SEQ: Final = "seq"
"""Field of an answer with the sequence of its commit, beside the operation's own fields."""
Answers = tuple[KeyAnswer, ...]


class SpaceRequest(Waiter):
    """Operations of one request, with their results.

    :param room: as in `SpaceEngine.run`
    """

    # Class attributes are defaults: a short request (one GET or SET) saves the time to set them.

    shown = NO_COMMIT
    """Newest commit that the answers show: they wait for it."""
    soonest_us = 0
    """Earliest expiry written; 0: none."""
    blocked_by_lock = False
    """True if another's priority lock blocked it; then it has had no effect."""
    refusal: Refusal | None = None
    """Refusal of the whole request, except for changes already committed. Shown when all that it
    rests on is durable."""
    long: Sequence[tuple[int, Transaction]] = ()
    """Listings not finished within the slice, by number, each with a snapshot of its turn: later
    operations don't show in it."""
    answered = False
    """True once the outcome is known; `lost` is the exception, if it failed."""
    lost: BaseException | None = None
    listed = False
    """True while it is in the registry with its credential, which ends it."""
    promised = False
    """True if the caller is to be notified later."""
    ended_for: Refusal | None = None
    """Reason why its listing was ended."""
    _user: str | None = None
    """User of the request; None: not known, or its session has ended."""
    _commits: Sequence[CommitTicket] = ()
    """Its own commits, oldest first."""
    _read_bytes = 0
    _lapsed: Sequence[bytes] = ()
    _asked = False
    """True once it was checked that the node accepts writes; `_unwritable` is the refusal."""
    _unwritable: Refusal | None = None

    def __init__(
        self,
        spaces: SpaceEngine,
        asker: Requester[Answers],
        who: CallerOrToken,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room | None,
        began_us: int,
    ) -> None:
        super().__init__(spaces.committer, began_us)
        self._spaces = spaces
        self.asker = asker
        self._who = who
        self.names = names
        self.operations = operations
        self._room = room
        self.answers: list[KeyAnswer] = []
        self.space: Space
        self._privileges: Privileges

    # --- doing them -----------------------------------------------------------------------------

    def run(self, until_us: int) -> None:
        """Run all operations.

        :param until_us: time on the monotonic clock after which listings are left for later
        :raises Conflict: blocked by a priority lock, if it is `blocked_by_lock` now
        """
        if not self._enter():
            return
        self._read_ahead()
        # With a full byte budget the rest is not done.
        if len(self.answers) < len(self.operations) and not self._is_full(0):
            self._change(until_us)
        if self._lapsed:
            self.remove_expired(list(self._lapsed))
        if self._room is not None:
            # Only now: a request blocked by a priority lock reads it all again.
            self._room.left -= self._read_bytes

    def _enter(self) -> bool:
        """Authorize the request, and look up its space. Return False if it is refused."""
        spaces = self._spaces
        known = spaces.access_cache.known(self._who, self.names)
        if known is not None:
            self._user, (self.space, self._privileges) = known
            return True
        with self._committer.begin_transaction() as tx:
            try:
                caller: Caller = spaces.access_cache.caller(tx, self._who)
                self._user = caller.user
                self.space, self._privileges = spaces.access_cache.find(tx, caller, self.names)
            except Refusal as refusal:
                self.refusal = refusal
            # A refusal rests on pending commits too: a pending drop may be rolled back.
            self.rest_on(tx.ticket)
        return self.refusal is None

    def _is_full(self, more: int) -> bool:
        """True if the answers fill their byte budget."""
        return self._room is not None and self._read_bytes + more >= self._room.left

    def _read_ahead(self) -> None:
        """Answer leading GETs from the present state."""
        operations = self.operations
        if not operations or type(operations[0]) is not GetKey:
            return
        # No commit can come between these reads, so they need no read set.
        present = LatestState(self._committer.ledger)
        keys = SpaceReader(present, self.space)
        for operation in operations:
            if type(operation) is not GetKey or self._is_full(keys.read_bytes):
                break
            try:
                self._check(operation)
                self.answers.append(keys.get(operation.key))
            except Refusal as refusal:
                self.answers.append(refusal)
        # A pending commit was read: the answers wait for its release.
        if present.saw:
            self.rest_on(present.ticket)
        self._lapsed = keys.lapsed
        self._read_bytes = keys.read_bytes

    def _change(self, until_us: int) -> None:
        """Run the other operations, in as few commits as possible. A refused commit with earlier
        ones before it is the answer of its operations: the earlier ones have happened."""
        committer, done = self._committer, len(self.answers)
        begun = done
        tx = committer.begin_transaction()
        try:
            keys = SpaceKeys(tx, self.space)
            for operation in self.operations[done:]:
                if self._is_full(keys.read_bytes):
                    break
                if _begins_anew(tx, keys, operation):
                    self._commit(tx, keys, begun)
                    begun = len(self.answers)
                    tx = committer.begin_transaction()
                    keys = SpaceKeys(tx, self.space)
                try:
                    self._check(operation)
                    if type(operation) is not ListKeys:
                        self.answers.append(perform(keys, operation))
                        continue
                    whole = self._list(keys, operation, until_us)
                except Refusal as refusal:
                    self.answers.append(refusal)
                    continue
                # The slice is over. Changes so far are committed; the listing goes on by itself.
                if not whole:
                    self._commit(tx, keys, begun)
                    # After that commit: the snapshot shows the earlier operations of the request.
                    self._list_later()
                    begun = len(self.answers)
                    tx = committer.begin_transaction()
                    keys = SpaceKeys(tx, self.space)
            self._commit(tx, keys, begun)
        finally:
            tx.release()

    def _check(self, operation: KeyOperation) -> None:
        """Check that the node takes writes, and the privilege. :raises NotWritable, NotAllowed:"""
        if operation.writes:
            # Once for each request, and only for writes: any node answers reads.
            if not self._asked:
                self._asked = True
                try:
                    self._committer.check_writable()
                except Refusal as refusal:
                    self._unwritable = refusal
            if self._unwritable is not None:
                raise self._unwritable
        try:
            self._privileges.check(self.space, operation.needs)
        except NotAllowed as refusal:
            assert self._user is not None, "nobody knows whom this is refused"
            text = statements(self.space.name, [operation])
            self._spaces.statements.denied(self._user, self.asker, self.space, text, refusal)
            raise

    def _list(self, keys: SpaceKeys, operation: ListKeys, until_us: int) -> bool:
        """Answer a listing. Return False if the slice ended before it was finished."""
        found: list[str] = []
        whole = True
        monotonic_us = self._spaces.runtime.clock.monotonic_us
        for part in listed(keys, operation):
            found += part
            # A listing that has reached its limit is whole, whatever the time.
            if monotonic_us() >= until_us and len(found) < operation.limit:
                whole = False
                break
        self._read_bytes += sum(map(len, found))
        self.answers.append({"keys": found})
        return whole

    def _list_later(self) -> None:
        """Keep a snapshot for the listing that was answered last, unless it was refused."""
        if type(self.answers[-1]) is dict:
            tx = self._committer.begin_transaction()
            tx.pause()
            self.long = [*self.long, (len(self.answers) - 1, tx)]

    def _commit(self, tx: Transaction, keys: SpaceKeys, begun: int) -> None:
        """Commit the changes of the operations from number `begun` on, if any."""
        if tx.size:
            assert self._user is not None, "somebody unknown has changed something"
            # Answers may be fewer than operations: a full budget ends a request early.
            pairs = zip(self.operations[begun:], self.answers[begun:], strict=False)
            done = [pair for pair in pairs if pair[0].writes and type(pair[1]) is dict]
            wrote = [operation for operation, _ in done]
            tx.ignores_locks = bool(
                self._commits
            )  # the first part has happened: it can't be run again
            by = NamedAuthor(self._user, self.asker.surface)
            try:
                ticket = self._committer.commit(tx, by, statements(self.space.name, wrote))
            except Refusal as refusal:
                # Without an earlier commit the whole request fails, and may be held back.
                self.blocked_by_lock = tx.blocked_by_lock
                if not self._commits:
                    raise
                tx.release()
                # All operations of this commit share its refusal; earlier commits stand.
                self.answers[begun:] = [refusal] * (len(self.answers) - begun)
                return
            self._commits = [*self._commits, ticket]
            for _, answer in done:
                answer[SEQ] = ticket.sequence  # type: ignore[index]
            # A fencing token is the log time of the frame, known after the commit.
            keys.fill_fences()
            if keys.soonest_us and (not self.soonest_us or keys.soonest_us < self.soonest_us):
                self.soonest_us = keys.soonest_us
            self.rest_on(ticket)
        else:
            tx.release()
            self.rest_on(tx.ticket)
        if keys.lapsed:
            self._lapsed = [*self._lapsed, *keys.lapsed]
        self._read_bytes += keys.read_bytes

    def forget(self) -> None:
        """Reset it: it will be run again from its beginning."""
        self.let_go()
        self.answers.clear()
        self.shown = NO_COMMIT
        self.soonest_us = self._read_bytes = 0
        self.blocked_by_lock = False
        self._lapsed = ()
        self._asked, self._unwritable = False, None

    def let_go(self) -> None:
        """Release the snapshots of listings."""
        for _, tx in self.long:
            tx.release()
        self.long = ()

    def rest_on(self, ticket: CommitTicket) -> None:
        """Have the answers wait for a commit.

        :raises DiskFull, UnknownOutcome: a commit that they show was rolled back
        """
        if ticket.sequence:
            self.shown = self._committer.merge(self.shown, ticket)

    def remove_expired(self, lapsed: list[bytes]) -> None:
        """Remove keys that the answers report as expired: they may not come back. If that is
        refused, the whole request is, and nothing is reported."""
        try:
            ticket = self._spaces.remove_expired([(self.space, lapsed)])
        except Refusal as refusal:
            self.refusal = refusal
            return
        self.rest_on(ticket)

    # --- answering ------------------------------------------------------------------------------

    def answer(self) -> None:
        """Answer once all that the answers show is durable."""
        if self._committer.is_released(self.shown):
            self.on_result(None)
        else:
            if self.listed:
                self._delist()  # entered anew: neither its session nor a drain ends it
            self.wait(self.shown)

    def on_result(self, lost: BaseException | None) -> None:
        self.answered, self.lost = True, lost
        if self.listed:
            self._delist()
        if self.promised:
            self._report_result()

    def _report_result(self) -> None:
        lost = self.lost or self.refusal
        answers = tuple(self.answers) if lost is None else self._answers_kept(lost)
        try:
            self.asker.on_result(answers, lost if answers is None else None)
        except Exception as error:  # a bug in one callback must not fail the other requests
            self._spaces.runtime.report_error(type(self).__name__, error)

    def outcome(self) -> Answers:
        """Return the answers. :raises BaseException: the reason why there are none"""
        lost = self.lost or self.refusal
        answers = tuple(self.answers) if lost is None else self._answers_kept(lost)
        if answers is None:
            assert lost is not None, "there are no answers, and nobody knows why"
            raise lost
        return answers

    def _answers_kept(self, lost: BaseException) -> Answers | None:
        """Return answers for changes in durable commits, and the failure for all others. None:
        there are no such commits, or the failure is no refusal."""
        released = self._committer.is_released
        # A pending commit may still be rolled back: its answers fail with the rest.
        kept = {ticket.sequence for ticket in self._commits if released(ticket)}
        if not kept or not isinstance(lost, Refusal):
            return None
        return tuple(
            answer if type(answer) is dict and answer.get(SEQ) in kept else lost
            for answer in self.answers
        )

    # --- as a waiter ----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.asker.origin.request

    @property
    def written(self) -> CommitTicket:
        return self._commits[-1] if self._commits else NO_COMMIT

    def enlist(self) -> None:
        """Enter the registry: it waits for its turn, where it can be seen and ended."""
        who = self._who
        user, session = (
            ("", session_name(who)) if isinstance(who, bytes) else (who.user, who.session)
        )
        self.listed = True
        self._committer.registry.enter(self, credential_of(user, session))

    def _delist(self) -> None:
        self.listed = False
        self._committer.registry.leave(self)

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        self.end(SessionEnded(ENDED))

    def end(self, why: Refusal) -> bool:
        # At the disk: the outcome is unknown if a commit of its own is pending.
        if self.waits:
            return super().end(why)
        if not self._spaces.take_out(self):
            return self._spaces.end_listing(self, why)
        self._call_soon(self.on_result, why)
        return True

    def answer_ended(self, why: Refusal) -> None:
        # Later: the callback may run the next request at once, inside the code that ends this one.
        self._call_soon(self.resume, why)

    def _call_soon(self, tell: Callable[[BaseException | None], None], why: Refusal) -> None:
        self._spaces.runtime.loop.call_soon(tell, why)

    def _name_of_user(self) -> str | None:
        who = self._who
        if isinstance(who, bytes):
            return self._user or self._spaces.sessions.user_of(who)
        return who.user

    def describe(self, now_us: int) -> dict[str, Value]:
        namespace, database, space = self.names
        return described(
            self.asker.origin,
            self._name_of_user(),
            (namespace, database),
            # Operations that were run; before the first run, all of them.
            statements(space, self.operations[: len(self.answers)] or self.operations),
            since_us=now_us - self.began_us,
            commit=self.ticket.sequence if self.waits else None,
        )


def _begins_anew(tx: Transaction, keys: SpaceKeys, operation: KeyOperation) -> bool:
    """True if an operation needs a commit of its own. A lock that is acquired twice needs two
    commits for two fencing tokens."""
    return tx.size > COMMIT_BYTES or (
        type(operation) is LockKey and bool(tx.size) and keys.written_here(operation.key)
    )
