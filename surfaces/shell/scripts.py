"""Statements of the command line, a file or standard input: one script, and then it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from protocol import limits
from storeclient import Answer, OutcomeUnknown, Refused, StoreError, Welcome
from surfaces.shell.arguments import Shell
from surfaces.shell.forms import Form
from surfaces.shell.outcomes import INTERRUPTED, NOT_CONNECTED, REFUSED, UNKNOWN, USAGE, Ended
from surfaces.shell.refusals import explain
from surfaces.shell.session import Session
from surfaces.shell.shortcuts import ShortcutRefused, Shortcuts

INPUT: Final = "-"
"""What standard input is called where a file is named."""


async def run(session: Session, form: Form, asked: Shell) -> None:
    """Run what the command line gives, or standard input.

    :raises Ended: it can't be read, or something was refused
    """
    # Read before anything is connected: who types a script by hand takes their time.
    text, path = _text(asked)
    await connect(session)
    if asked.command is not None and text.lstrip().startswith("\\"):
        await _shortcut(session, form, text)
    else:
        await run_script(session, form, text, path)


async def connect(session: Session) -> Welcome:
    """What the node says of itself. :raises Ended: no connection, or the sign-in was refused"""
    try:
        return await session.connect()
    except StoreError as error:
        raise Ended(str(error), NOT_CONNECTED) from error


async def run_script(session: Session, form: Form, text: str, path: str | None) -> None:
    """Run a script and show what its statements answer, those too that ran before one was refused.

    :raises Ended: it was refused, cancelled, or its outcome is unknown
    """
    try:
        answer = await session.run(text)
    except StoreError as error:
        if isinstance(error, Refused):
            show(form, Answer(error.results, 0))
        raise Ended(explain(error, text, path), exit_code(error)) from error
    show(form, answer)


async def _shortcut(session: Session, form: Form, line: str) -> None:
    try:
        await Shortcuts(session, form, lambda _line: None).run(line)
    except ShortcutRefused as error:
        raise Ended(str(error), USAGE) from error
    except StoreError as error:
        raise Ended(explain(error, ""), exit_code(error)) from error


def show(form: Form, answer: Answer) -> None:
    """What each statement answered."""
    for result in answer.results:
        form.result(result)


def exit_code(error: StoreError) -> int:
    """How a command ends that an error of a script ends."""
    if isinstance(error, OutcomeUnknown):
        return UNKNOWN
    if isinstance(error, Refused):
        return INTERRUPTED if error.code == "Cancelled" else REFUSED
    return NOT_CONNECTED


def read(path: str) -> str:
    """The script in a file, or in standard input. :raises Ended: it can't be read, or is none"""
    try:
        data = sys.stdin.buffer.read() if path == INPUT else Path(path).read_bytes()
    except OSError as error:
        raise Ended(f"{path}: {error.strerror}", USAGE) from error
    if len(data) > limits.SCRIPT_BYTES:
        raise Ended(
            f"{path}: a script has at most {limits.SCRIPT_BYTES} bytes, this one has {len(data)}",
            USAGE,
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Ended(f"{path}: not UTF-8 at byte {error.start}", USAGE) from error


def _text(asked: Shell) -> tuple[str, str | None]:
    if asked.command is not None:
        return asked.command, None
    path = asked.script or INPUT
    return read(path), path
