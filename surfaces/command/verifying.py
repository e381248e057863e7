"""`--verify <file>`: contents and completeness of a backup. Needs no store."""

from __future__ import annotations

from contextlib import closing

from actors.backups.described import describe
from actors.environment import system_environment
from actors.node import START_FAULTS
from surfaces.command.arguments import Verify
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened, reason
from surfaces.command.key_reading import keys_in
from surfaces.command.opening import opened_backup
from surfaces.command.progress import shown


async def verify_file(command: Verify, console: Console) -> bool:
    """Print the contents of a backup in one line. Return True if it is complete.

    :raises NotOpened: it can't be read, is not a backup, or is sealed with another key
    """
    path, fs = command.file, system_environment().fs
    keys = keys_in(fs, command.keys).opening
    try:
        with (
            closing(opened_backup(fs, path)) as file,
            shown("reading, bytes", console) as report,
        ):
            found = describe(file, keys, report)
    except START_FAULTS as fault:
        raise NotOpened(reason(path, fault)) from fault
    console.answer(" ".join(f"{name}={value}" for name, value in found.facts.items()))
    if found.problem is not None:
        console.complain(f"{path}: {found.problem}")
    return found.problem is None
