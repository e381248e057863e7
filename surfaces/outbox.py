"""The outbox of a surface: answers leave together at the end of the loop's turn.

Requests that one turn brings are all worked through first, and their answers handed to the system
then, one write for each connection. Each answer written where it is made would wake its reader up
in between: a read by id with 64 clients takes the node 70 µs so and 40 as it is, for the system's
part of a write is dearer where the reader sleeps, and what the processor has at hand of the node's
code and data is lost to it each time. Redis does the same before it sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Says(Protocol):
    """A connection."""

    def flush(self) -> None:
        """Hand over what there is to say."""


Connection = TypeVar("Connection", bound=Says)


class Outbox(Generic[Connection]):
    """Those that have something to say by the end of this turn, or sooner.

    :param broken: told of one whose `flush` failed, and why
    """

    def __init__(self, broken: Callable[[Connection, Exception], None]) -> None:
        self._broken = broken
        self._connections: list[Connection] = []

    def add(self, connection: Connection) -> None:
        """Have a connection hand over what it has to say when this turn of the loop is over."""
        if not self._connections:
            asyncio.get_running_loop().call_soon(self.say)
        self._connections.append(connection)

    def say(self) -> None:
        """Have all of them do it now."""
        connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.flush()
            except Exception as error:  # what the others have to say is not lost with it
                self._broken(connection, error)
