"""Flush queue of a surface: all responses of one iteration of the loop are written at its end.

Requests that one iteration reads are all processed first. Then their responses are handed to the
system, in one write per connection. Writing each response at once would wake up its client in
between: a read by id with 64 clients then costs the node 70 µs instead of 40. The system's part of
a write is dearer if the reader sleeps, and each write evicts the node's code and data from the
processor's caches. Redis does the same before it sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Flushable(Protocol):
    """A connection that can flush its write buffer."""

    def flush(self) -> None:
        """Write the buffered responses."""


Connection = TypeVar("Connection", bound=Flushable)


class FlushQueue(Generic[Connection]):
    """Connections with buffered responses, flushed at the end of this iteration or sooner.

    :param broken: called with a connection whose `flush` raised, and the exception
    """

    def __init__(self, broken: Callable[[Connection, Exception], None]) -> None:
        self._broken = broken
        self._connections: list[Connection] = []

    def add(self, connection: Connection) -> None:
        """Flush a connection at the end of this iteration of the loop."""
        if not self._connections:
            asyncio.get_running_loop().call_soon(self.say)
        self._connections.append(connection)

    def say(self) -> None:
        """Flush all of them now."""
        connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.flush()
            except Exception as error:  # the other connections' responses must not be lost
                self._broken(connection, error)
