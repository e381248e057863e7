"""Progress of long work: a bar on a terminal, a plain line for every tenth elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from rich.console import Console as Screen
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from surfaces.command.console import Console

Report = Callable[[int, int | None], None]
"""Progress callback: amount done, and total (None: unknown)."""

STEPS: Final = 10
FIRST: Final = 1 << 20
"""Amount after which work of unknown length prints its first plain line; each further line at twice
the amount."""


@contextmanager
def shown(title: str, console: Console) -> Iterator[Report]:
    """Show the progress of the work inside the block, once there is any.

    :param title: name of the work, such as `replaying the log`
    """
    if not console.terminal:
        yield _lines(title, console)
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Screen(file=sys.stderr, force_terminal=True),
        transient=True,
    )
    task = bar.add_task(title, total=None)

    def report(done: int, total: int | None) -> None:
        bar.start()  # idempotent; started only here, so that instant work shows no bar
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of work in several stages inside the block: each call names its stage."""
    with ExitStack() as current:
        reports: dict[str, Report] = {}

        def tick(stage: str, done: int, total: int) -> None:
            if stage not in reports:
                reports.clear()
                current.close()
                reports[stage] = current.enter_context(shown(stage, console))
            reports[stage](done, total)

        yield tick


def _lines(title: str, console: Console) -> Report:
    said, ahead = 0, FIRST

    def report(done: int, total: int | None) -> None:
        nonlocal said, ahead
        if total is None:
            if done >= ahead:
                ahead = 2 * done
                console.print_line(f"{title}: {done}")
            return
        step = STEPS * done // total if total else STEPS
        if step > said:
            said = step
            console.print_line(f"{title}: {done} of {total}")

    return report
