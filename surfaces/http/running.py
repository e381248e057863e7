"""Base class of requests that run a script: cancelled with its client, and always answered."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from copy import copy
from typing import Final

from actors.runtime import tell
from protocol.errors import Busy, Refusal
from protocol.requests import CancelScript
from surfaces.http.exchange import Exchange
from surfaces.http.shared import Http

_OF_TEXTS: Final = frozenset({"statement", "line", "column", "near"})


class RunningDelegate(ABC):
    """Delegate of one request.

    :ivar _running: True while the node runs the script
    """

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange
        self._running = False

    def finish(self) -> None:
        """Start the request; eagerly where `HttpLink.may_begin` allows it."""
        if self._exchange.connection.may_begin:
            # A change that comes alone goes to the log before there is a task, which would look
            # like more to come.
            self._surface.background.start(self._run(), self._surface.node.committer.on_turn_end)
        else:
            self._surface.spawn(self._run())

    def on_connection_close(self) -> None:
        """Cancel the script at its next slice: the client is gone."""
        if not self._running:
            return
        try:
            tell(self._surface.node.scripts, CancelScript(self._exchange.request))
        except Busy as busy:  # it then runs to its end, and its response is dropped
            self._exchange.report(busy)

    async def _run(self) -> None:
        exchange = self._exchange
        try:
            await self._answer()
        except Refusal as refusal:
            exchange.refuse(refusal)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            exchange.fail(error)
        finally:
            self._running = False
            exchange.finished()

    @abstractmethod
    async def _answer(self) -> None:
        """Execute the request, and answer. Exceptions are answered too."""


def without_place(refusal: Refusal, *more: str) -> Refusal:
    """Return a refusal without a position in the statement text, since that text is internal.

    :param more: other details to leave out
    """
    told = copy(refusal)
    told.detail = {
        name: value
        for name, value in refusal.detail.items()
        if name not in _OF_TEXTS and name not in more
    }
    return told
