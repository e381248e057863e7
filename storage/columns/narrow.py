"""Arrays of integers in the smallest type that holds their offsets from the least one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


def narrowed(values: Ints) -> tuple[Array, int]:
    """Return offsets, and the number that they start from."""
    if not len(values):
        return values.astype(np.uint8), 0
    least, most = int(values.min()), int(values.max())
    for kind in (np.uint8, np.uint16, np.uint32):
        if most - least <= np.iinfo(kind).max:
            return (values - least).astype(kind), least
    return values, 0


def widened(offsets: Array, base: int) -> Ints:
    """Return the integers again."""
    found: Ints = offsets.astype(np.int64)
    if base:
        found += base
    return found
