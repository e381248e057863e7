"""Bulk load of rows: `AsyncDatabase.load`.

Rows are collected in batches, turned into columns, and inserted by one `INSERT … COLUMNS` each, in
one commit. Two batches are under way while the next one is collected. If one fails, no further one
is sent; the outcome of those under way is awaited, and told exactly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final
from uuid import UUID

from storeclient.answers import Answer
from storeclient.errors import LoadFailed, OutcomeUnknown, Refused, Unreachable
from storeclient.names import quote_name
from storeclient.values import NONE, NoneValue, RecordId

BATCH_ROWS: Final = 5_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of texts in a batch, about: its frame stays well below 16 MiB."""
AHEAD: Final = 2
"""Batches under way while the next one is collected."""

Columns = dict[str, list[Any]]
Send = Callable[[str, Mapping[str, Any], bool], Awaitable[Answer]]
"""Runs a script with parameters; True: it may be repeated."""
OnRows = Callable[[int], None]


class Load:
    """Bulk load of one call.

    :param send: runs a script
    :param progress: called with the number of rows written so far
    """

    def __init__(self, send: Send, table: str, ignore: bool, progress: OnRows | None) -> None:
        self._send = send
        self._table = table
        self._ignore = ignore
        self._progress = progress
        self._pending: deque[tuple[range, asyncio.Task[Answer]]] = deque()
        self._written: list[range] = []
        self._unknown: list[range] = []
        self._sent = 0
        self._created = 0

    async def run(self, batches: Iterator[tuple[int, Any]]) -> int:
        """Insert all batches. Return the number of created records.

        :param batches: their numbers of rows, and the rows: columns, or objects that differ in
            their fields
        :raises LoadFailed: a batch failed, or could not be collected
        """
        try:
            for count, batch in batches:
                self._begin(count, batch)
                if len(self._pending) > AHEAD:
                    await self._next()
                else:
                    await asyncio.sleep(0)  # its request leaves before the next is collected
            while self._pending:
                await self._next()
        except Exception as error:
            raise await self._failed(error) from error
        except BaseException:  # cancelled
            for _, task in self._pending:
                task.cancel()
            raise
        return self._created

    def _begin(self, count: int, batch: Any) -> None:
        rows = range(self._sent, self._sent + count)
        self._sent += count
        by_column = isinstance(batch, dict)
        script = insert_of(self._table, batch, "rows")
        script += f"{' IGNORE' if self._ignore else ''} RETURN NONE"
        # With ids of their own, rows that exist already are skipped: sending twice changes nothing.
        has_ids = "id" in batch if by_column else all("id" in row for row in batch)
        repeatable = self._ignore and has_ids
        sending = self._send(script, {"rows": batch}, repeatable)
        self._pending.append((rows, asyncio.ensure_future(sending)))

    async def _next(self) -> None:
        """Await the oldest batch under way."""
        rows, task = self._pending[0]
        # If this is cancelled, the task is in `_pending` still.
        answer = await task
        self._pending.popleft()
        self._note(rows, answer)

    def _note(self, rows: range, answer: Answer) -> None:
        changed = answer.results[-1].changed
        self._created += len(rows) if changed is None else changed
        _join(self._written, rows)
        if self._progress is not None:
            self._progress(sum(map(len, self._written)))

    async def _failed(self, error: Exception) -> LoadFailed:
        """Await all batches under way, and return the exact outcome."""
        first: Exception | None = None
        refused: int | None = None
        while self._pending:
            rows, task = self._pending.popleft()
            try:
                answer = await task
            except Exception as failed:
                if first is None:
                    first = failed
                    refused = _row_of(failed, rows)
                if not _is_unwritten(failed):
                    _join(self._unknown, rows)
            else:
                # `progress` may be what has failed: it is not called again.
                self._progress = None
                self._note(rows, answer)
        return LoadFailed(str(error), tuple(self._written), tuple(self._unknown), refused)


def _is_unwritten(error: Exception) -> bool:
    """True if a batch that failed so has certainly written nothing."""
    if isinstance(error, OutcomeUnknown):
        return False
    # Other errors are of values that could not be encoded: nothing was sent.
    return isinstance(error, Refused | Unreachable | TypeError | ValueError)


def _row_of(error: Exception, rows: range) -> int | None:
    """Return the number of the row that a batch was refused for, if the node named it."""
    if not isinstance(error, Refused):
        return None
    number = error.detail.get("row", 1 if len(rows) == 1 else None)
    return rows[number - 1] if type(number) is int and 0 < number <= len(rows) else None


def _join(ranges: list[range], rows: range) -> None:
    """Add a range, to the one that ends where it begins."""
    if ranges and ranges[-1].stop == rows.start:
        rows = range(ranges.pop().start, rows.stop)
    ranges.append(rows)


def insert_of(table: str, batch: Any, parameter: str) -> str:
    """Return the INSERT of a batch: columns, or objects."""
    columns = "COLUMNS " if isinstance(batch, dict) else ""
    return f"INSERT INTO {quote_name(table)} {columns}${parameter}"


# --- collecting -----------------------------------------------------------------------------------


def batches_of(rows: Any, columns: Sequence[str] | None, most: int) -> Iterator[tuple[int, Any]]:
    """Yield batches of rows: their number, and their columns. If they have different fields, or
    values that nest, the batch is objects.

    :param rows: as of `AsyncDatabase.load`
    :param columns: names of the items, if the rows are tuples
    :raises TypeError: a row is nothing that can be loaded
    """
    if most < 1:
        raise ValueError(f"a batch has at least one row, not {most}")
    if hasattr(rows, "columns") and (hasattr(rows, "iloc") or hasattr(rows, "get_column")):
        found = _of_frame(rows, most)
    else:
        found = _of_rows(iter(rows), columns, most)
    for count, batch in found:
        yield from _cut(count, batch)


def _of_rows(
    rows: Iterator[Any], columns: Sequence[str] | None, most: int
) -> Iterator[tuple[int, Any]]:
    while batch := list(islice(rows, most)):
        yield len(batch), _columns_of(batch, columns)


def _columns_of(batch: list[Any], names: Sequence[str] | None) -> Any:
    kinds = set(map(type, batch))
    first = batch[0]
    if len(kinds) > 1 and not all(issubclass(kind, Mapping) for kind in kinds):
        told = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"the rows of a load are of one type, not of {told}")
    if isinstance(first, Mapping):
        return columns_of(batch)
    if is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in fields(first)]
        values: Iterable[Any] = map(_taken(attrgetter, names), batch)
    elif isinstance(first, tuple | list):
        names = getattr(first, "_fields", names)
        if names is None:
            raise TypeError("rows that are plain tuples need `columns`: the names of their items")
        values = batch
    else:
        raise TypeError(
            f"a row is a dict, a dataclass or a tuple with names, not a {type(first).__name__}"
        )
    names = list(names)
    if not names:
        return [{} for _ in batch]
    if any(len(row) != len(names) for row in batch if isinstance(row, tuple | list)):
        raise TypeError(f"a row has {len(names)} items: {', '.join(names)}")
    columns = dict(zip(names, map(list, zip(*values, strict=True)), strict=True))
    return columns if _is_shallow(columns) else _objects(columns)


def columns_of(batch: list[Any]) -> Any:
    """Return objects as columns; the objects themselves if they differ in their fields, or hold
    values that nest."""
    names = list(batch[0])
    if not names or any(row.keys() != batch[0].keys() for row in batch):
        return [dict(row) for row in batch]
    values = map(_taken(itemgetter, names), batch)
    columns = dict(zip(names, map(list, zip(*values, strict=True)), strict=True))
    return columns if _is_shallow(columns) else [dict(row) for row in batch]


def _taken(getter: Callable[..., Any], names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that takes the named values of a row, always as a tuple."""
    found = getter(*names)
    return found if len(names) > 1 else lambda row: (found(row),)


def _of_frame(frame: Any, most: int) -> Iterator[tuple[int, Any]]:
    """Yield batches of a DataFrame, of pandas or polars. Missing values become NONE."""
    cut = None if hasattr(frame, "iloc") else frame.slice
    for start in range(0, len(frame), most):
        part = frame.iloc[start : start + most] if cut is None else cut(start, most)
        found = {str(name): _listed(part[name]) for name in frame.columns}
        yield len(part), found if _is_shallow(found) else _objects(found)


def _is_shallow(columns: Columns) -> bool:
    """True if no value has others inside others: those that nest deepest fit in rows only, as the
    node counts the arrays of columns as a level."""
    for column in columns.values():
        if set(map(type, column)) <= _SCALARS:
            continue
        for value in column:
            if type(value) in _SCALARS:
                continue
            parts = value.values() if isinstance(value, Mapping) else value
            if not isinstance(parts, Collection) or not set(map(type, parts)) <= _SCALARS:
                return False
    return True


_SCALARS: Final = frozenset(
    {type(None), NoneValue, bool, int, float, Decimal, str, bytes, datetime, timedelta, UUID,
     RecordId}
)  # fmt: skip


def _objects(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _listed(series: Any) -> list[Any]:
    values: list[Any] = series.to_list()
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    """Return a value of a DataFrame as one of the language."""
    if value is None or value != value:  # NaN and NaT differ from themselves
        return NONE
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    return value


def _cut(count: int, batch: Any) -> Iterator[tuple[int, Any]]:
    """Yield a batch, in halves if its texts are too long for one request."""
    if count == 1 or _size(batch) <= BATCH_BYTES:
        yield count, batch
        return
    half = count // 2
    for part in (slice(None, half), slice(half, None)):
        if isinstance(batch, dict):
            cut: Any = {name: column[part] for name, column in batch.items()}
        else:
            cut = batch[part]
        yield from _cut(half if part.start is None else count - half, cut)


def _size(value: Any) -> int:
    """Return about how many bytes the texts inside a value take."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values())) + 8 * len(value)
    if not isinstance(value, list):
        return 8
    kinds = set(map(type, value))
    if kinds <= _LONG:
        return sum(map(len, value)) + 4 * len(value)
    return 8 * len(value) if kinds.isdisjoint(_LONG | {dict, list}) else sum(map(_size, value))


_LONG: Final = {str, bytes}
