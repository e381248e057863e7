"""A refusal behind a commit of the same script: the write is refused before it, or the refusal says
that something stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol import limits
from protocol.errors import Conflict, after
from storeclient import AsyncClient, errors
from tests.clients.real import client_of
from tests.nodes import PASSWORD

LARGE = limits.RECORD_BYTES - 1_000


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    declared = "DEFINE TABLE item; DEFINE TABLE big; CREATE item:0 SET n = 0"
    async with client_of(tmp_path / "store", declared) as client:
        await client.run("CREATE big:1 SET b = $b RETURN NONE", {"b": bytes(LARGE)})
        yield client


async def applied(client: AsyncClient) -> int:
    return int((await client.query("SELECT VALUE n FROM item:0"))[0])


async def test_a_write_is_refused_before_its_commit_when_its_answer_is_too_large(
    client: AsyncClient,
) -> None:
    with pytest.raises(errors.AnswerTooLarge) as refused:
        await client.run("UPDATE item:0 SET n = n + 1 RETURN [$b, $b, $b]", {"b": bytes(LARGE)})
    assert refused.value.committed is None and refused.value.statement == 1
    assert refused.value.detail["bytes"] > refused.value.detail["limit"]
    assert await applied(client) == 0


async def test_so_is_one_behind_reads_that_fill_the_answer(client: AsyncClient) -> None:
    for script in (
        "SELECT VALUE [b, b, b] FROM big; UPDATE item:0 SET n = n + 1",
        "BEGIN; UPDATE item:0 SET n = n + 1; SELECT VALUE [b, b, b] FROM big; COMMIT",
        "FOR $i IN 1..1 { UPDATE item:0 SET n = n + 1 }; "
        "BEGIN; UPDATE item:0 SET n = n - 1; SELECT VALUE [b, b, b] FROM big; COMMIT",
    ):
        before = await applied(client)
        with pytest.raises(errors.AnswerTooLarge) as refused:
            await client.run(script)
        assert await applied(client) == before + (refused.value.committed is not None)


async def test_rows_of_many_small_statements_are_counted_together(client: AsyncClient) -> None:
    script = "UPDATE item:0 SET n = n + 1;" + "UPDATE big:1 SET c = 1;" * 3
    with pytest.raises(errors.AnswerTooLarge) as refused:
        await client.run(script)
    error = refused.value
    assert error.committed and len(error.results) == 2 and error.statement == 3
    assert await applied(client) == 1


async def test_what_fits_is_answered(client: AsyncClient) -> None:
    answer = await client.run("UPDATE item:0 SET n = n + 1; UPDATE big:1 SET c = 1")
    assert len(answer.results[1].value[0]["b"]) == LARGE


REFUSED_BEHIND = [
    ("THROW 'no'", "Thrown"),
    ("CREATE item:0", "AlreadyExists"),
    ("RETURN 1 / 0", "DivisionByZero"),
    ("SELECT * FROM nowhere", "Unknown"),
    ("SELECT VALUE [b, b, b] FROM big", "AnswerTooLarge"),
    ("BEGIN; UPDATE item:0 SET n = 9; THROW 'undone'; COMMIT", "Thrown"),
]


async def test_a_refusal_behind_a_commit_says_so(client: AsyncClient) -> None:
    for count, (behind, code) in enumerate(REFUSED_BEHIND, 1):
        with pytest.raises(errors.Refused) as refused:
            await client.run(f"UPDATE item:0 SET n = n + 1; {behind}")
        error = refused.value
        assert error.code == code
        assert error.committed is not None and error.detail["committed"] == error.committed
        assert (await client.run("RETURN 1")).seq == error.committed
        assert not error.retry and await applied(client) == count


async def test_nothing_is_said_of_what_was_not_committed(client: AsyncClient) -> None:
    for script in (
        "THROW 'no'; UPDATE item:0 SET n = n + 1",
        "BEGIN; UPDATE item:0 SET n = n + 1; THROW 'no'; COMMIT",
        "BEGIN; UPDATE item:0 SET n = n + 1; CANCEL; THROW 'no'",
        "SELECT * FROM item; THROW 'no'",
    ):
        with pytest.raises(errors.Thrown) as refused:
            await client.run(script)
        assert refused.value.committed is None
    assert await applied(client) == 0


async def test_a_time_that_is_over_behind_a_commit_says_so(client: AsyncClient) -> None:
    with pytest.raises(errors.StatementTimeout) as refused:
        await client.run(
            "UPDATE item:0 SET n = n + 1;"
            "FOR $i IN 0..900000 { FOR $j IN 0..900000 { LET $x = $j } }",
            timeout=2,
        )
    assert refused.value.committed is not None and await applied(client) == 1


async def test_so_does_kill(client: AsyncClient) -> None:
    task = asyncio.create_task(
        client.run(
            "UPDATE item:0 SET n = n + 1;"
            "FOR $i IN 0..900000 { FOR $j IN 0..900000 { LET $x = $j } }"
        )
    )
    others: list[str] = []

    while not others:
        running = await client.query("INFO FOR RUNNING")
        others = [one["id"] for one in running if "FOR $i" in (one["text"] or "")]
    await client.run("KILL $id", {"id": others[0]})
    with pytest.raises(errors.Cancelled) as refused:
        await task
    assert refused.value.committed is not None and await applied(client) == 1


async def test_a_script_whose_session_ends_behind_a_commit_is_not_run_again(
    client: AsyncClient,
) -> None:
    await client.run("DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 30s")
    await client.run(f"DEFINE USER ana ROLE editor PASSWORD '{PASSWORD}'")
    async with AsyncClient(
        client._nodes.where, user="ana", password=PASSWORD, ns="shop", db="main"
    ) as ana:
        script = "UPDATE item:0 SET n = n + 1; TAKE FROM q AS g WAIT 60s"
        task = asyncio.create_task(ana.run(script))
        while not any(one["waiting"] for one in await client.query("INFO FOR RUNNING")):
            pass
        await client.run("ALTER USER ana SET ROLE owner")  # its password is still right
        with pytest.raises(errors.SessionEnded) as refused:
            await task
        assert refused.value.committed is not None and await applied(client) == 1
        # What had changed nothing is asked again, in another session.
        assert await applied(ana) == 1


def test_a_conflict_behind_a_commit_is_not_to_be_tried_again() -> None:
    conflict = Conflict("lost", table="t")
    assert conflict.answer()["retry"] is True
    told = after(conflict, 7)
    assert told.answer()["retry"] is False and told.detail == {"table": "t", "committed": 7}
    assert conflict.detail == {"table": "t"} and after(conflict, 0) is conflict
