"""Cache spaces while the node runs: one actor for each.

A space's actor runs single operations on its keys for the surfaces, without a script, and sweeps
what has expired. Scripts work on keys through their own transactions; all meet in the ledger, so
neither needs the other for being right.

- Operations that came together run one after the other in one go. Those that write share a commit,
  as long as they come from one caller: each is all or nothing by itself all the same, and no answer
  leaves before what it shows is durable.
- A sweep removes a bounded slice of expired keys in a commit of its own, waits until that is
  durable, and rests as long as it took. No key has a timer: a space has one, for the earliest of
  its expiries.
- `Spaces` is what others on the loop use without a message: to find a space's actor, and to tell it
  when a script has written a key that expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pykka import ActorRef

from actors.commits import NODE, By, Committer, Promise, Told, Waiter
from actors.rights import REMEMBERED_USERS, Rights, Standing
from actors.roles import Roles
from actors.runtime import LoopActor, Runtime, Supervised, handles, stop, tell
from actors.sessions import Sessions
from language.literals import parse_value
from language.words import quote
from protocol import limits
from protocol.errors import Busy, Conflict, Draining, NotASpace, NotWritable, Refusal, Unknown
from protocol.requests import AuthenticateToken, Caller, Surface
from protocol.rights import NOTHING, Verbs
from protocol.spaces import (
    DeleteKey,
    ExpireKey,
    GetKey,
    IncrKey,
    KeyAnswer,
    KeyOperation,
    ListKeys,
    LockKey,
    PersistKey,
    RunKeys,
    SetKey,
    SwapKey,
    UnlockKey,
    check_limit,
    check_prefix,
)
from protocol.text import duration, format_duration, quote_string
from protocol.values import NoneValue, Value
from storage import catalog
from storage.catalog import Space
from storage.engine import EngineFailed
from storage.keys import expiry_time
from storage.spaces import Keys, glance
from storage.transactions import Transaction

__all__ = ["Origin", "SpaceActor", "Spaces", "Sweep", "listed", "parse_value", "perform"]

COMMIT_BYTES: Final = 4 * limits.MIB
"""What operations that came together put into one commit, before the next one begins."""
NAMES: Final = 10_000
"""Names of spaces whose actors are remembered."""
EXPIRED: Final = "expired"
"""Why the node removes a key by itself."""

Answers = tuple[KeyAnswer, ...]

_PERFORM: Final[dict[type, Callable[[Keys, Any], Any]]] = {
    GetKey: lambda keys, op: keys.get(op.key),
    SetKey: lambda keys, op: keys.set(
        op.key, op.value, op.expire_us, keep=op.keep, when=op.when
    ),
    SwapKey: lambda keys, op: keys.swap(op.key, op.expect, op.value, op.expire_us),
    IncrKey: lambda keys, op: keys.incr(op.key, op.by),
    DeleteKey: lambda keys, op: keys.delete(op.key),
    ExpireKey: lambda keys, op: keys.expire(op.key, op.expire_us),
    PersistKey: lambda keys, op: keys.persist(op.key),
    LockKey: lambda keys, op: keys.lock(op.key, op.holder, op.expire_us, op.fence),
    UnlockKey: lambda keys, op: keys.unlock(op.key, op.holder, op.fence),
}  # fmt: skip


def perform(keys: Keys, operation: KeyOperation) -> Any:
    """Do one operation on one key. :raises Refusal: and nothing has changed"""
    return _PERFORM[type(operation)](keys, operation)


def listed(keys: Keys, operation: ListKeys) -> Iterator[list[str]]:
    """The keys that a listing asks for, in parts. :raises Refusal: of its arguments"""
    return keys.listing(
        check_prefix(operation.prefix, "PREFIX"),
        check_prefix(operation.after, "AFTER"),
        check_limit(operation.limit),
    )


@dataclass(frozen=True, slots=True)
class Sweep:
    """Said to a space's actor by its timer."""


@dataclass(frozen=True, slots=True)
class Expiring:
    """Said to a space's actor when somebody else has written a key that expires."""

    at_us: int


@dataclass(frozen=True, slots=True)
class _Named:
    """What the names of a space stand for."""

    version: int
    """Of the catalog that says so."""
    place: Supervised[SpaceActor]
    space: Space
    standings: dict[str, Standing] = field(default_factory=dict)
    """Of users, by name, as that catalog has them."""


class Spaces:
    """The spaces of the node and their actors; on the loop only."""

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        roles: Roles,
        sessions: Sessions,
        rights: Rights,
    ) -> None:
        self.runtime = runtime
        self.committer = committer
        self.roles = roles
        self.sessions = sessions
        self.rights = rights
        self.places: dict[int, Supervised[SpaceActor]] = {}
        """By the space's id."""
        self.due_us: dict[int, int] = {}
        """When the actor of a space, by its id, will look for expired keys: log time."""
        self._named: dict[tuple[str, str, str], _Named] = {}
        self._parting: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Start an actor for every space there is."""
        with self.committer.begin() as tx:
            for space in _all(tx):
                self._place(space)

    def find(self, namespace: str, database: str, name: str) -> ActorRef[SpaceActor] | None:
        """The actor of a space; None when there is no such space."""
        names = (namespace, database, name)
        version = self.committer.ledger.catalog_version
        known = self._named.get(names)
        if known is not None and known.version == version:
            return known.place.ref
        with self.committer.begin() as tx:
            space = find_space(tx, namespace, database, name)
        if space is None:
            self._named.pop(names, None)
            return None
        if len(self._named) >= NAMES:
            self._named.clear()
        place = self._place(space)
        self._named[names] = _Named(version, place, space)
        return place.ref

    def glance(
        self, token: bytes, names: tuple[str, str, str], key: str
    ) -> dict[str, Any] | NoneValue | None:
        """What `GetKey` answers to the session of a token, when that can be told at once and waits
        for nothing. None: ask the space's actor, who may also refuse.

        :param token: its digest
        :param names: of namespace, database and space
        """
        entered = self._enter_now(token, names, GetKey.needs)
        if entered is None:
            return None
        _, named = entered
        urgent = self.runtime.urgent
        if urgent is not None and urgent.since_us:
            urgent.give_way(self.runtime.clock.monotonic_us())
        try:
            return glance(self.committer.ledger, named.space, key)
        except (Refusal, EngineFailed):
            return None  # the actor meets it too, and answers with it

    def write_now(
        self,
        token: bytes,
        names: tuple[str, str, str],
        operation: KeyOperation,
        origin: Origin,
        told: Callable[[dict[str, Any], BaseException | None], None],
    ) -> bool:
        """Do at once what an operation on one key asks in the session of a token. False: it is for
        the space's actor, who may also refuse or find nothing to write, and nothing has changed.

        :param told: hears the answer, and why it is not durable, None when it is
        """
        committer = self.committer
        entered = self._enter_now(token, names, operation.needs)
        if entered is None:
            return False
        caller, named = entered
        try:
            with committer.begin() as tx:
                here = Keys(tx, named.space)
                answer = perform(here, operation)
                if not tx.size or here.locked or here.lapsed:
                    return False
                statement = _cut(_statement(named.space.name, operation))
                promise = committer.commit(tx, By(caller.user, origin.surface), statement)
        except (Refusal, EngineFailed):
            return False
        if here.soonest_us:
            self.expiring(named.space, here.soonest_us)
        asked = _Asked(origin, caller.user, names, (operation,))
        began_us = self.runtime.clock.monotonic_us()
        waiter = _KeysAnswer(committer, began_us, asked, promise.sequence, partial(told, answer))
        waiter.wait(promise)
        return True

    def _enter_now(
        self, token: bytes, names: tuple[str, str, str], verbs: Verbs
    ) -> tuple[Caller, _Named] | None:
        """Who asks, and of which space, when nothing has changed since that was last seen, and the
        caller holds these verbs on it."""
        ledger = self.committer.ledger
        version = ledger.catalog_version
        named = self._named.get(names)
        if named is None or named.version != version or version > self.committer.released_upto:
            return None
        caller = self.sessions.glance(token, ledger.users_version)
        if caller is None or not named.place.ref.is_alive() or not self.roles.words:
            return None
        try:
            holds = self._standing(named, caller).holds(named.space)
        except Refusal:
            return None  # the actor meets it too, and answers with it
        return (caller, named) if verbs <= holds else None

    def _standing(self, named: _Named, caller: Caller) -> Standing:
        standing = named.standings.get(caller.user)
        if standing is None:
            if len(named.standings) >= REMEMBERED_USERS:
                named.standings.clear()
            with self.committer.begin() as tx:
                standing = named.standings[caller.user] = self.rights.standing(tx, caller)
        return standing

    def expiring(self, space: Space, at_us: int) -> None:
        """A key of a space expires at that log time: it is to be swept then."""
        if self.due_us.get(space.id, at_us + 1) <= at_us:
            return
        try:
            tell(self._place(space).ref, Expiring(at_us))
        except Busy:
            return  # it has much to do with keys, and looks at their expiries after that

    def bury(self, space: Space, names: list[bytes]) -> int:
        """Remove keys that a read passed over because they had expired; the sequence that its
        answer must wait for, 0 for none. See `storage/spaces.py`."""
        with self.committer.begin() as tx:
            Keys(tx, space).bury(names)
            tx.passes = True  # a read says that they are gone: they may not come back
            try:
                return self.committer.commit(tx, NODE, reason=EXPIRED).sequence
            except (NotWritable, Busy):
                return tx.saw

    def look(self) -> None:
        """Places or spaces were dropped: let go of the actors whose space is no more."""
        with self.committer.begin() as tx:
            present = {space.id for space in _all(tx)}
        for id in self.places.keys() - present:
            parting = asyncio.ensure_future(stop(self.places.pop(id).ref), loop=self.runtime.loop)
            self._parting.add(parting)
            parting.add_done_callback(self._parting.discard)

    async def stop(self) -> None:
        """Stop every actor."""
        for place in list(self.places.values()):
            await stop(place.ref)
        await asyncio.gather(*self._parting)

    def _place(self, space: Space) -> Supervised[SpaceActor]:
        place = self.places.get(space.id)
        if place is None:
            place = self.places[space.id] = Supervised(
                lambda: SpaceActor.start(self.runtime, self, space), refoldable=True
            )
        return place


class SpaceActor(LoopActor):
    """Runs operations on the keys of one space, and sweeps it."""

    def __init__(self, runtime: Runtime, spaces: Spaces, space: Space) -> None:
        super().__init__(runtime)
        self._spaces = spaces
        self._committer = spaces.committer
        self._space = space
        self._timer: asyncio.TimerHandle | None = None
        self._due_us = 0
        """When the timer is set for, in log time."""
        self._swept_us = 0
        self._swept_to = b""
        """Before this place the expiry index is empty."""
        self.swept = 0
        """Keys swept since the start of this actor."""
        self._late = 0
        """Requests that a barrier holds back, those behind them included."""
        self._in_order = asyncio.Lock()

    def on_start(self) -> None:
        """Look when the first key expires."""
        self._disarm()  # what an actor before this one had set
        self._look_ahead()

    def on_stop(self) -> None:
        """No more sweeps."""
        self._disarm()

    # --- operations -----------------------------------------------------------------------------

    @handles(RunKeys)
    def run(self, request: RunKeys) -> Answers | asyncio.Future[Answers]:
        """Run operations, and answer once all that they show is durable."""
        if not self._late:
            work = _Work(self._spaces, request)
            if not self._is_barred(work):
                return self._done(work)
        self._late += 1  # and whoever comes after it does not overtake it
        return asyncio.ensure_future(self._run_late(request), loop=self.runtime.loop)

    def _is_barred(self, work: _Work) -> bool:
        """Run it; whether nothing has happened, since somebody's barrier stands in its way."""
        try:
            work.run()
        except Conflict:
            if not work.barred:
                raise
        return work.barred

    async def _run_late(self, request: RunKeys) -> Answers:
        """Run operations once the barrier has gone that stands in their way."""
        try:
            async with self._in_order:
                while True:
                    await self._committer.barriers.gone()
                    work = _Work(self._spaces, request)
                    if not self._is_barred(work):
                        break
        except asyncio.CancelledError:
            raise Draining("the node is stopping and begins nothing new") from None
        finally:
            self._late -= 1
        answered = self._done(work)
        return answered if isinstance(answered, tuple) else await answered

    def _done(self, work: _Work) -> Answers | asyncio.Future[Answers]:
        work.fill()
        if work.soonest_us:
            self._expects(work.soonest_us, work.space)
        if work.long:
            return asyncio.ensure_future(self._list_on(work), loop=self.runtime.loop)
        return self._answer(work)

    def _answer(self, work: _Work) -> Answers | asyncio.Future[Answers]:
        promise = Promise(work.sequence, work.generation)
        if self._committer.is_released(promise):
            return work.outcome()
        promised: asyncio.Future[Answers] = self.runtime.loop.create_future()

        def settle(lost: BaseException | None) -> None:
            if promised.done():
                return
            if lost is not None:
                promised.set_exception(lost)
            elif work.refusal is not None:
                promised.set_exception(work.refusal)
            else:
                promised.set_result(work.outcome())

        asked = work.asked
        waiter = _KeysAnswer(self._committer, work.began_us, asked, work.written, settle)
        waiter.wait(promise)
        return promised

    async def _list_on(self, work: _Work) -> Answers:
        """Finish listings that take more than a slice, others having their turns."""
        for number in work.long:
            operation = work.request.operations[number]
            assert isinstance(operation, ListKeys)
            found: list[str] = []
            with self._committer.begin() as tx:
                keys = Keys(tx, work.space)
                until_us = self._monotonic_us() + limits.SLICE_US
                for part in listed(keys, operation):
                    found += part
                    if self._monotonic_us() >= until_us:
                        tx.pause()
                        await asyncio.sleep(0)
                        until_us = self._monotonic_us() + limits.SLICE_US
                work.saw(tx.saw)
            work.answers[number] = {"keys": found}
            work.bury(keys.lapsed)
        answered = self._answer(work)
        return answered if isinstance(answered, tuple) else await answered

    # --- sweeping -------------------------------------------------------------------------------

    @handles(Expiring)
    def expiring(self, message: Expiring) -> None:
        """A script has written a key that expires."""
        self._expires_at(message.at_us)

    @handles(Sweep)
    async def sweep(self, _message: Sweep) -> None:
        """Remove a slice of what has expired, then the next, or wait for the next expiry."""
        committer = self._committer
        began_us = self._monotonic_us()
        self._swept_us = committer.ledger.log_time()
        try:
            with committer.begin() as tx:
                space = self._present(tx)
                if space is None:
                    return
                done, last = Keys(tx, space).sweep(limits.SWEEP_KEYS, self._swept_to)
                promise = committer.commit(tx, NODE, reason=EXPIRED) if tx.size else None
            took_us = self._monotonic_us() - began_us
            if promise is not None:
                await committer.released(promise)
            self._swept_to = max(self._swept_to, last)
            self.swept += done
        except Refusal:
            self._arm(self._swept_us + limits.SWEEP_SECONDS * 1_000_000)
            return
        if done < limits.SWEEP_KEYS:
            self._look_ahead()
        elif self.actor_ref.is_alive():
            self._timer = self.after(took_us / 1_000_000, self._time_to_sweep)
            self._due_us = self._swept_us

    def _present(self, tx: Transaction) -> Space | None:
        """The space as it is declared now; None when it was dropped."""
        space = self._space
        database = space.database
        found = find_space(tx, database.namespace.name, database.name, space.name)
        return found if found is not None and found.id == space.id else None

    def _look_ahead(self) -> None:
        with self._committer.begin() as tx:
            space = self._present(tx)
            begin = self._swept_to
            at_us = Keys(tx, space).next_expiry_us(begin) if space is not None else None
            if tx.saw > self._committer.released_upto:
                # A disk that is full may take back what was seen, a DELETE above all: look again.
                at_us = self._committer.ledger.log_time()
        if at_us is not None:
            self._arm(at_us)

    def _expects(self, at_us: int, space: Space) -> None:
        if space.id == self._space.id:
            self._expires_at(at_us)
        else:  # dropped and declared anew since the request was sent here
            self._spaces.expiring(space, at_us)

    def _expires_at(self, at_us: int) -> None:
        if self._swept_to and at_us <= expiry_time(self._swept_to):
            self._swept_to = b""  # by a transaction that began before the sweep
        self._arm(at_us)

    def _arm(self, at_us: int) -> None:
        """Sweep at that log time, or somewhat later: not more often than is useful."""
        at_us = max(at_us, self._swept_us + limits.SWEEP_SECONDS * 1_000_000)
        if not self.actor_ref.is_alive() or (self._timer is not None and self._due_us <= at_us):
            return
        self._disarm()
        self._due_us = self._spaces.due_us[self._space.id] = at_us
        wait_us = max(at_us - self._committer.ledger.log_time(), 0)
        self._timer = self.after(wait_us / 1_000_000, self._time_to_sweep)

    def _disarm(self) -> None:
        self._spaces.due_us.pop(self._space.id, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_to_sweep(self) -> None:
        self._timer = None
        self._spaces.due_us.pop(self._space.id, None)
        try:
            tell(self.actor_ref, Sweep())
        except Busy:
            self._arm(self._committer.ledger.log_time() + limits.SWEEP_SECONDS * 1_000_000)


class Origin(NamedTuple):
    """Where a request on keys came from."""

    request: str
    """Names it."""
    surface: Surface
    address: str


class _Asked(NamedTuple):
    """What INFO FOR RUNNING shows of it."""

    origin: Origin
    user: str | None
    """None: nobody that the node knows any more."""
    names: tuple[str, str, str]
    operations: tuple[KeyOperation, ...]


class _KeysAnswer(Waiter):
    """The answer to operations on keys, while what it shows is on its way to the disk.

    :param written: the newest commit of their own, 0 for none
    :param told: hears why the answer is not durable, None when it is
    """

    __slots__ = ("_asked", "_told", "_written")

    def __init__(
        self, committer: Committer, began_us: int, asked: _Asked, written: int, told: Told
    ) -> None:
        super().__init__(committer, began_us)
        self._asked = asked
        self._written = written
        self._told = told

    @property
    def request(self) -> str:
        return self._asked.origin.request

    @property
    def written(self) -> int:
        return self._written

    def settle(self, lost: BaseException | None) -> None:
        self._told(lost)

    def info(self, now_us: int) -> dict[str, Value]:
        origin, user, (namespace, database, space), operations = self._asked
        return {
            "id": origin.request,
            "user": user,
            "surface": origin.surface,
            "address": origin.address,
            "namespace": namespace,
            "database": database,
            "statement": None,
            "text": _cut("; ".join(_statement(space, each) for each in operations)),
            "since": duration(now_us - self.began_us),
            "left": None,
            "slices": 0,
            "rows_read": 0,
            "waiting": True,
            "commit": self.promise.sequence,
            "barrier": False,
        }


class _Work:
    """Operations of one request, and what has come of them."""

    def __init__(self, spaces: Spaces, request: RunKeys) -> None:
        self._spaces = spaces
        self._committer = committer = spaces.committer
        self.request = request
        self.answers: list[KeyAnswer] = []
        self.long: list[int] = []
        """Listings not finished within the slice, by their number."""
        self.sequence = 0
        """What the answers wait for."""
        self.generation = committer.generation
        self.began_us = spaces.runtime.clock.monotonic_us()
        self.written = 0
        """The newest commit of their own, 0 for none."""
        self.soonest_us = 0
        """The earliest expiry written; 0: none."""
        self.space: Space
        self._caller: Caller | None = None
        self._standing: Standing
        self._statements: list[str] = []
        self.barred = False
        """Whether somebody's barrier stood in its way; then nothing has happened."""
        self.refusal: Refusal | None = None
        """Why nothing was done at all; shown when what it rests on is durable."""
        self._begun = False
        """Whether it has committed anything."""
        self._read_bytes = 0
        self._lapsed: list[bytes] = []
        self._may: dict[type, Refusal | None] = {}

    def run(self) -> None:
        """Run them all."""
        committer, request = self._committer, self.request
        until_us = self.began_us + limits.SLICE_US
        tx = committer.begin()
        try:
            try:
                self._enter(tx)
            except Refusal as refusal:
                self.refusal = refusal
                self.saw(tx.saw)
                return
            keys = Keys(tx, self.space)
            most = limits.INT_MAX if request.room is None else request.room.left
            for operation in request.operations:
                if self._read_bytes + keys.read_bytes >= most:
                    break
                if self._begins_anew(tx, keys, operation):
                    self._commit(tx, keys)
                    tx = committer.begin()
                    keys = Keys(tx, self.space)
                try:
                    self._check(type(operation))
                    if type(operation) is ListKeys:
                        self._list(keys, operation, until_us)
                    else:
                        self.answers.append(perform(keys, operation))
                        if operation.writes:
                            self._statements.append(_statement(self.space.name, operation))
                except Refusal as refusal:
                    self.answers.append(refusal)
            self._commit(tx, keys)
        finally:
            tx.release()
        if self._lapsed:
            self.bury(self._lapsed)

    def _enter(self, tx: Transaction) -> None:
        """Who asks, and of which space."""
        spaces, request = self._spaces, self.request
        who = request.who
        if type(who) is AuthenticateToken:
            self._caller = spaces.sessions.caller(who, tx)
        else:
            assert isinstance(who, Caller)
            self._caller = who
        spaces.roles.check_answering()
        names = request.namespace, request.database
        try:
            self.space = spaces.rights.space(tx, self._caller, names, request.space, NOTHING)
        except Unknown:
            raise no_space(*names, request.space) from None
        self._standing = spaces.rights.standing(tx, self._caller)

    def _begins_anew(self, tx: Transaction, keys: Keys, operation: KeyOperation) -> bool:
        """Whether an operation needs a commit of its own. A lock that is acquired twice needs two
        commits for two fences."""
        return tx.size > COMMIT_BYTES or (
            type(operation) is LockKey and bool(tx.size) and keys.written_here(operation.key)
        )

    def _check(self, operation: type[KeyOperation]) -> None:
        """:raises NotWritable, NotAllowed:"""
        if operation not in self._may:
            self._may[operation] = self._judge(operation)
        refusal = self._may[operation]
        if refusal is not None:
            raise refusal

    def _judge(self, operation: type[KeyOperation]) -> Refusal | None:
        try:
            if operation.writes:
                self._committer.check_writable()
            self._standing.check(self.space, operation.needs)
        except Refusal as refusal:
            return refusal
        return None

    def _list(self, keys: Keys, operation: ListKeys, until_us: int) -> None:
        found: list[str] = []
        monotonic_us = self._spaces.runtime.clock.monotonic_us
        for part in listed(keys, operation):
            found += part
            if monotonic_us() >= until_us and len(found) < operation.limit:
                self.long.append(len(self.answers))
                break
        self._read_bytes += sum(map(len, found))
        self.answers.append({"keys": found})

    def _commit(self, tx: Transaction, keys: Keys) -> None:
        if tx.size:
            caller = self._caller
            assert caller is not None, "somebody unknown has changed something"
            statement = _cut("; ".join(self._statements))
            tx.passes = self._begun  # the first part has happened: it can't be run again
            try:
                sequence = self._committer.commit(tx, caller, statement).sequence
            finally:
                self.barred = tx.barred
            self._begun = True
            self.written = sequence
            keys.settle()
            self._statements.clear()
            if keys.soonest_us and (not self.soonest_us or keys.soonest_us < self.soonest_us):
                self.soonest_us = keys.soonest_us
            self.saw(sequence)
        else:
            tx.release()
            self.saw(tx.saw)
        self._lapsed += keys.lapsed
        self._read_bytes += keys.read_bytes

    def fill(self) -> None:
        """Take what was read from the room that there is for it. Done once it is certain that it
        has happened: what a barrier stood in the way of reads it all again."""
        if self.request.room is not None:
            self.request.room.left -= self._read_bytes

    @property
    def asked(self) -> _Asked:
        """What others may see of it."""
        request, caller = self.request, self._caller
        origin = Origin(request.request, request.who.surface, request.who.address)
        names = request.namespace, request.database, request.space
        user = None if caller is None else caller.user
        done = request.operations[: len(self.answers)] or request.operations
        return _Asked(origin, user, names, done)

    def outcome(self) -> Answers:
        """The answers. :raises Refusal: there are none"""
        if self.refusal is not None:
            raise self.refusal
        return tuple(self.answers)

    def saw(self, sequence: int) -> None:
        """The answers show this commit."""
        if sequence > self.sequence:
            self.sequence = sequence

    def bury(self, names: list[bytes]) -> None:
        """Make it last that these keys have expired."""
        if names:
            self.saw(self._spaces.bury(self.space, names))


def find_space(tx: Transaction, namespace: str, database: str, name: str) -> Space | None:
    """A space by all its names, if there is one."""
    place = catalog.find_namespace(tx, namespace)
    within = catalog.find_database(tx, place, database) if place is not None else None
    return catalog.find_space(tx, within, name) if within is not None else None


def no_space(namespace: str, database: str, name: str) -> NotASpace:
    """The refusal of a path that names none."""
    path = f"{namespace}.{database}.{name}"
    return NotASpace(f"{path[:200]} is no cache space", name=path[:200])


def _all(tx: Transaction) -> Iterator[Space]:
    for namespace in catalog.namespaces(tx):
        for database in catalog.databases(tx, namespace):
            yield from catalog.spaces(tx, database)


# --- for the statement log ------------------------------------------------------------------------


def _statement(space: str, operation: KeyOperation) -> str:
    """The statement that an operation stands for; its values are in the commit's effects."""
    if isinstance(operation, ListKeys):
        return f"KEYS FROM {quote(space)}"
    word, more = _WORDS[type(operation)]
    joint = "FROM" if word in ("GET", "DELETE") else "IN"
    return f"{word} {quote_string(operation.key)} {joint} {quote(space)}{more(operation)}"


def _set_clauses(operation: SetKey) -> str:
    kept = " KEEP" if operation.keep else ""
    when = f" IF {operation.when}" if operation.when else ""
    return f" VALUE $value{_expire(operation.expire_us)}{kept}{when}"


def _expire(expire_us: int | None) -> str:
    return "" if expire_us is None else f" EXPIRE {format_duration(duration(expire_us))}"


_WORDS: Final[dict[type, tuple[str, Callable[[Any], str]]]] = {
    GetKey: ("GET", lambda op: ""),
    SetKey: ("SET", _set_clauses),
    SwapKey: ("SWAP", lambda op: f" EXPECT $expect VALUE $value{_expire(op.expire_us)}"),
    IncrKey: ("INCR", lambda op: f" BY {op.by}"),
    DeleteKey: ("DELETE", lambda op: ""),
    ExpireKey: ("EXPIRE", lambda op: f" {format_duration(duration(op.expire_us))}"),
    PersistKey: ("PERSIST", lambda op: ""),
    LockKey: ("LOCK", lambda op: f" HOLDER {quote_string(op.holder)}{_expire(op.expire_us)}"),
    UnlockKey: ("UNLOCK", lambda op: f" HOLDER {quote_string(op.holder)}"),
}


def _cut(text: str) -> str:
    if len(text) * 4 <= limits.STATEMENT_TEXT_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= limits.STATEMENT_TEXT_BYTES:
        return text
    kept = encoded[: limits.STATEMENT_TEXT_BYTES].decode(errors="ignore")
    return f"{kept}… ({len(encoded)} bytes)"
