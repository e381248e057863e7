"""Error messages: code, text, and the position under a caret."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from storeclient import OutcomeUnknown, Refused, StoreError
from storeclient.errors import NotWritable
from surfaces.shell.cells import harmless
from surfaces.shell.statements import may_hold_secret

BESIDE: Final = 60
"""Characters of a line shown on each side of the caret."""
ELLIPSIS: Final = "…"


def explain(error: StoreError, script: str, path: str | None = None) -> str:
    """Return an error message of some lines for a person.

    :param script: the executed script
    :param path: its file: the position is then formatted as by compilers
    """
    if not isinstance(error, Refused):
        advice = "; check before you run it again" if isinstance(error, OutcomeUnknown) else ""
        return harmless(f"{type(error).__name__}: {error}{advice}")
    message, drawn = error.args[0], ""
    near = error.detail.get("near")
    if isinstance(near, str):
        message = message.removesuffix(f"\n{near}")
    if error.line is not None and error.column is not None:
        message = message.removesuffix(f" (line {error.line}, column {error.column})")
        if may_hold_secret(script):
            # The node has redacted strings in the excerpt. Other users may read a log.
            drawn = f"\n{near}" if isinstance(near, str) else ""
        elif script:  # empty for the internal statement of a shortcut
            drawn = "\n" + point_at(script, error.line, error.column)
    at = f"{path}:{error.line}:{error.column}: " if path and error.line is not None else ""
    leader = error.detail.get("leader")
    named = leader if isinstance(error, NotWritable) and isinstance(leader, list) else []
    helps = (
        f"\n{', '.join(map(str, named))} takes changes: \\leader or --leader connects to it"
        if named
        else ""
    )
    ran = len(error.results)
    before = f"\n{ran} of its statements ran before it" if ran else ""
    return f"{harmless(f'{at}{error.code}: {message}')}{harmless(drawn)}{before}{harmless(helps)}"


def point_at(script: str, line: int, column: int) -> str:
    """Return a numbered line of a script, with a caret under the column; both count from 1."""
    lines = script.split("\n")
    whole = lines[line - 1] if 0 < line <= len(lines) else ""
    at = max(min(column - 1, len(whole)), 0)
    start, end = max(0, at - BESIDE), at + BESIDE
    before = (ELLIPSIS if start else "") + harmless(whole[start:at])
    after = harmless(whole[at:end]) + (ELLIPSIS if end < len(whole) else "")
    margin = f"{line} | "
    # As wide as the text above on a terminal, where some characters take two cells.
    return f"{margin}{before}{after}\n{' ' * (len(margin) - 2)}| {' ' * cell_len(before)}^"
