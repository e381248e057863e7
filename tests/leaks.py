"""What a test must not leave behind: open descriptors and living actors."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pykka
from greenlet import getcurrent, greenlet

from actors.execution import scheduler

DESCRIPTORS = Path("/proc/self/fd")

KEPT_BY_THE_INTERPRETER = (
    "/dev/",  # the terminal, and sources of randomness that libraries keep open
    "/proc/",  # among them the listing itself
    "/usr/",
)


def open_descriptors() -> dict[int, str]:
    """Number and target of every descriptor of this process that a test could have opened."""
    found: dict[int, str] = {}
    for name in os.listdir(DESCRIPTORS):
        try:
            target = os.readlink(DESCRIPTORS / name)
        except FileNotFoundError:
            continue  # the descriptor of the listing itself, gone by now
        if not target.startswith(KEPT_BY_THE_INTERPRETER):
            found[int(name)] = target
    return found


def leaked_descriptors(before: dict[int, str]) -> list[str]:
    """Descriptors open now that were not open `before`, as `number -> target`."""
    leaked = _new_since(before)
    if leaked:
        gc.collect()  # what only a reference cycle keeps open is no leak of the code under test
        leaked = _new_since(before)
    return leaked


def leaked_actors() -> list[str]:
    """Actors alive now. They are stopped, so that the next test is judged by its own."""
    alive = pykka.ActorRegistry.get_all()
    names = [str(ref) for ref in alive]
    for ref in alive:
        pykka.ActorRegistry.unregister(ref)
    return names


class _Found(greenlet):
    """One that is found again while it lives, without a look through all that the process holds."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        _living[next(_numbers)] = self


_living: WeakValueDictionary[int, greenlet] = WeakValueDictionary()
_numbers = count()
vars(scheduler)["greenlet"] = _Found  # the one place that makes any


def end_greenlets() -> None:
    """End every suspended greenlet of this thread: the collector does not look into their frames,
    so what hangs on one that nobody resumes is never freed."""
    here = getcurrent()
    for each in list(_living.values()):
        if each and each is not here:
            with suppress(RuntimeError):  # who waited for it had a loop, which may be closed
                each.throw()


def _new_since(before: dict[int, str]) -> list[str]:
    now = open_descriptors()
    return [f"{fd} -> {target}" for fd, target in now.items() if before.get(fd) != target]
