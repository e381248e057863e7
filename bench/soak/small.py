"""The storenode command with small bounds: `python -m bench.soak.small`.

A node keeps blocks of the state, memtables, the newest frames and old segments, each up to a bound.
A soak of an hour reaches these bounds; one of minutes does not. With small bounds, growth after
minutes is a leak.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

from protocol import limits
from storage.engine import rocksdb

BOUNDS: Final[tuple[tuple[ModuleType, str, int], ...]] = (
    (rocksdb, "CACHE_BYTES", 2 * limits.MIB),
    (rocksdb, "MEMTABLE_BYTES", limits.MIB),
    (limits, "TAIL_BYTES", limits.MIB // 2),
    (limits, "SEGMENT_BYTES", 2 * limits.MIB),
    (limits, "SEGMENT_FRAMES", 256),
    (limits, "LOG_FRAMES_KEPT", 1_000),
)


def shrink() -> None:
    """Lower the bounds, before any module that reads them is imported."""
    for module, name, bound in BOUNDS:
        assert getattr(module, name) > bound, f"{name} is small already"
        setattr(module, name, bound)


if __name__ == "__main__":
    shrink()
    from surfaces.command.main import main

    sys.exit(main(sys.argv[1:]))
