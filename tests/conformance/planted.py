"""Testees over a Python client with a fault in it: `-m tests.conformance.planted repeats`."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from typing import Any, Final

import testee
from storeclient import values
from storeclient.async_client import AsyncClient
from storeclient.attempts import Attempts
from storeclient.topics import AsyncTopic, Published


def repeats() -> None:
    """Sent writes are sent again, as if they were repeatable."""
    made = Attempts.__init__

    def careless(self: Attempts, nodes: Any, repeatable: bool, *more: Any, **named: Any) -> None:
        made(self, nodes, True, *more, **named)

    Attempts.__init__ = careless  # type: ignore[method-assign]


def stale() -> None:
    """Reads at other nodes come without the newest commit seen."""

    def careless(self: AsyncClient, body: Any, node: Any) -> Any:
        return body

    AsyncClient._behind_what_was_seen = careless  # type: ignore[method-assign]


def rounds() -> None:
    """Integers go through floats."""
    inward = values.unpack

    def rounded(value: Any) -> Any:
        if type(value) is int:
            return int(float(value))
        if isinstance(value, list):
            return [rounded(one) for one in value]
        if isinstance(value, dict):
            return {name: rounded(one) for name, one in value.items()}
        return value

    def unpack(data: bytes | memoryview) -> Any:
        return rounded(inward(data))

    sys.modules["storeclient.frames"].unpack = unpack  # type: ignore[attr-defined]


def forgets() -> None:
    """Every fiftieth message is told as published, and is not."""
    made, numbers = AsyncTopic.publish, itertools.count(1)

    async def careless(self: AsyncTopic, value: Any, **named: Any) -> Published:
        if next(numbers) % 50 == 0:
            return Published(next(numbers), False)
        return await made(self, value, **named)

    AsyncTopic.publish = careless  # type: ignore[method-assign]


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "repeats": repeats,
    "stale": stale,
    "rounds": rounds,
    "forgets": forgets,
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    asyncio.run(testee.main())
