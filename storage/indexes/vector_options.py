"""Options of a VECTOR index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Distance = Literal["COSINE", "EUCLIDEAN", "DOT"]
NumberType = Literal["F32", "I8"]

DIMENSIONS: Final = 4_096
"""Most dimensions of the vectors of an index."""


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Form of the vectors of an index, and the recall that its answers are to have."""

    dimension: int
    distance: Distance = "COSINE"
    type: NumberType = "F32"
    recall: float = 0.95


def pack_options(options: VectorOptions) -> dict[str, Any]:
    """Return options as the row of an index holds them."""
    return {
        "dimension": options.dimension,
        "distance": options.distance,
        "type": options.type,
        "recall": options.recall,
    }


def read_options(row: dict[str, Any] | None) -> VectorOptions | None:
    """Return options from the row of an index; None: it is no VECTOR index."""
    if row is None:
        return None
    return VectorOptions(row["dimension"], row["distance"], row["type"], row["recall"])
