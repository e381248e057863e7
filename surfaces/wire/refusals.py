"""Refusal of connections above the ceiling: each gets an error, and is closed once it has read it.

A refused client may try another node; one left in the backlog hangs.
"""

from __future__ import annotations

import asyncio
from typing import Final

from surfaces.sockets import half_close

LAST_WORDS: Final = 256
"""Refused connections kept open at once until their error is read."""
LAST_WORD_SECONDS: Final = 1.0


class Refusals:
    """Refused connections of one surface.

    :param word: bytes that each gets
    """

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.open: set[_RefusedConnection] = set()

    def one(self) -> asyncio.Protocol | None:
        """Return the protocol of one more; None if there are too many of them."""
        return _RefusedConnection(self) if len(self.open) < LAST_WORDS else None

    def end(self) -> None:
        """Abort all of them."""
        for refused in list(self.open):
            refused.abort()


class _RefusedConnection(asyncio.Protocol):
    """A connection that gets its error, and is closed."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._refusals.open.add(self)
        transport.write(self._refusals.word)
        if not half_close(transport):
            transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAST_WORD_SECONDS, transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._refusals.open.discard(self)

    def abort(self) -> None:
        """Abort the connection."""
        self._transport.abort()
