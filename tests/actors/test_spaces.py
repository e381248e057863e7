"""Space actors: operations without a script, sweeping, their coming and going."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from actors.commits.committer import NamedAuthor
from actors.commits.priority_locks import PriorityLockRequest
from actors.node import Node
from actors.rights import Privileges
from actors.runtime import ask, tell
from actors.sessions import token_digest
from actors.spaces import StartSweep, find_space
from actors.spaces.access_cache import SpaceAccessCache
from protocol import limits
from protocol.errors import (
    Busy,
    Cancelled,
    Conflict,
    DiskFull,
    Draining,
    NotAllowed,
    NotANumber,
    NotASpace,
    NotEnoughReplicas,
    NotWritable,
    Refusal,
    SessionEnded,
    UnknownOutcome,
)
from protocol.requests import AuthenticatePassword, SignIn
from protocol.spaces import (
    DeleteKey,
    ExpireKey,
    GetKey,
    IncrKey,
    KeyOperation,
    ListKeys,
    LockKey,
    Room,
    SetKey,
    UnlockKey,
)
from protocol.values import NONE
from storage.catalog import users
from storage.catalog.spaces import Space
from storage.engine.engine import EngineFailed
from storage.engine.memory import MemoryEngine
from storage.formats import keys
from storage.formats.effects import DELETE_RECORD, decode
from storage.keyspace.keyspace import SpaceKeys
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from storage.txn.transaction import Transaction
from tests.actors import nodes
from tests.actors.nodes import ANA, OWNER
from tests.actors.scripts.test_stalled_disk import Stall
from tests.keys import Asking, ask_keys
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import START_US, ManualClock

SECOND = 1_000_000
WRITTEN = {"written": True}


class Desk:
    """A node with space `c` in a.b, on a clock that only the test moves."""

    def __init__(self, node: Node, clock: ManualClock, engine: MemoryEngine) -> None:
        self.node = node
        self.clock = clock
        self.engine = engine

    async def run(
        self,
        *operations: KeyOperation,
        who: Any = ANA,
        space: str = "c",
        room: Room | None = None,
    ) -> Any:
        """The answers, refusals among them."""
        return list(await ask_keys(self.node, who, ("a", "b", space), *operations, room=room))

    async def one(self, operation: KeyOperation) -> Any:
        """The answer of one operation; a refusal is raised."""
        (answer,) = await self.run(operation)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def sweep(self) -> None:
        """Have the space swept until nothing is due."""
        committer = self.node.committer
        while True:
            for place in self.node.spaces.sweepers.places():
                tell(place.ref, StartSweep())
            await asyncio.sleep(0)
            await committer.released(committer.ticket(committer.committed))
            with self.node.committer.begin_transaction() as tx:
                due = SpaceKeys(tx, self._declared()).next_expiry_us()
                if due is None or due > tx.now_us:
                    return
            await asyncio.sleep(0)

    def _declared(self) -> Space:
        with self.node.committer.begin_transaction() as tx:
            found = find_space(tx, "a", "b", "c")
        assert found is not None
        return found

    def stored(self) -> int:
        """Entries in the state, expired ones included."""
        with self.node.committer.begin_transaction() as tx:
            start, end = keys.within(self._declared().entries)
            return sum(len(step) for step in tx.scan(start, end))


@asynccontextmanager
async def desk(disk: SimulatedDisk | None = None, wall_us: int = START_US) -> AsyncIterator[Desk]:
    clock, engine = ManualClock(wall_us), MemoryEngine()
    environment = nodes.simulated_environment("real", disk or SimulatedDisk(), engine, clock=clock)
    async with nodes.running(environment) as node:
        define = "DEFINE NAMESPACE IF NOT EXISTS a; DEFINE DATABASE IF NOT EXISTS a.b; USE a.b;"
        answer = await nodes.run(node, f"{define} DEFINE SPACE IF NOT EXISTS c", place=(None, None))
        assert answer.refusal is None, answer.refusal
        yield Desk(node, clock, engine)


@pytest.fixture
async def here() -> AsyncIterator[Desk]:
    async with desk() as made:
        yield made


async def test_operations_of_one_request_run_in_order_and_share_a_commit(here: Desk) -> None:
    before = here.node.committer.committed
    answers = await here.run(
        SetKey("k", 1), GetKey("k"), IncrKey("k", 4), IncrKey("s"), DeleteKey("none"), GetKey("k"),
        ListKeys(),
    )  # fmt: skip
    assert answers == [
        WRITTEN, {"value": 1, "ttl": None}, {"value": 5}, {"value": 1}, {"deleted": False},
        {"value": 5, "ttl": None}, {"keys": ["k", "s"]},
    ]  # fmt: skip
    assert here.node.committer.committed == before + 1
    assert here.node.committer.commit_index == before + 1, "the answers waited for it"


async def test_one_refused_operation_does_not_touch_the_others(here: Desk) -> None:
    answers = await here.run(SetKey("k", "text"), IncrKey("k"), SetKey("", 1), SetKey("l", 2))
    assert answers[0] == answers[3] == WRITTEN
    assert isinstance(answers[1], NotANumber)
    assert isinstance(answers[2], Refusal)
    assert await here.run(ListKeys()) == [{"keys": ["k", "l"]}]


async def test_what_is_refused_after_a_commit_leaves_the_answers_of_that(here: Desk) -> None:
    """A lock that is acquired twice needs two commits, and of these the second finds no room."""
    committer = here.node.committer
    committer.disk_full, committer.has_room = True, lambda size: size < 2_000
    counted, held, again, big, read = await here.run(
        IncrKey("n"), LockKey("l", "h", SECOND), LockKey("l", "h", SECOND),
        SetKey("big", bytes(100_000)), GetKey("n"),
    )  # fmt: skip
    assert counted == {"value": 1} and held["held"] is True
    assert [type(one) for one in (again, big, read)] == [DiskFull] * 3
    committer.disk_full = False
    assert await here.run(GetKey("n"), GetKey("big")) == [{"value": 1, "ttl": None}, NONE]
    (due_us,) = due(here)
    assert due_us >= committer.ledger.log_time(), "it is swept in time"


def due(here: Desk) -> list[int]:
    """When spaces are swept."""
    found = (sweep.due_us for sweep in here.node.spaces.sweepers.sweeps.values())
    return [due_us for due_us in found if due_us is not None]


async def test_who_is_ended_hears_what_is_on_the_disk_by_then(here: Desk) -> None:
    committer = here.node.committer
    first, releasable = committer.committed + 1, committer.releasable
    committer.releasable = lambda upto: min(upto, first)
    operations = IncrKey("n"), LockKey("l", "h", SECOND), LockKey("l", "h", SECOND), GetKey("n")
    heard = ask_keys(here.node, ANA, ("a", "b", "c"), *operations, request="r-1")
    assert committer.committed == first + 1
    while committer.commit_index < first:
        await asyncio.sleep(0)
    assert not heard.done(), "all of them are told together"
    assert here.node.registry.kill("r-1")
    committer.releasable = releasable
    counted, held, again, read = await heard
    assert counted == {"value": 1} and isinstance(held, dict) and held["held"] is True
    assert [type(one) for one in (again, read)] == [UnknownOutcome] * 2
    assert await here.one(IncrKey("n")) == {"value": 2}


async def test_a_long_listing_is_seen_and_ended(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done before it may have happened: it is not on the disk yet."""
    await here.run(SetKey("a", 1))
    monkeypatch.setattr(here.node.committer, "monotonic_us", lambda: 0)
    stall = Stall(here.node)
    heard = ask_keys(
        here.node, ANA, ("a", "b", "c"), SetKey("b", 1), ListKeys(), request="r-1"
    )  # fmt: skip
    (shown,) = here.node.registry.describe(0)
    assert isinstance(shown, dict) and (shown["id"], shown["user"]) == ("r-1", "ana")
    running = here.node.registry
    assert running.kill("r-1") and not running.kill("r-1")
    with pytest.raises(UnknownOutcome):
        await heard
    stall.end()
    assert running.describe(0) == [] and not here.node.committer.ledger.state.paused
    assert await here.run(ListKeys()) == [{"keys": ["a", "b"]}]


async def test_each_acquisition_has_a_fence_of_its_own(here: Desk) -> None:
    answers = await here.run(
        LockKey("l", "a", SECOND), UnlockKey("l", "a"), LockKey("l", "b", SECOND),
        LockKey("m", "b", SECOND), LockKey("l", "b", 2 * SECOND), LockKey("l", "c", SECOND),
    )  # fmt: skip
    first, _, second, _, again, other = answers
    assert first["fence"] < second["fence"] == again["fence"]
    assert other["held"] is False and other["fence"] is None


async def signed_in(here: Desk) -> bytes:
    """The digest of a token of the owner's."""
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
    )
    return token_digest(session.token)


def at_once(here: Desk, who: Any, *operations: KeyOperation, space: str = "c") -> Any:
    """The answers that are there before `run` returns; None: there are none yet."""
    heard = ask_keys(here.node, who, ("a", "b", space), *operations)
    if not heard.done():
        heard.add_done_callback(lambda future: future.exception())
        return None
    return list(heard.result())


class Looked:
    """Counts the times that somebody was looked up, as opposed to remembered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        find = SpaceAccessCache.find

        def counted(*arguments: Any) -> Any:
            self.times += 1
            return find(*arguments)

        monkeypatch.setattr(SpaceAccessCache, "find", counted)


async def test_who_asks_for_what_is_looked_up_once_for_all(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Looked(monkeypatch)
    who = await signed_in(here)
    assert await here.run(SetKey("k", 1)) == [WRITTEN]
    for asker in (who, ANA, who):
        await here.run(GetKey("k"), who=asker)
    assert looked.times == 1, "they are one user, whatever they come with"
    for space in ("nothing", "nothing"):
        with pytest.raises(NotASpace):
            at_once(here, who, GetKey("k"), space=space)
    assert looked.times == 3, "what there is not is not remembered"
    await nodes.run(here.node, "DEFINE TABLE more")
    assert await here.run(GetKey("k"), who=who) == [{"value": 1, "ttl": None}]
    assert looked.times == 4, "declarations have changed: perhaps the user, perhaps the space"
    await nodes.run(here.node, "DEFINE NODE ROLES NONE")
    with pytest.raises(Draining):
        at_once(here, who, GetKey("k"))
    await nodes.run(here.node, "DEFINE NODE ROLES writable, serving")
    assert at_once(here, who, GetKey("k")) == [{"value": 1, "ttl": None}]
    await nodes.run(here.node, "DROP SPACE c; DEFINE SPACE c")
    assert await here.run(GetKey("k"), who=who) == [NONE]
    with pytest.raises(SessionEnded):
        at_once(here, token_digest("nonsense"), GetKey("k"))
    here.node.spaces.sessions.end_all(OWNER.name)
    with pytest.raises(SessionEnded):
        at_once(here, who, GetKey("k"))


async def test_what_may_be_shown_is_answered_at_once(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await here.run(SetKey("k", 1), SetKey("large", "x" * 5000)) == [WRITTEN] * 2
    begun: list[int] = []
    begin = here.node.committer.begin_transaction

    def counted() -> Transaction:
        begun.append(1)
        return begin()

    monkeypatch.setattr(here.node.committer, "begin_transaction", counted)
    assert at_once(here, ANA, GetKey("k"), GetKey("large"), GetKey("l")) == [
        {"value": 1, "ttl": None}, {"value": "x" * 5000, "ttl": None}, NONE,
    ]  # fmt: skip
    assert not begun, "it cost a transaction"
    assert at_once(here, ANA, GetKey("k"), SetKey("k", 2, when="ABSENT")) == [
        {"value": 1, "ttl": None}, {"written": False},
    ]  # fmt: skip
    assert begun
    assert at_once(here, ANA, SetKey("k", 2)) is None, "it is not durable"
    assert at_once(here, ANA, GetKey("k")) is None, "nor is what it shows"
    assert at_once(here, ANA, GetKey("large")) is not None
    assert await here.one(GetKey("k")) == {"value": 2, "ttl": None}
    assert at_once(here, ANA, GetKey("k")) == [{"value": 2, "ttl": None}]


async def test_what_fails_is_the_askers_and_the_nodes(
    here: Desk, monkeypatch: pytest.MonkeyPatch, logbook: Any
) -> None:
    for line in ("handler failed", "node failed"):
        logbook.allow(line)
    await here.run(SetKey("k", 1))
    with monkeypatch.context() as broken:
        broken.setattr(here.engine, "get", raises_engine_failed)
        with pytest.raises(EngineFailed):
            at_once(here, ANA, GetKey("k"))
    async with asyncio.timeout(20):
        await here.node.failed.wait()


def barrier(node: Node) -> PriorityLockRequest:
    """One that stands over everything, as whoever kept losing its races has it."""
    everything = ReadSet(0, RollBacks())
    everything.add_range(b"\0", b"\xff" * 40)
    place = PriorityLockRequest(node.committer.priority_locks, "test", everything, lambda: None)
    node.committer.priority_locks.join(place)
    return place


async def test_what_a_barrier_holds_back_is_seen_and_ended(here: Desk) -> None:
    await here.run(GetKey("k"))
    place = barrier(here.node)
    heard = [
        ask_keys(here.node, ANA, ("a", "b", "c"), SetKey("k", number), request=f"r-{number}")
        for number in range(3)
    ]
    shown = [row for row in here.node.registry.describe(0) if isinstance(row, dict)]
    assert [(row["id"], row["user"], row["waiting"], row["commit"]) for row in shown] == [
        (f"r-{number}", "ana", True, None) for number in range(3)
    ]
    assert here.node.registry.kill("r-1") and not here.node.registry.kill("r-1")
    with pytest.raises(Cancelled):
        await heard[1]
    place.leave()
    assert [await heard[0], await heard[2]] == [(WRITTEN,)] * 2
    assert await here.one(GetKey("k")) == {"value": 2, "ttl": None}
    assert here.node.registry.describe(0) == []


async def test_a_blocked_write_holds_up_its_own_line_alone(here: Desk) -> None:
    """The same key of the same connection, and listings; no other key, and no other connection."""
    await here.run(SetKey("k", 0), SetKey("other", 0))

    def asked(*operations: KeyOperation, address: str = "192.0.2.1:1") -> Any:
        return ask_keys(here.node, ANA, ("a", "b", "c"), *operations, address=address)

    place = barrier(here.node)
    write = asked(SetKey("k", 1))
    beside = [asked(GetKey("k"), address="192.0.2.2:1"), asked(GetKey("other"))]
    behind = [asked(GetKey("k")), asked(ListKeys()), asked(GetKey("other"))]
    assert [one.done() for one in (write, *behind)] == [False] * 4, "a listing is followed by all"
    assert [one.done() for one in beside] == [True] * 2
    place.leave()
    assert await write == (WRITTEN,)
    assert [await one for one in behind[:2]] == [
        ({"value": 1, "ttl": None},), ({"keys": ["k", "other"]},),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change", ["ALTER USER ben SET PASSWORD 'another password'", "DROP USER ben"]
)
async def test_who_brought_a_password_that_is_good_no_more_has_nothing_done_behind_that(
    here: Desk, change: str
) -> None:
    """Held back by a barrier, or put off for a turn."""
    await nodes.run(here.node, "DEFINE USER ben ROLE editor PASSWORD 'a long password'")
    asked = AuthenticatePassword("ben", "a long password", "http", "192.0.2.1:5000")
    ben = await ask(here.node.sessions, asked)
    place = barrier(here.node)
    heard = ask_keys(here.node, ben, ("a", "b", "c"), SetKey("k", 1))
    other = ask_keys(here.node, ANA, ("a", "b", "c"), SetKey("k", 2))
    assert (await nodes.run(here.node, change)).refusal is None
    place.leave()
    with pytest.raises(SessionEnded):
        await heard
    assert await other == (WRITTEN,)
    assert await here.one(GetKey("k")) == {"value": 2, "ttl": None}


async def test_what_is_refused_changes_nothing(here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.run(SetKey("k", "text"))
    before = here.node.committer.committed
    for refused in (
        SetKey("", 1), SetKey("k", NONE), SetKey("k", 1, 0),
        SetKey("k", "x" * limits.CACHE_VALUE_BYTES),
    ):  # fmt: skip
        (answer,) = await here.run(refused)
        assert isinstance(answer, Refusal), refused
    with monkeypatch.context() as nobody:
        nobody.setattr(Privileges, "check", holds_nothing)
        answers = await here.run(SetKey("k", 1), GetKey("k"))
        assert [type(answer) for answer in answers] == [NotAllowed] * 2
    assert here.node.committer.committed == before


async def test_a_written_key_of_a_space_of_passing_keys_is_swept_in_time(here: Desk) -> None:
    await nodes.run(here.node, "DEFINE SPACE OVERWRITE c EXPIRE 5s")
    assert await here.one(SetKey("k", 1)) == WRITTEN
    assert (await here.one(GetKey("k")))["ttl"] == timedelta(seconds=5)
    await asyncio.sleep(0)
    (due_us,) = due(here)
    assert due_us >= here.node.committer.ledger.log_time() + 5 * SECOND


class TestTurns:
    """Keys take a slice of the loop at a time, and nothing overtakes."""

    @pytest.fixture(autouse=True)
    def a_slice_is_one_request(self, here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "SLICE_US", 0)
        monkeypatch.setattr(here.node.executor.budget, "limit_us", 0)

    async def test_what_comes_after_a_slice_waits_for_a_turn(self, here: Desk) -> None:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if turns < 1000:
                asyncio.get_running_loop().call_soon(turn)

        turn()
        asked = [IncrKey("n") for _ in range(20)] + [GetKey("n") for _ in range(20)]
        heard = [ask_keys(here.node, ANA, ("a", "b", "c"), operation) for operation in asked]
        assert not any(one.done() for one in heard)
        found = [(await one)[0]["value"] for one in heard]  # type: ignore[index]
        assert found == [*range(1, 21), *[20] * 20], "in the order in which they were asked"
        assert turns >= 40, "one at a time, since there is no more to a slice"

    async def test_too_many_that_wait_are_refused(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAILBOX", 3)
        heard = [ask_keys(here.node, ANA, ("a", "b", "c"), GetKey("k")) for _ in range(5)]
        for one in heard[3:]:
            with pytest.raises(Busy):
                await one
        assert [await one for one in heard[:3]] == [(NONE,)] * 3

    async def test_the_end_does_what_waits_and_begins_nothing(self, here: Desk) -> None:
        heard = [ask_keys(here.node, ANA, ("a", "b", "c"), GetKey("k")) for _ in range(5)]
        await here.node.executor.stop()
        assert [await one for one in heard] == [(NONE,)] * 5
        with pytest.raises(Draining):
            await here.run(GetKey("k"))


def raises_engine_failed(_key: bytes) -> bytes:
    raise EngineFailed("planted")


def holds_nothing(_who: Privileges, _thing: Any, _verbs: Any) -> None:
    raise NotAllowed("planted", needs="READ")


async def test_a_declaration_in_flight_is_waited_for_and_not_remembered(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Looked(monkeypatch)
    who = await signed_in(here)
    assert await here.run(GetKey("k"), who=who) == [NONE]
    committer = here.node.committer
    with committer.begin_transaction() as tx:
        users.define(tx, "more", users.OWNER, "h")
        ticket = committer.commit(tx, NamedAuthor("ana", "wire"))
    assert at_once(here, who, GetKey("k")) is None, "who asks may be another"
    assert at_once(here, who, GetKey("k")) is None
    await committer.released(ticket)
    before = looked.times
    assert at_once(here, who, GetKey("k")) == [NONE]
    assert at_once(here, who, GetKey("k")) == [NONE]
    assert looked.times == before + 1


async def test_without_the_writable_role_reads_go_on(here: Desk) -> None:
    await here.run(SetKey("k", 1, 5 * SECOND))
    await nodes.run(here.node, "DEFINE NODE ROLES serving")
    answers = await here.run(GetKey("k"), SetKey("k", 2), ListKeys())
    assert answers[0]["value"] == 1
    assert isinstance(answers[1], NotWritable)
    assert answers[2] == {"keys": ["k"]}
    here.clock.advance(6 * SECOND)
    assert await here.one(GetKey("k")) is NONE
    (place,) = here.node.spaces.sweepers.places()
    tell(place.ref, StartSweep())
    for _ in range(5):
        await asyncio.sleep(0)
    assert here.stored() == 1, "nothing is swept either"


@pytest.mark.parametrize(
    "refusal", [NotEnoughReplicas("too few", followers=0, acks=1), Draining("it stops")]
)
async def test_nobody_is_told_that_a_key_has_expired_which_can_not_be_removed(
    here: Desk, refusal: Refusal
) -> None:
    """It would be there again, on another node or behind a restart. What is there is read on."""
    await here.run(SetKey("k", 1, 5 * SECOND), SetKey("stays", 2))
    here.clock.advance(6 * SECOND)
    committer = here.node.committer
    check = committer.check_replicated

    def refused() -> None:
        raise refusal

    committer.check_replicated = refused
    assert (await here.one(GetKey("stays")))["value"] == 2
    for operation in (GetKey("k"), ListKeys()):
        with pytest.raises(type(refusal)):
            await here.one(operation)
    answer = await nodes.run(here.node, "GET 'k' FROM c")
    assert type(answer.refusal) is type(refusal)
    with pytest.raises(type(refusal)):
        await here.one(SetKey("k", 2))
    committer.check_replicated = check
    assert await here.one(GetKey("k")) is NONE
    assert (await here.one(SetKey("k", 2)))["written"]


async def test_a_space_that_is_dropped_is_no_space_any_more(here: Desk) -> None:
    sweeps = here.node.spaces.sweepers.sweeps
    seen = set()
    for drop in ("DROP SPACE a.b.c", "DROP DATABASE a.b", "DROP NAMESPACE a"):
        await here.run(SetKey("k", 1, 5 * SECOND))
        (space_id,) = sweeps
        seen.add(space_id)
        answer = await nodes.run(here.node, drop.replace("a.b.c", "c"))
        assert answer.refusal is None, answer.refusal
        with pytest.raises(NotASpace):
            at_once(here, ANA, GetKey("k"))
        assert not sweeps
        answer = await nodes.run(
            here.node,
            "DEFINE NAMESPACE IF NOT EXISTS a; DEFINE DATABASE IF NOT EXISTS a.b; USE a.b;"
            " DEFINE SPACE c",
            place=(None, None),
        )
        assert answer.refusal is None, answer.refusal
        assert await here.run(GetKey("k")) == [NONE]
    assert len(seen) == 3


async def test_a_space_without_keys_that_expire_has_no_actor_and_no_timer(here: Desk) -> None:
    sweepers = here.node.spaces.sweepers
    await here.run(SetKey("stays", 1))
    assert not sweepers.sweeps
    await here.run(SetKey("k", 1, SECOND), SetKey("l", 1, SECOND))
    await asyncio.sleep(0)
    assert len(sweepers.sweeps) == len(due(here)) == 1
    here.clock.advance(2 * SECOND)
    await here.sweep()
    async with asyncio.timeout(20):
        while sweepers.sweeps:
            await asyncio.sleep(0.01)
            here.clock.advance(SECOND)
    assert not due(here)
    await here.run(SetKey("k", 1, SECOND))
    assert sweepers.sweeps


@pytest.mark.parametrize(
    "revive",
    [
        lambda keys: keys.persist("k99"),
        lambda keys: keys.expire("k99", 5 * SECOND),
        lambda keys: keys.set("k99", 1, keep=True),
        lambda keys: keys.set("k99", 1, when="PRESENT"),
        lambda keys: keys.swap("k99", 99, 1),
        lambda keys: keys.incr("k99"),
    ],
)
async def test_a_key_that_somebody_was_told_has_expired_does_not_come_back(
    here: Desk, revive: Callable[[SpaceKeys], Any]
) -> None:
    """By a transaction that began before and took it for alive."""
    await here.run(*(SetKey(f"k{number}", number, SECOND) for number in range(100)))
    with here.node.committer.begin_transaction() as tx:
        keys = SpaceKeys(tx, here._declared())
        assert keys.get("k99") is not NONE
        tx.pause()
        here.clock.advance(2 * SECOND)
        assert await here.run(ListKeys()) == [{"keys": []}]
        revive(keys)
        with pytest.raises(Conflict):
            here.node.committer.commit(tx, NamedAuthor("ana", "wire"), "…")
    assert await here.run(GetKey("k99"), ListKeys()) == [NONE, {"keys": []}]


async def test_expired_keys_are_swept_in_slices_of_their_own(here: Desk) -> None:
    count = 3 * limits.SWEEP_KEYS
    for start in range(0, count, 64):
        await here.run(*(SetKey(f"k{n}", n, SECOND) for n in range(start, start + 64)))
    await here.run(SetKey("stays", 1), SetKey("later", 1, 9 * SECOND))
    here.clock.advance(SECOND - 1)
    assert (await here.one(GetKey("k1")))["ttl"] == timedelta(microseconds=1)
    here.clock.advance(1)
    assert await here.run(ListKeys()) == [{"keys": ["later", "stays"]}]
    before = here.node.committer.committed
    await here.run(SetKey("k0", "again"), ExpireKey("k1", SECOND))
    await here.sweep()
    assert here.stored() == 3
    assert await here.run(ListKeys()) == [{"keys": ["k0", "later", "stays"]}]
    frames = [frame for frame in here.node.store.parts.log.reader.read(before + 1) if frame.body]
    swept = [decode(frame.body) for frame in frames]
    by_node = [commit for commit in swept if commit.attribution.by == "node"]
    assert len(by_node) >= 3, "slices"
    for commit in by_node:
        gone = sum(effect[0] == DELETE_RECORD for effect in commit.effects)
        assert gone <= limits.SWEEP_KEYS
        assert commit.attribution.reason == "expired"


async def test_a_fresh_actor_takes_over_after_a_failure(here: Desk, logbook: Any) -> None:
    logbook.allow("actor failed")
    await here.run(SetKey("k", 1, SECOND))
    (place,) = here.node.spaces.sweepers.places()
    ref = place.ref
    tell(ref, object())
    async with asyncio.timeout(20):
        while place.ref == ref:
            await asyncio.sleep(0)
    assert here.node.failure is None
    assert (await here.one(GetKey("k")))["value"] == 1
    here.clock.advance(2 * SECOND)
    await here.sweep()
    assert here.stored() == 0


async def test_spaces_with_keys_that_expire_have_their_actors_from_the_start() -> None:
    disk = SimulatedDisk()
    async with desk(disk) as here:
        await nodes.run(here.node, " ".join(f"DEFINE SPACE s{n};" for n in range(20)))
        for number in range(20):
            await here.run(SetKey("k", number, SECOND), space=f"s{number}")
        assert len(here.node.spaces.sweepers.sweeps) == 20
    async with desk(disk, START_US + SECOND) as here:
        assert len(here.node.spaces.sweepers.sweeps) == 20, "c has none"
        for number in range(20):
            assert await here.run(GetKey("k"), space=f"s{number}") == [NONE]


class TestRoom:
    """What is read fills it, and what finds none is not done."""

    async def test_it_is_shared_by_requests_that_came_together(self, here: Desk) -> None:
        await here.run(SetKey("big", bytes(10_000)), SetKey("small", 1))
        room = Room(25_000)
        get, incr = GetKey("big"), IncrKey("n")
        assert len(await here.run(get, incr, get, incr, get, incr, get, room=room)) == 5
        assert room.left <= 0
        assert await here.run(incr, room=room) == []
        assert await here.one(incr) == {"value": 3}

    async def test_one_is_done_where_there_is_any(self, here: Desk) -> None:
        await here.run(*(SetKey(f"a key with a long name {number}", 1) for number in range(100)))
        for operation in (GetKey("a key with a long name 1"), ListKeys()):
            assert len(await here.run(operation, operation, room=Room(1))) == 1
        assert len(await here.run(*[SetKey("n", 1)] * 100, room=Room(1))) == 100


async def test_what_has_changed_something_says_at_which_commit(here: Desk) -> None:
    asking = Asking(ANA, "r-1")
    operations: list[KeyOperation] = [
        SetKey("a", 1), GetKey("a"), SetKey("a", 2, when="ABSENT"), IncrKey("b"),
        LockKey("l", "h", 1_000_000), LockKey("l", "h", 1_000_000), DeleteKey("none"),
    ]  # fmt: skip
    found = here.node.spaces.run(asking, ANA, ("a", "b", "c"), operations)
    if found is not None:
        asking.on_result(found, None)
    await asking.heard
    last = here.node.committer.commit_index
    first = last - 1  # a lock that is acquired again has a commit of its own
    set_a, got, absent, counted, *_ = asking.commits
    assert (set_a, got, counted) == (first, None, first) and absent in (None, first)
    assert max(each or 0 for each in asking.commits) == last
