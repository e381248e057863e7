"""What the node answers to ACK, NACK, EXTEND and GIVE UP."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

STORE: Final = "0" * 8
"""How the ids of the stores of models begin."""


def named(topic: int, store: str = STORE) -> str:
    """How receipts of a topic begin.

    :param topic: its id
    :param store: how its store's id begins
    """
    return blake2b(topic.to_bytes(8, "big"), digest_size=4, key=store.encode()).hexdigest()


def settled(word: str, done: int, stale: Sequence[str] = ()) -> dict[str, Any]:
    """:param stale: the receipts that came too late, in the order in which they were named"""
    return {word: done, "stale": len(stale), "stale_receipts": list(stale)}
