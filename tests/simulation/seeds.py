"""A range of seeds of the simulated node, one after another: `make seeds FROM=10000 TO=11000`, and
`OF=feeds` for worlds in which more is asked for: `world.BESIDE` names them.

Each hundred is a line. A seed that breaks a promise, or has the node log a warning that its
world does not explain, is a line of its own; the rest goes on, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.logbook import Logbook
from tests.simulation.history import Broken
from tests.simulation.world import BESIDE, Figures, Shape, World

EXPECTED = (
    "LogActor.*Input/output error",
    "node failed.*Input/output error",
    "CheckpointsActor.*the node is stopping",
    "the checkpoint waits for room",
    "the next start replays more of the log",
    "the last commits were refused",
    "the disk is full: old log was dropped",
)
"""What a node logs when its disk fails or is full."""
TOLD_EVERY = 100


def one(seed: int, figures: Figures, shape: Shape | None = None) -> str | None:
    """Live one world. Answers what it has found, if anything."""
    book = Logbook()
    for pattern in EXPECTED:
        book.allow(pattern)
    book.install()
    try:
        world = World(seed, shape)
        world.run()
    except Broken as broken:
        return str(broken)
    finally:
        book.remove()
    figures.add(world.figures)
    unexpected = book.unexpected()
    return f"seed {seed}: logged {'; '.join(unexpected)}" if unexpected else None


def found(seeds: range, shape: Shape | None = None) -> Iterator[str]:
    """What seeds find; in between what they went through goes to standard error."""
    figures = Figures()
    for count, seed in enumerate(seeds, 1):
        if what := one(seed, figures, shape):
            yield what
        if count % TOLD_EVERY == 0 or seed == seeds[-1]:
            print(f"to {seed}: {figures}", file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tests.simulation.seeds", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("behind", type=int, help="the first that is left out")
    parser.add_argument("--of", choices=BESIDE, help="what is asked for beside tables")
    told = parser.parse_args(words)
    broken = 0
    for what in found(range(told.first, told.behind), BESIDE.get(told.of)):
        print(what, flush=True)
        broken += 1
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
