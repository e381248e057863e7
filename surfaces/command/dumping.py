"""`--dump <file>`: a store that nobody serves, as a script."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from actors.backups.script_files import Writing, begin_script
from actors.backups.scripts import About, Script
from actors.doors import system_doors
from actors.settings import NodeSettings
from protocol.errors import Refusal
from surfaces.command.arguments import Dump
from surfaces.command.console import Console
from surfaces.command.opening import NotOpened, keys_in, opened

PARTIAL = ".partial"
"""Ends the name of what is not all there yet."""


async def dump(command: Dump, console: Console) -> bool:
    """Write it. The file has its name once all of it is on the disk, and takes no other's place.

    :raises NotOpened: there is such a file, a key file holds no key, the store can't be opened, or
        something in it can't be written as a script; no file is left
    """
    path, unfinished = command.file, command.file + PARTIAL
    if os.path.lexists(path):
        raise NotOpened(f"{path} exists, and is not replaced")
    doors = system_doors()
    key = keys_in(doors.fs, command.opening.keys).own
    settings = NodeSettings(
        command.directory,
        create=False,
        serves=False,
        accept_clock_jump=command.opening.accept_clock_jump,
        key=key,
    )
    async with opened(settings, doors, console) as node:
        with node.committer.begin() as tx:
            about = About(node.store.id, node.committer.released_upto)
            script = Script(tx, about)
            begin = partial(begin_script, doors, about, node.created, key)
            try:
                size = _write(script, begin, path, unfinished)
            except Refusal as refusal:
                raise NotOpened(f"{refusal.code}: {refusal.message}") from refusal
            except OSError as error:
                raise NotOpened(f"{path}: {error.strerror}") from error
    console.answer(f"wrote {script.statements} statements, {size} bytes, to {path}")
    return True


def _write(
    script: Script, begin: Callable[[Callable[[bytes], None]], Writing], path: str, unfinished: str
) -> int:
    """Answers the bytes of the file."""
    folder = os.path.dirname(path) or "."
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "wb") as file:

            def put(data: bytes) -> None:
                file.write(data)

            content = begin(put)
            for chunk in script.chunks():
                content.add(chunk)
            written = content.end()
            file.flush()
            os.fsync(handle)
        os.link(unfinished, path)  # unlike a rename, it replaces nothing
    finally:
        os.unlink(unfinished)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return written.size
