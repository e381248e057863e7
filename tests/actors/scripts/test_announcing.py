"""ON CHANGE: the messages of a table, folded from the first on, are the table."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.values import RecordId
from tests.actors.live import running_scripts
from tests.nodes import Running, running

SETTING = """
DEFINE TOPIC told;
DEFINE TABLE t ON CHANGE PUBLISH INTO told;
DEFINE FIELD twice ON t TYPE option<int> VALUE n * 2;
DEFINE INDEX k ON t FIELDS k UNIQUE
"""
PAGE = 1_000


def statements(random: random.Random) -> Iterator[str]:
    """Writes of every kind, some of which are refused or taken back."""
    while True:
        one, other = random.randrange(12), random.randrange(12)
        n, k = random.randrange(4), random.randrange(30)
        write = random.choice([
            f"CREATE t:{one} SET n = {n}, k = {k}",
            f"CREATE t CONTENT {{ n: {n} }}",
            f"UPSERT t:{one} SET n = {n}",
            f"UPSERT t:{one} MERGE {{ m: {n} }}",
            f"UPDATE t:{one} SET n = {n}, k = {k}",
            f"UPDATE t SET m = {n} WHERE n = {n}",
            f"UPDATE t:{one} CONTENT {{ n: {n} }}",
            f"UPDATE t UNSET m LIMIT {n}",
            f"INSERT INTO t [{{ id: {one}, n: {n} }}, {{ id: {other}, n: 0 }}] IGNORE",
            f"INSERT INTO t [{{ id: {one}, n: {n}, k: {k} }}, {{ n: {n} }}]"
            f" ON DUPLICATE UPDATE SET n = $input.n, d = {n}",
            f"DELETE t:{one}",
            f"DELETE t WHERE n = {n} LIMIT 2",
            f"FOR $i IN 0..3 {{ UPSERT t:$i SET n = {n} }}",
        ])  # fmt: skip
        if random.random() < 0.2:
            end = random.choice(["COMMIT", "CANCEL"])
            write = f"BEGIN; {write}; UPDATE t:{one} SET m = 9; DELETE t:{other}; {end}"
        yield write


async def told(node: Running) -> list[dict[str, Any]]:
    """All that was told, in its order."""
    found: list[dict[str, Any]] = []
    while page := await node.value(f"READ FROM told AFTER {len(found)} LIMIT {PAGE}"):
        found += [message["value"] for message in page]
    return found


def folded(messages: list[dict[str, Any]]) -> dict[RecordId, dict[str, Any]]:
    """The records that messages leave. :raises AssertionError: one does not follow from another"""
    table: dict[RecordId, dict[str, Any]] = {}
    for message in messages:
        record, before, after = message["record"], message["before"], message["after"]
        assert table.get(record) == before, message
        assert before != after, message
        kinds = {(False, True): "create", (True, True): "update", (True, False): "delete"}
        assert message["action"] == kinds[before is not None, after is not None]
        if after is None:
            del table[record]
        else:
            table[record] = after
    return table


async def check(directory: Path, seed: int, count: int = 120) -> None:
    """Write at random; what was told is what there is."""
    async with running(directory) as node:
        await node.values(SETTING)
        for _, script in zip(range(count), statements(random.Random(seed)), strict=False):
            await node.answer(script)
        rows = await node.value("SELECT * FROM t")
        assert rows, "nothing was written"
        here = {row.pop("id"): row for row in rows}
        assert folded(await told(node)) == here


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_told_makes_the_table(tmp_path: Path, seed: int) -> None:
    await check(tmp_path / "store", seed)


async def test_who_waits_for_messages_hears_of_a_change(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.values(SETTING)
        await node.values("DEFINE GROUP g ON told DEADLINE 1m")
        waiting = asyncio.ensure_future(node.value("TAKE FROM told AS g WAIT 1m"))
        async with asyncio.timeout(30):
            while not any(run.waiting for run in running_scripts(node.node)):
                await asyncio.sleep(0.002)
        await node.values("CREATE t:1 SET n = 1")
        async with asyncio.timeout(30):
            (message,) = await waiting
        assert message["value"]["after"] == {"n": 1, "twice": 2}
