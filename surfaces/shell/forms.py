"""Output formats: tables for people, JSON and CSV for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import IO, Any, Final, Protocol

from rich import box
from rich.cells import cell_len
from rich.console import Console as Screen
from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from protocol.jsonvalues import dump
from protocol.values import NONE
from storeclient import Result
from surfaces.shell.cells import (
    CsvRows,
    TextWriter,
    cell,
    columns,
    csv_cell,
    harmless,
    harmless_json,
)
from surfaces.shell.statements import CHANGED
from surfaces.shell.values import from_client

MOST_ROWS: Final = 1000
"""Maximum rows drawn on a terminal: drawing is slow, and more rows are not readable."""
NARROWEST: Final = 7
"""Minimum width of a column, in terminal cells. Narrower tables are drawn as one record below the
other."""
GAP: Final = " " * 3
"""Gap between two columns."""
UNBOUNDED: Final = 1_000_000
"""Width of output that is not a terminal: nothing is folded, since a program may read it."""


class OutputFormat(Protocol):
    """Output format of statement results."""

    def result(self, result: Result, done: str = CHANGED) -> None:
        """Show the result of one statement.

        :param done: participle of its effect on records
        """

    def rows(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Show a list that a shortcut asked for."""


class JsonLines:
    """A line of JSON for each statement with a result, with the tags of `/script`."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def result(self, result: Result, done: str = CHANGED) -> None:
        """Write the value; nothing for a statement without a result."""
        if result.kind != "none":
            self._write(from_client(result.value))

    def rows(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write an array; the title is for people."""
        self._write(list(rows))

    def _write(self, value: Any) -> None:
        self._out.write(harmless_json(dump(value).decode()) + "\n")


class Csv:
    """A header and its rows for each statement with a result, separated by an empty line."""

    def __init__(self, out: TextWriter) -> None:
        self._out = out
        self._begun = False

    def result(self, result: Result, done: str = CHANGED) -> None:
        """Write the rows; any other value as one row of one column."""
        if result.kind == "none":
            return
        value = from_client(result.value)
        found = value if isinstance(value, list) else [value]
        self.rows("", [one if type(one) is dict else {"value": one} for one in found])

    def rows(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write the rows, with the names of all their fields as header."""
        if self._begun:
            self._out.write("\n")
        self._begun = True
        names = columns(list(rows))
        written = CsvRows(self._out)
        if names:
            written.row(names)
        for row in rows:
            written.row(csv_cell(row.get(name, NONE)) for name in names)


class Tables:
    """Tables drawn by rich, with a status line below."""

    def __init__(self, out: IO[str], *, terminal: bool, width: int | None = None) -> None:
        self.timing = terminal
        """True if the node's execution time is shown."""
        self.expanded: bool | None = None
        """True if each record is drawn vertically; None: if a table would be too narrow."""
        self._terminal = terminal
        self._out = out
        self._screen = Screen(
            file=out,
            force_terminal=terminal,
            width=width if terminal else UNBOUNDED,
            highlight=False,
            emoji=False,
            markup=False,
        )

    def result(self, result: Result, done: str = CHANGED) -> None:
        """Show the result of a statement in a suitable form, and its number of rows or records."""
        value = from_client(result.value)
        said = "done"
        if result.kind == "rows" and isinstance(value, list):
            self._draw([one if type(one) is dict else {"value": one} for one in value])
            said = _counted(max(result.rows, len(value)), "row")
        elif result.kind != "none":
            self._value(value)
            said = "done" if self.timing else ""
        if result.changed is not None:
            said = f"{_counted(result.changed, 'record')} {done}"
        if said:
            self._say(f"{said}{self._took(result.took)}")

    def rows(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Show the rows below their title."""
        self._say(title if rows else f"no {title}")
        self._draw(
            [{name: NONE if one is None else one for name, one in row.items()} for row in rows]
        )

    def _value(self, value: Any) -> None:
        if type(value) is dict:
            inner = {name: one for name, one in value.items() if _is_rows(one)}
            self._record({name: one for name, one in value.items() if name not in inner})
            for name, one in inner.items():
                self.rows(name, one)
        elif _is_rows(value):
            self._draw(value)
        else:
            self._print(Text(cell(value) if value is not NONE else "NONE"))

    def _draw(self, rows: list[dict[str, Any]]) -> None:
        names = columns(rows)
        if not names:
            return
        shown = rows[:MOST_ROWS] if self._terminal else rows
        if self._is_expanded(len(names)):
            for number, row in enumerate(shown, 1):
                self._print(Rule(Text(f"{number}"), align="left"))
                self._record(row)
        else:
            self._table(names, shown)
        if len(shown) < len(rows):
            self._say(f"{len(rows) - len(shown)} more are not shown: narrow the query with LIMIT")

    def _table(self, names: list[str], rows: list[dict[str, Any]]) -> None:
        cells = [[cell(row.get(name, NONE)) for name in names] for row in rows]
        right = [all(_is_number(row.get(name, NONE)) for row in rows) for name in names]
        heads = [harmless(name) for name in names]
        if self._terminal:
            self._screen.print(_drawn(heads, cells, right))
        else:
            self._out.writelines(_lines(heads, cells, right, self._screen.encoding))

    def _is_expanded(self, count: int) -> bool:
        if self.expanded is not None:
            return self.expanded
        return self._terminal and count * NARROWEST > self._screen.width

    def _record(self, row: dict[str, Any]) -> None:
        if not row:
            return
        grid = Table(box=None, show_header=False, pad_edge=False)
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in row.items():
            grid.add_row(Text(harmless(name)), Text(cell(value)))
        self._print(grid)

    def _say(self, line: str) -> None:
        self._print(Text(harmless(line), style="dim"))

    def _print(self, drawn: RenderableType) -> None:
        if self._terminal:
            self._screen.print(drawn)
            return
        with self._screen.capture() as captured:
            self._screen.print(drawn)
        # Padding of the last column is of no use to a program.
        lines = captured.get().split("\n")
        self._out.write("\n".join(line.rstrip() for line in lines))

    def _took(self, took: timedelta) -> str:
        return f" ({milliseconds(took)})" if self.timing else ""


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else noun + 's'}"


def milliseconds(took: timedelta) -> str:
    """Format a measured time: `0.18 ms`, `2.31 s`."""
    seconds = took.total_seconds()
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


def _drawn(names: list[str], cells: list[list[str]], right: list[bool]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, is_right in zip(names, right, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _lines(
    names: list[str], cells: list[list[str]], right: list[bool], encoding: str
) -> Iterator[str]:
    """Yield the same table for a program: each row a line, never folded.

    Not drawn by rich, whose layout of widths takes a millisecond per row.
    """
    rows = [[one.replace("\n", "\\n") for one in row] for row in cells]
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    rule = "─" if encoding.startswith("utf") else "-"
    yield _line(names, widths, right)
    yield rule * (sum(widths) + len(GAP) * (len(widths) - 1)) + "\n"
    for row in rows:
        yield _line(row, widths, right)


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    padded = (
        " " * (width - cell_len(one)) + one if is_right else one + " " * (width - cell_len(one))
        for one, width, is_right in zip(cells, widths, right, strict=True)
    )
    return GAP.join(padded).rstrip() + "\n"


def _is_number(value: Any) -> bool:
    return value is None or value is NONE or type(value) in (int, float)


def _is_rows(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(one) is dict for one in value)
