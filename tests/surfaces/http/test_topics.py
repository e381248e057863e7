"""Topics as the HTTP surface sees them: scripts that wait, clients that go, the metrics."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from actors.node import Node
from actors.topics.metrics import OTHERS
from protocol import limits
from protocol.errors import NameRefused
from protocol.text import check_name
from protocol.values import unpaced
from tests.nodes import OWNER
from tests.surfaces.http.conftest import Serve, until
from tests.surfaces.http.raw import Raw, script
from tests.surfaces.http.test_metrics import samples

PLACE = {"store_namespace": "shop", "store_database": "main"}
TAKE = "TAKE FROM t AS g WAIT 5m"


def asked(text: str, bearer: str) -> bytes:
    return script(text, bearer, **PLACE)


@pytest.fixture
async def topic(raw: Raw, bearer: str) -> None:
    assert (
        await raw.run(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TOPIC t;"
            "DEFINE GROUP g ON t DEADLINE 1m; DEFINE READER r ON t",
            bearer,
        )
    ).status == 200


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
            await until(lambda: node.registry.waiting("http") > number)  # noqa: B023
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
        await until(lambda: node.registry.waiting("http") == 40)
        gone = await stack.enter_async_context(await Raw.connect(port))
        await gone.send(asked(TAKE, bearer))
    await until(lambda: surface.admission.begun == 0)
    assert len(node.topics.waits) == 0


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


async def test_metrics_name_the_topics_that_were_declared_first_and_sum_the_others(
    raw: Raw, node: Node, bearer: str, topic: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another place among them, and readers and groups likewise."""
    await value(
        raw,
        "DEFINE DATABASE shop.first; USE shop.first;"
        + "".join(
            f"DEFINE TOPIC {name}; PUBLISH INTO {name} VALUES [1, 2, 3, 4, 5, 6];"
            f"TRIM TOPIC {name} BEFORE 3; DEFINE READER r ON {name};"
            f"DEFINE GROUP g ON {name} DEADLINE 1h; TAKE {taken} FROM {name} AS g;"
            f"DEFINE GROUP h ON {name} DEADLINE 1h; LET $m{name} = TAKE 1 FROM {name} AS h;"
            f"NACK {name} AS h RECEIPTS [$m{name}[0].receipt];"
            f"LET $n{name} = TAKE 2 FROM {name} AS h;"
            f"GIVE UP {name} AS h RECEIPTS [$n{name}[1].receipt];"
            for taken, name in enumerate(("z", "y", "a"), start=1)
        ),
        bearer,
    )
    all, _ = node.topics.figures(OWNER, unpaced)
    assert [(one.database, one.name) for one in all] == [
        ("main", "t"), ("first", "z"), ("first", "y"), ("first", "a"),
    ]  # fmt: skip
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    monkeypatch.setattr(limits, "METRICS_NAMED", 2)
    found, _ = node.topics.figures(OWNER, tick)
    assert ticks > 4 + 4 + 7, "at each topic, reader and group"
    others = found.pop()
    assert [(one.name, len(one.readers), len(one.groups)) for one in found] == [
        ("t", 1, 1), ("z", 1, 1),
    ]  # fmt: skip
    assert [one.readers for one in found] == [one.readers for one in all[:2]]
    assert (others.messages, others.last_position, others.refused) == (8, 12, 0)
    (lag,), (groups,) = [of[1] for of in others.readers], others.groups
    assert lag == sum(lag for one in all[2:] for _, lag in one.readers)
    summed = [all[1].groups[1], *all[2].groups, *all[3].groups]
    for name in ("lag", "pending", "waiting", "in_flight", "redelivered", "dead_lettered"):
        assert getattr(groups, name) == sum(getattr(one, name) for one in summed), name
    text = (await raw.ask("GET", "/metrics", authorization=bearer)).body.decode()
    place = {"namespace": OTHERS, "database": OTHERS, "topic": OTHERS}
    scraped = samples(text)
    assert scraped["store_topic_messages", frozenset(place.items())] == 8
    assert scraped["store_topic_group_lag", frozenset({**place, "group": OTHERS}.items())] \
        == groups.lag  # fmt: skip
    assert text.count("\nstore_topic_messages{") == 3
    with pytest.raises(NameRefused):
        check_name(OTHERS)
