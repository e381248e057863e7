"""The command with little room for what fills up by itself: `python -m bench.soak.small`.

A node keeps blocks of the state, what is on its way to the state's files, the newest frames, old
segments: each up to a bound, which a soak of an hour reaches and one of minutes does not. With
small bounds what still grows after minutes is a leak.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

from protocol import limits
from storage import rocks

BOUNDS: Final[tuple[tuple[ModuleType, str, int], ...]] = (
    (rocks, "CACHE_BYTES", 2 * limits.MIB),
    (rocks, "MEMTABLE_BYTES", limits.MIB),
    (limits, "TAIL_BYTES", limits.MIB // 2),
    (limits, "SEGMENT_BYTES", 2 * limits.MIB),
    (limits, "SEGMENT_FRAMES", 256),
    (limits, "LOG_FRAMES_KEPT", 1_000),
)


def shrink() -> None:
    """Before anything else is imported that reads them."""
    for module, name, bound in BOUNDS:
        assert getattr(module, name) > bound, f"{name} is small already"
        setattr(module, name, bound)


if __name__ == "__main__":
    shrink()
    from surfaces.command.main import main

    sys.exit(main(sys.argv[1:]))
