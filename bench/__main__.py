"""`python -m bench`: measure, print a table, write bench/results.json."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import (
    analytics,
    backups,
    client_loads,
    clients,
    clusters,
    feeds,
    history,
    indexes,
    machine,
    neighbours,
    records,
    searches,
    spaces,
    stores,
    topics,
    vaults,
)  # fmt: skip
from bench.figures import Measurement, median, spread
from bench.page import number, page
from bench.settings import Settings

TOP = Path(__file__).parents[1]
PAGE = Path("docs", "benchmarks.md")
RESULTS = Path("bench", "results.json")
STORES = Path("build")
"""Root of the benchmarked stores: the system's folder for temporary files may be memory."""
WIDTH = 140
SOURCES = (
    records,
    indexes,
    analytics,
    searches,
    neighbours,
    spaces,
    topics,
    feeds,
    history,
    backups,
    vaults,
    clients,
    client_loads,
    clusters,
    stores,
)
"""Modules that each measure some rows."""


def main() -> None:
    """Run the benchmarks that the command line names."""
    asked = _parser().parse_args()
    folder = asked.directory or asked.top / STORES
    folder.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="storenode-bench-", dir=folder))
    settings = Settings(directory, asked.rounds, asked.scale)
    console = Console(width=WIDTH)
    found: list[Measurement] = []
    try:
        facts = machine.facts(directory)
        console.print(facts_line(facts, settings))
        for source in SOURCES:
            for row in source.rows(settings, lambda name: asked.row in (None, name)):
                console.print(f"measured: {row.name}", style="dim")
                found.append(row)
                # Row by row: an interrupted run keeps the rows that are done.
                told = results(facts, settings, found)
                (asked.results or asked.top / RESULTS).write_text(json.dumps(told, indent=1) + "\n")
                if asked.publish:
                    (asked.top / PAGE).write_text(page(told))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    console.print(table(found))


def results(facts: dict[str, Any], settings: Settings, found: list[Measurement]) -> dict[str, Any]:
    """Return a run as a JSON object."""
    return {
        "machine": facts,
        "rounds": settings.rounds,
        "scale": settings.scale,
        "rows": [row.plain() for row in found],
    }


def table(found: list[Measurement]) -> Table:
    """Return a table of all rows, with a line for each side."""
    shown = Table(show_edge=False, pad_edge=False)
    for heading in ("row", "side"):
        shown.add_column(heading)
    for heading in ("median", "spread", "node is"):
        shown.add_column(heading, justify="right")
    shown.add_column("goal")
    shown.add_column("notes", overflow="fold")
    for row in found:
        first = True
        for side, figures in row.sides.items():
            ratio = row.ratio(side)
            shown.add_row(
                row.name if first else "",
                side,
                f"{number(median(figures))} {row.unit}",
                f"{spread(figures):.0%}" if len(figures) > 1 else "",
                f"{ratio:.2f}×" if ratio is not None else "",
                row.goal if first else "",
                "; ".join([row.work, *row.notes]) if first else "",
            )
            first = False
        for gap in row.gaps:
            shown.add_row("" if row.sides else row.name, f"not measured: {gap}")
        shown.add_section()
    return shown


def facts_line(facts: dict[str, Any], settings: Settings) -> str:
    """Describe the machine and the rounds, as printed above a table."""
    told = [f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()]
    return "; ".join([*told, f"rounds: {settings.rounds}, after one warm-up round"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [name for source in SOURCES for name in source.NAMES]
    parser.add_argument("--row", choices=names, help="measure only this row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the amounts of work")
    parser.add_argument(
        "--top",
        type=Path,
        default=TOP,
        help="checkout that results, page and stores are written to",
    )
    parser.add_argument("--directory", type=Path, help="directory of the stores")
    parser.add_argument("--publish", action="store_true", help="write docs/benchmarks.md too")
    parser.add_argument("--results", type=Path)
    return parser


if __name__ == "__main__":
    main()
