"""Cells: values as text, and text made safe for a terminal."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

from protocol import text
from protocol.jsonvalues import dump, to_json
from protocol.values import NONE

_ORDERS: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters: terminal commands, and marks that change the direction of text. Every escape
sequence begins with one of these. A record must not be able to overwrite other output."""


def harmless(shown: str) -> str:
    r"""Return a text with its control characters escaped, as `\u{1b}`."""
    return _ORDERS.sub(_written_out, shown)


def harmless_json(shown: str) -> str:
    r"""Return JSON of the same value with its control characters escaped, as `\u001b`."""
    return _ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


class TextWriter(Protocol):
    """Destination of text."""

    def write(self, text: str, /) -> object:
        """Write text."""


class Harmless:
    """Terminal output with control characters escaped."""

    def __init__(self, out: TextWriter) -> None:
        self._out = out

    def write(self, text: str) -> None:
        """Write escaped text."""
        self._out.write(harmless(text))


class CsvRows:
    r"""Rows as lines of CSV, each ended by `\n`. Cells with a line end in them, a lone `\r` too,
    are quoted: `csv` does so for the characters of its `lineterminator`."""

    def __init__(self, out: TextWriter) -> None:
        self._out = out
        self._rows = csv.writer(self, lineterminator="\r\n")

    def row(self, cells: Iterable[str]) -> None:
        """Write a row."""
        self._rows.writerow(cells)

    def write(self, line: str) -> None:
        """Write a formatted row (called by `csv`)."""
        self._out.write(f"{line[:-2]}\n")


def _written_out(found: re.Match[str]) -> str:
    return "\\t" if found[0] == "\t" else f"\\u{{{ord(found[0]):x}}}"


def cell(value: Any) -> str:
    """Return a value as a cell for people: a string as it is, NONE as the empty cell, everything
    else as the language writes it."""
    if value is NONE:
        return ""
    if type(value) is str:
        return harmless(value)
    if type(value) is datetime:
        return text.format_datetime(value)
    if type(value) in (Decimal, UUID):
        return str(value)
    return harmless(text.format_value(value))


def csv_cell(value: Any) -> str:
    """Return a value as `--csv` writes it: arrays and objects as JSON, null and NONE as the empty
    cell."""
    if value is NONE or value is None:
        return ""
    if type(value) is str:
        return value
    if type(value) in (list, dict):
        return dump(value).decode()
    if type(value) is bytes:
        return str(to_json(value)["$bytes"])
    return cell(value)


def columns(rows: list[dict[str, Any]]) -> list[str]:
    """Return the names of all fields of some rows: `id` first, others in order of appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name == "id"] + [name for name in names if name != "id"]
