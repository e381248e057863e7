"""A look-up that is answered without a turn says what running it would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from actors.scripts import brief
from actors.scripts.prepared import Prepared
from language.parser import parse
from protocol import order
from protocol.requests import Caller, RunScript, ScriptAnswer
from protocol.values import NONE, RecordId, identical
from storage import indexes
from tests.actors.scripts import questions
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
)
NONE_OF_THEM = (
    "SELECT * FROM $id; RETURN 1", "RETURN 1", "SELECT a FROM $id", "SELECT VALUE id FROM $id",
    "SELECT *, a FROM $id", "SELECT * OMIT a FROM $id", "SELECT * FROM $id, $id",
    "SELECT * FROM $id WHERE a = 1", "SELECT * FROM $id LIMIT 1", "SELECT * FROM $id START 1",
    "SELECT * FROM $id ORDER BY a", "SELECT * FROM $id FETCH a", "SELECT * FROM $id SPLIT a",
    "SELECT count() FROM $id GROUP ALL", "SELECT * FROM $id TIMEOUT 1s", "SELECT * FROM thing",
    "SELECT * FROM thing WHERE code = $code AND a = 1", "SELECT * FROM thing WHERE code > $code",
    "SELECT * FROM thing WHERE code = other", "SELECT * FROM thing WHERE n.x = 1",
    "SELECT * FROM thing WHERE code = $code LIMIT 1", "SELECT * FROM thing WHERE code",
    "SELECT * FROM thing:1..5", "SELECT * FROM (SELECT * FROM thing)", "SELECT * FROM thing:uuid()",
)  # fmt: skip
TEXT = "long " * 300


def lookup(text: str) -> brief.Lookup | None:
    return Prepared(parse(text)).lookup


@pytest.mark.parametrize("text", LOOKUPS)
def test_what_is_a_lookup(text: str) -> None:
    assert lookup(text) is not None


@pytest.mark.parametrize("text", NONE_OF_THEM)
def test_what_is_more_than_a_lookup(text: str) -> None:
    try:
        found = lookup(text)
    except Exception:
        return  # not a statement of this version
    assert found is None or found.field in ("code",)


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
        self._node, self._patch = node, patch
        self._real = brief.answer
        self.briefly = self.both = 0

    async def differs(self, script: str, parameters: dict[str, Any], caller: Caller) -> bool:
        found: list[ScriptAnswer | None] = []

        def noted(*given: Any) -> ScriptAnswer | None:
            found.append(self._real(*given))
            return found[-1]

        self._patch.setattr(brief, "answer", noted)
        quick = await self._node.answer(script, parameters, caller=caller)
        self._patch.setattr(brief, "answer", lambda *given: None)
        run = await self._node.answer(script, parameters, caller=caller)
        self.briefly += any(one is not None for one in found)
        self.both += 1
        return not identical(told(quick), told(run))


async def prepare(node: Running, rng: Random) -> None:
    await node.values("DEFINE INDEX code ON thing FIELDS code UNIQUE")
    rows = [{"id": n, **questions.record(rng, n)} for n in range(50)]
    for row in rows:
        row["code"] = rng.choice([f"code {row['id']}", row["id"], None, arrays(row["id"])])
    rows[10]["code"], rows[11]["code"], rows[12]["code"] = TEXT, TEXT + "a", "x" * 8_000
    rows += [{"id": "name"}, {"id": UUID(int=5), "code": 1.5}, {"id": ["x", 1], "code": True}]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})


async def compare(comparison: Comparison, asked: int) -> None:
    """Ask at random."""
    rng = Random(5)
    stranger = replace(OWNER, role="none")
    for _ in range(asked):
        script, caller = rng.choice(LOOKUPS), stranger if rng.random() < 0.1 else OWNER
        parameters = {"id": parameter(rng), "code": parameter(rng)}
        if rng.random() < 0.1:
            del parameters[rng.choice(["id", "code"])]
        assert not await comparison.differs(script, parameters, caller), (script, parameters)


async def test_every_lookup_is_answered_as_a_run_answers_it(
    node: Running, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    comparison = Comparison(node, monkeypatch)
    await prepare(node, Random(5))
    await compare(comparison, 1_500)
    figure("look-ups compared with a run", f"{comparison.both}, {comparison.briefly} brief")
    assert comparison.briefly > 400


FAULTS = ["long values", "null claims", "strangers", "arrays", "no such field"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(
    node: Running, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    await prepare(node, Random(5))
    if fault == "long values":
        names = {"encode": order.encode, "decode_id": order.decode_id}
        wrong = SimpleNamespace(kept_bytes=lambda most: 1 << 20, **names)
        monkeypatch.setattr(brief, "order", wrong)
    if fault == "null claims":
        wrong = SimpleNamespace(can_claim=lambda value: True, WHOLE=indexes.WHOLE)
        monkeypatch.setattr(brief, "indexes", wrong)
    if fault == "strangers":
        monkeypatch.setattr(brief, "authorise", lambda caller, action: None)
    if fault == "arrays":
        monkeypatch.setattr(brief, "_PARTED", frozenset())
    if fault == "no such field":
        always = lambda table: SimpleNamespace(get=lambda field: table.indexes[0])  # noqa: E731
        monkeypatch.setattr(brief, "_unique", always)
    with pytest.raises(AssertionError):
        await compare(Comparison(node, monkeypatch), 1_500)


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


async def test_what_is_in_flight_is_waited_for(node: Running) -> None:
    """A record that the log has not got yet is shown no sooner than it has."""
    await node.value("SELECT * FROM $id", {"id": RecordId("thing", 1)})
    for number in range(20):
        writing = asyncio.ensure_future(node.answer(f"CREATE thing:{number}"))
        await asyncio.sleep(0)
        found = await node.answer("SELECT * FROM $id", {"id": RecordId("thing", number)})
        committer = node.node.committer
        assert found.refusal is None and found.sequence <= committer.sequence
        if found.results[0].value:
            assert committer.sequence >= (await writing).sequence
        assert (await writing).refusal is None


async def test_a_large_record_is_run(node: Running) -> None:
    await node.values("CREATE thing:1 SET a = $a", {"a": "x" * brief.LIGHT_BYTES})
    await node.values("CREATE thing:2 SET a = 1")
    for number, light in ((1, False), (2, True)):
        id = {"id": RecordId("thing", number)}
        assert len(await node.value("SELECT * FROM $id", id)) == 1
        request = RunScript(OWNER, "SELECT * FROM $id", "r-x", id, "shop", "main")
        assert (node.node.look_up(request) is not None) is light
    node.node.not_ready()
    assert node.node.look_up(request) is None, "a node that is stopping is asked in order"


async def test_what_is_remembered_is_what_is_declared(node: Running) -> None:
    """And no entry for each field that somebody asks for."""
    await node.values("DEFINE INDEX code ON thing FIELDS code UNIQUE; CREATE thing:1 SET code = 1")
    committer, known = node.node.committer, 0
    for number in range(300):
        script = f"SELECT * FROM thing WHERE f{number} = 1"
        assert await node.value(script) == [] == await node.value(script)
        with committer.begin() as tx:
            if number == 10:
                known = len(tx.catalog.entries)
            elif number > 10:
                assert len(tx.catalog.entries) == known
    assert await node.value("SELECT VALUE id FROM thing WHERE code = 1") == [RecordId("thing", 1)]
