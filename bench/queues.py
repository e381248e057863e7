"""Interface of a message queue, as driven by the rows about topics: the node's and each peer's.

Every side implements the same five operations; their names there are a matter of its module. Timed
work is done by drivers, processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.drivers import Driven, Go, Measured, together

MESSAGE: Final = "a message of a hundred and twenty-eight bytes, ".ljust(128, ".")
AT_REST_SECONDS: Final = 0.002
"""Pause between two messages whose latency is timed, seconds: the server is idle."""


@dataclass(frozen=True, slots=True)
class Share:
    """Work of one driver."""

    address: str
    clients: int
    """Connections of this driver; each does one request at a time."""
    requests: int
    """Requests of each client."""
    batch: int = 1
    """Messages per request."""


Work = Callable[[Share, Go], Driven]


@dataclass(frozen=True, slots=True)
class QueueSide:
    """A side. Its operations are functions of a module: drivers find them by their names."""

    name: str
    address: str
    refill: Callable[[int], None]
    """Empty the queue and fill it with so many messages, none of them taken yet."""
    publish: Work
    """A request: publish a batch and wait until all of it is confirmed."""
    take: Work
    """A request: take a batch as a worker and acknowledge it."""
    pass_on: Work
    """A request: publish a message to a waiting worker; the latency ends when the worker has it."""
    read: Work | None
    """A request: read the next messages from the first on, without a group; one client."""
    processes: int = 2
    """Drivers; several where the client library is the bottleneck."""
    cpu_seconds: Callable[[], float] = lambda: 0.0

    def run(self, work: Work, clients: int, requests: int, batch: int = 1) -> Measured:
        """Run `requests` by all clients together.

        :raises LoadFailed: a request failed
        """
        processes = min(self.processes, clients)
        shares = [
            Share(self.address, clients // processes, max(requests // clients, 1), batch)
            for _ in range(processes)
        ]
        return together(work, shares, self.cpu_seconds)
