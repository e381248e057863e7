"""A real node inside the test's own process: real disk, real threads, no surface."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from actors.environment import Environment, system_environment
from actors.node import Node, start
from actors.passwords import Cost
from actors.runtime import ask
from actors.settings import FirstOwner, NodeSettings
from actors.vaults.told import VaultSettings
from protocol.requests import Caller, RunScript, ScriptAnswer
from protocol.vaults import ChangePassphrase, ShowVaults, Unseal
from storage.vaults.cipher import Argon2Parameters
from tests import canaries, durations

CHECKED_NOW: Final = 1 << 62
"""The `credential_version` of a caller whose password is checked for each request of a test."""
OWNER = Caller("root", "owner", None, None, "http", "127.0.0.1:50000", CHECKED_NOW)
PASSWORD = "correct horse battery"
CHEAP = Cost(memory_kib=64, passes=1, lanes=1)
"""What hashing costs where it is not what the test is about."""

PASSPHRASE = "open sesame, please"
VAULTS = VaultSettings(stretch=Argon2Parameters(19 * 1024, 1, 1))
"""The least that the passphrases of vaults cost."""

_numbers = itertools.count(1)


@dataclass
class Running:
    """A started node and short ways to use it."""

    node: Node

    async def answer(
        self,
        script: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        place: tuple[str | None, str | None] = ("shop", "main"),
        caller: Caller = OWNER,
        **fields: Any,
    ) -> ScriptAnswer:
        """The whole answer of a script, a refusal among it."""
        answer = await ask(
            self.node.scripts,
            RunScript(
                caller=caller,
                script=script,
                request=f"r-{next(_numbers)}",
                parameters=parameters or {},
                namespace=place[0],
                database=place[1],
                **fields,
            ),
        )
        if answer.refusal is not None:
            canaries.heard(f"{answer.refusal} {answer.refusal.detail}", "a refusal")
        for result in answer.results:
            if result.kind == "info":
                canaries.heard(repr(result.value), f"INFO of {script[:60]}")
        return answer

    async def values(self, script: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the answer of each statement; a refusal is raised."""
        answer = await self.answer(script, parameters)
        if answer.refusal is not None:
            raise answer.refusal
        return [result.value for result in answer.results]

    async def value(self, script: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """What the last statement answered; a refusal is raised."""
        return (await self.values(script, parameters))[-1]

    async def unseal(self) -> None:
        """Unseal the store, which is given a passphrase if it has none."""
        if not (await ask(self.node.vaults, ShowVaults(OWNER))).is_set:
            await ask(self.node.vaults, ChangePassphrase(OWNER, None, None, PASSPHRASE))
        await ask(self.node.vaults, Unseal(OWNER, None, PASSPHRASE))


@asynccontextmanager
async def running(
    directory: Path,
    environment: Environment | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Running]:
    """A node on a directory, with namespace `shop` and database `main`."""
    owner = FirstOwner("root", PASSWORD)
    more = {"password_cost": CHEAP, "vaults": VAULTS, **(settings or {})}
    told = NodeSettings(str(directory), first_owner=owner, **more)
    durations.starts["nodes"] += 1
    node = await start(told, environment or system_environment())
    try:
        here = Running(node)
        define = "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main"
        answer = await here.answer(define, place=(None, None))
        assert answer.refusal is None, answer.refusal
        yield here
    finally:
        await node.stop()
