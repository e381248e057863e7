"""Command lines of `storenode import` and `storenode export`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.errors import Refusal
from protocol.text import check_name
from surfaces.command import flags
from surfaces.command.flags import Flag, UsageRefused
from surfaces.shell.arguments import ACCESS_FLAGS, ADDRESS, ENVIRONMENT, Help, NodeAccess, access
from surfaces.shell.columns import TYPES
from surfaces.shell.outcomes import EXIT_CODES

STREAM: Final = "-"
"""Path that stands for standard input or output."""
BATCH_ROWS: Final = 1000
"""Rows of one INSERT, and so of one commit: far below the limits of a transaction, and enough that
fsync no longer dominates the cost."""
BATCH_ROWS_MOST: Final = 100_000
FORMS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}
TSV: Final = ".tsv"
"""File name suffix of CSV with tabs; import only."""
TAB: Final = "tab"
"""Name of the tab as a delimiter."""
IGNORE, UPDATE = "ignore", "update"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its namespace and database."""

    namespace: str
    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Export:
    """Write the records of a table to a file."""

    access: NodeAccess
    table: Table
    path: str
    form: str


@dataclass(frozen=True, slots=True)
class Import:
    """Insert the rows of a file into a table."""

    access: NodeAccess
    table: Table
    path: str
    form: str
    on_duplicate: str = IGNORE
    types: Mapping[str, str] = field(default_factory=dict)
    """Types of CSV columns, by name."""
    batch: int = BATCH_ROWS
    guess: bool = False
    """Guess the types of CSV columns without one."""
    nulls: frozenset[str] = frozenset()
    """CSV cells that are read as empty ones."""
    delimiter: str = ","
    """Delimiter of CSV columns."""


_AT: Final = Flag("--at", "<host:port>", f"address of the node (default {ADDRESS})")
_FORMAT: Final = Flag(
    "--format", "<jsonl|csv>", "format of the file, if its name has no known ending"
)
EXPORT_FLAGS: Final = (_AT, _FORMAT, *ACCESS_FLAGS, Flag("--help", None, "show this help"))
IMPORT_FLAGS: Final = (
    _AT,
    _FORMAT,
    Flag(
        "--on-duplicate",
        "<ignore|update>",
        "if the record exists: ignore the row, or update the record",
    ),
    Flag("--types", "<column:type,...>", "types of CSV columns without a type in the head"),
    Flag("--guess", None, "guess the types of CSV columns without a type"),
    Flag(
        "--delimiter", "<sign>", "separator of CSV columns, such as ';', '|' or tab (default comma)"
    ),
    Flag("--null", "<text>", "read CSV cells with this text as empty", repeats=True),
    Flag("--batch", "<rows>", f"rows per commit (default {BATCH_ROWS})"),
    *ACCESS_FLAGS,
    Flag("--help", None, "show this help"),
)
OF_CSV: Final = ("--types", "--guess", "--delimiter", "--null")
EXPORT_USAGE: Final = "storenode export <ns.db.table> <file>   - is standard output\n"
IMPORT_USAGE: Final = "storenode import <ns.db.table> <file>   - is standard input\n"


def understand_export(words: Sequence[str], environment: Mapping[str, str]) -> Export | Help:
    """Parse the command line of `storenode export`.

    :raises UsageRefused: invalid or contradicting arguments
    """
    given = flags.take_apart(words, EXPORT_FLAGS, "export")
    if "--help" in given:
        return Help(flags.table_text(EXPORT_USAGE, EXPORT_FLAGS, ENVIRONMENT, EXIT_CODES))
    table, path = _positions(given, EXPORT_USAGE)
    return Export(_access(given, environment), table, path, _form(given, path, FORMS))


def understand_import(words: Sequence[str], environment: Mapping[str, str]) -> Import | Help:
    """Parse the command line of `storenode import`.

    :raises UsageRefused: invalid or contradicting arguments
    """
    given = flags.take_apart(words, IMPORT_FLAGS, "import")
    if "--help" in given:
        return Help(flags.table_text(IMPORT_USAGE, IMPORT_FLAGS, ENVIRONMENT, EXIT_CODES))
    table, path = _positions(given, IMPORT_USAGE)
    of_tabs = path.lower().endswith(TSV)
    form = _form(given, path, {**FORMS, TSV: "csv"})
    for name in OF_CSV:
        if name in given and form != "csv":
            raise UsageRefused(f"{name} is for CSV, but {path} is read as {form}: see --format")
    return Import(
        _access(given, environment),
        table,
        path,
        form,
        _one_of(given, "--on-duplicate", (IGNORE, UPDATE)) or IGNORE,
        _types(given.get("--types")),
        _batch(given.get("--batch")),
        "--guess" in given,
        frozenset(given.repeated.get("--null", ())),
        _delimiter(given.get("--delimiter") or (TAB if of_tabs else ",")),
    )


def _access(given: flags.ParsedFlags, environment: Mapping[str, str]) -> NodeAccess:
    return access(given, given.get("--at") or ADDRESS, environment)


def _positions(given: flags.ParsedFlags, usage: str) -> tuple[Table, str]:
    if len(given.positions) != 2 or not given.positions[1]:
        raise UsageRefused(f"expected a table and a file: {usage.strip()}")
    written, path = given.positions
    parts = written.split(".")
    if len(parts) != 3:
        raise UsageRefused(f"{written!r} is not a full table name: expected ns.db.table")
    try:
        for part, what in zip(parts, ("namespace", "database", "table"), strict=True):
            check_name(part, what)
    except Refusal as error:
        raise UsageRefused(error.message) from error
    return Table(*parts), path


def _form(given: flags.ParsedFlags, path: str, forms: Mapping[str, str]) -> str:
    told = _one_of(given, "--format", ("jsonl", "csv"))
    if told is not None:
        return told
    if path == STREAM:
        return "jsonl"
    found = next((form for end, form in forms.items() if path.lower().endswith(end)), None)
    if found is None:
        raise UsageRefused(f"{path}: unknown format: give --format jsonl or csv")
    return found


def _one_of(given: flags.ParsedFlags, name: str, values: tuple[str, ...]) -> str | None:
    told = given.get(name)
    if told is not None and told not in values:
        raise UsageRefused(f"{name}: {told!r} is not one of {', '.join(values)}")
    return told


def _types(text: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, colon, kind = part.rpartition(":")
        if not colon or kind not in TYPES:
            raise UsageRefused(
                f"--types: {part!r}: expected column:type, with one of {', '.join(TYPES)}"
            )
        if name in found:
            raise UsageRefused(f"--types: duplicate column {name!r}")
        found[name] = kind
    return found


def _delimiter(text: str) -> str:
    if text in (TAB, "\\t"):
        return "\t"
    if len(text) != 1 or text in '"\r\n':
        raise UsageRefused(
            f"--delimiter: {text!r} is not a delimiter: expected one character, or {TAB}"
        )
    return text


def _batch(text: str | None) -> int:
    if text is None:
        return BATCH_ROWS
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 0 < int(text) <= BATCH_ROWS_MOST:
        raise UsageRefused(f"--batch: {text!r} is not a number from 1 to {BATCH_ROWS_MOST}")
    return int(text)
