"""`--backup <file> [--from <n>]`: a store that nobody serves, as a snapshot or as its log."""

from __future__ import annotations

from actors.backups.alone import Taking, read_back
from actors.doors import Doors, system_doors
from protocol.errors import Refusal
from surfaces.command.arguments import BackUp
from surfaces.command.console import Console
from surfaces.command.new_files import NewFile, made
from surfaces.command.opening import NotOpened, looking, opened
from surfaces.command.progress import shown


async def back_up(command: BackUp, console: Console) -> bool:
    """Write it, read it back, give it its name. It takes no other file's place.

    :raises NotOpened: there is such a file, a key file holds no key, the store can't be opened, its
        log does not go back so far, or what was written does not read back; no file is left
    """
    doors = system_doors()
    with made(doors.fs, command.file, command.directory) as file:
        try:
            told = await _written(doors, command, file, console)
        except Refusal as refusal:
            raise NotOpened(f"{refusal.code}: {refusal.message}") from refusal
    console.answer(f"{told}, to {command.file}")
    return True


async def _written(doors: Doors, command: BackUp, file: NewFile, console: Console) -> str:
    settings = looking(command.directory, command.opening, doors.fs, check_log=True)
    key = settings.key
    async with opened(settings, doors, console) as node:
        if (damage := node.store.log_damage) is not None:
            if not command.despite_damage:
                raise NotOpened(
                    f"{damage}. The state may be whole all the same: --despite-damage writes a"
                    " snapshot of it"
                )
            console.tell(f"the log is damaged, and the snapshot is of the state alone: {damage}")
        with shown("writing the backup, bytes", console) as report:
            taking = Taking(node, file.write, report, key)
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
