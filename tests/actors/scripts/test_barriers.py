"""A long transaction beside light traffic gets its turn: while its barrier stands nobody commits to
what it reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from actors.commits import priority_locks
from actors.commits.priority_locks import PriorityLockRequest
from actors.node import Node
from protocol import limits
from protocol.errors import (
    Cancelled,
    StatementTimeout,
)
from protocol.requests import ScriptAnswer
from protocol.spaces import GetKey, IncrKey, Room
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from tests.actors.live import running_scripts
from tests.actors.nodes import value
from tests.actors.scripts.test_stalled_disk import asked, played
from tests.keys import ask_keys
from tests.logbook import Logbook
from tests.nodes import OWNER, Running

ROWS = 600
ALL = "UPDATE thing SET n = n + 1 RETURN NONE"
SMALL = f"UPDATE thing:{ROWS - 1} SET n = n + 1 RETURN NONE"
LONG = (
    f"BEGIN; {ALL};"
    "FOR $x IN 0..((SELECT VALUE n FROM other:long)[0] ?? 1) { FOR $y IN 0..999 { LET $z = $y } };"
    "COMMIT"
)
"""As long as it can be, if there is a record `other:long`."""
AT_ONCE = 1_000
"""Small scripts that disturb at once: on a slow disk as many are committed before one is over."""
Figure = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of a few thousand records is as long then as one of hundreds of thousands."""
    monkeypatch.setattr(limits, "SLICE_US", 200)
    monkeypatch.setattr(limits, "RETRY_SLICE_US", 400)


async def fill(node: Running) -> None:
    await node.values(
        "DEFINE TABLE other; INSERT INTO thing $rows RETURN NONE",
        {"rows": [{"id": n, "n": 0} for n in range(ROWS)]},
    )


@asynccontextmanager
async def disturbing(node: Running, script: str = SMALL) -> AsyncIterator[list[ScriptAnswer]]:
    """Runs a small script again and again meanwhile, some at once: however long the disk takes for
    one, others are committed."""
    answers: list[ScriptAnswer] = []
    stop = asyncio.Event()

    async def disturb() -> None:
        under_way: set[asyncio.Task[ScriptAnswer]] = set()
        while not stop.is_set():
            under_way.add(asyncio.create_task(node.answer(script)))
            await asyncio.sleep(0.0005)
            over = {one for one in under_way if one.done()}
            if len(under_way - over) >= AT_ONCE:
                over, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            answers.extend(one.result() for one in over)
            under_way -= over
        answers.extend(await asyncio.gather(*under_way))

    task = asyncio.ensure_future(disturb())
    try:
        yield answers
    finally:
        stop.set()
        await task


async def until(condition: Callable[[], Any], *running: asyncio.Future[ScriptAnswer]) -> None:
    while not condition():
        for one in running:
            assert not one.done(), one.result()
        await asyncio.sleep(0)


def standing(node: Running) -> bool:
    return node.node.committer.priority_locks.holder is not None


async def a_barrier(
    node: Running, script: str = ALL, seconds: float = limits.BARRIER_SECONDS, **fields: Any
) -> asyncio.Task[ScriptAnswer]:
    """A transaction whose barrier stands, for so many seconds at most. What made it lose is over.
    While it stood in line for it `other:long` has come to be."""
    line = node.node.committer.priority_locks
    before = PriorityLockRequest(line, "test", ReadSet(0, RollBacks()), lambda: None)
    line.join(before)
    long = asyncio.ensure_future(node.answer(script, **fields))
    async with disturbing(node):
        await until(lambda: node.node.registry.waiting("http"), long)
    await node.values("CREATE other:long SET n = 9000")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BARRIER_SECONDS", seconds)
        before.leave()
        await until(lambda: any(run.barrier for run in running_scripts(node.node)), long)
    await until(lambda: not node.node.registry.waiting("http"), long)
    return long


@contextmanager
def a_barrier_over_all(node: Node) -> Iterator[PriorityLockRequest]:
    """One whose holder has read everything there is."""
    everything = ReadSet(0, RollBacks())
    everything.add_range(b"", b"\xff" * 16)
    place = PriorityLockRequest(node.committer.priority_locks, "test", everything, lambda: None)
    node.committer.priority_locks.join(place)
    assert place.holds_lock
    try:
        yield place
    finally:
        place.leave()


async def killed(node: Running, long: asyncio.Task[ScriptAnswer]) -> None:
    """End a transaction whose barrier stands."""
    await node.values(f"KILL '{(await holder(node))['id']}'")
    assert type((await long).refusal) is Cancelled


async def running(node: Running) -> list[dict[str, Any]]:
    """What runs beside the look at it, which may take several slices too."""
    found = await node.value("INFO FOR RUNNING")
    return [run for run in found if not run["text"].startswith("INFO FOR RUNNING")]


async def holder(node: Running) -> dict[str, Any]:
    (found,) = [run for run in await node.value("INFO FOR RUNNING") if run["barrier"]]
    return dict(found)


def every(logbook: Logbook) -> list[dict[str, Any]]:
    """The lines on barriers."""
    event = "a transaction that kept conflicting was given priority"
    return [line for line in logbook.events if line["event"] == event]


def said(logbook: Logbook) -> dict[str, Any]:
    """The first line on a barrier."""
    return every(logbook)[0]


async def test_a_long_update_beside_small_ones_gets_its_turn(node: Running) -> None:
    await fill(node)
    async with disturbing(node) as small:
        answer = await node.answer(ALL)
        assert answer.refusal is None
    assert all(one.refusal is None for one in small), "they waited, and lost nothing"
    assert await node.value("SELECT VALUE n FROM thing:1") == [1]
    assert await node.value(f"SELECT VALUE n FROM thing:{ROWS - 1}") == [1 + len(small)]
    assert node.node.committer.priority_locks.granted == 1


@pytest.mark.hard
async def test_200_000_rows_beside_constant_updates(
    node: Running, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # slices as they are
    for start in range(0, 200_000, 20_000):
        rows = [{"id": n, "n": 0, "name": f"name {n}"} for n in range(start, start + 20_000)]
        await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    began, longest = time.monotonic(), 0.0
    long = asyncio.ensure_future(node.answer(ALL))
    small = 0
    while not long.done():
        at = time.monotonic()
        assert (await node.answer(SMALL)).refusal is None
        longest = max(longest, time.monotonic() - at)
        small += 1
    assert (await long).refusal is None
    assert await node.value("SELECT VALUE n FROM thing WHERE n = 0") == []
    figure(
        "a turn for 200000 rows beside updates",
        f"after {time.monotonic() - began:.1f} s, beside {small} updates,"
        f" the longest of which took {longest:.1f} s",
    )


async def test_the_log_says_that_a_transaction_was_given_its_turn(
    node: Running, logbook: Logbook
) -> None:
    await fill(node)
    async with disturbing(node):
        assert (await node.answer(ALL)).refusal is None
    line = said(logbook)
    assert line["barrier"] == "ended"
    assert line["request"].startswith("r-")


async def test_who_is_held_back_waits_aside_and_is_shown(node: Running) -> None:
    await fill(node)
    long = await a_barrier(node, LONG)
    small = asyncio.ensure_future(node.answer(SMALL))
    await until(lambda: any(run.waiting for run in running_scripts(node.node)), long)
    assert node.node.registry.waiting("http") == 1, "it is not one of those that run"
    shown = {run["barrier"]: run for run in await running(node)}
    assert not shown[True]["waiting"]
    assert shown[False]["waiting"]
    await node.values(f"KILL '{shown[True]['id']}'")
    await long
    assert (await small).refusal is None
    assert node.node.registry.waiting("http") == 0


async def test_kill_lets_go_of_a_barrier(node: Running) -> None:
    await fill(node)
    long = await a_barrier(node, LONG)
    small = asyncio.ensure_future(node.answer(SMALL))
    await killed(node, long)
    assert (await small).refusal is None
    assert not standing(node)


async def test_the_end_of_its_time_lets_go_of_a_barrier(node: Running) -> None:
    await fill(node)
    long = await a_barrier(node, LONG)
    small = asyncio.ensure_future(node.answer(SMALL))
    (run,) = [run for run in running_scripts(node.node) if run.barrier]
    run.fiber.push_deadline(1)
    assert type((await long).refusal) is StatementTimeout
    assert (await small).refusal is None
    assert not standing(node)


async def test_who_waits_behind_a_barrier_can_be_ended(node: Running) -> None:
    await fill(node)
    long = await a_barrier(node, LONG)
    waiting = [asyncio.ensure_future(node.answer(SMALL)) for _ in range(2)]
    timed = asyncio.ensure_future(node.answer(SMALL, timeout_us=500_000))
    await until(lambda: node.node.registry.waiting("http") == 3, long)
    assert type((await timed).refusal) is StatementTimeout
    for run in await node.value("INFO FOR RUNNING"):
        if run["waiting"]:
            await node.values(f"KILL '{run['id']}'")
    for one in waiting:
        assert type((await one).refusal) is Cancelled
    await killed(node, long)


async def test_the_timeout_of_a_statement_bounds_its_wait_for_a_barrier(node: Running) -> None:
    await node.values("CREATE thing:1 SET n = 1")
    with a_barrier_over_all(node.node):
        for script in (
            "UPDATE thing:1 SET n = 2 TIMEOUT 20ms",
            "SELECT n FROM thing; UPDATE thing:1 SET n = 2 TIMEOUT 20ms",
        ):
            answer = await asyncio.wait_for(node.answer(script), 5)
            assert type(answer.refusal) is StatementTimeout, script
    assert await node.value("SELECT VALUE n FROM thing") == [1]


async def test_a_barrier_has_an_end(
    node: Running, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    monkeypatch.setattr(priority_locks, "SAID_US", 0)
    await fill(node)
    long = await a_barrier(node, LONG, seconds=0.05)
    small = await node.answer(SMALL)
    assert small.refusal is None and not long.done()
    assert [line["barrier"] for line in every(logbook)] == ["ended", "out of time"]
    (run,) = await running(node)
    await node.values(f"KILL '{run['id']}'")
    await long


async def test_two_that_write_what_the_other_reads_both_get_their_turn(node: Running) -> None:
    """They would wait for each other for ever if both could have a barrier at once."""
    await fill(node)
    await node.values(
        "INSERT INTO other $rows RETURN NONE", {"rows": [{"id": n, "n": 0} for n in range(ROWS)]}
    )
    other = ALL.replace("thing", "other")
    there, back = f"BEGIN; {ALL}; {other}; COMMIT", f"BEGIN; {other}; {ALL}; COMMIT"
    async with (
        disturbing(node),
        disturbing(node, f"UPDATE other:{ROWS - 1} SET n = n + 1 RETURN NONE"),
    ):
        answers = await asyncio.gather(node.answer(there), node.answer(back))
    assert [one.refusal for one in answers] == [None, None]
    assert await node.value("SELECT VALUE n FROM thing:1") == [2]
    assert await node.value("SELECT VALUE n FROM other:1") == [2]


async def test_rights_are_taken_away_behind_a_barrier(node: Running) -> None:
    await fill(node)
    await node.values("DEFINE USER eve ROLE owner PASSWORD 'correct horse'")
    long = await a_barrier(node, LONG.replace("BEGIN;", "BEGIN; INFO FOR USERS;"))
    assert (await node.answer("DROP USER eve")).refusal is None
    assert not long.done()
    await killed(node, long)


@played
async def test_what_changes_users_alone_passes_a_barrier_and_brings_nothing_along(
    here: Node, /
) -> None:
    await value(here, "CREATE t:1 SET n = 1; DEFINE USER bob ROLE viewer PASSWORD 'bob, long'")
    others = (
        "UPDATE t:1 SET n = 2", "CREATE t:2", "DELETE t:1", "DEFINE TABLE w",
        "PUBLISH INTO q VALUE 2",
    )  # fmt: skip
    with a_barrier_over_all(here):
        for alone in (
            "DEFINE USER eve ROLE viewer PASSWORD 'eve, long'",
            "ALTER USER bob SET ROLE editor",
            "GRANT READ ON TABLE t TO eve; REVOKE READ ON TABLE t FROM eve",
            "BEGIN; ALTER USER bob SET PASSWORD 'another one'; DROP USER eve; COMMIT",
        ):
            assert (await asyncio.wait_for(asked(here, alone), 5)).refusal is None, alone
        waiting = [
            asked(here, f"BEGIN; {other}; ALTER USER bob SET ROLE viewer; COMMIT")
            for other in others
        ]
        await asyncio.sleep(1)
        assert not any(one.done() for one in waiting)
    for one in waiting:
        assert (await one).refusal is None


async def test_a_declaration_waits_behind_a_barrier(node: Running) -> None:
    await fill(node)
    long = await a_barrier(node, LONG)
    define = asyncio.ensure_future(node.answer("DEFINE INDEX n ON thing FIELDS n"))
    await until(lambda: node.node.registry.waiting("http") == 1, long)
    await killed(node, long)
    assert (await define).refusal is None


async def test_keys_of_the_cache_wait_behind_a_barrier_in_their_order(node: Running) -> None:
    await fill(node)
    await node.values("DEFINE SPACE c; SET 'k' IN c VALUE 1")
    long = await a_barrier(node, LONG.replace("BEGIN;", "BEGIN; LET $k = GET 'k' FROM c;"))
    room = Room(1_000)

    def keys(*operations: Any) -> asyncio.Future[Any]:
        return ask_keys(node.node, OWNER, ("shop", "main", "c"), *operations, room=room)

    before = await keys(GetKey("k"))
    assert before[0]["value"] == 1, "who reads is not held back"
    left = room.left
    incremented = [keys(GetKey("k"), IncrKey("k", 1)) for _ in range(3)]
    read = keys(GetKey("k"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(one.done() for one in incremented)
    assert room.left == left, "what will be run again has filled no room"
    await killed(node, long)
    assert [(await one)[1]["value"] for one in incremented] == [2, 3, 4]
    assert (await read)[0]["value"] == 4, "one that came later did not overtake them"
