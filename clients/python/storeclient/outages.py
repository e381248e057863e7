"""Outages of a node: errors that indicate one, and the backoff between attempts. For endless work:
consumers of groups, and readers that follow a topic."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from storeclient.errors import (
    NotWritable,
    OutcomeUnknown,
    Refused,
    StatementTimeout,
    StoreError,
    Unreachable,
)

RETRY_FIRST_SECONDS: Final = 0.05
RETRY_MOST_SECONDS: Final = 5.0


def is_outage(error: StoreError) -> bool:
    """True if an error is temporary: the node is away, stopping, full, read-only or lagging."""
    if isinstance(error, Refused) and not isinstance(error, OutcomeUnknown):
        return error.retry or is_behind(error) or isinstance(error, NotWritable)
    return isinstance(error, OutcomeUnknown | Unreachable)


def is_behind(error: StoreError) -> bool:
    """True if a node did not reach a request's `after` sequence in time."""
    return isinstance(error, StatementTimeout) and "after" in error.detail


class Pause:
    """Exponential backoff between attempts, with jitter, so that the clients of a node do not
    reconnect all at once."""

    def __init__(self) -> None:
        self._seconds = RETRY_FIRST_SECONDS

    async def rest(self, stopping: asyncio.Future[None] | None = None) -> None:
        """Sleep until the next attempt, or until `stopping` is done."""
        seconds = self._seconds * random.uniform(0.5, 1.0)
        self._seconds = min(self._seconds * 2, RETRY_MOST_SECONDS)
        if stopping is None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait((stopping,), timeout=seconds)

    def over(self) -> None:
        """Reset the backoff after a successful attempt."""
        self._seconds = RETRY_FIRST_SECONDS
