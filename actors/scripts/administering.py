"""Scripts that only ask what runs, or end some of it.

They are let in where as many scripts run as may: that is when they are needed. So they count by
themselves on a surface, and nobody else's place is theirs.
"""

from __future__ import annotations

import re
from typing import Final

from language import tree
from language.parser import parse
from protocol import limits
from protocol.errors import Refusal

STATEMENTS: Final = 16
"""Of one such script. What each answers is as long as the list of what runs."""
_AT_FIRST_SIGHT: Final = re.compile(r"\s*(INFO\s+FOR\s+RUNNING|KILL)\b", re.IGNORECASE)


def administers(text: str) -> bool:
    """Whether a script does nothing but INFO FOR RUNNING and KILL. Quick to say no."""
    if len(text) > limits.ADMINISTERING_CHARACTERS or _AT_FIRST_SIGHT.match(text) is None:
        return False
    try:
        script = parse(text, _no_tick)
    except Refusal:
        return False  # it is refused as any other: with Busy, as long as there is no room
    return len(script.statements) <= STATEMENTS and all(map(_is_of_running, script.statements))


def _is_of_running(statement: tree.Statement) -> bool:
    if isinstance(statement, tree.Info):
        return statement.subject == "RUNNING"
    return isinstance(statement, tree.Kill) and isinstance(
        statement.id, (tree.Constant, tree.Parameter)
    )


def _no_tick() -> None:
    """A short text needs no pause."""
