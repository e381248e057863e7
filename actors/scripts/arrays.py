"""numpy, and the modules that need it: loaded by a thread when a statement first needs them."""

from __future__ import annotations

import asyncio
import threading
from importlib import import_module
from typing import Final

from actors.execution.fiber import Fiber

_MODULES: Final = (
    "numpy",
    "storage.columns.blocks",
    "storage.columns.ids",
    "language.columnar.selection",
    "language.columnar.aggregation",
    "actors.scripts.text_index",
    "actors.scripts.vector_index",
    "storage.search.checking",
    "storage.search.vector_checking",
    "storage.search.recall",
    "actors.scripts.recall_measuring",
)
_LOADED: Final = threading.Event()
"""Set once they are imported."""


def load_arrays(fiber: Fiber) -> None:
    """Import numpy and the modules that need it, unless they are. The import takes 0.15 s, so a
    thread does it, and the script's fiber yields meanwhile."""
    if not _LOADED.is_set():
        fiber.wait(asyncio.get_running_loop().run_in_executor(None, load))


def load() -> None:
    """Import them in the calling thread."""
    for name in _MODULES:
        import_module(name)
    _LOADED.set()
