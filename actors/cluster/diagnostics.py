"""Diagnostics of etcd for operators: polls etcd for known faults and logs new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from actors.cluster.tasks import end
from protocol.agreement import Agreement, NotAnswered

log = structlog.get_logger("cluster")

LOOK_SECONDS: Final = 3_600.0
"""Interval of polls (s): an operator may have replaced etcd by another release."""
AGAIN_SECONDS: Final = 60.0


class Diagnostics:
    """On the loop only.

    :param tell: called with all known faults after each poll
    """

    def __init__(self, tell: Callable[[tuple[str, ...]], None]) -> None:
        self._tell = tell
        self._task: asyncio.Future[None] | None = None

    def poll_door(self, door: Agreement) -> None:
        """Poll this etcd from now on, instead of the one before."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._poll_faults(door))

    async def end(self) -> None:
        """Stop polling."""
        if self._task is not None:
            await end(self._task)

    async def _poll_faults(self, door: Agreement) -> None:
        """Poll until cancelled; log each new fault once."""
        said: frozenset[str] = frozenset()
        while True:
            seconds = LOOK_SECONDS
            try:
                found = await door.faults()
            except NotAnswered:
                # Silence says nothing of faults: ask again sooner.
                seconds = AGAIN_SECONDS
            else:
                for fault in found:
                    if fault not in said:
                        log.warning("etcd has a known fault", fault=fault)
                # Only the newest answer counts: a fault that comes back is logged again.
                said = frozenset(found)
                self._tell(found)
            await asyncio.sleep(seconds)
