"""`--health`: open a store that no node serves, read its log through, hash its state."""

from __future__ import annotations

from typing import Any

from actors.environment import system_environment
from actors.runtime import ask
from protocol.requests import RunScript
from surfaces.command.arguments import CheckHealth
from surfaces.command.caller import OPERATOR
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened
from surfaces.command.opening import looking, opened


async def check(command: CheckHealth, console: Console) -> bool:
    """Print `well` with the committed sequence, or report the fault. Makes no store, prunes
    nothing.

    :raises NotOpened: the store can't be opened, or is damaged
    """
    environment = system_environment()
    settings = looking(command.directory, command.opening, environment.fs, check=True)
    async with opened(settings, environment, console) as node:
        answer = await ask(node.scripts, RunScript(OPERATOR, "INFO FOR STATE", "health"))
        if answer.refusal is not None:
            raise NotOpened(f"{command.directory}: {answer.refusal.message}")
        info: Any = answer.results[0].value
        status = node.status()
        if status.health != "well":
            raise NotOpened(f"{command.directory}: the node failed: {node.failure}")
        console.answer(
            f"well: sequence {status.sequence}, log from {status.log_begins}, state {info['hash']}"
        )
    return True
