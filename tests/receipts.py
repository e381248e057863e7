"""What the node answers to ACK, NACK, EXTEND and GIVE UP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

STORE: Final = "0" * 8
"""How receipts begin in the stores of models, whose ids do."""


def settled(word: str, done: int, stale: Sequence[str] = ()) -> dict[str, Any]:
    """:param stale: the receipts that came too late, in the order in which they were named"""
    return {word: done, "stale": len(stale), "stale_receipts": list(stale)}
