"""A message queue, as the rows about topics drive it. The node's is one, each peer's another.

A queue does the same five things on every side; what they are called there is its module's matter.
Work that is timed is done by drivers, processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.drivers import Driven, Go, Measured, together

MESSAGE: Final = "a message of a hundred and twenty-eight bytes, ".ljust(128, ".")
AT_REST_SECONDS: Final = 0.002
"""Between two messages whose way is timed: the taker waits again, and nobody works."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one driver does."""

    address: str
    clients: int
    """Connections of this driver; each does one request at a time."""
    requests: int
    """Of each client."""
    batch: int = 1
    """Messages of a request."""


Work = Callable[[Share, Go], Driven]


@dataclass(frozen=True, slots=True)
class Queue:
    """One side. The works are functions of a module: drivers find them by their names."""

    name: str
    address: str
    refill: Callable[[int], None]
    """Have so many messages, none of them taken yet, and nothing else."""
    publish: Work
    """A request: publish a batch and hear that all of it is kept."""
    take: Work
    """A request: take a batch as a worker and acknowledge it."""
    pass_on: Work
    """A request: publish a message for a worker that waits; it took from there until it had it."""
    read: Work | None
    """A request: the next messages, of nobody's group, from the first on; one client."""
    processes: int = 2
    """Drivers; more where the client library is what takes the time."""
    cpu_seconds: Callable[[], float] = lambda: 0.0

    def run(self, work: Work, clients: int, requests: int, batch: int = 1) -> Measured:
        """Have `requests` done by all clients together. :raises LoadFailed:"""
        processes = min(self.processes, clients)
        shares = [
            Share(self.address, clients // processes, max(requests // clients, 1), batch)
            for _ in range(processes)
        ]
        return together(work, shares, self.cpu_seconds)
