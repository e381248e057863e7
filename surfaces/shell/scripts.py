"""Non-interactive scripts: from the command line, a file or standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol import limits
from storeclient import OutcomeUnknown, Refused, Result, StoreError, Welcome
from surfaces.shell import statements
from surfaces.shell.arguments import Shell
from surfaces.shell.forms import OutputFormat
from surfaces.shell.outcomes import (
    INTERRUPTED,
    NOT_CONNECTED,
    REFUSED,
    UNKNOWN,
    USAGE,
    CommandEnded,
)
from surfaces.shell.refusals import explain
from surfaces.shell.session import ShellSession
from surfaces.shell.shortcuts import ShortcutRefused, Shortcuts

INPUT: Final = "-"
"""Path that stands for standard input."""


@dataclass(frozen=True, slots=True)
class ScriptText:
    """A text to run, and its file; None for the command line."""

    text: str
    path: str | None = None


def given(asked: Shell) -> ScriptText:
    """Return the script of the command line, a file, or standard input. Called before an event loop
    runs: a loop blocked on standard input would not handle signals.

    :raises Ended: it can't be read
    """
    if asked.command is not None:
        try:
            asked.command.encode()
        except UnicodeEncodeError as error:  # an undecodable byte of the command line
            raise CommandEnded(f"-c: not UTF-8 at character {error.start}", USAGE) from error
        return ScriptText(asked.command)
    path = asked.script or INPUT
    return ScriptText(read(path), path)


async def run(
    session: ShellSession, form: OutputFormat, script: ScriptText, leader: bool = False
) -> None:
    """Run a script, or a shortcut of the command line.

    :param leader: run it at the writable node (the leader)
    :raises Ended: there is no connection, or something was refused
    """
    await connect(session, leader)
    if script.path is None and script.text.lstrip().startswith("\\"):
        await _shortcut(session, form, script.text)
    else:
        await run_script(session, form, script.text, script.path)


async def connect(session: ShellSession, leader: bool = False) -> Welcome:
    """Connect, and return the node's WELCOME.

    :param leader: go to the writable node (the leader)
    :raises Ended: no connection, or the sign-in was refused
    """
    try:
        return await (session.follow_leader() if leader else session.connect())
    except StoreError as error:
        raise CommandEnded(explain(error, ""), NOT_CONNECTED) from error


async def run_script(
    session: ShellSession, form: OutputFormat, text: str, path: str | None
) -> None:
    """Run a script and show the results, also of statements before a refused one.

    :raises Ended: it was refused, cancelled, or its outcome is unknown
    """
    try:
        answer = await session.run(text)
    except StoreError as error:
        if isinstance(error, Refused):
            show(form, error.results, text)
        raise CommandEnded(explain(error, text, path), exit_code(error)) from error
    except ValueError as error:  # nothing was sent
        raise CommandEnded(f"{path or 'the script'}: {error}", USAGE) from error
    show(form, answer.results, text)


async def _shortcut(session: ShellSession, form: OutputFormat, line: str) -> None:
    try:
        await Shortcuts(session, form, lambda _line: None).run(line)
    except ShortcutRefused as error:
        raise CommandEnded(str(error), USAGE) from error
    except StoreError as error:
        raise CommandEnded(explain(error, ""), exit_code(error)) from error


def show(form: OutputFormat, results: Sequence[Result], text: str) -> None:
    """Show the result of each statement of a script."""
    writes = any(result.changed is not None for result in results)
    words = statements.done(text, len(results)) if writes else [statements.CHANGED] * len(results)
    for result, word in zip(results, words, strict=True):
        form.result(result, word)


def exit_code(error: StoreError) -> int:
    """Return the exit code for an error of a script."""
    if isinstance(error, OutcomeUnknown):
        return UNKNOWN
    if isinstance(error, Refused):
        return INTERRUPTED if error.code == "Cancelled" else REFUSED
    return NOT_CONNECTED


def read(path: str) -> str:
    """Return the script in a file, or in standard input.

    :raises Ended: it can't be read, or is not a script
    """
    try:
        data = sys.stdin.buffer.read() if path == INPUT else Path(path).read_bytes()
    except OSError as error:
        raise CommandEnded(f"{path}: {error.strerror}", USAGE) from error
    if len(data) > limits.SCRIPT_BYTES:
        raise CommandEnded(
            f"{path}: a script has at most {limits.SCRIPT_BYTES} bytes, this one has {len(data)}",
            USAGE,
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandEnded(f"{path}: not UTF-8 at byte {error.start}", USAGE) from error
