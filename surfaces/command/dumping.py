"""`--dump <file>`: write a store that no node serves as a script."""

from __future__ import annotations

import asyncio

from actors.backups.alone import read_back
from actors.backups.script_files import begin_script
from actors.backups.scripts import About, StoreScript
from actors.environment import system_environment
from protocol.errors import Refusal
from protocol.values import unpaced
from surfaces.command.arguments import Dump
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened
from surfaces.command.new_files import made
from surfaces.command.opening import looking, to_copy
from surfaces.command.progress import shown


async def dump(command: Dump, console: Console) -> bool:
    """Write the script. The file gets its name once it is complete on disk, and replaces no other.

    :raises NotOpened: there is such a file, a key file holds no key, the store can't be opened, its
        log is damaged, something in it can't be written as a script, or the written file does not
        read back. No file is left then.
    """
    environment = system_environment()
    settings = looking(command.directory, command.opening, environment.fs)
    key, despite = settings.key, command.despite_damage
    with made(environment.fs, command.file, command.directory) as file:
        try:
            async with to_copy(settings, environment, console, "script", despite) as node:
                with node.committer.begin_transaction() as tx:
                    about = About(node.store.id, node.committer.commit_index)
                    script = StoreScript(tx, about, unpaced)
                    content = begin_script(environment, about, node.created, key, file.write)
                    for chunk in script.chunks():
                        content.add(chunk)
                        await asyncio.sleep(0)  # let an interrupt be handled
                    written = content.end()
            file.sync()
            with shown("reading it back, bytes", console) as report:
                read_back(file.file, written, report, key)
        except Refusal as refusal:
            raise NotOpened(f"{refusal.code}: {refusal.message}") from refusal
    console.answer(f"wrote {script.statements} statements, {written.size} bytes, to {command.file}")
    return True
