"""Connections over the ceiling: each is told that there is no room, and closed once it has read it.

A client that is told may go elsewhere; one that is left in the backlog hangs.
"""

from __future__ import annotations

import asyncio
from typing import Final

from surfaces.sockets import half_close

LAST_WORDS: Final = 256
"""Refused connections kept open at once until their last word is read."""
LAST_WORD_SECONDS: Final = 1.0


class Refusals:
    """The refused connections of one surface. :param word: what each is told"""

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.standing: set[_Refused] = set()

    def one(self) -> asyncio.Protocol | None:
        """The protocol of one more; None when there are too many of them, too."""
        return _Refused(self) if len(self.standing) < LAST_WORDS else None

    def end(self) -> None:
        """Cut them."""
        for refused in list(self.standing):
            refused.abort()


class _Refused(asyncio.Protocol):
    """A connection that hears its last word."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._refusals.standing.add(self)
        transport.write(self._refusals.word)
        if not half_close(transport):
            transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAST_WORD_SECONDS, transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._refusals.standing.discard(self)

    def abort(self) -> None:
        """End now."""
        self._transport.abort()
