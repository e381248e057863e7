"""What a client tells of its connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ConnectionChange = Literal["connected", "reconnected", "lost"]


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """The connection has come to stand, for the first time or again, or is lost.

    Told once for each change. A lost connection is made again by the next call that needs one, so
    `reconnected` comes then; what was under way when it was lost has an unknown outcome.
    """

    change: ConnectionChange
    address: str
    version: str | None = None
    """Of the node, once connected."""
    error: BaseException | None = None
    """What it was lost by; None: the node or this client ended it."""


OnConnection = Callable[[ConnectionEvent], None]
"""Called on the client's event loop: in a thread of its own with `Client`. It must not block. What
it raises goes to the loop's exception handler."""
