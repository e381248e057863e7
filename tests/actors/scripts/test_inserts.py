"""INSERT of many rows at once answers and keeps what inserting them one by one does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from actors.scripts import inserting
from protocol.values import NONE, RecordId, identical
from storage.records import records
from tests.actors.scripts import questions
from tests.nodes import Running
from tests.storage.index_entries import wrong_entries

ROUNDS = 24
ENDS = (
    "", "RETURN NONE", "RETURN id", "RETURN BEFORE", "IGNORE", "IGNORE RETURN NONE",
    "ON DUPLICATE UPDATE SET n = 1", "ON DUPLICATE UPDATE SET n = $input.b RETURN NONE",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    5, "row", [], {"id": ""}, {"id": 1.5}, {"id": RecordId("u", 1)}, {"id": "x" * 300},
    {"id": [1, NONE]}, {"id": -7, "tags": [[n] for n in range(2_000)]},
)  # fmt: skip


def identity(rng: Random) -> Any:
    return rng.choice([
        rng.randrange(2_000), rng.randrange(40), -rng.randrange(9), f"n{rng.randrange(500)}",
        RecordId("t", rng.randrange(2_000)), UUID(int=rng.randrange(500)), [rng.randrange(30), "x"],
        2**60 + rng.randrange(20),
    ])  # fmt: skip


def batch(rng: Random) -> list[Any]:
    """Rows of one INSERT; in some batches two meet, in a few one is refused."""
    start = rng.randrange(10_000, 1_000_000)
    kind, ids = rng.random(), rng.random()
    rows: list[Any] = []
    for number in range(rng.choice([1, 3, 40, 200])):
        row = questions.record(rng, rng.randrange(1_000_000))
        if kind < 0.7:
            row = {name: value for name, value in row.items() if "NONE" not in repr(value)}
        place = start + number if ids < 0.8 else identity(rng)
        rows.append({**row, "id": place} if rng.random() < 0.5 else {"id": place, **row})
    if rng.random() < 0.1:
        rows[rng.randrange(len(rows))] = rng.choice(ODD)
    return rows


class Both:
    """Two databases: in the one rows are inserted as they come, in the other one by one."""

    def __init__(self, node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self._node = node
        self._patch = monkeypatch
        self._real = records.create_together
        self.together = 0

    def _counted(self, *given: Any) -> int:
        made = self._real(*given)
        self.together += made
        return made

    async def ask(self, script: str, **parameters: Any) -> tuple[Any, Any]:
        found = []
        for place, how in (("many", self._counted), ("each", lambda *given: 0)):
            self._patch.setattr(records, "create_together", how)
            answer = await self._node.answer(script, parameters, place=("shop", place))
            refused = answer.refusal and (answer.refusal.code, answer.refusal.message)
            found.append((refused, [result.value for result in answer.results]))
        return found[0], found[1]


@pytest.mark.parametrize("indexes", [(), questions.INDEXES[:6], questions.INDEXES[6:]])
async def test_many_rows_are_inserted_as_one_by_one(
    node: Running,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str, object], None],
    indexes: tuple[str, ...],
) -> None:
    both = Both(node, monkeypatch)
    await node.values("DEFINE DATABASE shop.many; DEFINE DATABASE shop.each")
    define = "DEFINE TABLE t;" + ";".join(f"DEFINE INDEX {index}" for index in indexes)
    assert (await both.ask(define))[0][0] is None
    refused = 0
    for seed in range(ROUNDS):
        rng = Random(seed)
        script = f"INSERT INTO t $rows {rng.choice(ENDS)}"
        if rng.random() < 0.3:
            script = f"BEGIN; CREATE t:{rng.randrange(60)}; {script}; COMMIT"
        many, each = await both.ask(script, rows=batch(rng))
        assert identical(list(many), list(each)), f"seed {seed}: {script}"
        refused += many[0] is not None
    many, each = await both.ask("SELECT * FROM t; SELECT count() FROM t GROUP ALL")
    assert identical(list(many), list(each))
    for place in ("many", "each"):
        assert await wrong_entries(node.node, place) == []
    figure("rows inserted together", f"{both.together}, {refused} of {ROUNDS} batches refused")
    assert both.together > 500
    assert refused > 2


async def test_rows_that_a_script_has_made_are_checked(node: Running) -> None:
    """What came with the request has been, on the way in."""
    deep = "LET $deep = [[[[[[[[1]]]]]]]]; " + "LET $deep = [[[[[[[[$deep]]]]]]]]; " * 9
    answer = await node.answer(f"{deep} INSERT INTO thing [{{ a: $deep }}]")
    assert answer.refusal is not None and answer.refusal.code == "TooLarge"
    answer = await node.answer(
        "LET $rows = [{ a: NONE, b: [NONE] }]; INSERT INTO thing $rows RETURN a, b", {"rows": [{}]}
    )
    assert [result.value for result in answer.results][-1] == [{"b": [NONE]}]


async def test_the_loop_is_let_in_between_rows(node: Running, monkeypatch: Any) -> None:
    """However long they are: a few of them, or so many bytes, are one step."""
    steps: list[int] = []
    real = records.create_together

    def counted(*given: Any) -> int:
        steps.append(real(*given))
        return steps[-1]

    monkeypatch.setattr(records, "create_together", counted)
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": [{"n": 1}] * 200})
    assert sum(steps) == 200 and max(steps) <= inserting.TOGETHER
    steps.clear()
    rows = [{"text": "x" * 30_000}] * 20
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    assert sum(steps) == 20 and max(steps) <= 3
