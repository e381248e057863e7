"""Redaction: removes stored data from refusals for callers that may write to a table but not read
it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from protocol.errors import ENDED, NotAllowed, Refusal, Unknown
from protocol.paths import EACH, Path, path_text
from protocol.text import quote_name
from storage.catalog.tables import Field

_TOLD: Final = frozenset({"table", "index", "limit", "line", "column"})
_OF_NO_RECORD: Final = (*ENDED, NotAllowed, Unknown)
_STEPS: Final = re.compile(r"`(?:[^`\\]|\\.)*`|\[\d+\]|[^.`\[\]]+")
"""Steps of a field's path, as it stands in a refusal."""


def redacted(refusal: Refusal, table: str, fields: Iterable[Field]) -> Refusal:
    """Return a refusal without stored data, for a caller that may not read the table.

    It keeps the place of the refusal. UNIQUE indexes, READONLY fields, ASSERT and invalid paths all
    refuse a statement for the content of a record.

    :param fields: fields defined on the table. Only their names are shown: other names are keys of
        stored objects
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
    return type(refusal)(f"{where} refuses it: with READ the reason is shown", **detail)


def _definition(field: str, fields: Iterable[Field]) -> str:
    """Return the innermost defined field that a field is or lies in; empty if there is none."""
    steps: list[str] = _STEPS.findall(field)
    found: Path = ()
    for path in (defined.path for defined in fields):
        if len(found) < len(path) <= len(steps) and all(map(_leads, path, steps)):
            found = path
    return path_text(found)


def _leads(step: object, there: str) -> bool:
    return step is EACH or (isinstance(step, str) and quote_name(step) == there)
