"""What a statement on one record costs in reads, decodes and looks at the clock: counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from actors.environment import SystemClock
from actors.scripts import plans, steps, writing
from language import rows, select
from protocol.values import RecordId
from storage.engine.rocksdb import RocksEngine
from storage.formats import keys
from tests.nodes import Running

ON_ONE_RECORD = (
    ("SELECT * FROM $id", 1),
    ("SELECT * FROM thing:7", 1),
    ("SELECT * FROM thing WHERE id = $id", 1),
    ("SELECT n FROM $id", 0),
    ("UPDATE $id SET n = n + 1", 1),
    ("UPDATE $id SET n = 5 RETURN NONE", 1),
    ("UPDATE thing:7 MERGE { n: 6 } RETURN DIFF", 1),
    ("UPSERT $id SET n = 7", 1),
    ("CREATE thing SET n = 8", 0),
    ("CREATE thing:new SET n = 9", 0),
    ("DELETE $id RETURN BEFORE", 1),
    ("DELETE thing:8", 0),
)
"""Each with how often a record is decoded whole."""


class Counts(Counter[str]):
    """Calls of functions while they are wrapped."""

    def wrap(self, patch: pytest.MonkeyPatch, where: Any, name: str, called: str) -> None:
        real: Callable[..., Any] = getattr(where, name)

        def counting(*given: Any) -> Any:
            self[called] += 1
            return real(*given)

        patch.setattr(where, name, counting)


@pytest.mark.parametrize(("text", "decoded"), ON_ONE_RECORD)
async def test_a_record_is_read_once_and_decoded_once(
    node: Running, monkeypatch: pytest.MonkeyPatch, text: str, decoded: int
) -> None:
    await node.values("INSERT INTO thing [{ id: 7, n: 1 }, { id: 8, n: 1 }, { id: 9, n: 1 }]")
    script = text if "$id" in text else "RETURN 1"
    await node.values(script, {"id": RecordId("thing", 9)})  # it is planned, and places are found
    counts, ticks = Counts(), Counts()
    get = RocksEngine.get

    def counted(self: RocksEngine, key: bytes) -> bytes | None:
        counts["reads"] += key[keys.TAG_AT] == keys.RECORD
        return get(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(RocksEngine, "get", counted)
        for where, name in (
            (select, "unpack_object"),
            (writing, "unpack_object"),
            (writing, "unpack_object_in_steps"),
            (rows, "unpack"),
        ):
            counts.wrap(patch, where, name, "decodes")
        ticks.wrap(patch, SystemClock, "monotonic_us", "looks")
        answer = await node.answer(text, {"id": RecordId("thing", 7)})
    assert answer.refusal is None
    assert counts == Counter({"reads": 1, "decodes": decoded})


async def test_a_text_is_planned_and_compiled_once(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values("INSERT INTO thing { id: 7, n: 1 }")
    counts = Counts()
    counts.wrap(monkeypatch, plans, "parse", "parsed")
    counts.wrap(monkeypatch, steps.Step, "compiled", "compiled")
    counts.wrap(monkeypatch, steps, "claims_of", "needs")
    for _ in range(3):
        await node.values("UPDATE thing:7 SET n = n + 1; SELECT * FROM thing:7")
    assert counts == {"parsed": 1, "compiled": 2, "needs": 2}


async def test_what_a_plan_answers_follows_the_record(node: Running) -> None:
    """One plan, run for what is there, is not, is no record, and may not be named."""
    await node.values("INSERT INTO thing { id: 7, n: 1 }")
    for text, answers in (
        ("SELECT n FROM $id", ([{"n": 1}], [], [{"n": 3}], [])),
        ("UPDATE $id SET m = 1 RETURN n", ([{"n": 1}], [], None, None)),
        ("DELETE $id RETURN n", ([{"n": 1}], [], None, None)),
    ):
        of = (RecordId("thing", 7), RecordId("thing", 70), {"n": 3}, None)
        for id, wanted in zip(of, answers, strict=True):
            answer = await node.answer(text, {"id": id})
            if wanted is None:
                assert answer.refusal is not None or answer.results[0].value == []
            else:
                assert [one.value for one in answer.results] == [wanted], (text, id)
        refusal = (await node.answer(text, {"id": RecordId("nowhere", 1)})).refusal
        assert refusal is not None and refusal.code == "Unknown"
        refusal = (await node.answer(text)).refusal
        assert refusal is not None and refusal.detail["parameter"] == "id"
