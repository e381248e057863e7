"""The surface as its connections see it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from surfaces.http.intake import Intake
from surfaces.http.shared import Http
from surfaces.http.shortcuts import Shortcuts
from surfaces.outbox import Outbox, Says

Connection = TypeVar("Connection", bound=Says)


class Serving(Http, Generic[Connection]):
    """What a connection asks for and tells; `surface.py` does it."""

    intake: Intake
    shortcuts: Shortcuts
    outbox: Outbox[Connection]

    @abstractmethod
    def opened(self, connection: Connection) -> bool:
        """Take a connection in. False: there is no room, it is to be refused."""

    @abstractmethod
    def lost(self, connection: Connection) -> None:
        """A connection is gone."""

    @abstractmethod
    def broken(self, connection: Connection, error: BaseException) -> None:
        """A bug that is no request's: the connection is cut."""
