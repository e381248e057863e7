"""Administrative scripts: only INFO FOR RUNNING and KILL.

They are admitted even when the limit of running scripts is reached, since they are needed then. So
a surface counts them separately, and they take no other script's place.
"""

from __future__ import annotations

import re
from typing import Final

from language import tree
from language.parser import parse
from protocol import limits
from protocol.errors import Refusal
from protocol.values import unpaced

STATEMENTS: Final = 16
"""Most statements of such a script. Each answer is as long as the list of running scripts."""
_AT_FIRST_SIGHT: Final = re.compile(r"\s*(INFO\s+FOR\s+RUNNING|KILL)\b", re.IGNORECASE)


def administers(text: str) -> bool:
    """True if a script consists of INFO FOR RUNNING and KILL only. Rejects others fast."""
    # Cheap tests first: at the limit of running scripts, parsing all would add load.
    if len(text) > limits.ADMINISTERING_CHARACTERS or _AT_FIRST_SIGHT.match(text) is None:
        return False
    try:
        script = parse(text, unpaced)
    except Refusal:
        return False  # refused like any other script: with Busy at the limit of running scripts
    return len(script.statements) <= STATEMENTS and all(map(_is_of_running, script.statements))


def _is_of_running(statement: tree.Statement) -> bool:
    if isinstance(statement, tree.Info):
        return statement.subject == "RUNNING"
    # Any other expression could run a subquery, and so a scan.
    return isinstance(statement, tree.Kill) and isinstance(
        statement.id, (tree.Constant, tree.Parameter)
    )
