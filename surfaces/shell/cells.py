"""Values as the text of a cell, and text that a terminal takes for text."""

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
"""What makes a terminal do something, or turns the direction of what follows. The escape sequences
of a terminal all begin with one of these: a record must not be able to write over what is shown."""


def harmless(shown: str) -> str:
    r"""A text with what would order a terminal about written out, as `\u{1b}`."""
    return _ORDERS.sub(_written_out, shown)


def harmless_json(shown: str) -> str:
    r"""JSON of the same value with the like written out, as `\u001b`."""
    return _ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


class Writer(Protocol):
    """What text is written to."""

    def write(self, text: str, /) -> object:
        """Take some of it."""


class Harmless:
    """A terminal to which values go as they are: what would order it about is written out."""

    def __init__(self, out: Writer) -> None:
        self._out = out

    def write(self, text: str) -> None:
        """Take some text."""
        self._out.write(harmless(text))


class CsvRows:
    r"""Rows as lines of CSV, each with a `\n` behind it. What has an end of a line in it, a
    lone `\r` too, stands in quotes: `csv` does so for those of its own `lineterminator`."""

    def __init__(self, out: Writer) -> None:
        self._out = out
        self._rows = csv.writer(self, lineterminator="\r\n")

    def row(self, cells: Iterable[str]) -> None:
        """Write a row."""
        self._rows.writerow(cells)

    def write(self, line: str) -> None:
        """What `csv` makes of a row."""
        self._out.write(f"{line[:-2]}\n")


def _written_out(found: re.Match[str]) -> str:
    return "\\t" if found[0] == "\t" else f"\\u{{{ord(found[0]):x}}}"


def cell(value: Any) -> str:
    """A value in a table for people: a string as it is, everything else as the language writes it,
    what is absent as nothing."""
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
    """A value as `--csv` writes it: arrays and objects as JSON, null and absence as nothing."""
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
    """The names of all fields of some rows: `id` first, the rest as they first come."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name == "id"] + [name for name in names if name != "id"]
