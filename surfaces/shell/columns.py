r"""CSV with typed columns: reading returns the same values that were written.

A column is headed `name:type`. An empty cell is an absent field. Cells of the types `any`, `array`
and `object` are JSON. In cells of all other types a leading backslash is an escape:

| cell | value |
|---|---|
| `\N` | null |
| `\E` | the empty string |
| `\\…` | a string that begins with one backslash |

A header without a type, as other programs write it, has no escapes: there a backslash is a
backslash.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from protocol import limits, text
from protocol.errors import Refusal
from protocol.jsonvalues import dump, load
from protocol.values import NONE, RecordId, check_decimal

NULL: Final = "\\N"
EMPTY: Final = "\\E"
ANY: Final = "any"
_JSON: Final = frozenset({ANY, "array", "object"})

_TYPE_OF: Final[dict[type, str]] = {
    bool: "bool", int: "int", float: "float", Decimal: "decimal", str: "string",
    bytes: "bytes", datetime: "datetime", timedelta: "duration", UUID: "uuid",
    RecordId: "record", list: "array", dict: "object",
}  # fmt: skip


class CellRefused(Exception):
    """A cell does not match its column's type; the message is for people."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `exact`: its header contains the type, so that the escapes above apply."""

    name: str
    type: str
    exact: bool = True

    @property
    def head(self) -> str:
        """Header of the column."""
        return f"{self.name}:{self.type}"

    def write(self, value: Any) -> str:
        """Return the cell of a value."""
        if value is NONE:
            return ""
        if self.type in _JSON:
            return dump(value).decode()
        if value is None:
            return NULL
        if type(value) is str:
            return EMPTY if not value else f"\\{value}" if value.startswith("\\") else value
        return _WRITERS[type(value)](value)

    def read(self, cell: str) -> Any:
        """Return the value of a cell; NONE if it is empty.

        :raises CellRefused: the cell does not match the type
        """
        if not cell:
            return NONE
        if self.exact and self.type not in _JSON and cell.startswith("\\"):
            if cell == NULL:
                return None
            if cell == EMPTY and self.type in ("string", "bytes"):
                return "" if self.type == "string" else b""
            if self.type == "string" and cell.startswith("\\\\"):
                return cell[1:]
            raise CellRefused(f"{self.name}: {cell[:40]!r} is not an escape")
        try:
            return TYPES[self.type](cell)
        except (ValueError, InvalidOperation, binascii.Error, Refusal):
            hint = (
                f"; --null {shlex.quote(cell)} reads it as an empty cell" if cell in MISSING else ""
            )
            raise CellRefused(
                f"{self.name}: cannot read {cell[:40]!r} as {self.type}{hint}"
            ) from None


def from_head(head: str, known: Callable[[str], str | None]) -> Column:
    """Return a column from its header.

    :param known: returns the type of a column without one in its header; None if it is unknown
    """
    name, colon, kind = head.rpartition(":")
    if colon and kind in TYPES:
        return Column(name, kind)
    return Column(head, known(head) or "string", exact=False)


def type_of_field(written: str) -> str | None:
    """Return the column type for a field's defined type; None if that is ambiguous."""
    inner = re.fullmatch(r"option<(.*)>", written)
    parts = {part.strip() for part in (inner[1] if inner else written).split(" | ")} - {"NULL"}
    if parts and all(part.startswith("'") for part in parts):
        return "string"
    bases = {re.split(r"[<\[]", part)[0] for part in parts}
    return bases.pop() if len(bases) == 1 and bases <= TYPES.keys() else None


_PLAIN_INT: Final = re.compile(r"-?[1-9][0-9]*|0")
"""Canonical integer: `007` and `+7` are text."""
_PLAIN_FLOAT: Final = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _looks_int(cell: str) -> bool:
    if len(cell) > 20 or not _PLAIN_INT.fullmatch(cell):
        return False
    return limits.INT_MIN <= int(cell) <= limits.INT_MAX


def _looks_float(cell: str) -> bool:
    if not _PLAIN_FLOAT.fullmatch(cell):
        return False
    value = float(cell)
    # A float keeps only the first digits of a long integer.
    return abs(value) < 2**53 or (abs(value) != float("inf") and not _PLAIN_INT.fullmatch(cell))


def _looks_uuid(cell: str) -> bool:
    try:
        return str(UUID(cell)) == cell.lower()
    except ValueError:
        return False


def _looks_datetime(cell: str) -> bool:
    try:
        text.parse_datetime(cell)
    except Refusal:
        return False
    return True


_LOOKS: Final[dict[str, Callable[[str], bool]]] = {
    "int": _looks_int,
    "float": _looks_float,
    "bool": lambda cell: cell.lower() in ("true", "false"),
    "uuid": _looks_uuid,
    "datetime": _looks_datetime,
}
"""Types that are guessed, with their checks; the first that fits all cells of a column is taken."""


MISSING: Final = frozenset({
    "NA", "N/A", "n/a", "#N/A", "NULL", "null", "NaN", "nan", "None", "-", NULL,
})  # fmt: skip
"""Markers that other programs write for a missing value."""


class Guess:
    """Guesses column types from all cells.

    :param names: of the columns
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._left = {name: list(_LOOKS) for name in names}
        self._seen: set[str] = set()
        self._missing: dict[str, set[str]] = {}

    def count(self, name: str, cell: str) -> None:
        """Count a cell. Empty cells and cells of other columns are ignored."""
        left = self._left.get(name)
        if not cell or not left:
            return
        if cell in MISSING:
            self._missing.setdefault(name, set()).add(cell)
            return
        self._seen.add(name)
        self._left[name] = [kind for kind in left if _LOOKS[kind](cell)]

    def types(self) -> dict[str, str]:
        """Return the type of each column that looks like more than text."""
        return {name: kind for name, kind in self._looks().items() if not self._missing.get(name)}

    def types_without_missing(self) -> tuple[dict[str, str], list[str]]:
        """Return the type of each column that looks like more than text except for cells of
        `MISSING`, and these cells."""
        found = {name: kind for name, kind in self._looks().items() if self._missing.get(name)}
        return found, sorted(set().union(*(self._missing[name] for name in found)))

    def _looks(self) -> dict[str, str]:
        return {name: left[0] for name, left in self._left.items() if left and name in self._seen}


class Census:
    """Collects the columns of rows, and their types."""

    def __init__(self) -> None:
        self._types: dict[str, set[str]] = {}

    def count(self, row: dict[str, Any]) -> None:
        """Count a row."""
        for name, value in row.items():
            seen = self._types.setdefault(name, set())
            if value is not None and value is not NONE:
                seen.add(_TYPE_OF[type(value)])

    def columns(self) -> list[Column]:
        """Return a column for each field, `id` first. A field with values of several types becomes
        `any`."""
        names = sorted(self._types, key=lambda name: name != "id")
        return [Column(name, _common(self._types[name])) for name in names]


def _common(seen: set[str]) -> str:
    if len(seen) == 1:
        return next(iter(seen))
    return "number" if seen == {"int", "float"} else ANY


def _read_bool(cell: str) -> bool:
    word = cell.lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _read_int(cell: str) -> int:
    if text.INT.match(cell) is None:
        raise ValueError
    value = int(cell)
    if not limits.INT_MIN <= value <= limits.INT_MAX:
        raise ValueError
    return value


def _read_float(cell: str) -> float:
    if text.NUMBER.match(cell) is None:
        raise ValueError  # float() takes infinities too, and underscores
    value = float(cell)
    if abs(value) == float("inf"):
        raise ValueError
    return value


def _read_number(cell: str) -> int | float:
    return _read_int(cell) if text.INT.match(cell) else _read_float(cell)


def _read_decimal(cell: str) -> Decimal:
    value = text.parse_decimal(cell)
    check_decimal(value)
    return value


def _read_json(kind: type | None) -> Callable[[str], Any]:
    def read(cell: str) -> Any:
        value = load(cell)
        if kind is not None and value is not None and type(value) is not kind:
            raise ValueError
        return value

    return read


TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
    "number": _read_number,
    "decimal": _read_decimal,
    "string": str,
    "bytes": lambda cell: base64.b64decode(cell, validate=True),
    "datetime": text.parse_datetime,
    "duration": text.parse_duration,
    "uuid": UUID,
    "record": text.parse_record,
    "array": _read_json(list),
    "object": _read_json(dict),
    ANY: _read_json(None),
}
"""Cell parsers by column type."""

_WRITERS: Final[dict[type, Callable[[Any], str]]] = {
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    Decimal: text.format_decimal,
    bytes: lambda value: base64.b64encode(value).decode() or EMPTY,
    datetime: text.format_datetime,
    timedelta: text.format_duration,
    UUID: str,
    RecordId: text.format_record,
}
