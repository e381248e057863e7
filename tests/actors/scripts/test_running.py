"""INFO FOR RUNNING, KILL, and cancelling, in the middle of everything that may take long."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from actors.runtime import ask
from actors.scripts.transactions import ScriptRun
from protocol.errors import (
    Cancelled,
    SessionEnded,
    StatementTimeout,
    TooLarge,
    Unknown,
)
from protocol.requests import (
    AuthenticatePassword,
    CancelScript,
    RunScript,
    ScriptAnswer,
    SignIn,
    SignOut,
)
from protocol.values import type_name
from tests.actors.live import running_scripts
from tests.nodes import OWNER, PASSWORD, Running

MANY = 20_000

LONG = {
    "scan": "SELECT VALUE id FROM thing WHERE n + 1 < 0",
    "join": "SELECT VALUE (SELECT VALUE id FROM thing WHERE n < 0) FROM thing",
    "sort": "SELECT * FROM thing ORDER BY name DESC, n",
    "group": "SELECT name, count() AS c FROM thing GROUP BY name",
    "split": "SELECT * FROM thing SPLIT list",
    "update": "UPDATE thing SET n = n + 1",
    "delete": "DELETE thing",
    "insert": "INSERT INTO other (SELECT * OMIT id FROM thing)",
    "loop": "FOR $x IN 0..1000000 { LET $y = $x }",
    "nested loop": "FOR $x IN 0..1000 { FOR $y IN 0..1000 { IF $x = $y { LET $z = 1 } } }",
    "range": "RETURN array::len(array::distinct(0..1000000))",
    "field": "DEFINE FIELD n ON thing TYPE int",
    "schemafull": "ALTER TABLE thing SET SCHEMAFULL",
    "block": "BEGIN; UPDATE thing SET n = 1; UPDATE thing SET n = 2; COMMIT",
    "hash": "INFO FOR STATE",
    "vectors": f"RETURN [{', '.join(['vector::cosine(0..900, 0..900)'] * 1500)}]",
    "conditions": f"SELECT * FROM thing WHERE {' OR '.join(f'n = -{n + 1}' for n in range(600))}",
    "patterns": "SELECT * FROM thing WHERE name ~ string::join(['^x{9}', type::string(n)], '')",
    "columns": "SELECT "
    + ", ".join(f"string::replace(name, 'n', 'x') AS n{n}" for n in range(200))
    + " FROM thing",
}
"""The last are wide: each row of them takes long, or all that there is one does."""


async def fill(node: Running) -> None:
    rows = [{"id": n, "n": n, "name": f"name {n % 977}", "list": [n, 1]} for n in range(MANY)]
    await node.values("DEFINE TABLE other; INSERT INTO thing $rows RETURN NONE", {"rows": rows})


async def begun(node: Running, *running: asyncio.Future[ScriptAnswer]) -> None:
    """Wait until each of some scripts has handed the loop back, not while its text was read: they
    are in the middle."""
    while sum(map(_in_the_middle, running_scripts(node.node))) < len(running):
        for one in running:
            assert not one.done(), one.result().refusal or "it was not long at all"
        await asyncio.sleep(0)


def _in_the_middle(run: ScriptRun) -> bool:
    return run.fiber.slices > 0 and run.at_statement() is not None


async def shown(node: Running) -> list[dict[str, Any]]:
    """What INFO FOR RUNNING shows beside itself."""
    found = await node.value("INFO FOR RUNNING")
    return [one for one in found if not one["text"].startswith("INFO FOR RUNNING")]


def started(node: Running, script: str, **fields: Any) -> asyncio.Future[ScriptAnswer]:
    node.node.facts.keep_state_hash(0, "")  # INFO FOR STATE computes it anew
    return asyncio.ensure_future(node.answer(script, **fields))


async def state(node: Running) -> Any:
    return (await node.value("INFO FOR STATE"))["hash"]


async def records(node: Running) -> Any:
    """The tables, without the entries that the trail keeps of each KILL, and without the columns
    that reads build."""
    about = "SELECT count() AS c, sum(n) AS n FROM"
    found = await node.values(f"{about} thing; {about} other; INFO FOR TABLE thing")
    found[-1].pop("columns", None)
    return found


async def test_every_kind_of_long_work_can_be_killed(node: Running) -> None:
    """Each is found in the list, ends when it is killed, and leaves nothing behind."""
    await fill(node)
    before = await records(node)
    for name, script in LONG.items():
        running = started(node, script)
        await begun(node, running)
        (one,) = await shown(node)
        await node.values(f"KILL '{one['id']}'")
        answer = await running
        assert type(answer.refusal) is Cancelled, name
        assert answer.refusal.message == "the script was killed by root"
        assert await shown(node) == []
        assert await records(node) == before, name


async def test_every_kind_of_long_work_ends_with_its_time(node: Running) -> None:
    await fill(node)
    before = await state(node)
    for name, script in LONG.items():
        answer = await started(node, script, timeout_us=3_000)
        assert type(answer.refusal) is StatementTimeout, name
        assert await state(node) == before, name


async def test_the_list_says_who_runs_what_and_how_far_it_is(node: Running) -> None:
    running = started(
        node, "LET $a = 1; FOR $x IN 0..1000000 { LET $y = $x }", timeout_us=60_000_000
    )
    await begun(node, running)
    (one,) = await shown(node)
    assert one["user"] == "root" and one["surface"] == "http" and one["address"] == OWNER.address
    assert (one["namespace"], one["database"]) == ("shop", "main")
    assert one["statement"] == 2
    assert one["text"] == "FOR $x IN 0 .. 1000000 { LET $y = $x }"
    assert type_name(one["since"]) == type_name(one["left"]) == "duration"
    assert one["slices"] >= 1 and one["rows_read"] == 0
    await node.values(f"KILL '{one['id']}'")
    await running


async def test_the_list_shows_no_secret(node: Running) -> None:
    running = started(node, "DEFINE USER ana ROLE owner PASSWORD 'hunter2222'")
    found: list[dict[str, Any]] = []
    while not running.done() and not found:
        found = [one for one in await shown(node) if "ana" in one["text"]]
    assert not any("hunter" in one["text"] for one in found)
    assert (await running).refusal is None
    assert found and "PASSWORD '...'" in found[0]["text"]


async def test_what_a_killed_script_had_committed_stays(node: Running) -> None:
    running = started(node, "CREATE thing:1; FOR $x IN 0..1000000 { LET $y = $x }")
    await begun(node, running)
    (one,) = await shown(node)
    await node.values(f"KILL '{one['id']}'")
    answer = await running
    assert type(answer.refusal) is Cancelled and len(answer.results) == 1
    assert len(await node.value("SELECT * FROM thing")) == 1


async def test_nobody_is_killed_twice(node: Running) -> None:
    with pytest.raises(Unknown):
        await node.values("KILL 'r-nobody'")
    running = started(node, "FOR $x IN 0..1000000 { LET $y = $x }")
    await begun(node, running)
    (one,) = await shown(node)
    await node.values(f"KILL '{one['id']}'; KILL '{one['id']}'")
    assert (await running).refusal is not None
    with pytest.raises(Unknown):
        await node.values(f"KILL '{one['id']}'")


async def test_a_client_that_goes_takes_its_script_along(node: Running) -> None:
    await fill(node)
    request = RunScript(OWNER, LONG["join"], "r-gone", namespace="shop", database="main")
    running = asyncio.ensure_future(ask(node.node.scripts, request))
    await begun(node, running)
    assert await ask(node.node.scripts, CancelScript("r-gone"))
    answer = await running
    assert type(answer.refusal) is Cancelled
    assert not await ask(node.node.scripts, CancelScript("r-gone"))
    assert node.node.registry.unfinished == 0


async def test_a_statement_reads_so_many_rows_and_no_more(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values("INSERT INTO thing $rows", {"rows": [{"id": n} for n in range(100)]})
    monkeypatch.setattr("protocol.limits.ROWS_READ", 500)
    five_times = "; ".join(["SELECT * FROM thing"] * 6)
    assert len(await node.values(five_times)) == 6, "each statement is counted by itself"
    each = "SELECT (SELECT VALUE id FROM thing WHERE n != $parent.n) FROM thing"
    for script in (
        each,
        "FOR $n IN 0..6 { SELECT * FROM thing }",
        f"UPDATE thing SET n = ({each})",
    ):
        answer = await node.answer(script)
        assert isinstance(answer.refusal, TooLarge), script
        assert answer.refusal.detail["limit"] == 500


async def test_what_is_explained_by_doing_it_counts_what_it_reads(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(node)
    running = started(node, "EXPLAIN ANALYZE SELECT VALUE id FROM thing WHERE n + 1 < 0")
    await begun(node, running)
    while not any(one["rows_read"] for one in await shown(node)):
        assert not running.done(), "it shows how far it has come"
    explained = (await running).results[-1].value
    assert isinstance(explained, dict) and explained["rows_read"] == MANY
    monkeypatch.setattr("protocol.limits.ROWS_READ", 500)
    for statement in ("SELECT VALUE n FROM thing", "UPDATE thing SET n = 1", "DELETE thing"):
        answer = await node.answer(f"EXPLAIN ANALYZE {statement}")
        assert isinstance(answer.refusal, TooLarge), statement
        assert answer.refusal.detail["limit"] == 500


LOOP: Final = "CREATE done:1; FOR $x IN 0..100000000 { LET $y = $x }; CREATE done:2"


async def test_what_runs_in_a_session_ends_with_it(node: Running) -> None:
    """However it is ended; what was committed stays, and others' scripts go on."""
    await node.values(
        "DEFINE TABLE done; DEFINE TABLE beside;"
        "DEFINE USER eve ROLE owner PASSWORD 'a password of hers'"
    )
    sessions = node.node.sessions
    other = started(node, LOOP.replace("done", "beside"), caller=OWNER)
    for end in ("sign out", "password", "drop"):
        token = ""
        if end == "drop":  # brings the password with each request
            asked = AuthenticatePassword("eve", "another of hers", "http", "127.0.0.1:1")
            caller = await ask(sessions, asked)
        else:
            session = await ask(
                sessions, SignIn("eve", "a password of hers", "http", "127.0.0.1:1")
            )
            token, caller = session.token, session.caller
        running = started(node, LOOP, caller=caller)
        await begun(node, running, other)
        if end == "sign out":
            await ask(sessions, SignOut(token))
        else:
            await node.values(
                "ALTER USER eve SET PASSWORD 'another of hers'" if end == "password" else
                "DROP USER eve"
            )  # fmt: skip
        answer = await running
        assert type(answer.refusal) is SessionEnded, end
        assert answer.refusal.detail["committed"] == answer.committed > 0
        assert await node.value("SELECT VALUE record::id(id) FROM done") == [1], end
        await node.values("DELETE done")
    (left,) = await shown(node)
    await node.values(f"KILL '{left['id']}'")
    assert type((await other).refusal) is Cancelled


@pytest.mark.parametrize("basic", [False, True])
async def test_what_stands_in_the_line_when_its_credential_ends_is_not_begun(
    node: Running, basic: bool
) -> None:
    await node.values("DEFINE TABLE done; DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    scripts, sessions = node.node.scripts, node.node.sessions
    password, address = "a password of hers", "127.0.0.1:1"
    if basic:
        asked = AuthenticatePassword("eve", password, "http", address)
        caller = await ask(sessions, asked)
        alter = "ALTER USER eve SET ROLE owner"
        ended: asyncio.Future[Any] = ask(scripts, RunScript(OWNER, alter, "alter"))
    else:
        session = await ask(sessions, SignIn("eve", password, "http", address))
        caller, ended = session.caller, ask(sessions, SignOut(session.token))
    late = RunScript(caller, "CREATE done:1", "late", {}, "shop", "main")
    (answer, _) = await asyncio.gather(ask(scripts, late), ended)
    assert type(answer.refusal) is SessionEnded and not answer.committed
    assert await node.value("SELECT * FROM done") == []


async def test_a_script_that_ends_its_own_session_runs_on(node: Running) -> None:
    session = await ask(node.node.sessions, SignIn("root", PASSWORD, "http", "127.0.0.1:1"))
    loop = "FOR $x IN 0..100000 { LET $y = $x }"
    script = f"{loop}; ALTER USER root SET PASSWORD 'another of mine'; {loop}; RETURN 'to its end'"
    answer = await started(node, script, caller=session.caller)
    assert answer.refusal is None and answer.results[-1].value == "to its end"
    with pytest.raises(SessionEnded):
        await ask(node.node.sessions, SignOut(session.token))


async def test_a_walk_through_equal_values_yields_and_holds_memory(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": n, "same": 1} for n in range(MANY)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    await node.values("DEFINE INDEX by_same ON thing FIELDS same")
    last = "SELECT VALUE id FROM thing ORDER BY same DESC LIMIT 1"
    while (await node.value(f"EXPLAIN {last}"))["sources"][0]["access"] != "index":
        await asyncio.sleep(0)  # the index is being built
    assert [found.id for found in await node.value(last)] == [0], "a stable order"
    running = started(node, last)
    await begun(node, running)
    (run,) = running_scripts(node.node)
    assert run.rows_read == 0, "it yields while it walks"
    assert node.node.registry.kill(run.request.request)
    assert isinstance((await running).refusal, Cancelled)
    monkeypatch.setattr("protocol.limits.REQUEST_MEMORY_BYTES", MANY * 32)
    assert isinstance((await node.answer(last)).refusal, TooLarge)
