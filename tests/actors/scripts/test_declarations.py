"""A long statement beside declarations: it loses the race for those it has looked up, and for no
others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from actors.execution.scheduler import FiberScheduler
from protocol import limits
from protocol.errors import Conflict, SessionEnded
from tests.actors.live import running_scripts
from tests.nodes import OWNER, PASSWORD, Running

ROWS = 4_000
LONG = "array::len(array::map(0..40, |$x| $x))"
"""Takes each record some time."""
UPDATE = f"UPDATE thing SET n = n + 1 + 0 * {LONG} RETURN NONE"


@pytest.fixture
async def here(node: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A table so large that an UPDATE of it takes many turns, and no second attempt at anything."""
    rows = [{"id": number, "n": 0} for number in range(ROWS)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    await node.values("DEFINE TABLE other; DEFINE TOPIC q; DEFINE SPACE s")
    await node.values(f"DEFINE USER ana ROLE owner PASSWORD '{PASSWORD}'")
    await node.values(f"DEFINE USER bob ROLE owner PASSWORD '{PASSWORD}'")
    await node.values("DEFINE NAMESPACE rival; DEFINE DATABASE rival.main")
    monkeypatch.setattr(limits, "COMMIT_RETRIES", 0)
    monkeypatch.setattr(FiberScheduler, "slice_us", 200)
    return node


async def declared(node: Running, statement: str) -> None:
    """Something else is declared while nothing waits for it."""
    answer = await node.answer(statement, place=("rival", "main"))
    assert answer.refusal is None, answer.refusal


async def test_what_others_declare_refuses_nobody(
    here: Running, figure: Callable[[str, object], None]
) -> None:
    more = [{"id": number, "n": 0} for number in range(ROWS, 3 * ROWS)]
    await here.values("INSERT INTO thing $rows RETURN NONE", {"rows": more})
    updating = asyncio.ensure_future(here.answer(UPDATE))
    beside = 0
    while not updating.done():
        await declared(here, f"DEFINE TABLE t{beside}; DEFINE FIELD f ON t{beside} TYPE int")
        await declared(here, f"DEFINE DATABASE rival.d{beside}; DROP DATABASE rival.d{beside}")
        await declared(here, f"DEFINE USER u{beside} ROLE owner PASSWORD '{PASSWORD}'")
        beside += 5
    assert (await updating).refusal is None
    assert beside > 10, "nothing was declared meanwhile"
    assert await here.value("SELECT VALUE n FROM thing GROUP BY n") == [1]
    figure("declarations beside an UPDATE", f"{beside}, none refused it")


NOT_ITS_OWN = (
    "DEFINE TABLE more", "DEFINE FIELD f ON other TYPE int DEFAULT 1", "DROP TABLE other",
    "DEFINE INDEX i ON other FIELDS a", "DEFINE TOPIC r", "DROP TOPIC q", "DROP SPACE s",
    "DEFINE GROUP g ON q DEADLINE 1s", "DEFINE DATABASE shop.more", "DROP USER bob",
)  # fmt: skip
ITS_OWN = (
    "DEFINE FIELD n ON thing TYPE int", "DEFINE FIELD f ON thing TYPE int DEFAULT 1",
    "DEFINE INDEX i ON thing FIELDS n", "ALTER TABLE thing SET COMMENT 'c'", "DROP TABLE thing",
    "DEFINE DATABASE OVERWRITE shop.main COMMENT 'c'", "DROP DATABASE shop.main",
    "DROP NAMESPACE shop",
)  # fmt: skip
ENDS_IT = ("DROP USER ana", f"ALTER USER ana SET PASSWORD '{PASSWORD} 2'")


async def beside(here: Running, statement: str) -> bool:
    """Whether ana's UPDATE loses the race when a statement of another is run beside it."""
    begun = asyncio.Event()
    ana = replace(OWNER, user="ana")
    updating = asyncio.ensure_future(here.answer(UPDATE, caller=ana))
    for run in iter(
        lambda: running_scripts(here.node), None
    ):  # until it has given up the loop once
        if any(each.request.caller is ana for each in run):
            begun.set()
            break
        await asyncio.sleep(0)
    answer = await here.answer(statement)
    assert answer.refusal is None, answer.refusal
    ended = updating.done() and type(updating.result().refusal) is SessionEnded
    assert begun.is_set() and (ended or not updating.done()), "it was over before that was declared"
    refusal = (await updating).refusal
    if statement in ENDS_IT:
        assert type(refusal) is SessionEnded, refusal
        return True
    assert refusal is None or isinstance(refusal, Conflict), refusal
    return refusal is not None


@pytest.mark.parametrize("statement", NOT_ITS_OWN)
async def test_what_it_has_not_looked_up_leaves_it_alone(here: Running, statement: str) -> None:
    assert not await beside(here, statement)


@pytest.mark.parametrize("statement", ITS_OWN)
async def test_what_it_has_looked_up_makes_it_run_again(here: Running, statement: str) -> None:
    assert await beside(here, statement)


@pytest.mark.parametrize("statement", ENDS_IT)
async def test_what_ends_its_users_sessions_ends_it(here: Running, statement: str) -> None:
    assert await beside(here, statement)
