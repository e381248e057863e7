"""Options of a FULLTEXT index: the analyzer as it was when the index took it, and scoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Analyzer and scoring of a FULLTEXT index."""

    analyzer: str
    definition: bytes
    """Definition of the analyzer, packed: the index answers by this copy."""
    saturation: float = 1.2
    """k1 of BM25: how soon further occurrences count no more."""
    length: float = 0.75
    """b of BM25: how much a long text counts less."""
    boosts: tuple[float, ...] = ()
    """Factor of each field, in the order of the paths; empty: all are 1."""


def pack_options(options: TextOptions) -> dict[str, Any]:
    """Return options as the row of an index holds them."""
    return {
        "analyzer": options.analyzer,
        "definition": options.definition,
        "saturation": options.saturation,
        "length": options.length,
        "boosts": list(options.boosts),
    }


def read_options(row: dict[str, Any] | None) -> TextOptions | None:
    """Return options from the row of an index; None: it is no FULLTEXT index."""
    if row is None:
        return None
    return TextOptions(
        row["analyzer"],
        row["definition"],
        row["saturation"],
        row["length"],
        tuple(row["boosts"]),
    )
