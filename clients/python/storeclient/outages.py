"""A node that is away for a time: which errors tell of it, and how long to wait before the next
attempt. For what goes on for ever: consumers of groups, and readers that follow a topic."""

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
    """Whether it goes away with time, as a node does that is away, stops, is full, only reads or is
    behind."""
    if isinstance(error, Refused) and not isinstance(error, OutcomeUnknown):
        return error.retry or is_behind(error) or isinstance(error, NotWritable)
    return isinstance(error, OutcomeUnknown | Unreachable)


def is_behind(error: StoreError) -> bool:
    """Whether a node did not show in time what a request was to come after."""
    return isinstance(error, StatementTimeout) and "after" in error.detail


class Pause:
    """Between attempts, longer each time and somewhat at random, so that many clients of a node
    don't come back as one."""

    def __init__(self) -> None:
        self._seconds = RETRY_FIRST_SECONDS

    async def rest(self, stopping: asyncio.Future[None] | None = None) -> None:
        """Until the next attempt, or until somebody stops."""
        seconds = self._seconds * random.uniform(0.5, 1.0)
        self._seconds = min(self._seconds * 2, RETRY_MOST_SECONDS)
        if stopping is None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait((stopping,), timeout=seconds)

    def over(self) -> None:
        """An attempt has succeeded."""
        self._seconds = RETRY_FIRST_SECONDS
