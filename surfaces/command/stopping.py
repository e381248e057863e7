"""Graceful shutdown of a serving node: stop signals, and four stages in order."""

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
"""Names of the stages in the log."""
SEEN_SECONDS: Final = 0.2
"""Seconds in which new connections see that the node is not ready, before it refuses them. Only if
`/ready` was ever requested, so that a load balancer can notice."""

SAID_SECONDS: Final = 5
"""Seconds in which clients read the responses of cancelled requests."""


class Drainable(Protocol):
    """A node that can report itself not ready, and finish running requests."""

    def not_ready(self) -> None:
        """Report from now on that the node should get no traffic."""

    async def drain(self) -> None:
        """Wait for running requests."""

    async def end_requests(self) -> None:
        """Cancel running requests, and wait a moment for their end."""


class Surface(Protocol):
    """A surface that is shut down in stages."""

    was_probed: bool
    """True if `/ready` was requested."""

    def stop_accepting(self) -> None:
        """Take no new connections."""

    def drain(self) -> Coroutine[Any, Any, object]:
        """Admit no new requests, and wait for running ones."""

    async def close(self) -> None:
        """End every connection now."""


class StopSignals:
    """Handler of SIGTERM and SIGINT while the block lasts. The first signal sets `asked`; later
    ones are only logged, so that the close is never skipped. After the block both are ignored:
    neither ends the process before its last messages, nor changes its exit code."""

    NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._log = structlog.get_logger()

    def __enter__(self) -> StopSignals:
        loop = asyncio.get_running_loop()
        for number in self.NUMBERS:
            loop.add_signal_handler(number, self._on_signal, number)
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

    def _on_signal(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            self._log.info("already stopping", signal=number.name)
            return
        self._log.info("asked to stop", signal=number.name)
        self.asked.set()


async def drain(node: Drainable, surfaces: Sequence[Surface]) -> None:
    """Run the first three stages, and announce the fourth: the owner of the store closes it."""
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
        log.warning("requests in flight are cancelled", after_seconds=limits.DRAIN_SECONDS)
        await node.end_requests()
        await asyncio.wait([finishing], timeout=SAID_SECONDS)
    if not finishing.done():
        log.warning("open connections are aborted", after_seconds=SAID_SECONDS)
        finishing.cancel()
    with suppress(asyncio.CancelledError):
        await finishing
    await asyncio.gather(*(surface.close() for surface in surfaces))
    log.info("stopping", stage=4, does=STAGES[3])
