"""The wall clock of a process, which libfaketime moves while it runs. The clocks by which leases
are counted stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LIBRARY: Final = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
"""libfaketime; None: it is not installed."""
WALL_ALONE: Final = {
    "LD_PRELOAD": str(LIBRARY), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
}  # fmt: skip
"""Environment of a process whose wall clock alone is moved."""


class Clock:
    """The wall clock of one node: an offset in a file that libfaketime reads each time."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "offset"
        self.move(0)

    def move(self, seconds: int) -> None:
        """Set it apart from the machine's by so many seconds."""
        self.path.write_text(f"{seconds:+d}\n")

    def environment(self) -> dict[str, str]:
        return {
            **WALL_ALONE, "FAKETIME_TIMESTAMP_FILE": str(self.path), "FAKETIME_NO_CACHE": "1",
        }  # fmt: skip
