"""Space actors: operations without a script, sweeping, their coming and going."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from actors.commits import By
from actors.node import Node
from actors.rights import Standing, Thing
from actors.runtime import Urgent, ask, tell
from actors.sessions import token_digest
from actors.spaces import Origin, Sweep, find_space
from protocol import limits
from protocol.errors import (
    NotANumber,
    NotASpace,
    NotWritable,
    Refusal,
    SessionEnded,
    UnknownOutcome,
)
from protocol.requests import AuthenticateToken, SignIn
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
    Room,
    RunKeys,
    SetKey,
    SwapKey,
    UnlockKey,
)
from protocol.values import NONE
from storage import keys, users
from storage.catalog import Space
from storage.effects import DELETE_RECORD, decode
from storage.engine import EngineFailed
from storage.memory import MemoryEngine
from storage.spaces import Keys
from tests.actors import nodes
from tests.actors.nodes import ANA, OWNER
from tests.simulation.disk import SimulatedDisk
from tests.simulation.doors import START_US, ManualClock

SECOND = 1_000_000
WRITTEN = {"written": True}
ORIGIN = Origin("r-1", "http", "192.0.2.1:1")


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
        ref = self.node.spaces.find("a", "b", space)
        assert ref is not None
        request = RunKeys(who, "a", "b", space, operations, room)
        answers: tuple[KeyAnswer, ...] = await ask(ref, request)
        return list(answers)

    async def one(self, operation: KeyOperation) -> Any:
        """The answer of one operation; a refusal is raised."""
        (answer,) = await self.run(operation)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def sweep(self) -> None:
        """Have the space swept until nothing is due."""
        ref = self.node.spaces.find("a", "b", "c")
        assert ref is not None
        while True:
            tell(ref, Sweep())
            await ask(ref, RunKeys(ANA, "a", "b", "c", ()))
            with self.node.committer.begin() as tx:
                due = Keys(tx, self._declared()).next_expiry_us()
                if due is None or due > tx.now_us:
                    return
            await asyncio.sleep(0)

    def _declared(self) -> Space:
        with self.node.committer.begin() as tx:
            found = find_space(tx, "a", "b", "c")
        assert found is not None
        return found

    def stored(self) -> int:
        """Entries in the state, expired ones included."""
        with self.node.committer.begin() as tx:
            start, end = keys.within(self._declared().entries)
            return sum(len(step) for step in tx.scan(start, end))


@asynccontextmanager
async def desk(disk: SimulatedDisk | None = None, wall_us: int = START_US) -> AsyncIterator[Desk]:
    clock, engine = ManualClock(wall_us), MemoryEngine()
    doors = nodes.simulated_doors("real", disk or SimulatedDisk(), engine, clock=clock)
    async with nodes.running(doors) as node:
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
    assert here.node.committer.released_upto == before + 1, "the answers waited for it"


async def test_one_refused_operation_does_not_touch_the_others(here: Desk) -> None:
    answers = await here.run(SetKey("k", "text"), IncrKey("k"), SetKey("", 1), SetKey("l", 2))
    assert answers[0] == answers[3] == WRITTEN
    assert isinstance(answers[1], NotANumber)
    assert isinstance(answers[2], Refusal)
    assert await here.run(ListKeys()) == [{"keys": ["k", "l"]}]


async def test_each_acquisition_has_a_fence_of_its_own(here: Desk) -> None:
    answers = await here.run(
        LockKey("l", "a", SECOND), UnlockKey("l", "a"), LockKey("l", "b", SECOND),
        LockKey("m", "b", SECOND), LockKey("l", "b", 2 * SECOND), LockKey("l", "c", SECOND),
    )  # fmt: skip
    first, _, second, _, again, other = answers
    assert first["fence"] < second["fence"] == again["fence"]
    assert other["held"] is False and other["fence"] is None


async def test_who_asks_is_asked_each_time(here: Desk) -> None:
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "wire", "192.0.2.1:1")
    )
    token = AuthenticateToken(session.token, "wire", "192.0.2.1:1")
    assert await here.run(SetKey("k", 1), who=token) == [WRITTEN]
    await nodes.run(here.node, "DEFINE TABLE more")
    assert await here.run(GetKey("k"), who=token) == [{"value": 1, "ttl": None}]
    await nodes.run(here.node, f"ALTER USER {OWNER.name} SET PASSWORD 'another one'")
    with pytest.raises(SessionEnded):
        await here.run(GetKey("k"), who=token)
    with pytest.raises(SessionEnded):
        await here.run(GetKey("k"), who=AuthenticateToken("nonsense", "wire", "x"))


async def test_a_glance_tells_what_the_actor_would_say_or_nothing(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
    )
    token = token_digest(session.token)

    def seen(space: str = "c", key: str = "k") -> Any:
        return here.node.spaces.glance(token, ("a", "b", space), key)

    who = AuthenticateToken(session.token, "http", "192.0.2.1:1")
    assert seen() is None, "nobody has asked for that space before"
    assert await here.run(SetKey("k", 1), who=who) == [WRITTEN]
    assert seen() == {"value": 1, "ttl": None}
    assert seen(key="l") is NONE
    assert seen(key="") is None and seen("other") is None
    assert here.node.spaces.glance(token_digest("no"), ("a", "b", "c"), "k") is None
    with monkeypatch.context() as broken:
        broken.setattr(here.engine, "get", raises_engine_failed)
        assert seen() is None
    await nodes.run(here.node, "DEFINE TABLE more")
    assert seen() is None, "declarations have changed: perhaps the user, perhaps the space"
    assert await here.run(GetKey("k"), who=who) == [{"value": 1, "ttl": None}]
    assert seen() == {"value": 1, "ttl": None}
    await nodes.run(here.node, "DEFINE NODE ROLES writable")
    assert seen() == {"value": 1, "ttl": None}, "any role makes the node answer"
    await nodes.run(here.node, "DEFINE NODE ROLES NONE")
    assert seen() is None
    await nodes.run(here.node, "DEFINE NODE ROLES serving, writable")
    assert seen() == {"value": 1, "ttl": None}
    with monkeypatch.context() as nobody:
        nobody.setattr(Standing, "holds", holds_nothing)
        assert seen() is None
    await nodes.run(here.node, "DROP SPACE c; DEFINE SPACE c")
    assert seen() is None
    assert await here.run(GetKey("k"), who=who) == [NONE]
    assert seen() is NONE


async def test_what_is_set_at_once_is_set_as_the_actor_would(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
    )
    token, names = token_digest(session.token), ("a", "b", "c")
    who = AuthenticateToken(session.token, "http", "192.0.2.1:1")
    committer = here.node.committer
    heard: list[tuple[Any, BaseException | None]] = []

    def told(answer: Any, lost: BaseException | None) -> None:
        heard.append((answer, lost))

    def now(*given: Any, into: tuple[str, str, str] = names, **named: Any) -> bool:
        return here.node.spaces.write_now(token, into, SetKey(*given, **named), ORIGIN, told)

    assert not now("k", 1), "nobody has asked for that space before"
    operations = [SetKey("k", "it's"), SetKey("l", [1], 5 * SECOND), SetKey("k", "x" * 5000)]
    for operation in operations:
        assert await here.run(operation, who=who) == [WRITTEN]
    assert await here.run(DeleteKey("k"), DeleteKey("l"), who=who)
    first = committer.committed
    for operation in operations:
        before, count = committer.committed, len(heard)
        assert here.node.spaces.write_now(token, names, operation, ORIGIN, told)
        assert committer.committed == before + 1 and len(heard) == count
        while len(heard) == count:
            await asyncio.sleep(0)
        assert committer.released_upto >= before + 1, "it heard of it before it was durable"
    await here.run(DeleteKey("k"), DeleteKey("l"), who=who)
    for operation in operations:
        await here.run(operation, who=who)
    logged = here.node.store.parts.log.read(first + 1)
    frames = {frame.sequence: decode(frame.body) for frame in logged if frame.body}
    for at in range(first + 1, first + 4):
        at_once, asked = frames[at], frames[at + 4]
        assert at_once.attribution == asked.attribution
        assert [kind[:2] for kind in at_once.effects] == [kind[:2] for kind in asked.effects]
    assert heard == [(WRITTEN, None)] * 3
    assert await here.one(GetKey("k")) == {"value": "x" * 5000, "ttl": None}
    here.clock.advance(6 * SECOND)
    assert await here.one(GetKey("l")) is NONE

    assert now("k", "it is no number")
    (waiting,) = here.node.running.info(here.clock.monotonic_us())
    assert isinstance(waiting, dict)
    assert (waiting["id"], waiting["text"]) == (ORIGIN.request, "SET 'k' IN c VALUE $value")
    assert here.node.running.cancel(ORIGIN.request)
    answer, lost = heard.pop()
    assert (answer, type(lost)) == (WRITTEN, UnknownOutcome)
    assert len(heard) == 3 and here.node.running.info(0) == []

    before = committer.committed
    for refused in (("", 1), ("k", NONE), ("k", 1, 0), ("k", "x" * limits.CACHE_VALUE_BYTES)):
        assert not now(*refused)
    assert not now("k", 1, when="ABSENT"), "it is there: nothing is written"
    for nothing in (LockKey("m", "me", SECOND), DeleteKey("m"), SwapKey("k", 1, 2), IncrKey("k")):
        assert not here.node.spaces.write_now(token, names, nothing, ORIGIN, told)
    assert not now("k", 1, into=("a", "b", "other"))
    with monkeypatch.context() as nobody:
        nobody.setattr(Standing, "holds", holds_nothing)
        assert not now("k", 1)
    assert committer.committed == before, "nothing is written by what is refused"
    await nodes.run(here.node, "DEFINE NODE ROLES serving")
    assert not now("k", 1)
    await nodes.run(here.node, "DEFINE NODE ROLES serving, writable; DROP SPACE c")
    assert not now("k", 1)
    assert heard == [(WRITTEN, None)] * 3


async def test_what_is_set_at_once_in_a_space_of_passing_keys_is_swept(here: Desk) -> None:
    await nodes.run(here.node, "DEFINE SPACE OVERWRITE c EXPIRE 5s")
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
    )
    names = ("a", "b", "c")
    who = AuthenticateToken(session.token, "http", "192.0.2.1:1")
    await here.run(GetKey("k"), who=who)
    told = asyncio.get_running_loop().create_future()
    assert here.node.spaces.write_now(
        token_digest(session.token),
        names,
        SetKey("k", 1),
        ORIGIN,
        lambda *how: told.set_result(how),
    )
    assert await told == (WRITTEN, None)
    assert (await here.one(GetKey("k")))["ttl"] == timedelta(seconds=5)
    await asyncio.sleep(0)
    (due_us,) = here.node.spaces.due_us.values()
    assert due_us >= here.node.committer.ledger.log_time() + 5 * SECOND


async def test_a_loop_that_only_glances_lets_the_log_through(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
    )
    await here.run(GetKey("k"), who=AuthenticateToken(session.token, "http", "192.0.2.1:1"))
    urgent = here.node.spaces.runtime.urgent
    assert urgent is not None
    gave_way: list[int] = []
    monkeypatch.setattr(Urgent, "give_way", lambda _self, now_us: gave_way.append(now_us))
    for since_us in (0, 1):
        monkeypatch.setattr(urgent, "since_us", since_us)
        assert here.node.spaces.glance(token_digest(session.token), ("a", "b", "c"), "k") is NONE
        assert len(gave_way) == since_us


def raises_engine_failed(_key: bytes) -> bytes:
    raise EngineFailed("planted")


def holds_nothing(_who: Standing, _thing: Thing) -> Verbs:
    return NOTHING


async def test_a_glance_waits_for_no_declaration_in_flight(here: Desk) -> None:
    session = await ask(
        here.node.sessions, SignIn(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
    )
    who = AuthenticateToken(session.token, "http", "192.0.2.1:1")
    token, names = token_digest(session.token), ("a", "b", "c")
    await here.run(GetKey("k"), who=who)
    assert here.node.spaces.glance(token, names, "k") is NONE
    committer = here.node.committer
    with committer.begin() as tx:
        users.define(tx, "more", users.OWNER, "h")
        promise = committer.commit(tx, By("ana", "wire"))
    assert here.node.spaces.find("a", "b", "c") is not None
    with committer.begin() as tx:
        here.node.spaces.sessions.caller(who, tx)
    assert here.node.spaces.glance(token, names, "k") is None
    await committer.released(promise)
    assert here.node.spaces.glance(token, names, "k") is None, "it was looked at too early"
    await here.run(GetKey("k"), who=who)
    assert here.node.spaces.glance(token, names, "k") is NONE


async def test_without_the_writable_role_reads_go_on(here: Desk) -> None:
    await here.run(SetKey("k", 1, 5 * SECOND))
    await nodes.run(here.node, "DEFINE NODE ROLES serving")
    answers = await here.run(GetKey("k"), SetKey("k", 2), ListKeys())
    assert answers[0]["value"] == 1
    assert isinstance(answers[1], NotWritable)
    assert answers[2] == {"keys": ["k"]}
    here.clock.advance(6 * SECOND)
    assert await here.one(GetKey("k")) is NONE
    ref = here.node.spaces.find("a", "b", "c")
    assert ref is not None
    tell(ref, Sweep())
    await here.run()
    assert here.stored() == 1, "nothing is swept either"


async def test_a_space_that_is_dropped_is_no_space_any_more(here: Desk) -> None:
    ref = here.node.spaces.find("a", "b", "c")
    assert ref is not None
    await here.run(SetKey("k", 1))
    await nodes.run(here.node, "DROP SPACE c")
    assert here.node.spaces.find("a", "b", "c") is None
    assert not here.node.spaces.places
    await nodes.run(here.node, "DEFINE SPACE c")
    assert await here.run(GetKey("k")) == [NONE]
    second = here.node.spaces.find("a", "b", "c")
    assert second is not None and second != ref
    await nodes.run(here.node, "DROP NAMESPACE a")
    assert here.node.spaces.find("a", "b", "c") is None
    with pytest.raises((NotASpace, Refusal)):
        await ask(second, RunKeys(ANA, "a", "b", "c", (GetKey("k"),)))


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
    frames = [frame for frame in here.node.store.parts.log.read(before + 1) if frame.body]
    swept = [decode(frame.body) for frame in frames]
    by_node = [commit for commit in swept if commit.attribution.by == "node"]
    assert len(by_node) >= 3, "slices"
    for commit in by_node:
        gone = sum(effect[0] == DELETE_RECORD for effect in commit.effects)
        assert gone <= limits.SWEEP_KEYS
        assert commit.attribution.reason == "expired"


async def test_sweeping_needs_no_one_to_ask(here: Desk) -> None:
    """The timer is the space's own; real time is what it waits for, log time what it looks at."""
    await here.run(SetKey("k", 1, SECOND // 100))
    await nodes.run(here.node, "SET 'from a script' IN c VALUE 1 EXPIRE 10ms")
    here.clock.advance(SECOND)
    async with asyncio.timeout(20):
        while here.stored():
            await asyncio.sleep(0.01)
            here.clock.advance(SECOND)


async def test_a_fresh_actor_takes_over_after_a_failure(here: Desk, logbook: Any) -> None:
    logbook.allow("actor failed")
    await here.run(SetKey("k", 1, SECOND))
    ref = here.node.spaces.find("a", "b", "c")
    assert ref is not None
    tell(ref, object())
    async with asyncio.timeout(20):
        while here.node.spaces.find("a", "b", "c") == ref:
            await asyncio.sleep(0)
    assert here.node.failure is None
    assert (await here.one(GetKey("k")))["value"] == 1
    here.clock.advance(2 * SECOND)
    await here.sweep()
    assert here.stored() == 0


async def test_whoever_heard_that_a_key_expired_never_sees_it_again() -> None:
    """The node dies right after the answer, and comes back under a clock an hour behind."""
    disk = SimulatedDisk()
    async with desk(disk) as here:
        await here.run(SetKey("seen", 1, 10 * SECOND), SetKey("listed", 1, 10 * SECOND))
        here.clock.advance(11 * SECOND)
        assert await here.one(GetKey("seen")) is NONE
        survivor = SimulatedDisk(disk.image())
    async with desk(survivor, START_US - 3600 * SECOND) as here:
        assert await here.one(GetKey("seen")) is NONE
        assert await here.one(GetKey("listed")) is NONE
        await here.run(SetKey("new", 1, SECOND))
        assert (await here.one(GetKey("new")))["ttl"] == timedelta(seconds=1)


async def test_many_spaces_each_have_their_actor_from_the_start() -> None:
    disk = SimulatedDisk()
    async with desk(disk) as here:
        await nodes.run(here.node, " ".join(f"DEFINE SPACE s{n};" for n in range(20)))
        for number in range(20):
            await here.run(SetKey("k", number, SECOND), space=f"s{number}")
        assert len(here.node.spaces.places) == 20, "the one that was asked for nothing apart"
    async with desk(disk, START_US + SECOND) as here:
        assert len(here.node.spaces.places) == 21
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
