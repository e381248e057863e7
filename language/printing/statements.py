"""Registry of statement printers by AST type, filled by the modules of this package."""

from __future__ import annotations

from typing import Any, Final

from language import tree

STATEMENTS: Final[dict[type, Any]] = {}


def print_statement(statement: tree.Statement) -> str:
    """Return the text of a statement without its `;`. Shows passwords: see `redacted`."""
    return STATEMENTS[type(statement)](statement)  # type: ignore[no-any-return]
