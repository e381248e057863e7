"""Interface of the surface for its connections."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from surfaces.flush_queue import Flushable, FlushQueue
from surfaces.http.fast_path import FastPath
from surfaces.http.intake import Intake
from surfaces.http.shared import Http

Connection = TypeVar("Connection", bound=Flushable)


class Serving(Http, Generic[Connection]):
    """Operations that a connection calls; `surface.py` implements them."""

    intake: Intake
    shortcuts: FastPath
    flush_queue: FlushQueue[Connection]

    @abstractmethod
    def opened(self, connection: Connection) -> bool:
        """Register a connection. Return False if it exceeds the ceiling and is to be refused."""

    @abstractmethod
    def lost(self, connection: Connection) -> None:
        """Remove a closed connection."""

    @abstractmethod
    def broken(self, connection: Connection, error: BaseException) -> None:
        """Log a bug outside of any request, and abort the connection."""
