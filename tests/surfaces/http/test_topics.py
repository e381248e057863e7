"""Topics as the HTTP surface sees them: scripts that wait, clients that go, the metrics."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from actors.node import Node
from actors.topics import GroupFigures, TopicFigures
from protocol.rights import Verb
from surfaces.http.metrics import topic_text
from tests.callers import Granted, declare
from tests.surfaces.http.conftest import Serve, script, until
from tests.surfaces.http.raw import Raw
from tests.surfaces.http.test_metrics import samples

PLACE = {"store_namespace": "shop", "store_database": "main"}
TAKE = "TAKE FROM t AS g WAIT 5m"


def asked(text: str, bearer: str) -> bytes:
    return script(text, bearer, **PLACE)


@pytest.fixture
async def topic(raw: Raw, bearer: str) -> None:
    """Topic `t` with group `g` and reader `r` in shop.main."""
    await raw.send(
        script(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TOPIC t;"
            "DEFINE GROUP g ON t DEADLINE 1m; DEFINE READER r ON t",
            bearer,
        )
    )
    assert (await raw.answer()).status == 200


async def value(raw: Raw, text: str, bearer: str) -> Any:
    await raw.send(asked(text, bearer))
    answer = await raw.answer()
    assert answer.status == 200, answer.body
    return answer.json["results"][-1]["value"]


async def test_scripts_that_wait_leave_room_for_those_that_run(
    serve: Serve, node: Node, bearer: str, topic: None
) -> None:
    surface = await serve(running=2)
    port = surface.address[1]
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(await Raw.connect(port)) for _ in range(20)]
        for number, raw in enumerate(held):
            await raw.send(asked(TAKE, bearer))
            await until(lambda: node.running.waiting("http") > number)  # noqa: B023
        assert surface.running == 0
        assert surface.unready() is None
        async with await Raw.connect(port) as raw:
            assert (await value(raw, "RETURN 1", bearer)) == 1
            await value(raw, "PUBLISH INTO t VALUES $v".replace("$v", str(list(range(20)))), bearer)
        found = [(await raw.answer()).json["results"][0]["value"] for raw in held]
        assert [message["position"] for (message,) in found] == list(range(1, 21))
    await until(lambda: surface.admission.begun == 0)


async def test_more_than_may_run_come_at_once_to_wait(
    serve: Serve, node: Node, bearer: str, topic: None
) -> None:
    surface = await serve(running=2)
    async with AsyncExitStack() as stack:
        port = surface.address[1]
        held = [await stack.enter_async_context(await Raw.connect(port)) for _ in range(40)]
        for raw in held:
            raw.writer.write(asked(TAKE, bearer))
        await until(lambda: node.running.waiting("http") == 40)
        gone = await stack.enter_async_context(await Raw.connect(port))
        await gone.send(asked(TAKE, bearer))
    await until(lambda: surface.admission.begun == 0)
    assert len(node.topics.waits) == 0


async def test_a_client_that_goes_ends_its_wait(
    serve: Serve, node: Node, bearer: str, topic: None
) -> None:
    surface = await serve()
    port = surface.address[1]
    async with await Raw.connect(port) as stays:
        async with await Raw.connect(port) as goes:
            await goes.send(asked(TAKE, bearer))
            await until(lambda: node.running.waiting("http") == 1)
            await stays.send(asked(TAKE, bearer))
            await until(lambda: node.running.waiting("http") == 2)
        await until(lambda: node.running.waiting("http") == 1)
        async with await Raw.connect(port) as raw:
            await value(raw, "PUBLISH INTO t VALUE 'for who stays'", bearer)
        (message,) = (await stays.answer()).json["results"][0]["value"]
        assert message["value"] == "for who stays"
    assert len(node.topics.waits) == 0


async def test_a_drain_answers_who_waits(
    serve: Serve, node: Node, bearer: str, topic: None
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(asked(TAKE, bearer))
        await until(lambda: node.running.waiting("http") == 1)
        node.not_ready()
        surface.stop_accepting()
        answer = await raw.answer()
        assert (answer.status, answer.json["results"][0]["value"]) == (200, [])
        assert await surface.drain() == 0


SERIES = {
    "store_topic_messages": ("topic", 4),
    "store_topic_last_position": ("topic", 5),
    "store_topic_due_refused_total": ("topic", 0),
    "store_topic_consumer_lag": ("consumer", 3),
    "store_topic_group_lag": ("group", 4),
    "store_topic_group_pending": ("group", 3),
    "store_topic_group_waiting": ("group", 1),
    "store_topic_group_in_flight": ("group", 2),
    "store_topic_group_redelivered_total": ("group", 1),
    "store_topic_group_dead_lettered_total": ("group", 1),
}


async def test_the_metrics_of_topics(raw: Raw, node: Node, bearer: str, topic: None) -> None:
    await value(raw, "PUBLISH INTO t VALUES [1, 2, 3, 4, 5]", bearer)
    await value(raw, "TRIM TOPIC t BEFORE 2; COMMIT READER r ON t AT 2", bearer)
    (one,) = await value(raw, "TAKE FROM t AS g", bearer)
    await value(raw, f"NACK t AS g RECEIPTS ['{one['receipt']}']", bearer)
    two = await value(raw, "TAKE 3 FROM t AS g", bearer)
    await value(raw, f"GIVE UP t AS g RECEIPTS ['{two[1]['receipt']}']", bearer)
    anonymous = (await raw.ask("GET", "/metrics")).body.decode()
    assert "store_topic" not in anonymous and "shop" not in anonymous
    scraped = (await raw.ask("GET", "/metrics", authorization=bearer)).body.decode()
    found = samples(scraped)
    place = {"namespace": "shop", "database": "main", "topic": "t"}
    names = {"topic": {}, "consumer": {"consumer": "r"}, "group": {"group": "g"}}
    expected = {
        (name, frozenset({**place, **names[kind]}.items())): float(number)
        for name, (kind, number) in SERIES.items()
    }
    assert {each: number for each, number in found.items() if each[0].startswith("store_topic")} \
        == expected  # fmt: skip
    for name in SERIES:
        kind = "counter" if name.endswith("_total") else "gauge"
        assert f"# TYPE {name} {kind}" in scraped


async def test_metrics_show_what_the_caller_may_read(node: Node, topic: None) -> None:
    eve = await declare(node, "eve", "member")
    assert await node.topics.figures(eve) == []
    Granted(node).grant("eve", Verb.READ, "shop", "main", "t", kind="topic")
    assert [each.name for each in await node.topics.figures(eve)] == ["t"]


def test_the_metrics_of_very_many_topics_are_written_in_slices() -> None:
    group = GroupFigures("g", 1, 2, 3, 4, 5, 6)
    topics = [
        TopicFigures("n", "d", f"t{n}", n, n, (("r", n),), (group, group), 0) for n in range(20_000)
    ]
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    text = topic_text(topics, tick).decode()
    assert ticks > 100
    assert text.count("\n") == 20 + 20_000 * (4 + 6 * 2)
    assert (
        'store_topic_consumer_lag{namespace="n",database="d",topic="t7",consumer="r"} 7\n' in text
    )


async def test_a_refused_credential_sees_no_topic(raw: Raw, topic: None) -> None:
    answer = await raw.ask("GET", "/metrics", authorization="Bearer no")
    assert answer.status == 401
    assert b"store_topic" not in answer.body
