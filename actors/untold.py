"""What a refusal tells somebody who may write to a table and not read it."""

from __future__ import annotations

from typing import Final

from protocol.errors import Cancelled, NotAllowed, Refusal, StatementTimeout, Unknown

_TOLD: Final = frozenset({"table", "index", "field", "limit", "line", "column"})
_OF_NO_RECORD: Final = (Cancelled, StatementTimeout, NotAllowed, Unknown)


def untold(refusal: Refusal, table: str) -> Refusal:
    """A refusal over records, for whoever may not read their table: where it is, and not what is
    stored there. Claims of UNIQUE indexes, READONLY fields, an ASSERT, a path that leads nowhere:
    all of them are refused for what a record holds."""
    if refusal.retry or isinstance(refusal, _OF_NO_RECORD):
        return refusal
    detail = {name: value for name, value in refusal.detail.items() if name in _TOLD}
    where = f"table {table}"
    for part in ("field", "index"):
        if part in detail:
            where = f"{part} {detail[part]} of {where}"
    return type(refusal)(f"{where} refuses it; whoever may READ is told more", **detail)
