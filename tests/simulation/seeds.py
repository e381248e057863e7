"""Run a range of seeds of the simulated node: `make seeds FROM=10000 TO=11000`.

`OF=feeds` selects worlds with additional features: `world.BESIDE` names them. `OF=members` runs
whole clusters, `OF=watched` those with watchers, `OF=looked_at` those of `close_looks.py`. `SHOW=1`
prints the history of each cluster as a table; without it, that of each cluster that violates an
invariant.

Each hundred seeds print a line. A seed that violates an invariant, or has the node log a warning
that its world does not explain, prints a line of its own. The rest goes on, and the command ends
with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext

from tests.logbook import Logbook
from tests.simulation import cluster_faults
from tests.simulation.history_table import HistoryTable
from tests.simulation.world import BESIDE, World

EXPECTED = (
    "LogActor.*Input/output error",
    "node failed.*Input/output error",
    "CheckpointsActor.*the node is stopping",
    "the checkpoint waits for disk space",
    "the next start replays more of the log",
    "the last commits were refused",
    "the disk is full: old log was dropped",
)
"""Log lines of a node whose disk fails or is full."""
CLUSTERS = {
    "members": cluster_faults.drawn,
    "watched": cluster_faults.watched,
    "looked_at": cluster_faults.looked_at,
}
"""Shapes of clusters, drawn from the seed."""
TOLD_EVERY = 100


def live(seed: int, of: str | None) -> Counter[str]:
    """Run one world. Return its figures.

    :raises AssertionError: an invariant is violated
    """
    if of in CLUSTERS:
        return cluster_faults.run(seed, CLUSTERS[of](seed))
    world = World(seed, None if of is None else BESIDE[of])
    world.run()
    return Counter(vars(world.figures))


def one(
    seed: int,
    figures: Counter[str],
    of: str | None = None,
    table: HistoryTable | None = None,
) -> str | None:
    """Run one world. Return its violation, or None.

    :param table: receives the history of a cluster
    """
    book = Logbook()
    for pattern in cluster_faults.EXPECTED if of in CLUSTERS else EXPECTED:
        book.allow(pattern)
    book.install()
    records = of in CLUSTERS and table is not None
    try:
        with table.recording() if table is not None and records else nullcontext():
            figures.update(live(seed, of))
    except AssertionError as broken:
        return str(broken)
    finally:
        book.remove()
    unexpected = book.unexpected()
    return f"seed {seed}: logged {'; '.join(unexpected)}" if unexpected else None


def found(seeds: range, of: str | None = None, *, shows: bool = False) -> Iterator[str]:
    """Yield the violations of a range of seeds. Figures go to standard error in between.

    :param shows: print the history of each cluster, not only where an invariant is violated
    """
    figures = Counter[str]()
    for count, seed in enumerate(seeds, 1):
        table = HistoryTable()
        what = one(seed, figures, of, table)
        if table.rows and (shows or what):
            print(table, flush=True)
        if what:
            yield what
        if count % TOLD_EVERY == 0 or seed == seeds[-1]:
            told = ", ".join(f"{number} {name}" for name, number in figures.items())
            print(f"to {seed}: {told}", file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.seeds", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("behind", type=int, help="the first that is left out")
    kinds = (*BESIDE, *CLUSTERS)
    parser.add_argument("--of", choices=kinds, help="what is asked for beside tables, or clusters")
    parser.add_argument("--show", action="store_true", help="print the history of each cluster")
    told = parser.parse_args(words)
    broken = 0
    for what in found(range(told.first, told.behind), told.of, shows=told.show):
        print(what, flush=True)
        broken += 1
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
