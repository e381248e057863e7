"""Redaction: what a refusal tells somebody who may write to a table and not read it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from protocol.errors import ENDED, NotAllowed, Refusal, Unknown
from protocol.paths import EACH, Path, path_text
from protocol.text import quote_name
from storage.fields import Field

_TOLD: Final = frozenset({"table", "index", "limit", "line", "column"})
_OF_NO_RECORD: Final = (*ENDED, NotAllowed, Unknown)
_STEPS: Final = re.compile(r"`(?:[^`\\]|\\.)*`|\[\d+\]|[^.`\[\]]+")
"""Of the path of a field, as a refusal has it."""


def redacted(refusal: Refusal, table: str, fields: Iterable[Field]) -> Refusal:
    """A refusal over records, for whoever may not read their table: where it is, and not what is
    stored there. Claims of UNIQUE indexes, READONLY fields, an ASSERT, a path that leads nowhere:
    all of them are refused for what a record holds.

    :param fields: those that are defined on the table. Only their names are told: a name in an
        object is something that is stored.
    """
    if refusal.retry or isinstance(refusal, _OF_NO_RECORD):
        return refusal
    detail = {name: value for name, value in refusal.detail.items() if name in _TOLD}
    field = refusal.detail.get("field")
    if isinstance(field, str) and (name := _definition(field, fields)):
        detail["field"] = name
    where = f"table {table}"
    for part in ("field", "index"):
        if part in detail:
            where = f"{part} {detail[part]} of {where}"
    return type(refusal)(f"{where} refuses it; whoever may READ is told more", **detail)


def _definition(field: str, fields: Iterable[Field]) -> str:
    """The innermost defined field that another is, or lies in; empty: there is none."""
    steps: list[str] = _STEPS.findall(field)
    found: Path = ()
    for path in (defined.path for defined in fields):
        if len(found) < len(path) <= len(steps) and all(map(_leads, path, steps)):
            found = path
    return path_text(found)


def _leads(step: object, there: str) -> bool:
    return step is EACH or (isinstance(step, str) and quote_name(step) == there)
