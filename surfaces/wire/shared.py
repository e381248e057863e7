"""Shared state of a wire surface's connections: gate, admission, memory quotas, shutdown."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from actors.execution.loop_budget import LoopBudget
from actors.rate_limited_log import RateLimitedLog
from protocol import limits
from surfaces.admission import Admission
from surfaces.background_tasks import BackgroundTasks
from surfaces.counters import WireCounters
from surfaces.flush_queue import FlushQueue
from surfaces.logs import RefusalLog
from surfaces.long_work import LongWork
from surfaces.memory_quota import MemoryQuota
from surfaces.wire.gate import Gate

CONNECTIONS_US: Final = 8 * limits.SLICE_US
"""Time that all connections together may take of one iteration of the loop (µs)."""
LOOK_SECONDS: Final = 0.25
"""Seconds between two checks of peers with unread responses."""


class Connected(Protocol):
    """A connection, as far as the surface manages it."""

    def flush(self) -> None:
        """Write the buffered responses, and continue requests that waited for room."""

    def is_slow(self) -> bool:
        """Charge unread responses, and abort the connection if the peer has read none for too long.
        Return False if everything is read."""

    def send_bye(self) -> None:
        """Send BYE: the node is draining."""

    def abort(self) -> None:
        """Abort the connection."""


class Wire:
    """Shared state of one surface's connections."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.counters = WireCounters()
        self.requests = MemoryQuota(limits.REQUESTS_BYTES)
        self.answers = MemoryQuota(limits.ANSWERS_BYTES)
        self.coming: set[Connected] = set()
        """Accepted connections not established yet: a TLS handshake is under way."""
        self.connections: set[Connected] = set()
        self.admission = Admission(limits.RUNNING, gate.waiting, gate.waiting_of)
        self.limited_log = RateLimitedLog("surfaces.wire")
        self.refusals = RefusalLog("wire")
        self.made = 0
        """Connections since the start; numbers them in request ids."""
        self.background = BackgroundTasks(self.limited_log, self.check_left)
        self._none_left = asyncio.Event()
        self.long_work = LongWork(gate.scheduler)
        """Decodes and encodes long frames."""
        self.budget = LoopBudget(CONNECTIONS_US)
        """Time of one iteration of the loop that all connections share."""
        self.flush_queue: FlushQueue[Connected] = FlushQueue(self.broken)
        gate.call_after_each_release(self.flush_queue.say)
        self._slow: set[Connected] = set()
        self._slow_timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """Number of connections counted against the ceiling."""
        return len(self.connections) + len(self.coming)

    def check_left(self) -> None:
        """Check if anything is left; called whenever something has ended."""
        if not self.background and not self.held:
            self._none_left.set()

    def arrived(self, connection: Connected) -> None:
        """Register an established connection."""
        self.coming.discard(connection)
        self.connections.add(connection)

    def left(self, connection: Connected) -> None:
        """Remove a connection that is over, or was never established."""
        self.coming.discard(connection)
        self.connections.discard(connection)
        self._slow.discard(connection)
        self.check_left()

    async def all_gone(self) -> None:
        """Wait until no connection is left and no request runs."""
        while self.background or self.held:
            self._none_left.clear()
            await self._none_left.wait()

    def watch(self, connection: Connected) -> None:
        """Watch a connection whose peer has unread responses, until it has read them."""
        self._slow.add(connection)
        if self._slow_timer is None:
            loop = asyncio.get_running_loop()
            self._slow_timer = loop.call_later(LOOK_SECONDS, self._look_after_slow)

    def _look_after_slow(self) -> None:
        self._slow_timer = None
        for connection in list(self._slow):
            self._slow.discard(connection)
            try:
                if connection.is_slow():
                    self.watch(connection)
            except Exception as error:  # the other connections are still checked
                self.broken(connection, error)

    def broken(self, connection: Connected, error: Exception) -> None:
        """Log a bug outside of any request, and abort the connection."""
        self.limited_log.error("a connection failed", exc_info=error)
        connection.abort()

    def end(self) -> None:
        """Abort every connection and cancel every request."""
        self.background.cancel()
        for connection in list(self.connections):
            connection.abort()
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None
