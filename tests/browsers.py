"""The browser that pages are tried in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from tests import durations

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first that is installed is taken. The shell has the engine of the others and nothing of what
people see around a page: it takes half the processor."""
CHROMIUM: Final = next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched(*words: str) -> Iterator[Browser]:
    """Start a browser, and a loop beside which no test of a coroutine can run; end both."""
    durations.starts["browsers"] += 1
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *words])
        yield found
        found.close()
