"""Whole nodes for tests, with real or simulated doors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from actors.cluster.role import Alone
from actors.environment import Environment, SystemClock, SystemNet, SystemRng
from actors.node import Node, start
from actors.runtime import ask
from actors.settings import FirstOwner, NodeSettings
from actors.vaults.told import VaultSettings
from protocol.environment import Clock, Fs
from protocol.requests import Caller, RunScript, ScriptAnswer
from storage.engine.engine import Engine
from storage.engine.rocksdb import RocksEngine
from storage.files.disk import Disk
from storage.vaults.cipher import Argon2Parameters
from tests.actors.parts import CHEAP, clock_of, scheduler_of
from tests.nodes import CHECKED_NOW
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SeededRng

OWNER = FirstOwner("ana", "correct horse")
VAULTS = VaultSettings(stretch=Argon2Parameters(19 * 1024, 1, 1))
ANA = Caller("ana", "owner", None, None, "wire", "192.0.2.1:5000", CHECKED_NOW)

_requests = iter(range(1, 1 << 60))


def simulated_environment(
    kind: str, disk: SimulatedDisk, engine: Engine, seed: int = 1, clock: Clock | None = None
) -> Environment:
    """Doors onto a simulated disk and a state in memory."""
    return Environment(
        scheduler_of(kind),
        clock or clock_of(kind),
        SeededRng(seed),
        disk,
        SystemNet(),
        lambda _path, **_more: engine,
        cores=2,
    )


def real_environment(fs: Fs | None = None) -> Environment:
    """The real doors, with few cores."""
    return Environment(
        scheduler_of("real"), SystemClock(), SystemRng(), fs or Disk(), SystemNet(), RocksEngine, 2
    )


def settings(path: str = "/store", **fields: Any) -> NodeSettings:
    """Settings with hashes that cost as little as may be."""
    told = {"first_owner": OWNER, "password_cost": CHEAP, "vaults": VAULTS, **fields}
    return NodeSettings(path, **told)


async def leads_by_hand(node: Node) -> None:
    """Of a node in a cluster: who leads and who follows is the test's to say, and nobody else's."""
    await node.cluster.stop()
    node.member._role = Alone()
    node.roles.check_told = None


@asynccontextmanager
async def running(
    environment: Environment, told: NodeSettings | None = None
) -> AsyncIterator[Node]:
    """A node, stopped at the end."""
    node = await start(told or settings(), environment)
    try:
        yield node
    finally:
        await node.stop()


async def run(
    node: Node,
    script: str,
    parameters: Mapping[str, Any] | None = None,
    caller: Caller = ANA,
    place: tuple[str | None, str | None] = ("a", "b"),
    reason: str | None = None,
) -> ScriptAnswer:
    """Run a script; a refusal is in the answer."""
    request = RunScript(
        caller,
        script,
        f"r-{next(_requests)}",
        dict(parameters or {}),
        namespace=place[0],
        database=place[1],
        reason=reason,
    )
    return await ask(node.scripts, request)


async def value(node: Node, script: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """What the last statement of a script answered. Raises what it refused."""
    answer = await run(node, script, parameters)
    if answer.refusal is not None:
        raise answer.refusal
    return answer.results[-1].value


async def prepare(node: Node) -> None:
    """Namespace a, database b, and the tables of these tests."""
    tables = " ".join(f"DEFINE TABLE {name};" for name in ("t", "u", "v", "counter"))
    script = f"DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; {tables}"
    answer = await run(node, script, place=(None, None))
    if answer.refusal is not None:
        raise answer.refusal


async def yield_often(times: int = 20) -> None:
    """Let everything else on the loop go on for a while."""
    for _ in range(times):
        await asyncio.sleep(0)
