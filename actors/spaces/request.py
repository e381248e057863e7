"""Operations on the keys of one space, sent in one request.

- Operations that write share a commit (group commit). Each is atomic by itself all the same, and no
  answer leaves before all it shows is durable.
- A GET preceded by GETs only is read from the present state, without a transaction.
- A listing of more than a slice goes on in a fiber, on a snapshot of its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.commits.committer import Committer, NamedAuthor
from actors.execution.registry import Credential, credential_of
from actors.execution.request import OrderedRequest, described
from actors.execution.transact import transact
from actors.rights import Privileges
from actors.sessions import Sessions, session_name
from actors.spaces.access_cache import CallerOrToken, Names, SpaceAccessCache
from actors.spaces.operations import listed, perform, statements
from actors.spaces.sweeping import Sweepers, remove_expired
from actors.statements import Statements
from protocol import limits
from protocol.errors import NotAllowed, Refusal
from protocol.requests import Caller
from protocol.spaces import GetKey, KeyAnswer, KeyOperation, ListKeys, LockKey, Room
from protocol.values import Value
from storage.catalog.spaces import Space
from storage.keyspace.keyspace import SpaceKeys, SpaceReader
from storage.txn.latest import LatestState
from storage.txn.tickets import NO_COMMIT, CommitTicket
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from actors.execution.fiber import Fiber
    from actors.execution.request import Requester

COMMIT_BYTES: Final = 4 * limits.MIB
"""Bytes that operations of one request put into one commit before the next one begins."""

SEQ: Final = "seq"
"""Field of an answer with the sequence of its commit, beside the operation's own fields."""
Answers = tuple[KeyAnswer, ...]


class KeysParts:
    """Parts of the node that requests on keys use."""

    def __init__(
        self,
        committer: Committer,
        sessions: Sessions,
        access_cache: SpaceAccessCache,
        statements: Statements,
        sweepers: Sweepers,
    ) -> None:
        self.committer = committer
        self.sessions = sessions
        self.access_cache = access_cache
        self.statements = statements
        self.sweepers = sweepers


class KeysRequest(OrderedRequest):
    """Operations of one request, with their results.

    :param who, names, operations, room: as in `SpaceService.run`
    """

    # Class attributes are defaults: a short request (one GET or SET) saves the time to set them.

    _long: Sequence[tuple[int, Transaction]] = ()
    """Listings not finished within the slice, by number, each with a snapshot of its turn: later
    operations don't show in it."""
    _is_unfinished = False
    """True if the listing answered last is one of these, and has no snapshot yet."""
    _user: str | None = None
    """User of the request; None: not known, or its session has ended."""
    _commits: Sequence[CommitTicket] = ()
    """Its own commits, oldest first."""
    _keys: SpaceKeys | None = None
    """Keys in the transaction under way."""
    _written: Sequence[tuple[KeyOperation, KeyAnswer]] = ()
    """Its operations that write, with their answers."""
    _read_bytes = 0
    _left = limits.INT_MAX
    """Byte budget of the answers."""
    _lapsed: Sequence[bytes] = ()
    _asked = False
    """True once it was checked that the node accepts writes; `_unwritable` is the refusal."""
    _unwritable: Refusal | None = None
    _until_us = 0
    """Time on the monotonic clock after which listings are left for later."""

    def __init__(
        self,
        parts: KeysParts,
        asker: Requester[Answers],
        who: CallerOrToken,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room | None,
    ) -> None:
        super().__init__(parts.committer, parts.committer.monotonic_us())
        self.asker = asker
        self._parts = parts
        self._who = who
        self._names = names
        self._operations = operations
        self._room = room
        self._answers: list[KeyAnswer] = []
        self._space: Space
        self._privileges: Privileges

    # --- doing them -----------------------------------------------------------------------------

    def run(self, until_us: int) -> bool:
        if not self._authorize():
            return True
        operations, answers = self._operations, self._answers
        if self._room is not None:
            self._left = self._room.left
        if operations and type(operations[0]) is GetKey:
            self._read_ahead()
        self._until_us = until_us
        # With a full byte budget the rest is not done.
        while len(answers) < len(operations) and self._read_bytes < self._left:
            self._transact()
        self._keys = None
        if self._lapsed:
            self._remove_expired(list(self._lapsed))
        if self._room is not None:
            # Only now: a request blocked by a priority lock reads it all again.
            self._room.left -= self._read_bytes
        return not self._long

    def _authorize(self) -> bool:
        """Authorize the request, and look up its space. Return False if it is refused."""
        access_cache = self._parts.access_cache
        known = access_cache.known(self._who, self._names)
        if known is not None:
            self._user, (self._space, self._privileges) = known
            return True
        with self._committer.begin_transaction() as tx:
            try:
                caller: Caller = access_cache.caller(tx, self._who)
                self._user = caller.user
                self._space, self._privileges = access_cache.find(tx, caller, self._names)
            except Refusal as refusal:
                self.refusal = refusal
            # A refusal rests on pending commits too: a pending drop may be rolled back.
            self.rest_on(tx.ticket)
        return self.refusal is None

    def _read_ahead(self) -> None:
        """Answer leading GETs from the present state."""
        # No commit can come between these reads, so they need no read set.
        present = LatestState(self._committer.ledger)
        keys = SpaceReader(present, self._space)
        for operation in self._operations:
            if type(operation) is not GetKey or keys.read_bytes >= self._left:
                break
            try:
                self._check(operation)
                self._answers.append(keys.get(operation.key))
            except Refusal as refusal:
                self._answers.append(refusal)
        # A pending commit was read: the answers wait for its release.
        if present.saw:
            self.rest_on(present.ticket)
        self._lapsed = keys.lapsed
        self._read_bytes = keys.read_bytes

    def _transact(self) -> None:
        """Run the next operations in one commit. A refused commit with earlier ones before it is
        the answer of its operations: the earlier ones have happened."""
        answers, begun = self._answers, len(self._answers)
        self._written = []
        try:
            ticket = transact(self._committer, self)
            self.rest_on(ticket)
            if self._written:
                self._follow_up(ticket)
        except Refusal as refusal:
            # Without an earlier commit the whole request fails, and may be held back.
            if not self._commits:
                raise
            answers[begun:] = [refusal] * (len(answers) - begun)
        if self._is_unfinished:
            self._is_unfinished = False
            # After that commit: the snapshot shows the earlier operations of the request.
            if type(answers[-1]) is dict:
                tx = self._committer.begin_transaction()
                tx.pause()
                self._long = [*self._long, (len(answers) - 1, tx)]

    def work(self, tx: Transaction) -> None:
        answers, begun = self._answers, len(self._answers)
        # The first part has happened: it can't be run again.
        tx.ignores_locks = bool(self._commits)
        keys = self._keys = SpaceKeys(tx, self._space)
        for operation in self._operations[begun:] if begun else self._operations:
            is_full = self._read_bytes + keys.read_bytes >= self._left
            if is_full or _begins_anew(tx, keys, operation):
                break
            try:
                self._check(operation)
                if type(operation) is not ListKeys:
                    answers.append(perform(keys, operation))
                elif not self._list(keys, operation):
                    # The slice is over. Changes so far are committed; the listing goes on.
                    self._is_unfinished = True
                    break
            except Refusal as refusal:
                answers.append(refusal)
        if keys.lapsed:
            self._lapsed = [*self._lapsed, *keys.lapsed]
        self._read_bytes += keys.read_bytes
        if tx.size:
            # Answers may be fewer than operations: a full budget ends a request early.
            pairs = zip(self._operations[begun:], answers[begun:], strict=False)
            self._written = [pair for pair in pairs if pair[0].writes and type(pair[1]) is dict]

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
            self._privileges.check(self._space, operation.needs)
        except NotAllowed as refusal:
            assert self._user is not None, "nobody knows whom this is refused"
            text = statements(self._space.name, [operation])
            self._parts.statements.denied(self._user, self.asker, self._space, text, refusal)
            raise

    def _list(self, keys: SpaceKeys, operation: ListKeys) -> bool:
        """Answer a listing. Return False if the slice ended before it was finished."""
        found: list[str] = []
        whole = True
        for part in listed(keys, operation):
            found += part
            # A listing that has reached its limit is whole, whatever the time.
            if self._committer.monotonic_us() >= self._until_us and len(found) < operation.limit:
                whole = False
                break
        self._read_bytes += sum(map(len, found))
        self._answers.append({"keys": found})
        return whole

    def attribution(self) -> tuple[NamedAuthor, str, None, None]:
        assert self._user is not None, "somebody unknown has changed something"
        text = statements(self._space.name, [operation for operation, _ in self._written])
        return NamedAuthor(self._user, self.asker.surface), text, None, None

    def _follow_up(self, ticket: CommitTicket) -> None:
        """Complete the answers with their commit."""
        keys = self._keys
        assert keys is not None
        self.written = ticket
        self._commits = [*self._commits, ticket]
        for _, answer in self._written:
            answer[SEQ] = ticket.sequence  # type: ignore[index]
        # A fencing token is the log time of the frame, known after the commit.
        if keys.locked:
            keys.fill_fences()
        # Before the release: after a roll back the sweep looks in vain, and no expiry is missed.
        if keys.soonest_us:
            self._parts.sweepers.expiring(self._space, keys.soonest_us)

    def _remove_expired(self, lapsed: list[bytes]) -> None:
        """Remove keys that the answers report as expired: they may not come back. If that is
        refused, the whole request is, and nothing is reported."""
        try:
            ticket = remove_expired(self._committer, [(self._space, lapsed)])
        except Refusal as refusal:
            self.refusal = refusal
            return
        self.rest_on(ticket)

    # --- long listings --------------------------------------------------------------------------

    def go_on(self, fiber: Fiber) -> None:
        """Finish listings that take more than a slice."""
        for number, tx in self._long:
            operation = self._operations[number]
            assert isinstance(operation, ListKeys)
            found: list[str] = []
            keys = SpaceKeys(tx, self._space)
            for part in listed(keys, operation):
                found += part
                fiber.tick()
            tx.release()
            self.rest_on(tx.ticket)
            self._answers[number] = {"keys": found}
            if keys.lapsed:
                self._remove_expired(keys.lapsed)

    def on_fiber_ended(self, error: Exception | None) -> BaseException | None:
        self.let_go()
        why = self.ended_by
        return error if why is None or error is not why else self.why_ended(why)

    def pause(self) -> None:
        """Do nothing: the snapshots are pinned, so commits during the yield do not show."""

    def let_go(self) -> None:
        for _, tx in self._long:
            tx.release()
        self._long = ()

    def reset(self) -> None:
        self.let_go()
        self._answers.clear()
        self.shown = NO_COMMIT
        self._read_bytes = 0
        self.blocked_by_lock = self._asked = False
        self._lapsed, self._unwritable = (), None

    # --- answering ------------------------------------------------------------------------------

    def answer(self, lost: BaseException | None) -> Answers | None:
        """Return the answers. Of a failed request, those for changes in durable commits, and the
        failure for all others; None: there are no such commits, or the failure is no refusal."""
        if lost is None:
            return tuple(self._answers)
        released = self._committer.is_released
        # A pending commit may still be rolled back: its answers fail with the rest.
        kept = {ticket.sequence for ticket in self._commits if released(ticket)}
        if not kept or not isinstance(lost, Refusal):
            return None
        return tuple(
            answer if type(answer) is dict and answer.get(SEQ) in kept else lost
            for answer in self._answers
        )

    def notify(self, answer: Answers | None, lost: BaseException | None) -> None:
        self.asker.on_result(answer, lost)

    # --- identity -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.asker.origin.request

    @property
    def user(self) -> str:
        who = self._who
        if isinstance(who, bytes):
            return self._user or self._parts.sessions.user_of(who) or ""
        return who.user

    @property
    def credential(self) -> Credential:
        who = self._who
        if isinstance(who, bytes):
            return credential_of("", session_name(who))
        return credential_of(who.user, who.session)

    def takes(self) -> Iterator[Hashable]:
        place = self.asker.connection, self._names
        yield place
        for operation in self._operations:
            yield *place, None if isinstance(operation, ListKeys) else operation.key

    def follows(self) -> Iterator[Hashable]:
        place = self.asker.connection, self._names
        for operation in self._operations:
            # A listing shows every key, so it follows any operation, and is followed by any.
            if isinstance(operation, ListKeys):
                yield place
            else:
                yield *place, operation.key
                yield *place, None

    def describe(self, now_us: int) -> dict[str, Value]:
        namespace, database, space = self._names
        return described(
            self.asker.origin,
            self.user or None,
            (namespace, database),
            # Operations that were run; before the first run, all of them.
            statements(space, self._operations[: len(self._answers)] or self._operations),
            since_us=now_us - self.began_us,
            commit=self.ticket.sequence if self.waits else None,
        )


def _begins_anew(tx: Transaction, keys: SpaceKeys, operation: KeyOperation) -> bool:
    """True if an operation needs a commit of its own. A lock that is acquired twice needs two
    commits for two fencing tokens."""
    return tx.size > COMMIT_BYTES or (
        type(operation) is LockKey and bool(tx.size) and keys.written_here(operation.key)
    )
