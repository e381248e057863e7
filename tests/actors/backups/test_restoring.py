"""A store that is restored years later: nothing is deleted before it is told to write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.backups.restoring import RestoreOptions, restore
from actors.environment import Environment, SystemClock, system_environment
from actors.node import start
from actors.settings import NodeSettings
from storage.backups.state_builder import no_progress
from tests.nodes import CHEAP, Running, running

FIVE_YEARS_US = 5 * 366 * 86_400_000_000
FILLED = """
    DEFINE TABLE t; CREATE t:1; DEFINE SPACE s; DEFINE TOPIC q KEEP 1d;
    DEFINE GROUP g ON q DEADLINE 1h; PUBLISH INTO q VALUES [1, 2, 3]; TAKE 2 FROM q AS g;
    SET 'k' IN s VALUE 1 EXPIRE 1h; LOCK 'l' IN s HOLDER 'me' EXPIRE 1h
"""


@dataclass
class Later(SystemClock):
    """The system's clock, years ahead."""

    ahead_us: int

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_us


async def test_five_years_later(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with running(tmp_path / "store", settings={"backup_dir": str(folder)}) as node:
        await node.values(FILLED)
        await node.value("BACKUP TO 'x'")
    environment = replace(system_environment(), clock=Later(FIVE_YEARS_US))
    said = {}
    for name, reading in (("writes", False), ("reads", True)):
        wanted = RestoreOptions(str(tmp_path / name), reading=reading)
        with closing(environment.fs.open_read(str(folder / "x"))) as file:
            said[name] = list(restore(environment, file, wanted, no_progress))
        assert any("--accept-clock-jump" in line for line in said[name])
        for due in (
            "shop.main.q: messages older than it keeps are removed: 3,"
            " hand-outs past their deadline are handed out again: 2",
            "shop.main.s: expired keys are removed: 2",
        ):
            assert any(due in line for line in said[name]), said[name]
    told = {"accept_clock_jump": True}
    loop = asyncio.get_running_loop()
    async with running(tmp_path / "writes", environment, told) as node:
        began = loop.time()
        while (await left(node))[0]:
            await asyncio.sleep(0.01)
        took = loop.time() - began
    async with _reading(tmp_path / "reads", environment, told) as node:
        began, before = loop.time(), await left(node)
        assert before[0] == 3
        while loop.time() - began < max(3 * took, 0.2):
            assert await left(node) == before
            await asyncio.sleep(0.01)
        await node.values("DEFINE NODE ROLES serving, writable")
        while (await left(node))[0]:
            await asyncio.sleep(0.01)


async def left(node: Running) -> tuple[int, str]:
    """Messages, and the hash of all."""
    topic, state = await node.values("INFO FOR TOPIC q; INFO FOR STATE")
    return topic["messages"], state["hash"]


@asynccontextmanager
async def _reading(
    directory: Path, environment: Environment, told: dict[str, Any]
) -> AsyncIterator[Running]:
    node = await start(NodeSettings(str(directory), password_cost=CHEAP, **told), environment)
    try:
        yield Running(node)
    finally:
        await node.stop()
