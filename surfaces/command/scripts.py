"""`-f <script>`: run a script file on a store that nobody serves."""

from __future__ import annotations

import json
import os
from pathlib import Path

from actors.doors import system_doors
from actors.runtime import ask
from actors.scripts.plans import Plans
from actors.settings import NodeSettings
from protocol import limits
from protocol.errors import Refusal
from protocol.jsonvalues import to_json
from protocol.requests import RunScript
from surfaces.command.arguments import RunFile
from surfaces.command.caller import OPERATOR
from surfaces.command.console import Console
from surfaces.command.opening import NotOpened, opened


async def run_file(command: RunFile, console: Console) -> bool:
    """Run the file. What RETURN and INFO answer is printed, a line of JSON each; at the end, how
    much ran.

    :raises NotOpened: the file can't be read or does not parse (then the directory was not
        touched), the store can't be opened or has users, or a statement was refused: what ran
        before it stays
    """
    script = read(command.script)
    settings = NodeSettings(
        command.directory,
        serves=False,
        accept_clock_jump=command.opening.accept_clock_jump,
    )
    async with opened(settings, system_doors(), console) as node:
        if node.has_users():
            # A script runs as an owner without a password: it would be a way around them.
            raise NotOpened(
                f"{command.directory} has users: -f fills a new store; serve this one and sign in"
            )
        answer = await ask(node.scripts, RunScript(OPERATOR, script, "command"))
        for result in answer.results:
            if result.kind in ("value", "info"):
                console.answer(json.dumps(to_json(result.value), ensure_ascii=False))
        if answer.refusal is not None:
            ran = len(answer.results)
            raise NotOpened(f"{where(command.script, answer.refusal)}; {ran} ran before it")
        console.answer(f"ran {len(answer.results)} statements, sequence {answer.sequence}")
    return True


def read(path: str) -> str:
    """The script in a file. :raises NotOpened: it can't be read, or is no script"""
    try:
        if os.path.getsize(path) > limits.SCRIPT_BYTES:
            raise NotOpened(f"{path}: a script has at most {limits.SCRIPT_BYTES} bytes")
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
    """A refusal with its place in a file, in one line as compilers show it."""
    at = [str(refusal.detail[part]) for part in ("line", "column") if part in refusal.detail]
    # A text that does not parse says its place once more, and draws it on the lines below.
    message = refusal.message.partition("\n")[0]
    if len(at) == 2:
        message = message.removesuffix(f" (line {at[0]}, column {at[1]})")
    return f"{':'.join([path, *at])}: {refusal.code}: {message}"
