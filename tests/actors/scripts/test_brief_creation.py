"""A record that is created without a turn is the one that running the script would have made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from actors.scripts import brief, brief_creation
from actors.scripts.prepared import Prepared
from language.parser import parse
from protocol.requests import Caller, ScriptAnswer
from protocol.values import NONE, RecordId, identical
from storage.effects import Attribution, decode
from tests.actors.scripts import questions
from tests.nodes import OWNER, Running

CREATIONS = (
    "CREATE thing CONTENT $v",
    "CREATE thing CONTENT { a: 1, b: ['x', NONE], c: NONE }",
    "CREATE thing SET a = $a, b = 2",
    "CREATE thing SET a = $a, a = $id, b = NONE",
    "CREATE thing",
    "CREATE thing:7 CONTENT $v",
    "CREATE thing:[1, 'x'] SET a = $a",
    "CREATE $id CONTENT $v",
    "CREATE $id SET code = $a",
    "CREATE $id CONTENT $v RETURN NONE",
    "CREATE $id SET id = $id, a = $a RETURN AFTER",
    "CREATE marked CONTENT $v",
    "CREATE marked SET code = $a",
    "CREATE strict SET a = $a",
    "CREATE nowhere CONTENT $v",
)
NONE_OF_THEM = (
    "CREATE thing; CREATE thing", "CREATE thing SET a = 1 + 1", "CREATE thing SET a.b = 1",
    "CREATE thing SET a = time::now()", "CREATE thing CONTENT $v RETURN DIFF",
    "CREATE thing CONTENT $v RETURN a", "CREATE thing CONTENT $v TIMEOUT 1s",
    "CREATE thing:uuid()", "CREATE thing SET a[0] = 1", "CREATE thing CONTENT { a: $v }",
    "CREATE thing SET a = (SELECT * FROM thing)", "CREATE thing RETURN BEFORE",
    "BEGIN; CREATE thing; COMMIT", "UPSERT thing:1 CONTENT $v", "INSERT INTO thing $v",
)  # fmt: skip


def creation(text: str) -> brief_creation.Creation | None:
    return Prepared(parse(text)).creation


@pytest.mark.parametrize("text", CREATIONS)
def test_what_is_a_creation(text: str) -> None:
    assert creation(text) is not None


@pytest.mark.parametrize("text", NONE_OF_THEM)
def test_what_is_more_than_a_creation(text: str) -> None:
    try:
        found = creation(text)
    except Exception:
        return  # not a statement of this version
    assert found is None


def parameters(rng: Random, number: int) -> dict[str, Any]:
    content = rng.choice([
        questions.record(rng, number), questions.record(rng, number), {}, {"id": number},
        {"id": NONE, "a": 1}, {"id": RecordId("thing", number)}, {"id": RecordId("other", 1)},
        {"deep": {"a": [NONE, {"b": NONE}]}}, 5, NONE, [{}], {"long": "x" * 3_000},
        {"code": rng.randrange(20)}, {"code": None}, {"many": list(range(300))},
    ])  # fmt: skip
    given = {
        "v": content,
        "a": rng.choice([1, "a", NONE, None, [NONE], {"x": NONE}, 1.5, rng.randrange(20)]),
        "id": rng.choice([
            RecordId("thing", rng.randrange(300)), RecordId("marked", rng.randrange(300)),
            RecordId("thing", UUID(int=rng.randrange(99))), RecordId("nowhere", 1), "thing:1",
            RecordId("thing", "x" * 300), NONE,
        ]),
    }  # fmt: skip
    if rng.random() < 0.1:
        del given[rng.choice(sorted(given))]
    return given


def told(answer: ScriptAnswer) -> list[Any]:
    """All of an answer but how long it took, its sequence, and ids that were made up."""
    refused = answer.refusal and [answer.refusal.code, sorted(answer.refusal.detail)]
    values = []
    for one in answer.results:
        rows = [dict(row) for row in one.value] if isinstance(one.value, list) else one.value
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row["id"].id, UUID) and row["id"].id.version == 7:
                row["id"] = row["id"].table
        values.append([rows, one.kind, one.rows])
    return [values, answer.namespace, refused]


class Comparison:
    """Creates in two databases, with and without, and counts."""

    def __init__(self, node: Running, patch: pytest.MonkeyPatch) -> None:
        self._node, self._patch = node, patch
        self._real = brief_creation.create
        self.briefly = self.both = 0

    async def prepare(self) -> None:
        for name in ("quick", "long"):
            answer = await self._node.answer(
                f"DEFINE DATABASE shop.{name}; USE shop.{name}; DEFINE TABLE thing;"
                " DEFINE TABLE marked; DEFINE INDEX code ON marked FIELDS code UNIQUE;"
                " DEFINE TABLE strict SCHEMAFULL; DEFINE FIELD a ON strict TYPE int"
            )
            assert answer.refusal is None, answer.refusal

    async def differs(self, script: str, given: dict[str, Any], caller: Caller) -> bool:
        found: list[Any] = []

        def noted(*wanted: Any) -> Any:
            found.append(self._real(*wanted))
            return found[-1]

        answers, bodies = [], []
        for name, way in (("quick", noted), ("long", lambda *wanted: None)):
            self._patch.setattr(brief_creation, "create", way)
            answer = await self._node.answer(
                script, given, place=("shop", name), caller=caller, reason="so"
            )
            answers.append(told(answer))
            bodies.append(self._committed(answer))
        self.briefly += any(one is not None for one in found)
        self.both += 1
        return not identical(answers[0], answers[1]) or bodies[0] != bodies[1]

    def _committed(self, answer: ScriptAnswer) -> Any:
        """What the log says of the commit, but for keys and values, which begin with its place."""
        log = self._node.node._log
        assert log is not None
        if answer.refusal is not None:
            return None
        [frame] = log.read(answer.sequence, answer.sequence)
        commit = decode(frame.body)
        effects = [(one[0], len(one[1]), *map(type, one[2:])) for one in commit.effects]
        return commit.attribution, effects


async def compare(comparison: Comparison, asked: int) -> None:
    rng = Random(7)
    stranger = replace(OWNER, role="none")
    await comparison.prepare()
    for number in range(asked):
        script, caller = rng.choice(CREATIONS), stranger if rng.random() < 0.05 else OWNER
        given = parameters(rng, number)
        assert not await comparison.differs(script, given, caller), (script, given)


async def test_every_creation_does_what_a_run_does(
    node: Running, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    comparison = Comparison(node, monkeypatch)
    await compare(comparison, 600)
    figure("creations compared with a run", f"{comparison.both}, {comparison.briefly} brief")
    assert comparison.briefly > 150
    rows = []
    for name in ("quick", "long"):
        asked = "SELECT * OMIT id FROM thing; SELECT * OMIT id FROM marked"
        answer = await node.answer(asked, place=("shop", name))
        assert answer.refusal is None
        texts: list[Any] = [one.value for one in answer.results]
        rows.append([sorted(map(repr, held)) for held in texts])
    assert rows[0] == rows[1]


FAULTS = ["strangers", "fields", "NONE", "reasons", "answers"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(
    node: Running, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "strangers":
        monkeypatch.setattr(brief_creation, "authorise", lambda caller, action: None)
    if fault == "fields":
        find = brief.find_table

        def bare(*wanted: Any) -> Any:
            table, index = find(*wanted)
            return replace(table, fields=(), schemafull=False), index

        monkeypatch.setattr(brief_creation, "find_table", bare)
    if fault == "NONE":
        monkeypatch.setattr(brief_creation, "without_none", lambda fields: fields)
    if fault == "reasons":
        monkeypatch.setattr(
            brief_creation, "Attribution", lambda by, how, text, _: Attribution(by, how, text, None)
        )
    if fault == "answers":
        plan = brief_creation.creation
        monkeypatch.setattr(
            "actors.scripts.prepared.creation",
            lambda script: (found := plan(script)) and replace(found, answered=True),
        )
    with pytest.raises(AssertionError):
        await compare(Comparison(node, monkeypatch), 600)


async def test_a_creation_is_answered_when_it_is_durable(node: Running) -> None:
    committer = node.node.committer
    for number in range(20):
        answer = await node.answer("CREATE thing CONTENT $v", {"v": {"n": number}})
        assert answer.refusal is None
        assert answer.sequence <= committer.sequence
