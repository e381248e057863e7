"""The topic handles, awaited and blocking, against a real node."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bench.ports import free_port
from storeclient import (
    AsyncClient,
    AsyncTopic,
    Client,
    Closed,
    Topic,
)
from storeclient.batches import Batches
from tests.clients.real import client_of
from tests.processes import PASSWORD as PROCESS_PASSWORD
from tests.processes import USER, NodeProcess

DEFINED = """
    DEFINE TOPIC jobs DEDUP 1h LARGEST 1KiB;
    DEFINE TOPIC dead;
    DEFINE GROUP g ON jobs DEADLINE 60s DELIVERIES 3 DEAD LETTER dead;
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with client_of(tmp_path / "store", DEFINED) as client:
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


@contextmanager
def blocking(node: NodeProcess) -> Iterator[Topic]:
    with Client(node.at("wire"), user=USER, password=PROCESS_PASSWORD) as client:
        yield client.topic("shop", "main", "jobs")


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
            for delivery in messages:
                found.append(delivery.value)
                assert delivery.ack()
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


# --- closing while others wait --------------------------------------------------------------------


def test_a_blocking_client_is_closed_under_threads_that_wait(process: NodeProcess) -> None:
    client = Client(process.at("wire"), user=USER, password=PROCESS_PASSWORD)
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
