"""Scans by column answer as scans by row do, bit for bit, whatever is written between them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.execution.scheduler import FiberScheduler
from actors.scripts import column_scan, columns
from language.columnar import aggregation, expressions, selection, vectors
from protocol import limits
from protocol.requests import NEW_MOMENT
from storage.columns import blocks, ids
from storage.columns.projections import Projections
from tests.actors.scripts.column_questions import Differs, ask_all
from tests.logbook import Logbook
from tests.nodes import Running, running
from tests.sweeps import share

QUESTIONS = 500
"""Questions of a seed in the hard tier."""
FEW = 60


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of some hundred records have columns, of several blocks."""
    monkeypatch.setattr(limits, "COLUMN_ROWS", 100)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 64)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Running]:
    """A node without tables."""
    async with running(tmp_path / "store") as here:
        yield here


def held(node: Running) -> Projections:
    return node.node.committer.projections


def _pause(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every third seed hand the loop back at every tick, so that commits come in between."""
    if seed % 3 == 2:
        monkeypatch.setattr(FiberScheduler, "slice_us", 0)


@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_answers_by_column_are_those_by_row(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pause(seed, monkeypatch)
    async with running(tmp_path / "store") as node:
        asking = await ask_all(node, seed, FEW)
        assert held(node).built and held(node).patched
        # Refused statements run by row in the end: they must not be most.
        assert asking.refused < asking.asked / 2


@pytest.mark.hard
@pytest.mark.parametrize("seed", share(range(100, 200), 5))
async def test_many_answers_by_column_are_those_by_row(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pause(seed, monkeypatch)
    async with running(tmp_path / "store") as node:
        await ask_all(node, seed, QUESTIONS)


# --- planted faults -------------------------------------------------------------------------------


def _mask_dropped(patch: pytest.MonkeyPatch) -> None:
    """Comparisons take the filler of NONE for a value."""
    real = vectors.compared

    def compared(vector: Any, operator: str, constant: Any) -> Any:
        bare = vectors.Vector(vector.kind, vector.data, scale=vector.scale)
        return real(bare, operator, constant)

    patch.setattr(expressions, "compared", compared)


def _row_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """A changed record is put in beside its old values."""
    for kind in (ids.IntIds, ids.ByteIds):
        real: Any = kind.find
        patch.setattr(kind, "find", lambda self, id, real=real: (real(self, id)[0], False))


def _scale_lost(patch: pytest.MonkeyPatch) -> None:
    """Products of decimals keep the scale of one side."""
    real = expressions._of_integers

    def computed(operator: str, left: Any, right: Any) -> Any:
        found = real(operator, left, right)
        scale = max(left.scale, right.scale)
        return vectors.Vector(found.kind, found.data, scale=scale)

    patch.setattr(expressions, "_of_integers", computed)


def _overflow_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Arithmetic goes on beyond 64 bits."""
    patch.setattr(expressions, "_check_bounds", lambda bounds: None)


def _halves_dropped(patch: pytest.MonkeyPatch) -> None:
    """Sums of large integers are made of doubles."""
    patch.setattr(aggregation, "_EXACT", 1 << 90)


def _change_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Applied commits are not noted."""
    patch.setattr(Projections, "note", lambda self, written, sequence: None)


def _pending_settled(patch: pytest.MonkeyPatch) -> None:
    """Values of pending commits and own writes stay in the blocks."""

    def settle(self: Any, id: bytes) -> None:
        self.table.overlay.pop(id, None)

    patch.setattr(column_scan._Capture, "_settle", settle)


def _older_served(patch: pytest.MonkeyPatch) -> None:
    """Moments read blocks of a newer state."""
    real = column_scan.ColumnScan.obstacle

    def obstacle(self: Any) -> str | None:
        found = real(self)
        return None if found is column_scan.OLDER else found

    patch.setattr(column_scan.ColumnScan, "obstacle", obstacle)


def _older_published(patch: pytest.MonkeyPatch) -> None:
    """Scans of a state older than the engine's leave what they build to later scans."""
    patch.setattr(FiberScheduler, "slice_us", 0)
    real = column_scan._Capture.__init__

    def begin(self: Any, scan: Any, table: Any) -> None:
        real(self, scan, table)
        self._is_newest = True

    patch.setattr(column_scan._Capture, "__init__", begin)


def _sums_unordered(patch: pytest.MonkeyPatch) -> None:
    """Floats are added in another order."""

    def added(high: float, low: float, values: Any) -> tuple[float, float]:
        with np.errstate(all="ignore"):
            return float(high) + float(np.sum(values)), low

    patch.setattr(aggregation, "floats_added", added)


def _ties_dropped(patch: pytest.MonkeyPatch) -> None:
    """ORDER BY … LIMIT keeps no row that equals the last one."""

    def best(self: Any, keys: Any) -> Any:
        order = np.argsort(-keys if self._descending else keys)
        return np.sort(order[: self._most])

    patch.setattr(selection.Selection, "_best", best)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "mask dropped": _mask_dropped,
    "changed row counted twice": _row_counted_twice,
    "scale lost": _scale_lost,
    "overflow unchecked": _overflow_unchecked,
    "halves dropped": _halves_dropped,
    "change forgotten": _change_forgotten,
    "pending settled": _pending_settled,
    "sums unordered": _sums_unordered,
    "ties dropped": _ties_dropped,
    "older state served": _older_served,
    "older state published": _older_published,
}


@pytest.mark.hard
@pytest.mark.parametrize("name", FAULTS)
async def test_a_planted_fault_is_found(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    # Some are found by a scan itself, which asserts that no record changed without a note.
    logbook.allow("error handler failed where='ScriptRequest' exc_info=\"AssertionError")
    FAULTS[name](monkeypatch)
    with pytest.raises((Differs, AssertionError)):
        for seed in range(300, 340):
            async with running(tmp_path / f"store{seed}") as node:
                await ask_all(node, seed, 250)


# --- what users see -------------------------------------------------------------------------------


async def _filled(node: Running, name: str, rows: Iterable[dict[str, Any]]) -> None:
    await node.values(
        f"DEFINE TABLE {name}; INSERT INTO {name} $rows RETURN NONE", {"rows": list(rows)}
    )


async def _explained(node: Running, select: str) -> dict[str, Any]:
    found: dict[str, Any] = (await node.value(f"EXPLAIN {select}"))["sources"][0]
    return found


async def test_explain_and_info_show_columns(node: Running) -> None:
    await _filled(node, "seen", ({"id": n, "n": n, "s": "abc"[n % 3]} for n in range(300)))
    select = "SELECT s, sum(n) FROM seen WHERE n < 100 GROUP BY s"
    assert "columns" not in await node.value("INFO FOR TABLE seen")
    assert await _explained(node, select) == {
        "table": "seen", "access": "columns", "blocks": 0, "skipped": 0, "overlay": 0,
    }  # fmt: skip
    found = await node.value(f"EXPLAIN ANALYZE {select}")
    assert found["rows"] == 3 and found["rows_read"] == 300
    await node.values("UPDATE seen:1 SET n = 2; UPDATE seen:200 SET n = 2")
    explained = await _explained(node, select)
    # Whether the writes are applied yet or pending, a scan has to read both.
    assert explained == {
        "table": "seen", "access": "columns", "blocks": 5, "skipped": 3, "overlay": 2,
    }  # fmt: skip
    await node.values(select)
    found = (await node.value("INFO FOR TABLE seen"))["columns"]
    assert [(one["field"], one["blocks"]) for one in found] == [("n", 5), ("s", 5)]
    assert all(one["bytes"] > 0 for one in found)


REASONS: list[tuple[str, str | None]] = [
    ("SELECT median(n) FROM t GROUP ALL", "median is computed for each row"),
    ("SELECT * FROM t WHERE n > 3 LIMIT 2", "LIMIT without ORDER BY stops reading early"),
    ("SELECT * FROM t WHERE rand::int(0, 1) < n", "rand::int is computed for each row"),
    ("SELECT * FROM t WHERE n IN (SELECT VALUE n FROM t)", "a subquery is computed for each row"),
    ("SELECT n FROM t ORDER BY n LIMIT 200", "with so large a LIMIT most records are read"),
    ("SELECT n FROM t ORDER BY id", "all records are in the answer"),
    ("SELECT DISTINCT * FROM t", "DISTINCT compares whole records"),
    ("SELECT * FROM t:.. WHERE n > 3", "only one whole table is read by column"),
    ("SELECT sum(n) FROM small GROUP ALL", None),
]


async def test_explain_gives_the_reason_for_reading_by_row(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _filled(node, "t", ({"id": n, "n": n} for n in range(300)))
    await _filled(node, "small", ({"id": n, "n": n} for n in range(90)))
    for select, reason in REASONS:
        found = await _explained(node, select)
        assert found["access"] == "scan" and found.get("by_row") == reason
    monkeypatch.setattr(held(node), "most_bytes", 1_000)
    found = await _explained(node, "SELECT sum(n) FROM t GROUP ALL")
    assert found["by_row"] == column_scan.TOO_WIDE


async def test_a_moment_older_than_the_columns_is_read_by_row(node: Running) -> None:
    await _filled(node, "old", ({"id": n, "n": 1} for n in range(300)))
    kept = await node.answer("RETURN 1", moment=NEW_MOMENT, keep_us=60_000_000)
    await node.values("UPDATE old:7 SET n = 100 RETURN NONE")
    select = "SELECT sum(n) AS n FROM old GROUP ALL"
    found = await node.value(select)
    while any(table.overlay for table in held(node).tables.values()):
        # Until the change is applied, and the next scan has put it in.
        await asyncio.sleep(0)
        found = await node.value(select)
    assert found == [{"n": 399}]
    answer = await node.answer(f"EXPLAIN {select}; {select}", moment=kept.moment)
    explained: Any = answer.results[0].value
    assert answer.results[1].value == [{"n": 300}]
    assert explained["sources"][0]["by_row"] == column_scan.OLDER


async def test_mixed_blocks_go_by_row_and_others_do_not(node: Running) -> None:
    rows: list[dict[str, Any]] = [{"id": n, "n": n} for n in range(300)]
    rows[70]["n"] = [1]
    await _filled(node, "mixed", rows)
    select = "SELECT count() AS n FROM mixed WHERE n < 100 GROUP ALL"
    assert await node.value(select) == [{"n": 99}]
    assert (await _explained(node, select))["by_row"] == columns.MIXED.format(1)
    await node.values("UPDATE mixed:70 SET n = 70 RETURN NONE")
    assert await node.value(select) == [{"n": 100}]
    assert "by_row" not in await _explained(node, select)


_NO_NUMPY = """
import asyncio, sys, tempfile
from pathlib import Path
from tests.nodes import running

async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder) / "store") as node:
            rows = [{"id": n, "n": n} for n in range(1000)]
            await node.values("DEFINE TABLE t; INSERT INTO t $rows RETURN NONE", {"rows": rows})
            await node.values("SELECT sum(n) FROM t WHERE n > 3 GROUP ALL; SELECT * FROM t")
            assert "numpy" not in sys.modules
            await node.values("CREATE t:1001 SET n = 1")
            await node.values("SELECT sum(n) FROM t WHERE n > 3 GROUP ALL")
            await node.values("SELECT sum(n) FROM t WHERE n > 3 GROUP ALL")
            print("numpy" in sys.modules)

asyncio.run(main())
"""


def test_numpy_is_imported_by_the_first_long_scan_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NO_NUMPY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "True\n" in done.stdout
