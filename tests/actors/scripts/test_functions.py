"""Functions of a database in the life of a node: whose definition a call meets, what ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors.commits.committer import NODE
from actors.runtime import ask
from protocol import limits
from protocol.errors import (
    BadRequest,
    Cancelled,
    Conflict,
    NotAllowed,
    StatementTimeout,
    TooLarge,
    TypeRefused,
    Unknown,
)
from protocol.requests import CancelScript
from protocol.rights import Verb
from storage.catalog import functions, places, users
from storage.catalog.places import IfExists
from tests.actors.live import running_scripts
from tests.actors.scripts.test_running import begun
from tests.callers import Granted, declare
from tests.nodes import OWNER, Running, running

SLOW = (
    "DEFINE FUNCTION fib($n: int) { IF $n < 2 { $n } ELSE { fn::fib($n - 1) + fn::fib($n - 2) } }"
)


async def refused(node: Running, script: str) -> Any:
    """The refusal of a script."""
    return (await node.answer(script)).refusal


async def test_what_is_defined_anew_runs_from_texts_that_are_planned(node: Running) -> None:
    """A plan knows the name alone, whoever's it is."""
    eve = await declare(node.node, "eve", "editor")
    await node.values("DEFINE FUNCTION f() { 1 }")
    for value in (1, 2, 3):
        await node.values(f"DEFINE FUNCTION OVERWRITE f() {{ {value} }}")
        for who in (OWNER, eve):
            assert (await node.answer("fn::f()", caller=who)).results[0].value == value
    await node.values("DROP FUNCTION f")
    assert type(await refused(node, "fn::f()")) is Unknown


async def test_a_transaction_rests_on_the_functions_it_called(node: Running) -> None:
    """What it wrote by the one that was there is not committed beside another."""
    await node.values("DEFINE FUNCTION f() { 1 }")
    committer = node.node.committer
    for change in ("DEFINE FUNCTION OVERWRITE f() { 2 }", "DROP FUNCTION f", "DROP DATABASE main"):
        with committer.begin_transaction() as tx:
            node.node.rights.function(tx, OWNER, ("shop", "main"), "f", frozenset())
            users.define(tx, "eve", "viewer", "*")
            tx.pause()
            await node.values(change)
            with pytest.raises(Conflict):
                committer.commit(tx, NODE)
        await node.values("DEFINE DATABASE IF NOT EXISTS main;"
                          " DEFINE FUNCTION IF NOT EXISTS f() { 1 }")  # fmt: skip


async def test_a_call_ends_with_its_statement(node: Running) -> None:
    """By its timeout, by KILL, by whoever asked: however deep it is."""
    await node.values(
        SLOW + "; DEFINE TABLE t; DEFINE FIELD n ON t TYPE int DEFAULT fn::fib(30);"
        " DEFINE TABLE u; CREATE u:1"
    )
    for script in ("SELECT fn::fib(30) FROM u TIMEOUT 20ms", "CREATE t:1 TIMEOUT 20ms"):
        assert type(await refused(node, script)) is StatementTimeout
    for text in ("fn::fib(30)", "CREATE t:1"):
        slow = asyncio.ensure_future(node.answer(text))
        await begun(node, slow)
        (one,) = [run for run in await node.value("INFO FOR RUNNING") if run["text"] == text]
        await node.values(f"KILL '{one['id']}'")
        refusal = (await slow).refusal
        assert type(refusal) is Cancelled
        assert refusal.message == "the script was killed by root", "and it says no more"
    slow = asyncio.ensure_future(node.answer("fn::fib(30)"))
    await begun(node, slow)
    (run,) = running_scripts(node.node)
    await ask(node.node.scripts, CancelScript(run.request.request))
    assert type((await slow).refusal) is Cancelled
    assert await node.values("fn::fib(7); SELECT * FROM t") == [13, []]


def deep(count: int) -> str:
    """Blocks one inside another, a call in the innermost."""
    return "IF true { " * count + "fn::down(0)" + " }" * count


async def test_calls_end_before_the_stack_does_wherever_they_stand(node: Running) -> None:
    """The tallest bodies there are, under the deepest scripts there are: refused, and no bug."""
    bodies = [
        "fn::down($n + 1)",
        "[" * 50 + "fn::down($n + 1)" + "]" * 50,
        "".join("array::map([1], |$x| " for _ in range(30)) + "fn::down($n + 1)" + ")" * 30,
        "-(" * 30 + "fn::down($n + 1)" + ")" * 30,
        "fn::down($n + 1)" + " + 1" * 120,
    ]
    for body in bodies:
        await node.values(f"DEFINE FUNCTION OVERWRITE down($n: int) {{ {body} }}")
        for blocks in (0, 20, 62):
            refusal = await refused(node, deep(blocks))
            assert type(refusal) is TooLarge, (body[:20], blocks, refusal)
            assert refusal.detail["limit"] == limits.CALLS
    ends = f"IF $n = {limits.CALLS - 1} {{ 'the end' }} ELSE {{ fn::down($n + 1) }}"
    await node.values(f"DEFINE FUNCTION OVERWRITE down($n: int) {{ {ends} }}")
    assert await node.value("fn::down(0)") == "the end"
    assert type(await refused(node, "fn::down(-1)")) is TooLarge
    assert await node.value("fn::down(0)") == "the end", "what was refused is not counted on"


async def test_a_refusal_says_where_the_call_stands(node: Running) -> None:
    await node.values(
        "DEFINE FUNCTION inner($n: int) {\n\n  1 / $n };"
        " DEFINE FUNCTION outer($n: option<int>) { fn::inner($n ?? 0) }"
    )
    refusal = await refused(node, "RETURN 1 +\n  fn::outer()")
    place = {name: refusal.detail[name] for name in ("line", "column", "in_function")}
    assert place == {"line": 2, "column": 3, "in_function": "fn::inner"}
    refusal = await refused(node, "1;\nfn::outer('x')")
    assert type(refusal) is TypeRefused
    assert refusal.detail == {
        "function": "fn::outer", "parameter": "n", "wanted": "option<int>", "found": "string",
        "statement": 2, "line": 2, "column": 1,
    }  # fmt: skip
    refusal = await refused(node, "DEFINE FUNCTION f($a: int) {\n $a + $b }")
    assert (refusal.detail["line"], refusal.detail["column"]) == (2, 7)


async def test_values_are_bounded_where_a_function_gives_them_a_name(node: Running) -> None:
    """Twice the same array, and again in the next call: nothing grows past what a value may."""
    await node.values(
        "DEFINE FUNCTION twice($a: any, $n: int)"
        " { IF $n = 0 { $a } ELSE { fn::twice([$a, $a], $n - 1) } }"
    )
    assert type(await refused(node, "fn::twice('x', 31)")) is TooLarge


async def test_whoever_may_only_write_calls_what_the_fields_call(node: Running) -> None:
    """And is told no more of a record by a function that refuses it than by an ASSERT."""
    await node.values(
        "DEFINE TABLE t; DEFINE FUNCTION f($n: int | string) -> int { 10 / $n };"
        " DEFINE FIELD m ON t TYPE int DEFAULT fn::f(5);"
        " DEFINE FIELD n ON t TYPE option<any> ASSERT fn::f($value) > 0;"
        " CREATE t:2 SET n = 1; CREATE t:3 SET n = 2"
    )
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    granted.grant("eve", Verb.WRITE, "shop", "main", "t")
    assert (await node.answer("CREATE t:1", caller=eve)).refusal is None
    assert await node.value("SELECT VALUE m FROM t:1") == [2]
    refusal = (await node.answer("UPDATE t:2 SET n = 'secret'", caller=eve)).refusal
    assert type(refusal) is TypeRefused
    assert refusal.message == "field n of table t refuses it: with READ the reason is shown"
    assert refusal.detail.keys() == {"table", "field", "statement", "line", "column"}
    assert (await node.answer("fn::f(2)", caller=eve)).results[0].value == 5
    assert type((await node.answer("INFO FOR FUNCTION f", caller=eve)).refusal) is NotAllowed
    assert type((await node.answer("DROP FUNCTION f", caller=eve)).refusal) is NotAllowed


async def test_functions_outlive_the_node(tmp_path: Path) -> None:
    """They are rows of the catalog: in the log, and in the state that is folded from it."""
    for again in (False, True):
        async with running(tmp_path / "store") as node:
            if not again:
                await node.values(SLOW + " COMMENT 'slow'; DEFINE FUNCTION gone() { 1 }")
                await node.values("DROP FUNCTION gone")
            assert await node.value("fn::fib(10)") == 55
            shown = (await node.value("INFO FOR DATABASE"))["functions"]
            assert [(one["name"], one["comment"]) for one in shown] == [("fib", "slow")]


async def test_a_definition_has_its_bounds(node: Running) -> None:
    several = ", ".join(f"$p{n}: int" for n in range(limits.FUNCTION_PARAMETERS))
    await node.values(f"DEFINE FUNCTION f({several}) {{ $p0 }}")
    assert type(await refused(node, f"DEFINE FUNCTION g({several}, $x: int) {{ 1 }}")) is TooLarge
    long = "x" * limits.DEFINITION_BYTES
    assert type(await refused(node, f"DEFINE FUNCTION g() {{ '{long}' }}")) is TooLarge
    assert type(await refused(node, "DEFINE FUNCTION g() { $x }")) is BadRequest
    assert [one["name"] for one in (await node.value("INFO FOR DATABASE"))["functions"]] == ["f"]


async def test_a_dropped_database_takes_them_along(node: Running) -> None:
    await node.values("DEFINE FUNCTION f() { 1 }; DROP DATABASE main; DEFINE DATABASE main")
    assert type(await refused(node, "fn::f()")) is Unknown
    await node.values("DEFINE FUNCTION f() { 2 }")
    assert await node.value("fn::f()") == 2
    with node.node.committer.begin_transaction() as tx:
        database = places.database(tx, places.namespace(tx, "shop"), "main")
        found = functions.find(tx, database, "f")
        assert found is not None
        with pytest.raises(TooLarge):
            functions.define(
                tx, functions.Function(database, "f", (), None, "1", "c" * 9999), IfExists.OVERWRITE
            )
