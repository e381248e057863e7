"""Results as bytes: the long way and the short way give the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from actors.environment import SystemClock
from actors.execution.scheduler import FiberScheduler
from protocol import binary, jsonvalues
from protocol.requests import Result
from protocol.values import NONE, RecordId
from surfaces.http import results
from surfaces.http.results import JSON, MSGPACK, SMALL, ResponseEncoding, in_turns, whole
from surfaces.long_work import LongWork
from tests.tables import case

ROW = {
    "id": RecordId("t", 1),
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "d": Decimal("1.20"),
    "x": 2**60,
}
OTHERS: dict[str, Any] = {"seq": 7, "ns": "shop", "db": None}


def work() -> LongWork:
    """On the loop of the test."""
    return LongWork(FiberScheduler(asyncio.get_running_loop(), SystemClock()))


def answered(rows: list[Any]) -> tuple[Result, ...]:
    """A long list between two short values."""
    return (
        Result(NONE, "none", 0, 10),
        Result(rows, "rows", len(rows), 1_500, len(rows)),
        Result([1, "a"], "value", 0, 2_000_000),
    )


def expected(found: tuple[Result, ...], plain: Any) -> dict[str, Any]:
    """What the answer stands for."""
    shown = [
        {
            "value": plain(one.value),
            "kind": one.kind,
            "rows": one.rows,
            "took": results.took(one.took_us),
            **({} if one.changed is None else {"changed": one.changed}),
        }
        for one in found
    ]
    return {"results": shown, **OTHERS}


FORMS = pytest.mark.parametrize("form", [JSON, MSGPACK], ids=["json", "msgpack"])


@FORMS
async def test_both_ways_give_the_same(form: ResponseEncoding) -> None:
    read: Callable[[bytes], Any] = json.loads if form is JSON else binary.unpack
    plain: Callable[[Any], Any] = jsonvalues.to_json if form is JSON else lambda value: value
    for count in (0, 1, SMALL, SMALL + 1, 4 * SMALL, 20_000):
        with case(count):
            found = answered([ROW] * count)
            body = await in_turns(form, found, OTHERS, work(), "")
            assert body == whole(form, found, OTHERS)
            assert read(body) == expected(found, plain)


@FORMS
async def test_others_get_their_turn_while_a_long_answer_is_encoded(form: ResponseEncoding) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await in_turns(form, answered([ROW] * 100_000), OTHERS, work(), "")
    other.cancel()
    assert turns > 5
