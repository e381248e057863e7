"""What a script keeps, variables and loops, has one bound together."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from actors.scripts.script_state import Answered, ScriptState
from actors.scripts.workers import Turns
from language import tree
from language.parser import parse
from protocol import limits
from protocol.errors import Conflict, TooLarge
from protocol.values import RecordId
from protocol.weights import weigh
from tests.nodes import Running
from tests.tables import case

BIG = "0..10000"
"""An array of some 350 KiB: of two there is room, of three not."""
TOGETHER = "the variables and loops of a script hold at most"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES", limits.MIB)


async def test_what_is_kept_has_one_bound(node: Running) -> None:
    for script in [
        f"LET $a = {BIG}; LET $b = {BIG}; LET $c = {BIG}",
        f"BEGIN; LET $a = {BIG}; LET $b = {BIG}; LET $c = {BIG}; COMMIT",
        f"LET $a = {BIG}; LET $b = [{BIG}, {BIG}]",
        "LET $a = $text + 'a'; LET $b = $text + 'b'; LET $c = $text + 'c'",
        "LET $a = $bytes; LET $b = [$bytes, $bytes]; LET $c = [$bytes]",
        f"FOR $a IN [{BIG}] {{ FOR $b IN [{BIG}] {{ FOR $c IN [{BIG}] {{ RETURN 1 }} }} }}",
        f"LET $a = {BIG}; LET $b = {BIG}; FOR $c IN array::sort({BIG}) {{ RETURN 1 }}",
        f"FOR $a IN [{BIG}] {{ }}; FOR $b IN [{BIG}] {{ }}; FOR $c IN [{BIG}] {{ }}",
        f"FOR $i IN 0..3 {{ LET $a = {BIG}; LET $b = {BIG}; IF $i = 2 {{ LET $c = {BIG} }} }}",
        f"LET $r = {BIG}; FOR $x IN $r {{ LET $r = array::sort({BIG});"
        f" FOR $y IN $r {{ LET $r = {BIG}; RETURN 1 }} }}",
        "LET $a = (SELECT a FROM $objects); LET $b = (SELECT a FROM $objects);"
        " LET $c = (SELECT a FROM $objects)",
        "LET $a = SELECT $text AS a, $text AS b FROM [{}]; LET $b = SELECT $text AS a FROM [{}]",
        "LET $a = $rows; LET $b = [$rows]; LET $c = [$rows, 1]",
    ]:
        with case(script):
            parameters = {
                "text": "x" * 400_000,
                "bytes": b"x" * 400_000,
                "rows": [[n] for n in range(4_000)],
                "objects": [{"a": n} for n in range(2_000)],
            }
            answer = await node.answer(script, parameters)
            assert answer.refusal is not None and answer.refusal.code == "TooLarge", answer
            assert TOGETHER in answer.refusal.message
            assert answer.refusal.detail["limit"] == limits.MIB


async def test_what_is_let_go_counts_no_more(node: Running) -> None:
    for script in [
        f"LET $a = {BIG}; LET $b = $a; LET $c = $b; LET $d = $c; FOR $x IN $d {{ }}; RETURN 1",
        f"FOR $i IN 0..20 {{ LET $a = {BIG}; LET $b = {BIG} }}; RETURN 1",
        f"FOR $i IN 0..3 {{ FOR $x IN array::sort({BIG}) {{ }} }}; RETURN 1",
        f"LET $a = {BIG}; LET $b = {BIG}; LET $a = 1; LET $c = {BIG}; RETURN 1",
        f"LET $a = {BIG}; LET $b = {BIG}; LET $a = array::sort($a); RETURN 1",
        f"FOR $i IN 0..20 {{ FOR $x IN [1, array::sort({BIG})] {{ LET $n = $x }} }}; RETURN 1",
        "FOR $x IN $rows { FOR $y IN $rows { RETURN 1 } }",
        "LET $a = $rows; FOR $x IN $rows { LET $b = $rows; RETURN 1 }",
        "FOR $i IN 1..9000000000000000000 { IF $i = 3000 { RETURN 1 } }",
        "LET $i = 0; FOR $j IN 0..2000 { LET $i = $i + 1 }; RETURN 1",
        "LET $a = []; FOR $i IN 0..300 { LET $a = array::push($a, $i) }; RETURN 1",
        f"BEGIN; LET $a = {BIG}; CANCEL; LET $b = {BIG}; LET $b = array::sort($b); RETURN 1",
    ]:
        with case(script):
            rows = [[n] for n in range(4_000)]
            assert await node.value(script, {"rows": rows}) == 1


async def test_a_transaction_that_begins_anew_counts_anew(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its lost attempts had kept is not added to what it keeps."""
    committer = node.node.committer
    real, left = committer.commit, [3]

    def commit(*given: Any, **more: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Conflict("planted")
        return real(*given, **more)

    monkeypatch.setattr(committer, "commit", commit)
    script = f"LET $a = {BIG}; BEGIN; LET $b = {BIG}; CREATE thing:1; COMMIT; RETURN 1"
    assert await node.value(script) == 1 and left == [0]


NAMES: tuple[str | int, ...] = ("a", "b", "c", "d", 1, 2)


def model_size(names: dict[str | int, Any]) -> int:
    distinct = {id(value): value for value in names.values() if len(value) > 200}
    return sum(weigh(value) for value in distinct.values())


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_is_that_of_the_different_values(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES", 200 * limits.KIB)
    rng, names = Random(seed), dict[str | int, Any]()
    kept, pool = ScriptState(lambda: None), [["x"] * rng.randrange(201, 2_000) for _ in range(12)]
    for _ in range(200):
        name = rng.choice(NAMES)
        if rng.random() < 0.1:
            kept, before = kept.copy(), kept
            before.take(name)  # of one that was copied nothing shows in the other
        if rng.random() < 0.3:
            kept.take(name)
            names.pop(name, None)
            continue
        value = rng.choice(pool)
        over = model_size({**names, name: value}) > limits.SCRIPT_MEMORY_BYTES
        if over:
            with pytest.raises(TooLarge):
                kept.put(name, value)
            names.pop(name, None)
        else:
            kept.put(name, value)
            names[name] = value
        assert kept._size == model_size(names)


def test_answers_that_are_too_much_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATEMENT_MEMORY_BYTES", 100_000)
    selects = []
    for text in ("SELECT 1 FROM a", "SELECT 2 FROM a", "SELECT 3 FROM a"):
        (select,) = parse(text).statements
        assert isinstance(select, tree.Select)
        selects.append(select)
    answered = Answered(lambda: None)
    answered.add(selects[0], ["x"] * 1_000)
    answered.add(selects[1], ["x"] * 90_000)
    answered.add(selects[2], [])
    assert [answered.get(select) is not None for select in selects] == [True, False, True]


def test_an_id_is_weighed_with_what_it_holds() -> None:
    assert weigh(RecordId("t", list(range(1_000)))) > 30_000 > weigh(RecordId("t", 1))


@pytest.mark.parametrize(
    "script",
    [
        "FOR $i IN 1..=9223372036854775807 { 1 }",
        "FOR $i IN 0..30 { FOR $j IN 0..30 { FOR $k IN 0..30 { 1 } } }",
        "FOR $i IN 0..600 { 1 }; FOR $i IN 0..600 { 1 }",
    ],
)
async def test_a_loop_ends_by_name(
    node: Running, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOP_ITERATIONS", 1_000)
    assert (await node.answer("FOR $i IN 0..1000 { 1 }", {})).refusal is None
    refusal = (await node.answer(script, {})).refusal
    assert refusal is not None and refusal.code == "TooLarge"
    assert "at most 1000 times" in refusal.message


async def test_passes_of_an_attempt_that_lost_a_race_do_not_count(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOP_ITERATIONS", 30)
    await node.values("DEFINE TABLE counted; CREATE counted:1 SET n = 0")
    monkeypatch.setattr(Turns, "slice_us", 0)
    script = (
        "BEGIN; LET $n = (SELECT VALUE n FROM counted:1)[0]; FOR $i IN 0..20 { 1 };"
        " UPDATE counted:1 SET n = $n + 1; COMMIT"
    )
    answers = await asyncio.gather(*(node.answer(script, {}) for _ in range(3)))
    assert [answer.refusal for answer in answers] == [None] * 3
    assert await node.value("SELECT VALUE n FROM counted:1") == [3]


async def test_the_row_around_a_subquery_is_bound_no_longer_than_that(node: Running) -> None:
    await node.values("DEFINE TABLE around; CREATE around:1 SET n = 1")
    subquery = "SELECT VALUE (SELECT VALUE $parent.n FROM around) FROM around"
    for script in (f"{subquery}; RETURN $parent", f"BEGIN; {subquery}; RETURN $parent; COMMIT"):
        refusal = (await node.answer(script, {})).refusal
        assert refusal is not None and refusal.code == "Unknown", script
    kept = await node.answer(f"LET $parent = 5; {subquery}; RETURN $parent", {})
    assert [result.value for result in kept.results][1:] == [[[1]], 5]
