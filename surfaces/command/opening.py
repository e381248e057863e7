"""Opening the store for one command, and closing it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from actors.backups.described import TO_COPY
from actors.environment import Environment
from actors.node import START_FAULTS, Node, start
from actors.settings import NodeSettings
from protocol.environment import File, Fs
from surfaces.command.arguments import Opening
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened, reason
from surfaces.command.key_reading import keys_in
from surfaces.command.progress import shown


@asynccontextmanager
async def opened(
    settings: NodeSettings, environment: Environment, console: Console
) -> AsyncIterator[Node]:
    """Run a node inside the block; its store is closed after the block in any case.

    :raises NotOpened: the directory, the log or the state can't be opened
    """
    try:
        with shown("replaying the log", console) as report:
            node = await start(replace(settings, progress=report), environment)
    except START_FAULTS as fault:
        raise NotOpened(reason(settings.data_dir, fault)) from fault
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def to_copy(
    settings: NodeSettings,
    environment: Environment,
    console: Console,
    what: str,
    despite_damage: bool,
) -> AsyncIterator[Node]:
    """Run a node inside the block, to write its store into a file. All of its log is checked.

    :param what: name of the output, for messages
    :param despite_damage: report damage of the log, and go on
    :raises NotOpened: the store can't be opened, or its log is damaged and that is not accepted
    """
    async with opened(replace(settings, check_log=True), environment, console) as node:
        if (damage := node.store.log_damage) is not None:
            if not despite_damage:
                raise NotOpened(
                    f"{damage}. The state may still be intact: --despite-damage writes a {what} of"
                    " it"
                )
            console.print_line(
                f"the log is damaged, and the {what} is of the state alone: {damage}"
            )
        yield node


def looking(directory: str, opening: Opening, fs: Fs, *, check: bool = False) -> NodeSettings:
    """Return the settings for a command that only reads a store: it makes none, and changes
    nothing.

    :param check: read all of it
    :raises NotOpened: a key file holds no key
    """
    return NodeSettings(
        directory,
        create=False,
        serves=False,
        writes=False,
        check=check,
        accept_clock_jump=opening.accept_clock_jump,
        key=keys_in(fs, opening.keys).own,
    )


def opened_backup(fs: Fs, path: str) -> File:
    """Open the file of a backup.

    :raises NotOpened: it is a directory
    :raises OSError: it can't be opened
    """
    if fs.is_directory(path):
        raise NotOpened(f"{path} is a directory, not a backup: {TO_COPY}")
    return fs.open_read(path)
