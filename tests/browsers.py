"""The browser that pages are tried in."""

from __future__ import annotations

import shutil
from typing import Final

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first that is installed is taken. The shell has the engine of the others and nothing of what
people see around a page: it takes half the processor."""
CHROMIUM: Final = next(filter(None, map(shutil.which, NAMES)), None)
