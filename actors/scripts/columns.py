"""Scans by column: chosen in the place of a scan of all records, with the way back to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from actors.scripts.access import AccessPath
from actors.scripts.arrays import load_arrays
from actors.scripts.column_scan import ColumnScan
from actors.scripts.execution import Execution
from language.columnar.plan import Inexact
from language.rows import Batch
from language.select import SelectPlan
from protocol.errors import FROM_OUTSIDE, Refusal
from protocol.values import Value

_BY_ID: Final = "the records are wanted in the order of their ids"
_LARGE_LIMIT: Final = "with so large a LIMIT most records are read"
_SHARE: Final = 5
"""ORDER BY … LIMIT is served by columns if it needs at most one record of so many."""

MIXED: Final = "{} blocks have values that no array holds"

Counted = Callable[[Execution, Iterable[Batch]], Iterator[Batch]]


def by_column(run: Execution, plan: SelectPlan, path: AccessPath) -> AccessPath:
    """Return a scan by columns in the place of a scan of all records, if columns serve the
    statement; else the same scan, with the reason."""
    wanted = plan.by_column
    if isinstance(wanted, str):
        path.by_row = wanted
        return path
    if path.ordered:
        path.by_row = _BY_ID
        return path
    columns = ColumnScan(run, path.table, wanted.names)
    why = columns.obstacle()
    if why is not None:
        path.by_row = why
        return path
    load_arrays(run.fiber)
    path.rows = path.batches
    if not wanted.groups:
        try:
            most = plan.most(run)
        except Refusal:
            return path  # the statement itself is refused
        if most is not None and most * _SHARE > columns.about():
            path.by_row = _LARGE_LIMIT
            return path
        path.batches = plan.selection(wanted, most, run, run.count_read).batches(columns)
    path.access, path.columns = "columns", columns
    return path


def reason(run: Execution, path: AccessPath) -> str | None:
    """Return the reason why a scan of many records reads them by row, for EXPLAIN."""
    if path.by_row is None or ColumnScan(run, path.table, ()).is_small():
        return None
    return path.by_row


def answer(run: Execution, plan: SelectPlan, path: AccessPath, counted: Counted) -> list[Any]:
    """Return the result of a plan over columns.

    A refusal may name another record than by row, since other rows are computed before it. So the
    statement then runs by row from its beginning.
    """
    wanted, columns = plan.by_column, path.columns
    assert columns is not None and path.rows is not None and not isinstance(wanted, str)
    read, held = run.rows_read, run.memory.held
    try:
        if wanted.groups:
            return plan.run_by_column(wanted, columns, run, run.count_read)
        return plan.run(counted(run, path.batches), run)
    except FROM_OUTSIDE:
        raise
    except (Refusal, Inexact):
        run.rows_read = read
        run.memory.held = held
    return plan.run(counted(run, path.rows), run)


def described(run: Execution, plan: SelectPlan, scan: ColumnScan) -> dict[str, Value]:
    """Describe a scan by columns for EXPLAIN: blocks that are held, those among them that WHERE
    rules out by their bounds, and records to read by row beside them."""
    wanted = plan.by_column
    assert not isinstance(wanted, str)
    held = scan.held()
    mixed = sum(not one.has(wanted.names) for one in held)
    skipped = plan.ruled_out(wanted, held, run) if held else 0
    told: dict[str, Value] = {
        "blocks": len(held), "skipped": skipped, "overlay": scan.changed(),
    }  # fmt: skip
    if mixed:
        told["by_row"] = MIXED.format(mixed)
    return told
