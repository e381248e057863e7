"""Tests that move the wall clock of a process (`tests/cluster/clocks.py`)."""

from __future__ import annotations

import pytest

from tests.cluster.clocks import LIBRARY, WALL_ALONE
from tests.cluster.clocks import Clock as Clock

needs_faketime = pytest.mark.skipif(
    LIBRARY is None, reason="no libfaketime here: apt-get install faketime"
)


def later(seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is ahead by so much all along."""
    return {**WALL_ALONE, "FAKETIME": f"+{seconds}"}
