"""The wall clock of a process, which is moved by libfaketime while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
needs_faketime = pytest.mark.skipif(
    LIBRARY is None, reason="no libfaketime here: apt-get install faketime"
)


class Clock:
    """The wall clock of one node: an offset in a file that libfaketime reads each time. The clocks
    that leases are counted by stay as they are."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "offset"
        self.move(0)

    def move(self, seconds: int) -> None:
        self.path.write_text(f"{seconds:+d}\n")

    def environment(self) -> dict[str, str]:
        return {
            **_WALL_ALONE, "FAKETIME_TIMESTAMP_FILE": str(self.path), "FAKETIME_NO_CACHE": "1",
        }  # fmt: skip


_WALL_ALONE = {
    "LD_PRELOAD": str(LIBRARY), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
}  # fmt: skip


def later(seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is ahead by so much all along."""
    return {**_WALL_ALONE, "FAKETIME": f"+{seconds}"}
