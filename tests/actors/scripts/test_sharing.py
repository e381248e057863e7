"""One long script beside many short ones: the short ones don't wait for its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from argon2 import PasswordHasher

from actors.execution.scheduler import FiberScheduler
from protocol.errors import StatementTimeout
from tests.holds import Holds
from tests.nodes import Running

ROWS = 20_000
CLIENTS = 16
HASH = PasswordHasher(2, 19 * 1024, 1).hash("correct horse battery")

# Looks at each row, and at all of them for each row: without TIMEOUT it would take minutes.
SCAN = "SELECT VALUE n FROM thing WHERE (SELECT VALUE n FROM thing WHERE n = $parent.n) = [-1]"


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few thousand rows take as many slices then as hundreds of thousands."""
    monkeypatch.setattr(FiberScheduler, "slice_us", 200)


async def fill(node: Running) -> None:
    rows = [{"id": n, "n": n, "name": f"thing {n}"} for n in range(ROWS)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})


async def test_point_reads_are_answered_while_a_long_scan_runs_into_its_timeout(
    node: Running, figure: Callable[[str, object], None]
) -> None:
    await fill(node)
    took_ms: list[float] = []
    with Holds() as holds:
        scan = asyncio.create_task(node.answer(f"{SCAN} TIMEOUT 1s"))

        async def read_on(client: int) -> int:
            number = 0
            while not scan.done():
                began = time.perf_counter()
                id = (client * 7919 + number * 104_729) % ROWS
                assert await node.value(f"SELECT VALUE n FROM thing:{id}") == [id]
                took_ms.append((time.perf_counter() - began) * 1000)
                number += 1
            return number

        answered = await asyncio.gather(*map(read_on, range(CLIENTS)))
        refusal = (await scan).refusal
    assert isinstance(refusal, StatementTimeout)
    assert min(answered) > 1, "a client waited for the end of the scan"
    took_ms.sort()
    figure(
        f"point reads beside a scan of {ROWS} rows",
        f"{len(took_ms)} by {CLIENTS} clients, median {took_ms[len(took_ms) // 2]:.1f} ms,"
        f" p99 {took_ms[len(took_ms) * 99 // 100]:.1f} ms; {holds}",
    )


async def test_a_large_commit_is_encoded_in_slices_and_a_race_with_it_is_told(
    node: Running,
) -> None:
    """What a large transaction read may change while it is encoded: then it runs again."""
    rows = [{"id": n, "n": n} for n in range(10_000)]
    await node.values("CREATE thing:counter SET n = 0")
    script = (
        "BEGIN; LET $before = (SELECT VALUE n FROM thing:counter)[0]; INSERT INTO thing $rows"
        " RETURN NONE; UPSERT thing:sum SET n = $before; COMMIT"
    )
    insert = asyncio.create_task(node.answer(script, {"rows": rows}))
    written = 0
    while not insert.done():
        written += 1
        await node.values("UPDATE thing:counter SET n = n + 1")
        if written > 20:  # let it win in the end
            break
    answer = await insert
    assert answer.refusal is None, answer.refusal
    assert await node.value("SELECT VALUE n FROM thing:10000..10001") == []
    (summed,) = await node.value("SELECT VALUE n FROM thing:sum")
    assert 0 <= summed <= written
    assert len(await node.value("SELECT VALUE n FROM thing WHERE n > 100")) >= 9_000


@pytest.mark.usefixtures("short_slices")
@pytest.mark.parametrize("returning", ["NONE", "DIFF", "n", "BEFORE"])
async def test_changing_many_rows_gives_way_all_the_time(node: Running, returning: str) -> None:
    rows = [{"id": n, "n": n} for n in range(6_000)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    change = asyncio.create_task(node.answer(f"UPDATE thing SET n = n + 1 RETURN {returning}"))
    between = 0
    while not change.done():
        await node.value("RETURN 1")
        between += 1
    answer = change.result()
    assert answer.refusal is None
    assert len(answer.results[0].value) == (0 if returning == "NONE" else 6_000)  # type: ignore[arg-type]
    assert between > 10


@pytest.mark.usefixtures("short_slices")
@pytest.mark.parametrize("script", ["INFO FOR USERS", "DROP DATABASE shop.many"])
async def test_going_through_many_users_gives_way_all_the_time(node: Running, script: str) -> None:
    """An owner of a place declares as many as it likes; others are gone through by whoever asks."""
    declared = " ".join(
        f"DEFINE USER u{number} ROLE member ON DATABASE shop.many PASSHASH '{HASH}';"
        for number in range(1_500)
    )
    await node.values(f"DEFINE DATABASE shop.many; BEGIN; {declared} COMMIT")
    work = asyncio.create_task(node.answer(script))
    between = 0
    while not work.done():
        await node.value("RETURN 1")
        between += 1
    assert work.result().refusal is None
    assert between > 4
