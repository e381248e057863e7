"""What a script keeps, variables and loops, has one bound together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from actors.execution.late_answers import waiting_answers
from actors.execution.scheduler import FiberScheduler
from actors.memory import STEP_BYTES, MemoryAccount, NodeMemory
from actors.runtime import ask
from actors.scripts import script_state
from actors.scripts.execution import FOLLOWED
from actors.scripts.script_state import ScriptState, StatementCache
from language import tree
from language.parser import parse
from protocol import limits
from protocol.errors import (
    Busy,
    Cancelled,
    Refusal,
    StatementTimeout,
    TooLarge,
)
from protocol.requests import CancelScript, RunScript
from protocol.values import NONE, PACE, RecordId
from protocol.weights import weigh
from storage.catalog.tables import Table
from storage.records import records
from storage.txn.transaction import Transaction
from tests.actors.parts import until
from tests.actors.scripts.test_stalled_disk import Stall
from tests.nodes import OWNER, Running
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
    answered = StatementCache(lambda: None)
    answered.add_subquery(selects[0], ["x"] * 1_000)
    answered.add_subquery(selects[1], ["x"] * 90_000)
    answered.add_subquery(selects[2], [])
    assert [answered.subquery(select) is not None for select in selects] == [True, False, True]


@pytest.mark.parametrize("room", [script_state.LINKED_BYTES, 0])
async def test_a_linked_record_is_read_once_for_all_rows_of_a_statement(
    node: Running, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    reads: list[Any] = []

    def read(tx: Transaction, table: Table, id: Any) -> bytes | None:
        reads.append(id)
        return read_record(tx, table, id)

    read_record = records.read
    monkeypatch.setattr(records, "read", read)
    monkeypatch.setattr(script_state, "LINKED_BYTES", room)
    await node.values(
        "DEFINE TABLE city; CREATE city:1 SET name = 'Lima'; DEFINE TABLE person;"
        " INSERT INTO person [{ id: 1, of: city:1 }, { id: 2, of: city:1 },"
        " { id: 3, of: city:2 }, { id: 4, of: city:2 }]"
    )
    names = "SELECT VALUE of.name FROM person"
    reads.clear()
    assert await node.value(names) == ["Lima", "Lima", NONE, NONE]
    assert reads == ([1, 2] if room else [1, 1, 2, 2])
    # A transaction reads what it has written itself.
    told = await node.values(
        f"BEGIN; {names}; UPDATE city:1 SET name = 'Oslo'; {names};"
        f" CREATE city:2 SET name = 'Bonn'; {names}; COMMIT"
    )
    assert [told[at] for at in (1, 3, 5)] == [
        ["Lima", "Lima", NONE, NONE],
        ["Oslo", "Oslo", NONE, NONE],
        ["Oslo", "Oslo", "Bonn", "Bonn"],
    ]


# --- what all scripts of a user and of the node hold ----------------------------------------------

HOLDS = f"LET $a = {BIG}; LET $b = {BIG}"
WAITS = f"{HOLDS}; TAKE FROM t AS g WAIT 1m"
LOOPS = f"{HOLDS}; FOR $i IN 0..3000 {{ FOR $j IN 0..3000 {{ LET $k = $j }} }}"
GROUP = "DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 1h"
EVE = replace(OWNER, user="eve")


async def test_scripts_of_one_user_have_one_bound_running_or_waiting(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of scripts that hold 0.86 MiB each there is room for two beside another user's."""
    monkeypatch.setattr(limits, "USER_MEMORY_BYTES", limits.MIB * 5 // 2)
    monkeypatch.setattr(limits, "NODE_MEMORY_BYTES", limits.MIB * 5)
    await node.values(f"{GROUP}; DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    scripts, memory = node.node.registry, node.node.registry.memory
    hers = asyncio.ensure_future(node.answer(LOOPS, caller=EVE))
    await until(lambda: memory.held > limits.MIB * 3 // 4)
    mine = [asyncio.ensure_future(node.answer(WAITS)) for _ in range(16)]
    await until(lambda: sum(one.done() for one in mine) == 14)
    mine += [asyncio.ensure_future(node.answer(LOOPS)) for _ in range(12)]
    await until(lambda: sum(one.done() for one in mine) == 26)
    refusals = [one.result().refusal for one in mine if one.done()]
    assert [type(one) for one in refusals] == [Busy] * 26
    assert all("the scripts of root hold too much memory" in one.message for one in refusals if one)
    of = memory.of[OWNER.user]
    await until(lambda: of.going > limits.MIB * 3 // 2)
    assert of.going <= limits.MIB * 2 and scripts.unfinished == 3 and not hers.done()
    scripts.end_all(Cancelled("the test is over"))
    ended = await asyncio.gather(hers, *mine)
    assert sum(type(one.refusal) is Cancelled for one in ended) == 3
    assert not (memory.held or memory.of)


async def test_one_script_has_one_bound_for_all_that_it_holds(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    monkeypatch.setattr(limits, "REQUEST_MEMORY_BYTES", limits.MIB // 2)
    await node.values(GROUP)
    objects = {"objects": [{"n": n} for n in range(1_000)]}
    rows = "array::map(0..20000, |$x| [$x])"
    for script in (
        WAITS,
        f"LET $a = {BIG}; RETURN array::len({rows})",
        f"LET $a = {BIG}; SELECT * FROM $objects ORDER BY n",
        "SELECT * FROM $objects; SELECT * FROM $objects; SELECT * FROM $objects; RETURN 1",
        f"LET $a = {BIG}; BEGIN; LET $a = array::sort({BIG}); 1; COMMIT",
    ):
        with case(script):
            refusal = (await node.answer(script, objects)).refusal
            assert type(refusal) is TooLarge and "a request holds" in refusal.message, refusal
    for script in (
        f"FOR $i IN 0..5 {{ LET $a = {BIG} }}",
        "FOR $i IN 0..5 { LET $a = array::len((SELECT * FROM $objects ORDER BY n)) }",
        f"LET $a = {BIG}; RETURN $a",
    ):
        with case(script):
            assert (await node.answer(script, objects)).refusal is None
    assert not node.node.registry.memory.held


class Watched(NodeMemory):
    """Remembers the most that one request has held."""

    most = 0

    def set(self, account: MemoryAccount, held: int, apart: int) -> None:
        self.most = max(self.most, held + apart)
        super().set(account, held, apart)


async def test_every_step_that_collects_counts(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    memory = node.node.registry.memory = Watched()
    objects = [{"n": n, "s": f"{n} {'x' * 80}", "a": [n, n]} for n in range(3_000)]
    await node.values("DEFINE INDEX i ON thing FIELDS n; INSERT INTO thing $objects RETURN NONE",
                      {"objects": objects})  # fmt: skip
    wide = "[array::sort(0..20000), array::sort(0..20000), array::sort(0..20000)]"
    for script, at_least in (
        ("SELECT * FROM thing", 900_000),
        ("SELECT n FROM thing ORDER BY n", 500_000),
        ("SELECT n FROM thing ORDER BY n LIMIT 2500", 500_000),
        ("SELECT s, count() FROM thing GROUP BY s", 900_000),
        ("SELECT array::len(collect(s)) AS c FROM thing GROUP ALL", 300_000),
        ("SELECT DISTINCT s FROM thing LIMIT 1 START 2500", 500_000),
        ("SELECT a FROM thing SPLIT a", 900_000),
        ("UPDATE thing SET m = 1", 900_000),
        ("UPDATE thing SET m = 1 RETURN NONE", 300_000),
        ("BEGIN; DELETE thing RETURN BEFORE; CANCEL", 900_000),
        ("INSERT INTO thing (SELECT n, s FROM $o)", 900_000),
        ("SELECT VALUE n FROM thing WHERE n IN (SELECT VALUE n FROM $o) LIMIT 1", 100_000),
        ("SELECT VALUE n FROM thing WHERE n < 600 LIMIT 1", 30_000),
        ("RETURN array::len(array::map(0..30000, |$x| [$x]))", 900_000),
        (f"RETURN array::len({wide})", 900_000),
        ("LET $x = (SELECT n FROM $o); RETURN 1", 500_000),
        ("SELECT * FROM $o; RETURN 1", 500_000),
        (f"RETURN array::len([{','.join(['1'] * 9_000)}])", 900_000),
    ):
        with case(script[:70]):
            memory.most = 0
            answer = await node.answer(script, {"o": objects})
            assert answer.refusal is None and memory.most >= at_least, (answer.refusal, memory.most)
            assert not memory.held and not memory.of


@pytest.mark.parametrize("script", ["SELECT VALUE l FROM [{l: $l}] FETCH l", "RETURN $l.n"])
async def test_links_that_are_followed_are_charged_for(
    node: Running, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Links to records that do not exist too."""
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    await node.value("INSERT INTO thing $rows", {"rows": [{"id": id} for id in range(1_000)]})
    for first in (0, 1_000):
        links = [RecordId("thing", id) for id in range(first, first + 1_000)]
        asked = asyncio.ensure_future(node.answer(script, {"l": links}))
        turns = 0
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await asked).refusal is None
        assert turns >= len(links) * FOLLOWED // PACE


async def test_an_account_is_closed_at_every_end(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    await node.values(f"{GROUP}; CREATE thing:1 SET n = 0")
    committer, scripts, memory = node.node.committer, node.node.scripts, node.node.registry.memory

    def request(script: str, **fields: Any) -> RunScript:
        return RunScript(OWNER, script, "asked", namespace="shop", database="main", **fields)

    def begun(script: str, **fields: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(ask(scripts, request(script, **fields)))

    def closed() -> bool:
        return not (memory.held or memory.of or memory.going)

    for script in (f"{HOLDS}; RETURN $a", f"{HOLDS}; THROW 'no'", f"{HOLDS}; LET $c = {BIG}"):
        with case(script):
            await node.answer(script)
            assert closed()
    with case("its time is over"):
        answer = await begun(WAITS, timeout_us=100_000)
        assert type(answer.refusal) is StatementTimeout and closed()
    for script in (WAITS, LOOPS):
        with case(f"cancelled: {script}"):
            waiting = begun(script)
            await until(lambda: memory.held > limits.MIB // 2)
            assert await ask(scripts, CancelScript("asked"))
            assert type((await waiting).refusal) is Cancelled and closed()
    with case("conflicts"):
        before = committer.conflicts
        adds = f"BEGIN; LET $a = {BIG}; UPDATE thing:1 SET n += 1; COMMIT"
        await asyncio.gather(*[node.answer(adds) for _ in range(8)])
        assert committer.conflicts > before and closed()
    writes = f"{HOLDS}; $a; CREATE thing SET n = 1"
    stall = Stall(node.node)
    try:
        for wanted in (True, False):
            with case(f"behind the disk, the answer is wanted: {wanted}"):
                answers = begun(writes)
                await until(lambda: any(waiting_answers(committer)))
                assert limits.MIB // 4 < memory.held < limits.MIB // 2, "its results alone"
                if not wanted:
                    answers.cancel()
                stall.end()
                await asyncio.wait([answers])
                await until(lambda: not any(waiting_answers(committer)))
                assert closed()
                stall = Stall(node.node)
    finally:
        stall.end()


def test_whose_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USER_MEMORY_BYTES", 64 * STEP_BYTES)
    monkeypatch.setattr(limits, "NODE_MEMORY_BYTES", 128 * STEP_BYTES)
    memory, ended = NodeMemory(), list[tuple[str, Refusal]]()

    def account(user: str, name: str, *commits: object) -> MemoryAccount:
        return MemoryAccount(user, lambda why: ended.append((name, why)), commits)

    def hold(of: MemoryAccount, steps: int, apart: int = 0) -> list[str]:
        memory.set(of, steps * STEP_BYTES, apart * STEP_BYTES)
        return [name for name, _ in ended]

    first, second, third = account("ana", "1"), account("ana", "2", 1), account("ana", "3")
    other = account("bob", "4")
    memory.set(other, STEP_BYTES, 0)
    assert not memory.held, "so little counts as nothing"
    assert not hold(first, 30) and not hold(second, 20, 14) and memory.held == 64 * STEP_BYTES
    assert hold(third, 2) == ["1"], "the largest that has committed nothing"
    assert hold(third, 29) == ["1"], "what is being ended makes room"
    assert hold(other, 32) == ["1"], "the next user gets half of the rest"
    assert hold(other, 33) == ["1", "4"], "and no other user's request is ended for it"
    assert hold(third, 40) == ["1", "4", "3"]
    second.can_end = False
    last = account("ana", "5")
    assert hold(last, 31) == ["1", "4", "3", "5"], "never one that has only its answer left"
    assert all(type(why) is Busy for _, why in ended)
    monkeypatch.setattr(limits, "REQUEST_MEMORY_BYTES", STEP_BYTES)
    assert hold(second, 2) == ["1", "4", "3", "5"]
    alone = account("eve", "6")
    assert hold(alone, 2)[-1] == "6" and type(ended[-1][1]) is TooLarge
    for one in (first, second, third, other, last, alone):
        memory.close(one)
    assert (memory.held, memory.going, memory.of) == (0, 0, {})


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
