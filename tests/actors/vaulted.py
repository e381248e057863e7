"""Nodes with a vault, and short ways to use it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from actors.node import Node
from actors.runtime import ask
from protocol.requests import Caller
from protocol.vaults import ChangePassphrase, Unseal
from storage.engine.memory import MemoryEngine
from storage.vaults.vaults import Vault
from tests.actors.nodes import ANA, prepare, run, running, settings, simulated_environment, value
from tests.actors.parts import Played
from tests.simulation.disk import Fault, SimulatedDisk

PASSPHRASE = "open sesame, please"
"""That of the store."""
OTHER = "quite another one"
"""Of a vault of its own, or the store's next one."""
NAMES = ("a", "b", "v")
"""Of the vault that every node here has: namespace, database, vault."""
CANARY = "canary-sk-live-51"
"""A value that must be seen nowhere but in a reveal's answer."""


class Machine:
    """A disk and a state that nodes are started on, one after the other."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.engine = MemoryEngine()

    @asynccontextmanager
    async def node(self, **fields: Any) -> AsyncIterator[Node]:
        environment = simulated_environment("stepped", self.disk, self.engine)
        async with running(environment, settings(**fields)) as node:
            yield node


def log_is_full(kind: str, path: str) -> Fault | None:
    """A plan of a disk that takes nothing more of the log."""
    return Fault(errno.ENOSPC) if kind == "append" and path.endswith(".storelog") else None


@asynccontextmanager
async def node_with_vault(
    _kind: str = "stepped", *, sealed: bool = False, **fields: Any
) -> AsyncIterator[Node]:
    """A node with vault `v` that hangs on the store, and unsealed."""
    async with Machine().node(**fields) as node:
        await set_up(node)
        if not sealed:
            await unseal(node)
        yield node


with_vault = Played(node_with_vault).stepped


async def set_up(node: Node) -> None:
    await prepare(node)
    await ask(node.vaults, ChangePassphrase(ANA, None, None, PASSPHRASE))
    await value(node, "DEFINE VAULT v VERSIONS 2")


async def unseal(
    node: Node, passphrase: str = PASSPHRASE, names: Any = None, caller: Caller = ANA
) -> Any:
    return await ask(node.vaults, Unseal(caller, names, passphrase, "r-unseal"))


async def write(node: Node, id: str, value_: Any, more: str = "") -> Any:
    script = f"WRITE $id IN VAULT v VALUE $value {more}"
    return await value(node, script, {"id": id, "value": value_})


async def reveal(node: Node, id: str, more: str = "") -> Any:
    return await value(node, f"REVEAL $id FROM VAULT v {more}", {"id": id})


async def refusal(node: Node, script: str, parameters: Mapping[str, Any] | None = None) -> Any:
    return (await run(node, script, parameters)).refusal


async def trail(node: Node, of: str = "VAULT v") -> list[Any]:
    return await value(node, f"INFO FOR AUDIT OF {of} LIMIT 1000")  # type: ignore[no-any-return]


def vault_of(node: Node, name: str = "v") -> Vault:
    with node.committer.begin_transaction() as tx:
        return node.rights.vault(tx, ANA, ("a", "b"), name, frozenset())


async def rotated(node: Node) -> None:
    while (await value(node, "INFO FOR VAULT v"))["rotation"] != "none":
        await asyncio.sleep(0.1)


async def define_users(node: Node) -> None:
    for name, role, space in (
        ("sue", "owner", " ON NAMESPACE a"), ("ed", "editor", ""), ("vi", "viewer", ""),
        ("mo", "member", ""), ("bob", "owner", " ON NAMESPACE z"),
    ):  # fmt: skip
        place = "DEFINE NAMESPACE IF NOT EXISTS z; "
        await value(node, f"{place}DEFINE USER {name} ROLE {role}{space} PASSWORD 'xxxxxxxx'")


def called(name: str, role: str = "member") -> Caller:
    return replace(ANA, user=name, role=role)
