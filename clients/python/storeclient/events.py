"""Connection events of a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ConnectionChange = Literal["connected", "reconnected", "lost"]


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """The connection was established, for the first time or again, or lost.

    Each change is reported once. A lost connection is made again by the next call that needs one,
    so `reconnected` comes then; requests pending at the loss have an unknown outcome.
    """

    change: ConnectionChange
    address: str
    version: str | None = None
    """Version of the node, once connected."""
    error: BaseException | None = None
    """Error that ended the connection; None: the node or this client closed it."""


OnConnection = Callable[[ConnectionEvent], None]
"""Listener, called on the client's event loop: with `Client` in its thread. It must not block. Its
exceptions go to the loop's exception handler."""
