"""The end of a serving node: who asks for it, and its four stages in their order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol

import structlog

from protocol import limits

STAGES: Final = ("not ready", "not accepting", "finishing", "closing the store")
"""What a log line says at the beginning of each stage."""
SEEN_SECONDS: Final = 0.2
"""Time in which new connections see that the node is not ready, before it refuses them: where
`/ready` was ever asked, so that a balancer can notice."""

SAID_SECONDS: Final = 5
"""Time in which clients take the answers of requests that were ended."""


class Drainable(Protocol):
    """What says that it is not ready, and finishes what runs."""

    def not_ready(self) -> None:
        """Say from now on that no traffic should come."""

    async def drain(self) -> None:
        """Wait for what runs."""

    async def end_requests(self) -> None:
        """End what still runs, and wait a moment for that."""


class Surface(Protocol):
    """What ends in stages."""

    was_probed: bool
    """True if `/ready` was asked of it."""

    def stop_accepting(self) -> None:
        """Take no new connections."""

    def drain(self) -> Coroutine[Any, Any, object]:
        """Begin nothing new, and wait for what runs."""

    async def close(self) -> None:
        """End every connection now."""


class StopSignals:
    """SIGTERM and SIGINT, as long as the block lasts. The first one sets `asked`; those after it
    are logged and change nothing, so that the close is never skipped. Once the block is left the
    process only says its last words: neither ends it before them, nor takes its exit code."""

    NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._log = structlog.get_logger()

    def __enter__(self) -> StopSignals:
        loop = asyncio.get_running_loop()
        for number in self.NUMBERS:
            loop.add_signal_handler(number, self._came, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in self.NUMBERS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    def _came(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            self._log.info("already stopping", signal=number.name)
            return
        self._log.info("asked to stop", signal=number.name)
        self.asked.set()


async def drain(node: Drainable, surfaces: Sequence[Surface]) -> None:
    """The first three stages, and the beginning of the fourth: closing the store is for whoever
    opened it."""
    log = structlog.get_logger()
    log.info("stopping", stage=1, does=STAGES[0])
    node.not_ready()
    if any(surface.was_probed for surface in surfaces):
        await asyncio.sleep(SEEN_SECONDS)
    log.info("stopping", stage=2, does=STAGES[1])
    for surface in surfaces:
        surface.stop_accepting()
    log.info("stopping", stage=3, does=STAGES[2])
    finishing = asyncio.gather(node.drain(), *(surface.drain() for surface in surfaces))
    await asyncio.wait([finishing], timeout=limits.DRAIN_SECONDS)
    if not finishing.done():
        log.warning("work in flight is ended", after_seconds=limits.DRAIN_SECONDS)
        await node.end_requests()
        await asyncio.wait([finishing], timeout=SAID_SECONDS)
    if not finishing.done():
        log.warning("connections are cut off", after_seconds=SAID_SECONDS)
        finishing.cancel()
    with suppress(asyncio.CancelledError):
        await finishing
    await asyncio.gather(*(surface.close() for surface in surfaces))
    log.info("stopping", stage=4, does=STAGES[3])
