"""`-f <script>`: run a script file on a store that no node serves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.backups.loading import load
from actors.backups.restoring import NOT_PROVEN
from actors.backups.script_files import Read, ScriptText, is_script, pieces
from actors.environment import system_environment
from actors.keys import NodeKeys
from actors.node import Node
from actors.runtime import ask
from actors.scripts.plans import Plans
from actors.settings import NodeSettings
from protocol import limits
from protocol.environment import File
from protocol.errors import DiskFull, Refusal
from protocol.jsonvalues import to_json
from protocol.requests import RunScript
from surfaces.command.arguments import RunFile
from surfaces.command.caller import OPERATOR
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened
from surfaces.command.key_reading import keys_in
from surfaces.command.opening import opened
from surfaces.command.progress import Report, shown


async def run_file(command: RunFile, console: Console) -> bool:
    """Run the file. Results of RETURN and INFO are printed as JSON, one per line, followed by the
    number of executed statements.

    :raises NotOpened: the file can't be read or does not parse (the directory is untouched then).
        Or the store can't be opened or has users. Or a statement was refused: earlier ones stay.
    """
    keys = keys_in(system_environment().fs, command.opening.keys)
    if _is_backup(command.script):
        return await restore(command, keys, console, anew=False)
    script = read(command.script)
    async with opened(_settings(command, keys), system_environment(), console) as node:
        _check_no_users(node, command)
        answer = await ask(node.scripts, RunScript(OPERATOR, script, "command"))
        for result in answer.results:
            if result.kind in ("value", "info"):
                console.answer(json.dumps(to_json(result.value), ensure_ascii=False))
        if answer.refusal is not None:
            ran = len(answer.results)
            raise NotOpened(f"{where(command.script, answer.refusal)}; {ran} ran before it")
        console.answer(f"ran {len(answer.results)} statements, sequence {answer.sequence}")
    return True


def _settings(command: RunFile, keys: NodeKeys, anew: bool = False) -> NodeSettings:
    return NodeSettings(
        command.directory,
        restores=anew,
        serves=False,
        accept_clock_jump=command.opening.accept_clock_jump,
        key=keys.own,
    )


def _check_no_users(node: Node, command: RunFile) -> None:
    """Refuse a store with users: the script runs as an owner without a password, which would bypass
    them."""
    if node.has_users():
        raise NotOpened(
            f"{command.directory} has users: -f fills a new store; serve this one and sign in"
        )


# --- script backups -------------------------------------------------------------------------------


def _is_backup(path: str) -> bool:
    try:
        with _opened(path) as file:
            return is_script(file)
    except OSError:
        return False  # `read` reports the reason


async def restore(command: RunFile, keys: NodeKeys, console: Console, anew: bool) -> bool:
    """Run a script of any length, statement by statement, after checking that it is complete.

    :param anew: make a new store of it. The directory is no valid store until the script has run to
        its end, or to a refused statement.
    :raises NotOpened: it is incomplete (the directory is untouched then), or as `run_file`
    """
    path = command.script
    with _opened(path) as file:
        try:
            text = ScriptText(file, keys.opening)
            with shown("checking the script", console) as report:
                for _ in pieces(_reporting(text, report)):
                    pass
        except Refusal as refusal:
            raise NotOpened(where(path, refusal)) from refusal
        async with opened(_settings(command, keys, anew), system_environment(), console) as node:
            _check_no_users(node, command)
            with shown("running the script", console) as report:
                loaded = await load(node.scripts, pieces(_reporting(text, report)), OPERATOR)
            if anew and not isinstance(loaded.refusal, DiskFull):
                node.store.restored()
            if loaded.refusal is not None:
                ran = loaded.statements
                raise NotOpened(f"{where(path, loaded.refusal)}; {ran} ran before it")
            if keys.own is not None and not text.sealed:
                console.answer(NOT_PROVEN)
            console.answer(f"ran {loaded.statements} statements, sequence {loaded.sequence}")
    return True


@contextmanager
def _opened(path: str) -> Iterator[File]:
    file = system_environment().fs.open_read(path)
    try:
        yield file
    finally:
        file.close()


def _reporting(file: ScriptText, report: Report) -> Read:
    size = file.size()

    def read(offset: int, count: int) -> bytes:
        report(min(offset + count, size), size)
        return file.read(offset, count)

    return read


# --- others ---------------------------------------------------------------------------------------


def read(path: str) -> str:
    """Return the script in a file.

    :raises NotOpened: it can't be read, or is not a script
    """
    try:
        if os.path.getsize(path) > limits.SCRIPT_BYTES:
            raise NotOpened(f"{path}: too large: a script has at most {limits.SCRIPT_BYTES} bytes")
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise NotOpened(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NotOpened(f"{path}: not UTF-8 at byte {error.start}") from error
    try:
        Plans().get(text, tick=lambda: None)
    except Refusal as refusal:
        raise NotOpened(where(path, refusal)) from refusal
    return text


def where(path: str, refusal: Refusal) -> str:
    """Return a refusal with its position in a file, in one line like a compiler error."""
    at = [str(refusal.detail[part]) for part in ("line", "column") if part in refusal.detail]
    return f"{':'.join([path, *at])}: {refusal.code}: {refusal.without_place}"
