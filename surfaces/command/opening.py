"""Opening the store for one command, and closing it again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from actors import keys
from actors.backups.described import TO_COPY
from actors.environment import Environment
from actors.keys import KeyRefused, NodeKeys
from actors.node import START_FAULTS, Node, start
from actors.settings import NodeSettings
from protocol.environment import File, Fs
from protocol.errors import Refusal
from surfaces.command.arguments import Opening
from surfaces.command.certificates import CertificateRefused, check_private
from surfaces.command.console import Console
from surfaces.command.keys import FLAG, OF_BACKUPS, KeyFiles
from surfaces.command.progress import shown


class NotOpened(Exception):
    """The command can't be done; the message is one line. Exit code 1."""


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


def keys_in(fs: Fs, files: KeyFiles) -> NodeKeys:
    """Read the keys of a command line.

    :raises NotOpened: a file holds none
    """
    return NodeKeys(_key(fs, FLAG, files.own), _key(fs, OF_BACKUPS, files.backups))


def _key(fs: Fs, flag: str, path: str | None) -> keys.Key | None:
    if path is None:
        return None
    try:
        check_private(flag, path)
        return keys.read(fs, path)
    except CertificateRefused as refused:
        raise NotOpened(str(refused)) from refused
    except KeyRefused as refused:
        raise NotOpened(f"{flag}: {refused}") from refused


def reason(directory: str, fault: BaseException) -> str:
    """Return the reason why a store does not open, in one line with the directory."""
    if isinstance(fault, Refusal):
        return f"{directory}: {fault.code}: {fault.message}"
    if isinstance(fault, OSError) and fault.errno is not None:
        return f"{fault.filename or directory}: {os.strerror(fault.errno)}"
    return str(fault)
