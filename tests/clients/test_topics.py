"""The topic handles, awaited and blocking, against a real node."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from bench.ports import free_port
from storeclient import (
    AsyncClient,
    AsyncTopic,
    Client,
    Closed,
    OutcomeUnknown,
    Topic,
    errors,
)
from storeclient.batches import Batches
from tests.clients.test_real_node import EVERY_TYPE, serving
from tests.nodes import PASSWORD
from tests.processes import PASSWORD as PROCESS_PASSWORD
from tests.processes import USER, NodeProcess

DEFINED = """
    DEFINE TOPIC jobs DEDUP 1h LARGEST 1KiB;
    DEFINE TOPIC dead;
    DEFINE GROUP g ON jobs DEADLINE 60s DELIVERIES 3 DEAD LETTER dead;
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with (
        serving(tmp_path / "store") as (_, address),
        AsyncClient(address, user="root", password=PASSWORD, ns="shop", db="main") as client,
    ):
        await client.run(DEFINED)
        yield client


@pytest.fixture
def topic(client: AsyncClient) -> AsyncTopic:
    return client.topic("shop", "main", "jobs")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NodeProcess]:
    # A port that it has again when it is started again.
    at = f"127.0.0.1:{free_port()}"
    node = NodeProcess(tmp_path / "store", ("--http", "127.0.0.1:0", "--serve", at)).start()
    node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; " + DEFINED)
    yield node
    if node.process.poll() is None:
        node.kill()


def wire_of(node: NodeProcess) -> str:
    host, port = node.address("wire")
    return f"{host}:{port}"


@contextmanager
def blocking(node: NodeProcess) -> Iterator[Topic]:
    with Client(wire_of(node), user=USER, password=PROCESS_PASSWORD) as client:
        yield client.topic("shop", "main", "jobs")


# --- publishing and reading -----------------------------------------------------------------------


async def test_every_type_comes_back_as_it_was_published(topic: AsyncTopic) -> None:
    for value in EVERY_TYPE:
        await topic.publish(value)
    found = [message.value async for message in topic.messages()]
    assert found == list(EVERY_TYPE)
    assert [type(one) for one in found] == [type(one) for one in EVERY_TYPE]


async def test_a_message_shows_all_that_was_given(topic: AsyncTopic) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    published = await topic.publish({"n": 1}, key="k", id="i", headers={"h": "v"}, delay=3600)
    (message,) = await topic.read()
    assert published.position == message.position == 1
    assert not published.duplicate
    assert (message.key, message.id, message.headers) == ("k", "i", {"h": "v"})
    assert before < message.at
    assert message.due is not None
    assert timedelta(minutes=59) < message.due - message.at < timedelta(minutes=61)


async def test_a_repeated_id_is_a_duplicate(topic: AsyncTopic) -> None:
    first = await topic.publish(1, id="same")
    again = await topic.publish(2, id="same")
    assert again.duplicate
    assert again.position == first.position
    assert (await topic.info())["messages"] == 1


async def test_many_are_one_commit_and_expected_at_a_position(topic: AsyncTopic) -> None:
    assert await topic.publish_many(["a", "b", "c"], key="k") == range(1, 4)
    assert await topic.publish_many(["d"], expect=3) == range(4, 5)
    with pytest.raises(errors.AssertFailed):
        await topic.publish_many(["e"], expect=3)
    with pytest.raises(errors.TooLarge):
        await topic.publish_many(["e", "x" * 2000])
    assert (await topic.info())["last_position"] == 4


async def test_reading_waits_for_what_is_published_later(topic: AsyncTopic) -> None:
    waiting = asyncio.create_task(topic.read(wait=60))
    await topic.publish("late")
    assert [one.value for one in await waiting] == ["late"]


async def test_following_goes_on_past_the_end(topic: AsyncTopic) -> None:
    await topic.publish_many(list(range(2500)))
    following = topic.messages(follow=True)
    found = [(await anext(following)).value for _ in range(2500)]
    more = asyncio.ensure_future(anext(following))
    await topic.publish(2500)
    found.append((await more).value)
    await following.aclose()  # type: ignore[attr-defined]
    assert found == list(range(2501))


# --- the publisher --------------------------------------------------------------------------------


async def test_a_publisher_keeps_the_order_in_few_commits(
    client: AsyncClient, topic: AsyncTopic
) -> None:
    before = (await client.run("RETURN 1")).seq
    async with topic.publisher(batch=100) as publisher:
        asked = [publisher.publish(n, key="k" if n % 7 == 0 else None) for n in range(1000)]
        outcomes = await asyncio.gather(*asked)
    assert [one.position for one in outcomes] == list(range(1, 1001))
    assert (await client.run("RETURN 1")).seq - before <= 40
    found = [message async for message in topic.messages()]
    assert [one.value for one in found] == list(range(1000))
    assert [one.position for one in found if one.key] == list(range(1, 1001, 7))


@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.parametrize(
    "bad", [datetime(2026, 1, 1), datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))]
)
async def test_one_that_can_not_be_sent_keeps_no_other_from_its_place(
    topic: AsyncTopic, count: int, bad: datetime
) -> None:
    values = [*range(count), bad, *range(count, 2 * count)]
    async with topic.publisher() as publisher:
        outcomes = await asyncio.gather(
            *(publisher.publish(one) for one in values),
            publisher.publish("late", delay=float("inf")),
            publisher.publish("last", key="k"),
            return_exceptions=True,
        )
        await publisher.drained()
    assert [isinstance(one, ValueError) for one in outcomes] == [
        *(one is bad for one in values), True, False,
    ]  # fmt: skip
    found = [message async for message in topic.messages()]
    assert [one.value for one in found] == [*range(2 * count), "last"]
    assert [one.position for one in outcomes if not isinstance(one, BaseException)] == [
        one.position for one in found
    ]


async def test_a_batch_lingers_until_it_is_full() -> None:
    sent: list[Sequence[int]] = []

    async def send(items: Sequence[int]) -> list[int]:
        sent.append(items)
        return [-one for one in items]

    batches = Batches(send, most=4, linger=3600)
    outcomes = [batches.put(n) for n in range(4)]
    assert [await one for one in outcomes] == [0, -1, -2, -3]
    assert sent == [[0, 1, 2, 3]]
    await batches.drained()


# --- readers --------------------------------------------------------------------------------------


async def test_a_reader_stands_where_it_committed(topic: AsyncTopic) -> None:
    await topic.publish_many(list("abcdef"))
    reader = topic.reader("r")
    await reader.define()
    await reader.define(at=3)  # is there: nothing changes
    page = await reader.read(limit=2)
    assert [one.value for one in page] == ["a", "b"]
    assert [one.value for one in await reader.read(limit=2)] == ["a", "b"]
    await reader.commit(page[-1].position)
    assert [one.value for one in await reader.read(limit=2)] == ["c", "d"]
    await reader.move(5)
    assert [one.value for one in await reader.read()] == ["f"]
    await reader.move(page[0].at)
    assert len(await reader.read()) == 6
    await reader.drop()
    with pytest.raises(errors.Unknown):
        await reader.read()


async def test_leaving_a_readers_loop_commits_what_is_done(topic: AsyncTopic) -> None:
    await topic.publish_many(list("abc"))
    reader = topic.reader("r")
    await reader.define()
    loop = reader.messages()
    async for message in loop:
        if message.value == "b":
            break
    await loop.aclose()  # type: ignore[attr-defined]
    assert [one.value async for one in reader.messages()] == ["b", "c"]
    assert await reader.read() == []


# --- groups ---------------------------------------------------------------------------------------


async def test_take_and_settle(client: AsyncClient, topic: AsyncTopic) -> None:
    await topic.publish_many(list("abcd"))
    group = topic.group("g")
    a, b, c, d = await group.take(10, member="m")
    assert (a.attempt, a.member, a.position, a.value) == (1, "m", 1, "a")
    assert a.deadline - a.at <= timedelta(seconds=61)
    assert await a.ack()
    assert not await a.ack()
    assert await b.nack(error="no")
    assert await c.extend(120)
    assert await d.give_up(error="hopeless")
    (again,) = await group.take(10)
    assert (again.value, again.attempt) == ("b", 2)
    assert not await b.ack()
    settled = await group.ack([again.receipt, b.receipt, c.receipt])
    assert (settled.done, settled.stale) == (2, 1)
    (letter,) = await client.topic("shop", "main", "dead").read()
    assert letter.headers["dead-error"] == "hopeless"
    figures = await group.info()
    assert (figures["in_flight"], figures["lag"], figures["dead_lettered"]) == (0, 0, 1)


async def test_a_consumer_gets_everything_once(topic: AsyncTopic) -> None:
    group, found = topic.group("g"), list[int]()

    async def consume() -> None:
        async with group.messages(prefetch=10) as messages:
            async for message in messages:
                assert isinstance(message.value, int)
                found.append(message.value)
                assert await message.ack()
                if len(found) == 500:
                    done.set()

    done = asyncio.Event()
    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    async with topic.publisher() as publisher:
        await asyncio.gather(*(publisher.publish(n) for n in range(500)))
    await done.wait()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    assert sorted(found) == list(range(500))
    figures = await group.info()
    assert (figures["lag"], figures["in_flight"], figures["redelivered"]) == (0, 0, 0)


async def test_a_consumer_that_stops_gives_back_what_it_has_not_begun(topic: AsyncTopic) -> None:
    await topic.publish_many(list(range(20)))
    group = topic.group("g")
    async with group.messages(prefetch=10) as messages:
        first = await anext(messages)
        assert (await group.info())["in_flight"] >= 10
    assert (await group.info())["in_flight"] == 1  # the one that is worked on
    assert await first.ack()
    taken = await group.take(100)
    assert [one.value for one in taken] == list(range(1, 20))
    assert {one.attempt for one in taken} <= {1, 2}


async def test_an_idle_consumer_stops_at_once_and_loses_nothing(topic: AsyncTopic) -> None:
    """Whatever the node hands out while the consumer stops comes back."""
    group = topic.group("g")
    for n in range(20):
        messages = group.messages()
        waiting = asyncio.ensure_future(anext(messages, None))
        await asyncio.sleep(0)
        publishing = asyncio.create_task(topic.publish(n))
        if n % 2:
            await publishing
        await messages.stop()
        await publishing
        got = await waiting
        assert got is None or await got.ack()
        for left in await group.take(10):
            assert left.value == n
            assert await left.ack()
    figures = await group.info()
    assert (figures["lag"], figures["in_flight"], figures["dead_lettered"]) == (0, 0, 0)


async def test_a_consumer_extends_what_takes_long(client: AsyncClient, topic: AsyncTopic) -> None:
    await client.run("ALTER GROUP g ON jobs SET DEADLINE 3s")
    await topic.publish("long")
    group = topic.group("g")
    async with group.messages(extend=True) as messages:
        message = await anext(messages)
        first = message.deadline
        while datetime.now(UTC) <= first:
            assert await group.take(1, wait=0.5) == [], "nobody else gets it"
        assert await group.take(1, wait=0.5) == []
        assert await message.ack()


async def test_each_acknowledgement_hears_its_own_truth(topic: AsyncTopic) -> None:
    await topic.publish_many([1, 2, 3])
    group = topic.group("g")
    async with group.messages() as messages:
        one, two, three = [await anext(messages) for _ in range(3)]
        await group.nack([two.receipt], delay=60)
        told = await asyncio.gather(*(each.ack() for each in (one, two, three, three)))
        assert told == [True, False, True, False]
        assert messages.stale == 2
    settled = await group.ack([one.receipt, two.receipt])
    assert (settled.done, settled.stale_receipts) == (0, (one.receipt, two.receipt))


async def test_done_is_the_effect_and_the_acknowledgement_or_neither(
    client: AsyncClient, topic: AsyncTopic
) -> None:
    await client.run("DEFINE TABLE effect; CREATE effect:1 SET n = 0")
    await topic.publish_many([1, 2])
    group = topic.group("g")
    one, two = await group.take(2)
    effect = "UPDATE effect:1 SET n = n + $by; RETURN $by -- and a comment"
    answer = await group.done(one, effect, {"by": 5})
    assert answer is not None and answer.value == 5 and len(answer.results) == 2
    assert await group.done(one, effect, {"by": 5}) is None, "it is done"
    answer = await two.done("UPDATE effect:1 SET n = n + 1 RETURN NONE; SELECT VALUE n FROM effect")
    assert answer is not None and answer.value == [6] and len(answer.results) == 2
    await topic.publish(3)
    (three,) = await group.take()
    for script, code, column in (
        ("UPDATE effect:1 SET n = 0;\n RETURN 1 / 0", "DivisionByZero", 11),
        ("UPDATE effect:1 SET n = 0;\n THROW 'no'", "Thrown", 2),
        ("UPDATE effect:1 SET n = 0;\n nonsense", "UnexpectedToken", 2),
        ("UPDATE effect:1 SET n = 0;\n BEGIN; COMMIT", "NotInTransaction", 2),
    ):
        with pytest.raises(errors.Refused) as refused:
            await group.done(three, script)
        error = refused.value
        assert error.code == code and error.committed is None
        assert (error.line, error.column) == (2, column) and error.statement in (2, None)
    with pytest.raises(errors.Unknown) as unknown:
        await group.done(three, "DELETE nowhere")
    assert (unknown.value.line, unknown.value.column) == (1, 1)
    with pytest.raises(ValueError, match="storeclient_receipt"):
        await group.done(three, "RETURN 1", {"storeclient_receipt": 1})
    assert await client.query("SELECT VALUE n FROM effect") == [6]
    assert await three.ack(), "it stayed handed out"


async def test_what_ends_a_consumer_is_raised(client: AsyncClient, topic: AsyncTopic) -> None:
    async with topic.group("g").messages() as messages:
        waiting = asyncio.ensure_future(anext(messages))
        while not (await client.query("INFO FOR RUNNING"))[1:]:
            await asyncio.sleep(0)
        await client.run("DROP GROUP g ON jobs")
        with pytest.raises(errors.Unknown):
            await waiting


# --- the blocking twins, and a node that dies -----------------------------------------------------


def test_the_blocking_twins(process: NodeProcess) -> None:
    with blocking(process) as topic:
        assert topic.publish("a", key="k").position == 1
        assert topic.publish_many(["b", "c"]) == range(2, 4)
        with topic.publisher() as publisher:
            outcomes = [publisher.publish(n) for n in range(100)]
        assert [one.result().position for one in outcomes] == list(range(4, 104))
        assert [one.value for one in topic.messages()][:4] == ["a", "b", "c", 0]
        reader = topic.reader("r")
        reader.define(end=True)
        reader.move(0)
        for message in reader.messages():
            if message.value == "c":
                break
        assert reader.read(1)[0].value == "c"
        reader.commit(103)
        assert reader.read() == []
        reader.drop()
        group = topic.group("g")
        first, second = group.take(2)
        assert first.ack()
        assert second.nack()
        (again,) = group.take()
        assert again.attempt == 2
        assert again.extend(60)
        assert again.give_up()
        assert group.ack([again.receipt]).stale == 1
        found: list[object] = []
        with group.messages(prefetch=7) as messages:
            for hand_out in messages:
                found.append(hand_out.value)
                assert hand_out.ack()
                if len(found) == 101:
                    break
        assert found == ["c", *range(100)]
        assert messages.stale == 0
        assert group.info()["lag"] == 0
        assert topic.info()["messages"] == 103


def test_another_thread_ends_a_blocking_consumer(process: NodeProcess) -> None:
    with blocking(process) as topic:
        messages = topic.group("g").messages()
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.extend(one.value for one in messages))
        thread.start()
        topic.publish("one")
        while not found:
            pass
        messages.stop()
        thread.join()
        assert found == ["one"]


async def test_a_consumer_goes_on_with_the_node_that_comes_back(process: NodeProcess) -> None:
    process.script("USE shop.main; ALTER GROUP g ON jobs SET DEADLINE 1s, DELIVERIES NONE")
    done: set[int] = set()
    kills = [30, 90]
    async with AsyncClient(wire_of(process), user=USER, password=PROCESS_PASSWORD) as client:
        topic = client.topic("shop", "main", "jobs")
        await topic.publish_many(list(range(200)))
        async with topic.group("g").messages(prefetch=20) as messages:
            async for message in messages:
                if kills and len(done) >= kills[0]:
                    kills.pop(0)
                    await asyncio.to_thread(process.kill)
                    await asyncio.to_thread(process.start)
                try:
                    if await message.ack():
                        done.add(message.value)
                except OutcomeUnknown:
                    continue  # acknowledged, or it comes again
                if (await topic.group("g").info())["lag"] == 0:
                    break
    # Those whose acknowledgement was lost on its way back are done too.
    assert len(done) >= 200 - 2 * 20
    assert kills == []


# --- closing while others wait --------------------------------------------------------------------


async def test_closing_ends_what_only_waits_for_messages(client: AsyncClient) -> None:
    topic = client.topic("shop", "main", "jobs")
    reader = topic.reader("r")
    await reader.define()
    async with asyncio.timeout(30):
        waiting = [
            asyncio.ensure_future(work)
            for work in (
                topic.group("g").take(wait=300),
                topic.read(wait=300),
                reader.read(wait=300),
                anext(topic.messages(follow=True)),
                anext(topic.group("g").messages()),
            )
        ]
        while len(await client.query("INFO FOR RUNNING")) < 6:
            await asyncio.sleep(0)
        writing = asyncio.ensure_future(topic.publish("answered"))
        await asyncio.sleep(0)
        await client.close()
        assert (await writing).position == 1, "what is no wait is waited for"
        found = await asyncio.gather(*waiting, return_exceptions=True)
    # The message may have come to some of them before they were ended.
    assert all(isinstance(one, Closed) or "answered" in repr(one) for one in found), found
    with pytest.raises(Closed):
        await topic.info()


def test_a_blocking_client_is_closed_under_threads_that_wait(process: NodeProcess) -> None:
    client = Client(wire_of(process), user=USER, password=PROCESS_PASSWORD)
    topic = client.topic("shop", "main", "jobs")
    cache = client.cache("shop", "main", "c")
    process.script("USE shop.main; DEFINE SPACE c")
    lease = cache.lock("renewed", 60, renew=True)
    assert lease is not None
    consumer = topic.group("g").messages(prefetch=4, extend=True)
    calls: list[Callable[[], object]] = [
        lambda: topic.group("g").take(wait=300),
        lambda: topic.read(wait=300),
        lambda: list(topic.messages(follow=True)),
        lambda: list(topic.reader("r").messages(follow=True)),
        lambda: list(consumer),
    ]
    topic.reader("r").define()
    outcomes: list[object] = []

    def call(work: Callable[[], object]) -> None:
        try:
            outcomes.append(work())
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call, args=(work,), daemon=True) for work in calls]
    for thread in threads:
        thread.start()
    while len(client.query("INFO FOR RUNNING")) < 6:
        time.sleep(0.001)
    client.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a thread waits for ever"
    assert [type(one) for one in outcomes] == [Closed] * len(calls), outcomes
