"""`--backup <file> [--from <n>]`: back up a store that no node serves, as snapshot or log."""

from __future__ import annotations

from actors.backups.alone import BackupInProgress, read_back
from actors.environment import Environment, system_environment
from protocol.errors import Refusal
from surfaces.command.arguments import BackUp
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened
from surfaces.command.new_files import NewFile, made
from surfaces.command.opening import looking, to_copy
from surfaces.command.progress import shown


async def back_up(command: BackUp, console: Console) -> bool:
    """Write the backup, read it back, and rename it to its name. It replaces no other file.

    :raises NotOpened: there is such a file, a key file holds no key, the store can't be opened, its
        log does not go back so far, or the written file does not read back. No file is left then.
    """
    environment = system_environment()
    with made(environment.fs, command.file, command.directory) as file:
        try:
            told = await _written(environment, command, file, console)
        except Refusal as refusal:
            raise NotOpened(f"{refusal.code}: {refusal.message}") from refusal
    console.answer(f"{told}, to {command.file}")
    return True


async def _written(
    environment: Environment, command: BackUp, file: NewFile, console: Console
) -> str:
    settings = looking(command.directory, command.opening, environment.fs)
    key = settings.key
    async with to_copy(settings, environment, console, "snapshot", command.despite_damage) as node:
        with shown("writing the backup, bytes", console) as report:
            taking = BackupInProgress(node, file.write, report, key)
            first = command.first
            written = await (taking.snapshot() if first is None else taking.log(first))
    file.sync()
    with shown("reading it back, bytes", console) as report:
        read_back(file.file, written, report, key)
    what = "records" if first is None else "commits"
    return (
        f"wrote a {written.form.value} up to sequence {written.sequence},"
        f" {what}: {written.records}, bytes: {written.size}"
    )
