"""Progress of long work: a bar on a terminal, a plain line for every tenth elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Report = Callable[[int, int], None]
"""Told how much is done, and how much there is in all."""

STEPS: Final = 10


@contextmanager
def shown(title: str, out: TextIO | None = None) -> Iterator[Report]:
    """Show the progress of what runs inside the block.

    :param title: what is being done, `replaying the log`
    :param out: standard error when not given
    """
    stream = out or sys.stderr
    if not stream.isatty():
        yield _lines(title, stream)
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, stream: TextIO) -> Report:
    said = 0

    def report(done: int, total: int) -> None:
        nonlocal said
        step = STEPS * done // total if total else STEPS
        if step > said:
            said = step
            print(f"{title}: {done} of {total}", file=stream, flush=True)

    return report
