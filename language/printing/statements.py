"""Statements by their type. Each module of statements adds its own, as handlers do."""

from __future__ import annotations

from typing import Any, Final

from language import tree

STATEMENTS: Final[dict[type, Any]] = {}


def print_statement(statement: tree.Statement) -> str:
    """The text of a statement, without the `;` after it. Shows passwords: see `redacted`."""
    return STATEMENTS[type(statement)](statement)  # type: ignore[no-any-return]
