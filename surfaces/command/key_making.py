"""`--make-key <file>`: write a new key to a new file."""

from __future__ import annotations

from actors import keys
from actors.environment import system_environment
from actors.keys import KeyRefused
from surfaces.command.arguments import MakeKey
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened


async def make(command: MakeKey, console: Console) -> bool:
    """Make the key.

    :raises NotOpened: there is such a file, or it can't be written
    """
    environment = system_environment()
    try:
        made = keys.make(environment.fs, environment.rng, command.file)
    except KeyRefused as refused:
        raise NotOpened(str(refused)) from refused
    console.answer(
        f"wrote key {made} to {command.file}. Keep a copy of this file in another"
        " place: without it, all data sealed with it is lost"
    )
    return True
