"""A SELECT that names one record says what going through its rows would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest

from actors.scripts import reading
from language.select import SelectPlan
from protocol.requests import Caller, ScriptAnswer
from protocol.values import NONE, RecordId, identical
from tests.actors.scripts import questions
from tests.callers import declare
from tests.nodes import OWNER, Running

LOOKUPS = (
    "SELECT * FROM $id",
    "SELECT * FROM thing:7",
    "SELECT * FROM thing:['x', 1]",
    "SELECT * FROM thing WHERE code = $code",
    "SELECT * FROM thing WHERE $code = code",
    "SELECT * FROM thing WHERE code = 'code 3'",
    "SELECT * FROM thing WHERE text = $code",
    "SELECT * FROM nowhere WHERE code = $code",
    "SELECT * FROM nowhere:1",
    "SELECT code, n FROM $id",
    "SELECT VALUE code FROM $id",
    "SELECT *, code AS c OMIT n FROM $id",
    "SELECT code FROM $id WHERE n > 3",
    "SELECT n FROM thing WHERE code = $code",
    "SELECT count() AS n FROM $id GROUP ALL",
    "SELECT * FROM thing WHERE id = $id",
    "SELECT * FROM thing WHERE code = $code AND n > 3",
)
TEXT = "long " * 300
TAKES_ONE = SelectPlan.takes_one


def arrays(number: int) -> list[Any]:
    return [f"code {number}", f"z {number}"]


def parameter(rng: Random) -> Any:
    return rng.choice([
        RecordId("thing", rng.randrange(60)), RecordId("thing", "name"), RecordId("nowhere", 1),
        RecordId("thing", UUID(int=5)), RecordId("thing", ["x", 1]), [RecordId("thing", 3)], NONE,
        None, 5, f"code {rng.randrange(60)}", f"code {rng.randrange(60)}", ["code 1"], {}, TEXT,
        TEXT + "a", "absent", 1.0, 1, arrays(rng.randrange(50)), arrays(rng.randrange(50)),
        rng.choice(questions.OTHERS),
    ])  # fmt: skip


def told(answer: ScriptAnswer) -> list[Any]:
    """All of an answer but how long it took and how it may be encoded."""
    refused = answer.refusal and [
        answer.refusal.code,
        answer.refusal.message,
        answer.refusal.detail,
    ]
    results = [[one.value, one.kind, one.rows] for one in answer.results]
    return [results, answer.sequence, answer.namespace, answer.database, refused]


class Comparison:
    """Asks with and without, and counts."""

    def __init__(self, node: Running, patch: pytest.MonkeyPatch) -> None:
        self.node, self._patch = node, patch
        self._real = {name: getattr(reading, name) for name in ("_one", "_point")}
        self.short = self.both = 0

    async def differs(self, script: str, parameters: dict[str, Any], caller: Caller) -> bool:
        found: list[Any] = []

        def noted(real: Callable[..., Any], *given: Any) -> list[Any] | None:
            found.append(real(*given))
            return found[-1]  # type: ignore[no-any-return]

        for name, real in self._real.items():
            self._patch.setattr(reading, name, partial(noted, real))
        self._patch.setattr(SelectPlan, "takes_one", TAKES_ONE)
        quick = await self.node.answer(script, parameters, caller=caller)
        self._patch.setattr(SelectPlan, "takes_one", False)
        # Another text: what was compiled of the first is kept.
        run = await self.node.answer(f"{script} ", parameters, caller=caller)
        self.short += any(one is not None for one in found)
        self.both += 1
        return not identical(told(quick), told(run))


async def prepare(node: Running, rng: Random) -> None:
    await node.values("DEFINE INDEX code ON thing FIELDS code UNIQUE")
    rows = [{"id": n, **questions.record(rng, n)} for n in range(50)]
    for row in rows:
        row["text"] = f"code {row['id'] + 1}"
        row["code"] = rng.choice([f"code {row['id']}", row["id"], None, arrays(row["id"])])
    rows[10]["code"], rows[11]["code"], rows[12]["code"] = TEXT, TEXT + "a", "x" * 8_000
    rows += [{"id": "name"}, {"id": UUID(int=5), "code": 1.5}, {"id": ["x", 1], "code": True}]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})


async def compare(comparison: Comparison, asked: int) -> None:
    """Ask at random."""
    rng = Random(5)
    stranger = await declare(comparison.node.node, "bob", "member")
    for _ in range(asked):
        script, caller = rng.choice(LOOKUPS), stranger if rng.random() < 0.1 else OWNER
        parameters = {"id": parameter(rng), "code": parameter(rng)}
        if rng.random() < 0.1:
            del parameters[rng.choice(["id", "code"])]
        assert not await comparison.differs(script, parameters, caller), (script, parameters)


async def test_one_record_is_answered_as_rows_are(
    node: Running, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    comparison = Comparison(node, monkeypatch)
    await prepare(node, Random(5))
    await compare(comparison, 1_500)
    figure("single records compared with rows", f"{comparison.both}, {comparison.short} short")
    assert comparison.short > 400


async def test_a_lookup_follows_what_is_declared(node: Running) -> None:
    """An index, a table, a place: none is remembered longer than it is there."""
    ask, value = "SELECT * FROM thing WHERE code = $code", {"code": "a"}
    await node.values("CREATE thing:1 SET code = 'a'; CREATE thing:2 SET code = 'a'")
    assert len(await node.value(ask, value)) == 2
    await node.values("DELETE thing:2; DEFINE INDEX c ON thing FIELDS code UNIQUE")
    for _ in range(2):
        assert await node.value(ask, value) == [{"id": RecordId("thing", 1), "code": "a"}]
    await node.values("DROP INDEX c ON thing; CREATE thing:3 SET code = 'a'")
    assert len(await node.value(ask, value)) == 2
    await node.values("DROP TABLE thing; DEFINE TABLE thing")
    for text in (ask, "SELECT * FROM thing:1"):
        for _ in range(2):
            assert await node.value(text, value) == []


async def test_what_is_remembered_is_what_is_declared(node: Running) -> None:
    """And no entry for each field that somebody asks for."""
    await node.values("DEFINE INDEX code ON thing FIELDS code UNIQUE; CREATE thing:1 SET code = 1")
    committer, known = node.node.committer, 0
    for number in range(300):
        script = f"SELECT * FROM thing WHERE f{number} = 1"
        assert await node.value(script) == [] == await node.value(script)
        if number == 10:
            known = len(committer.ledger.state.catalog_cache)
        elif number > 10:
            assert len(committer.ledger.state.catalog_cache) == known
    assert await node.value("SELECT VALUE id FROM thing WHERE code = 1") == [RecordId("thing", 1)]
