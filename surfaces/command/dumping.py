"""`--dump <file>`: a store that nobody serves, as a script."""

from __future__ import annotations

import os

from actors.backups.scripts import About, Script
from actors.doors import system_doors
from actors.settings import NodeSettings
from protocol.errors import Refusal
from surfaces.command.arguments import Dump
from surfaces.command.console import Console
from surfaces.command.opening import NotOpened, opened

PARTIAL = ".partial"
"""Ends the name of what is not all there yet."""


async def dump(command: Dump, console: Console) -> bool:
    """Write it. The file has its name once all of it is on the disk, and takes no other's place.

    :raises NotOpened: there is such a file, the store can't be opened, or something in it can't be
        written as a script; no file is left
    """
    path, partial = command.file, command.file + PARTIAL
    if os.path.lexists(path):
        raise NotOpened(f"{path} exists, and is not replaced")
    settings = NodeSettings(
        command.directory,
        create=False,
        serves=False,
        accept_clock_jump=command.opening.accept_clock_jump,
    )
    async with opened(settings, system_doors(), console) as node:
        with node.committer.begin() as tx:
            script = Script(tx, About(node.store.id, node.committer.released_upto))
            try:
                _write(script, path, partial)
            except Refusal as refusal:
                raise NotOpened(f"{refusal.code}: {refusal.message}") from refusal
            except OSError as error:
                raise NotOpened(f"{path}: {error.strerror}") from error
    console.answer(f"wrote {script.statements} statements, {script.size} bytes, to {path}")
    return True


def _write(script: Script, path: str, partial: str) -> None:
    folder = os.path.dirname(path) or "."
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "wb") as file:
            for chunk in script.chunks():
                file.write(chunk)
            file.flush()
            os.fsync(handle)
        os.link(partial, path)  # unlike a rename, it replaces nothing
    finally:
        os.unlink(partial)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
