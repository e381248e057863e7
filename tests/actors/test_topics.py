"""Topic actors: what time brings to topics, over restarts too, and what idle topics cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from actors.node import Node
from actors.topics.due import TopicActor
from actors.topics.schedules import APART_US, IDLE_US
from protocol import limits
from protocol.errors import DiskFull, Draining, NotEnoughReplicas, Refusal, TooLarge
from protocol.values import unpaced
from storage.engine.engine import Engine
from storage.engine.memory import MemoryEngine
from storage.topics.deliveries import expiry
from storage.topics.deliveries.index import DeliveryIndex
from tests.actors import nodes
from tests.actors.parts import outcome, until
from tests.actors.scripts.test_taken_back import stalled
from tests.logbook import Logbook
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import START_US, ManualClock

SECOND = 1_000_000
HOUR = 3_600 * SECOND


class Desk:
    """A node on a clock that only the test moves."""

    def __init__(self, node: Node, clock: ManualClock) -> None:
        self.node = node
        self.clock = clock

    async def value(self, script: str, parameters: Any = None) -> Any:
        """What the last statement answered; a refusal is raised."""
        return await nodes.value(self.node, script, parameters)

    async def pass_time(self, microseconds: int) -> None:
        """Let time pass, and everything happen that it brings."""
        self.clock.advance(microseconds)
        await self.settle()

    async def settle(self) -> None:
        """Have done what is due."""
        topics = self.node.topics
        while True:
            topics.schedules.start_due_work()
            if not topics.schedules.working:
                return
            await asyncio.sleep(0)

    async def messages(self, topic: str = "t") -> int:
        """How many a topic holds."""
        return int((await self.value(f"INFO FOR TOPIC {topic}"))["messages"])

    async def group(self, name: str = "g") -> dict[str, Any]:
        """The figures of a group."""
        found = await self.value(f"INFO FOR GROUP {name} ON t")
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def desk(
    disk: SimulatedDisk | None = None, wall_us: int = START_US, engine: Engine | None = None
) -> AsyncIterator[Desk]:
    clock = ManualClock(wall_us)
    environment = nodes.simulated_environment(
        "real", disk or SimulatedDisk(), engine or MemoryEngine(), clock=clock
    )
    async with nodes.running(environment) as node:
        define = "DEFINE NAMESPACE IF NOT EXISTS a; DEFINE DATABASE IF NOT EXISTS a.b"
        answer = await nodes.run(node, define, place=(None, None))
        assert answer.refusal is None, answer.refusal
        yield Desk(node, clock)


@pytest.fixture
async def here() -> AsyncIterator[Desk]:
    async with desk() as made:
        yield made


def receipts(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"r": [message["receipt"] for message in messages]}


# --- hand-outs ------------------------------------------------------------------------------------


async def test_deadlines_lapse_with_nobody_taking(here: Desk) -> None:
    await here.value(
        "DEFINE TOPIC dead; DEFINE TOPIC t;"
        "DEFINE GROUP g ON t DEADLINE 10s DELIVERIES 2 DEAD LETTER dead;"
        "PUBLISH INTO t VALUES [1, 2]"
    )
    for attempt in (1, 2):
        (taken,) = await here.value("TAKE FROM t AS g")
        assert (taken["position"], taken["attempt"]) == (1, attempt)
        await here.pass_time(10 * SECOND - 1)
        assert (await here.group())["in_flight"] == 1, "not early"
        await here.pass_time(SECOND + 1)
        assert (await here.group())["in_flight"] == 0
    assert await here.messages("dead") == 1
    assert (await here.group())["dead_lettered"] == 1
    assert (await here.group())["redelivered"] == 1


async def test_deadlines_stand_over_a_restart() -> None:
    disk, engine = SimulatedDisk(), MemoryEngine()
    async with desk(disk, engine=engine) as here:
        await here.value(
            "DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 10s; PUBLISH INTO t VALUES [1, 2]"
        )
        first = await here.value("TAKE FROM t AS g")
        await here.pass_time(4 * SECOND)
        second = await here.value("TAKE FROM t AS g")
        told = [message[0]["deadline"] for message in (first, second)]
    async with desk(disk, wall_us=START_US + 6 * SECOND, engine=MemoryEngine()) as here:
        assert (await here.group())["in_flight"] == 2, "nothing is handed out early"
        assert await here.value("TAKE FROM t AS g") == []
        await here.pass_time(3 * SECOND)
        assert (await here.group())["in_flight"] == 2
        await here.pass_time(2 * SECOND)
        assert (await here.group())["in_flight"] == 1, "the first one's time is over"
        assert (await here.value("ACK t AS g RECEIPTS $r", receipts(first)))["stale"] == 1
        assert (await here.value("ACK t AS g RECEIPTS $r", receipts(second)))["acked"] == 1
        (again,) = await here.value("TAKE FROM t AS g")
        assert (again["position"], again["attempt"]) == (1, 2), "attempts count on"
        assert again["deadline"] > max(told)


@pytest.mark.parametrize("step_us", [-HOUR, HOUR, 10 * 365 * 24 * HOUR])
async def test_a_stepped_wall_clock_lapses_nothing(here: Desk, step_us: int) -> None:
    await here.value("DEFINE TOPIC t KEEP 1h; DEFINE GROUP g ON t DEADLINE 10s;"
                     " PUBLISH INTO t VALUE 1; TAKE FROM t AS g")  # fmt: skip
    here.clock.step_wall(step_us)
    await here.pass_time(9 * SECOND)
    assert (await here.group())["in_flight"] == 1
    assert await here.messages() == 1
    await here.pass_time(2 * SECOND)
    assert (await here.group())["in_flight"] == 0


async def test_who_waits_hears_of_a_lapse_at_its_time(here: Desk) -> None:
    await here.value("DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 10s; PUBLISH INTO t VALUE 1;"
                     " TAKE FROM t AS g")  # fmt: skip
    topics = here.node.topics
    taking = asyncio.ensure_future(nodes.run(here.node, "TAKE FROM t AS g WAIT 1m"))
    while not len(topics.waits):
        await asyncio.sleep(0)
    await here.pass_time(10 * SECOND - 1)
    assert not taking.done()
    await here.pass_time(1)
    found: Any = (await taking).results[0].value
    assert found[0]["attempt"] == 2


async def test_who_waits_for_dead_letters_hears_of_each_at_its_time(here: Desk) -> None:
    """Whoever reads them, or takes them; and INFO says at once what is in flight."""
    await here.value("DEFINE TOPIC dead; DEFINE GROUP d ON dead DEADLINE 1h; DEFINE TOPIC t;"
                     "DEFINE GROUP g ON t DEADLINE 10s DELIVERIES 1 DEAD LETTER dead;"
                     "PUBLISH INTO t VALUES 1..=6")  # fmt: skip
    statements = ("TAKE FROM dead AS d WAIT 1m", "READ FROM dead AFTER $n WAIT 1m")
    for number in range(6):
        statement = statements[number % 2]
        waiting = nodes.run(here.node, statement, {"n": number})
        hearing = asyncio.ensure_future(waiting)
        while not len(here.node.topics.waits):
            await asyncio.sleep(0)
        await here.value("TAKE FROM t AS g")
        await here.pass_time(10 * SECOND - 1)
        assert not hearing.done()
        assert (await here.group())["in_flight"] == 1
        here.clock.advance(1)
        assert (await here.group())["in_flight"] == 0, "though nobody has taken it back yet"
        await here.settle()
        found: Any = (await asyncio.wait_for(hearing, 30)).results[0].value
        assert [message["value"] for message in found] == [number + 1]
        await here.value("TAKE 9 FROM dead AS d")


@pytest.mark.parametrize("others", [0, 400])
async def test_lapses_are_looked_after_promptly_where_nobody_waits(here: Desk, others: int) -> None:
    """Where many topics have something to come, each is looked after less often."""
    for number in range(others):
        await here.value(f"DEFINE TOPIC o{number} KEEP 1h; PUBLISH INTO o{number} VALUE 1")
    await here.value("DEFINE TOPIC dead; DEFINE TOPIC t;"
                     "DEFINE GROUP g ON t DEADLINE 10s DELIVERIES 1 DEAD LETTER dead;"
                     "PUBLISH INTO t VALUES [1, 2]; TAKE FROM t AS g")  # fmt: skip
    await here.pass_time(SECOND // 100)
    await here.value("TAKE FROM t AS g")
    await here.pass_time(10 * SECOND - SECOND // 100)
    assert await here.messages("dead") == 1
    await here.pass_time(APART_US)
    assert await here.messages("dead") == (1 if others else 2)
    await here.pass_time(others * 2_000)
    assert await here.messages("dead") == 2


async def test_order_by_key_holds_under_nacks_and_lapses(here: Desk) -> None:
    """Whatever happens to a message, no later one of its key is out before it is done with."""
    await here.value("DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 5s IN FLIGHT 50 BACKOFF 1s"
                     " ORDERED BY KEY")  # fmt: skip
    rng = Random(7)
    key_of: dict[int, str] = {}
    out: dict[int, dict[str, Any]] = {}
    done: dict[str, int] = {}
    for position in range(1, 301):
        key_of[position] = f"k{rng.randrange(8)}"
        await here.value(f"PUBLISH INTO t VALUE 0 KEY '{key_of[position]}'")
    left = set(key_of)
    nacks = lapses = 0
    while left:
        for message in await here.value("TAKE 5 FROM t AS g"):
            position, key = message["position"], message["key"]
            assert key == key_of[position]
            earlier = [each for each in left if key_of[each] == key and each < position]
            assert not earlier, (position, earlier)
            assert position > done.get(key, 0)
            out[position] = message
        for position in list(out):
            what = rng.random()
            one = receipts([out[position]])
            if what < 0.4:
                acked = await here.value("ACK t AS g RECEIPTS $r", one)
                if acked["acked"]:
                    left.discard(position)
                    done[key_of[position]] = position
                del out[position]
            elif what < 0.6:
                nacks += (await here.value("NACK t AS g RECEIPTS $r", one))["nacked"]
                del out[position]
            elif what < 0.7:
                lapses += 1
                del out[position]  # forgotten: it lapses
        await here.pass_time(rng.choice((0, SECOND // 2, 2 * SECOND)))
    figures = await here.group()
    assert (figures["committed"], figures["in_flight"]) == (300, 0)
    assert nacks > 50 and lapses > 50 and figures["redelivered"] >= nacks + lapses


# --- what is refused ------------------------------------------------------------------------------


async def test_what_one_group_is_refused_holds_up_no_other(
    here: Desk, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """It is logged, counted, and tried again after growing pauses."""
    logbook.allow("due work of a topic was refused")
    await here.value(
        "DEFINE TOPIC dead; DEFINE TOPIC t KEEP 1h; PUBLISH INTO t VALUES [1, 2];"
        "DEFINE GROUP bad ON t DEADLINE 10s; TAKE 2 FROM t AS bad;"
        "DEFINE GROUP good ON t DEADLINE 10s DELIVERIES 1 DEAD LETTER dead; TAKE 2 FROM t AS good"
    )
    expire_overdue, tried, refuses = expiry.expire, [], True

    def refused(hand_outs: DeliveryIndex, *most: int) -> int:
        if hand_outs.group.name == "bad":
            tried.append(here.clock.monotonic_us() // SECOND)
            if refuses:
                raise TooLarge("a transaction changes at most so much")
        return expire_overdue(hand_outs, *most)

    monkeypatch.setattr(expiry, "expire", refused)
    await here.pass_time(10 * SECOND)
    assert await here.messages("dead") == 2, "that of another group goes on"
    began = tried[0]
    for _ in range(100):
        await here.pass_time(SECOND)
    assert [at - began for at in tried] == [0, 1, 3, 7, 15, 31, 63, 95]
    assert logbook.names().count("due work of a topic was refused") == len(tried)
    (line,) = [event for event in logbook.events if event.get("times") == 3]
    assert (line["topic"], line["part"], line["code"]) == ("a.b.t", "group bad", "TooLarge")
    (_, figures), _ = here.node.topics.figures(nodes.ANA, unpaced)
    assert (figures.name, figures.refused) == ("t", len(tried))
    await here.pass_time(HOUR)
    assert await here.messages() == 0, "and what is too old goes"
    refuses = False
    await here.value("PUBLISH INTO t VALUE 3; TAKE FROM t AS bad")
    await here.pass_time(40 * SECOND)
    assert (await here.group("bad"))["in_flight"] == 0
    assert here.node.topics.figures(nodes.ANA, unpaced)[0][1].refused == figures.refused + 1


@pytest.mark.parametrize(
    "refusal", [NotEnoughReplicas("too few", followers=0, acks=1), Draining("it stops")]
)
async def test_what_the_followers_of_a_node_are_too_few_for_is_no_fault_of_a_topic(
    here: Desk, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again each second, without a word and without growing pauses."""
    await here.value(
        "DEFINE TOPIC t; PUBLISH INTO t VALUES [1, 2];"
        "DEFINE GROUP g ON t DEADLINE 10s; TAKE 2 FROM t AS g"
    )
    committer, tried = here.node.committer, list[int]()
    check = committer.check_replicated

    def refused() -> None:
        tried.append(here.clock.monotonic_us() // SECOND)
        raise refusal

    committer.check_replicated = refused
    for _ in range(40):
        await here.pass_time(SECOND)
    assert len(tried) >= 25 and {b - a for a, b in pairwise(tried)} <= {0, 1}
    (figures,), _ = here.node.topics.figures(nodes.ANA, unpaced)
    assert figures.refused == 0
    assert (figures.groups[0].in_flight, figures.groups[0].waiting) == (0, 2), "it is over"
    monkeypatch.setattr(limits, "METRICS_NAMED", 0)
    (others,), _ = here.node.topics.figures(nodes.ANA, unpaced)
    assert [replace(one, name="g") for one in others.groups] == list(figures.groups)
    committer.check_replicated = check
    await here.pass_time(2 * SECOND)
    assert (await here.group("g"))["in_flight"] == 0


# --- retention and ids ----------------------------------------------------------------------------


async def test_old_messages_go_in_slices_of_their_own(here: Desk) -> None:
    count = 3 * limits.TRIM_MESSAGES + 7
    await here.value("DEFINE TOPIC t KEEP 1m; DEFINE GROUP g ON t DEADLINE 1h IN FLIGHT 5000;"
                     "PUBLISH INTO t VALUES $v", {"v": list(range(count))})  # fmt: skip
    held = await here.value("TAKE 1000 FROM t AS g")
    await here.pass_time(30 * SECOND)
    await here.value("PUBLISH INTO t VALUES ['young', 'younger']")
    assert await here.messages() == count + 2
    before = here.node.committer.committed
    await here.pass_time(31 * SECOND)
    assert await here.messages() == 2
    assert here.node.committer.committed - before >= 4
    figures = await here.group()
    assert (figures["committed"], figures["in_flight"], figures["lag"]) == (count, 0, 2)
    assert (await here.value("ACK t AS g RECEIPTS $r", receipts(held)))["stale"] == 1000
    assert (await here.value("TAKE FROM t AS g"))[0]["value"] == "young"
    (first, _) = await here.value("READ FROM t AFTER 0")
    assert first["position"] == count + 1


async def test_a_topic_over_its_bytes_drops_its_oldest(here: Desk) -> None:
    await here.value("DEFINE TOPIC t BYTES 100KiB")
    big = "x" * 1000
    for _ in range(30):
        await here.value("PUBLISH INTO t VALUES $v", {"v": [big] * 10})
    await here.pass_time(SECOND)
    info = await here.value("INFO FOR TOPIC t")
    assert 95 * limits.KIB < info["bytes"] <= 100 * limits.KIB
    assert info["last_position"] == 300
    assert info["first_position"] == 301 - info["messages"]


async def test_a_shorter_keep_counts_at_once(here: Desk) -> None:
    await here.value("DEFINE TOPIC t; PUBLISH INTO t VALUES [1, 2]")
    await here.pass_time(HOUR)
    assert await here.messages() == 2
    await here.value("ALTER TOPIC t SET KEEP 1m")
    await here.pass_time(SECOND)
    assert await here.messages() == 0


async def test_ids_are_remembered_over_a_restart_and_then_forgotten() -> None:
    disk = SimulatedDisk()
    async with desk(disk) as here:
        await here.value("DEFINE TOPIC t DEDUP 1h")
        for n in range(250):
            await here.value(f"PUBLISH INTO t VALUE {n} ID 'i{n}'")
    async with desk(disk, wall_us=START_US + 10 * SECOND) as here:
        said = await here.value("PUBLISH INTO t VALUE 0 ID 'i41'")
        assert said == {"position": 42, "duplicate": True}
        assert here.node.topics.schedules.expected_us(1) is not None
        engine_rows = stored(here)
        await here.pass_time(HOUR)
        assert stored(here) <= engine_rows - 500, "both rows of each id are gone"
        said = await here.value("PUBLISH INTO t VALUE 0 ID 'i41'")
        assert said == {"position": 251, "duplicate": False}


def stored(here: Desk) -> int:
    """Rows in the state."""
    with here.node.committer.begin_transaction() as tx:
        return sum(len(step) for step in tx.scan(b"\x00\x01", b"\xff"))


# --- the actors themselves ------------------------------------------------------------------------


async def test_a_topic_with_nothing_to_come_has_no_actor(here: Desk) -> None:
    await here.value("DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 10s; PUBLISH INTO t VALUE 1")
    await here.settle()
    topics = here.node.topics
    begun = topics.schedules.begun
    assert topics.schedules.expected_us(1) is None
    taken = await here.value("TAKE FROM t AS g")
    assert topics.schedules.expected_us(1) is not None
    assert not topics.schedules.places()
    await here.value("ACK t AS g RECEIPTS $r", receipts(taken))
    await here.pass_time(IDLE_US * 2)
    assert topics.schedules.begun == begun + 1, "looked once, when the deadline had passed"
    assert topics.schedules.expected_us(1) is None
    await nodes.yield_often()
    assert not topics.schedules.places()
    await here.pass_time(HOUR)
    assert topics.schedules.begun == begun + 1


async def test_a_dropped_topic_is_let_go(here: Desk) -> None:
    await here.value("DEFINE TOPIC t KEEP 10s; DEFINE GROUP g ON t DEADLINE 1s;"
                     "PUBLISH INTO t VALUE 1; TAKE FROM t AS g; DROP TOPIC t;"
                     "DEFINE TOPIC t KEEP 1h; PUBLISH INTO t VALUE 1")  # fmt: skip
    await here.pass_time(11 * SECOND)
    assert await here.messages() == 1
    await nodes.yield_often()
    assert here.node.topics.schedules.expected_us(1) is None
    assert not here.node.topics.schedules.places()


async def test_an_actor_that_fails_is_replaced_and_goes_on(
    here: Desk, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("actor failed")
    await here.value("DEFINE TOPIC t KEEP 10s; PUBLISH INTO t VALUE 1")
    failing = True
    original = TopicActor._retain

    def retain(actor: TopicActor, done: Any) -> None:
        if failing:
            raise ValueError("a bug")
        original(actor, done)

    monkeypatch.setattr(TopicActor, "_retain", retain)
    here.clock.advance(11 * SECOND)
    here.node.topics.schedules.start_due_work()
    await nodes.yield_often()
    assert here.node.failure is None
    failing = False
    await here.pass_time(2 * SECOND)
    assert await here.messages() == 0


async def test_a_node_that_takes_no_writes_leaves_everything(here: Desk) -> None:
    await here.value("DEFINE TOPIC t KEEP 10s; DEFINE GROUP g ON t DEADLINE 10s;"
                     "PUBLISH INTO t VALUE 1; TAKE FROM t AS g;"
                     "DEFINE NODE ROLES serving")  # fmt: skip
    begun = here.node.topics.schedules.begun
    await here.pass_time(15 * SECOND)
    assert await here.messages() == 1
    assert here.node.topics.schedules.begun <= begun + 1
    await here.value("DEFINE NODE ROLES serving, writable")
    await here.pass_time(2 * SECOND)
    assert await here.messages() == 0


def full(here: Desk) -> SimulatedDisk:
    """The node's disk, with no room left."""
    disk = here.node.store.parts.directory.fs
    assert isinstance(disk, SimulatedDisk)
    disk.capacity = 1 << 40
    disk.capacity -= disk.room("/store").bytes
    return disk


async def pass_time_once(here: Desk, microseconds: int) -> None:
    """Let time pass, and what is due be tried once."""
    here.clock.advance(microseconds)
    here.node.topics.schedules.start_due_work()
    while here.node.topics.schedules.working:
        await asyncio.sleep(0)


async def test_a_full_disk_puts_off_what_adds(here: Desk) -> None:
    await here.value(
        "DEFINE TOPIC t; DEFINE TOPIC dead;"
        "DEFINE GROUP g ON t DEADLINE 10s DELIVERIES 1 DEAD LETTER dead;"
        "PUBLISH INTO t VALUES $v; TAKE 100 FROM t AS g", {"v": ["x" * 1_000] * 100},
    )  # fmt: skip
    disk = full(here)
    await pass_time_once(here, 11 * SECOND)
    assert here.node.failure is None
    assert await here.messages("dead") == 0
    disk.capacity = 1 << 40
    await here.pass_time(5 * SECOND)
    assert await here.messages("dead") == 100


async def test_a_full_disk_puts_nothing_off_that_takes_away(here: Desk) -> None:
    await here.value("DEFINE TOPIC t KEEP 10s; PUBLISH INTO t VALUES $v", {"v": [0] * 100})
    disk = full(here)
    await pass_time_once(here, 11 * SECOND)
    assert here.node.failure is None
    assert await here.messages() == 0
    disk.capacity = 1 << 40


async def begun(here: Desk, script: str) -> asyncio.Future[Any]:
    """A script that has committed something; what comes of it is answered once that is known."""
    committer = here.node.committer
    before = committer.committed
    running = asyncio.ensure_future(outcome(here.value(script)))
    await until(lambda: committer.committed > before)
    return running


@asynccontextmanager
async def in_flight(here: Desk, *scripts: str) -> AsyncIterator[None]:
    """Scripts whose commits wait for the disk, which turns out to be full in the end."""
    disk = here.node.store.parts.directory.fs
    assert isinstance(disk, SimulatedDisk)
    running = list[asyncio.Future[Any]]()
    with stalled(here.node, disk):
        for script in scripts:
            running.append(await begun(here, script))
        yield
    assert [type(await one) for one in running] == [DiskFull] * len(scripts)
    disk.plan = None


@pytest.mark.parametrize(
    ("keep", "drop"),
    [("KEEP 20s", "DROP TOPIC t"), ("", "DROP GROUP g ON t"), ("KEEP 20s", "DROP DATABASE a.b")],
)
async def test_a_topic_is_looked_after_when_its_drop_was_taken_back(
    here: Desk, logbook: Logbook, keep: str, drop: str
) -> None:
    """What came due meanwhile was looked for while there was nothing to be found."""
    logbook.allow("the disk is full: old log was dropped")
    await here.value(
        f"DEFINE TOPIC dead; DEFINE TOPIC t {keep};"
        "DEFINE GROUP g ON t DEADLINE 10s DELIVERIES 1 DEAD LETTER dead;"
        "PUBLISH INTO t VALUES [1, 2]; TAKE 2 FROM t AS g"
    )
    async with in_flight(here, "DEFINE TOPIC other", drop):
        here.clock.advance(11 * SECOND)
        here.node.topics.schedules.start_due_work()
        await nodes.yield_often()
    for _ in range(120):
        await here.pass_time(SECOND)
    assert await here.messages("dead") == 2
    assert await here.messages() == (0 if keep else 2)


@pytest.mark.hard
async def test_ten_thousand_topics_start_and_idle(figure: Callable[[str, object], None]) -> None:
    disk, engine = SimulatedDisk(), MemoryEngine()
    count = 10_000
    async with desk(disk, engine=engine) as here:
        names = [f"t{n}" for n in range(count)]
        for begin in range(0, count, 500):
            await here.value(
                "".join(
                    f"DEFINE TOPIC {name} KEEP 1d DEDUP 1h; DEFINE GROUP g ON {name} DEADLINE 1m;"
                    for name in names[begin : begin + 500]
                )
            )
        for name in names[:100]:
            await here.value(f"PUBLISH INTO {name} VALUE 1; TAKE FROM {name} AS g")
    wall = START_US
    async with desk(disk, wall_us=wall, engine=MemoryEngine()) as here:
        topics = here.node.topics
        assert not topics.schedules.places(), "nothing is due yet"
        assert (
            sum(topics.schedules.expected_us(id) is not None for id in range(1, count + 1)) == 100
        )
        await here.pass_time(30 * SECOND)
        assert topics.schedules.begun == 0
        began = datetime.now()
        await here.pass_time(40 * SECOND)
        assert topics.schedules.begun == 100
        took = datetime.now() - began
        await nodes.yield_often(200)
        assert not topics.schedules.places()
        assert (
            sum(topics.schedules.expected_us(id) is not None for id in range(1, count + 1)) == 100
        )
        for name in names[:100]:
            assert (await here.value(f"INFO FOR GROUP g ON {name}"))["in_flight"] == 0, name
        begun, ticks = topics.schedules.begun, here.node.committer.committed
        await here.pass_time(HOUR)
        assert (topics.schedules.begun, here.node.committer.committed) == (begun, ticks)
        figure(
            "10 000 topics",
            f"100 with something to come; actors begun 100, kept 0; their deadlines done in {took}",
        )


async def test_a_refusal_in_the_middle_changes_nothing(here: Desk) -> None:
    await here.value("DEFINE TOPIC t; PUBLISH INTO t VALUE 1")
    with pytest.raises(Refusal):
        await here.value("PUBLISH INTO t VALUES [1, NONE]")
    assert await here.messages() == 1
