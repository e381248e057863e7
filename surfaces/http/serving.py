"""The surface as its connections see it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from surfaces.http.exchange import Exchange, Route
from surfaces.http.head import Head
from surfaces.http.shared import Http
from surfaces.http.shortcuts import Shortcuts
from surfaces.unsaid import Says, Unsaid

Connection = TypeVar("Connection", bound=Says)


class Serving(Http, Generic[Connection]):
    """What a connection asks for and tells; `surface.py` does it."""

    shortcuts: Shortcuts
    unsaid: Unsaid[Connection]

    @abstractmethod
    def opened(self, connection: Connection) -> bool:
        """Take a connection in. False: there is no room, it is to be refused."""

    @abstractmethod
    def lost(self, connection: Connection) -> None:
        """A connection is gone."""

    @abstractmethod
    def broken(self, connection: Connection, error: BaseException) -> None:
        """A bug that is no request's: the connection is cut."""

    @abstractmethod
    def admit(self, exchange: Exchange, head: Head) -> Route:
        """The route of a request, decided by its head. :raises Refusal: there is none"""

    @abstractmethod
    def begin(self, exchange: Exchange) -> None:
        """Run a request whose turn has come."""

    @abstractmethod
    def finished(self, exchange: Exchange) -> None:
        """A request is answered, or nobody waits for its answer any more."""
