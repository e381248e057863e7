"""A request for which the node runs a script: it ends with its client, and is answered whatever
comes of it."""

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
    """Answers one request.

    :ivar _running: whether the node runs the script at present
    """

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange
        self._running = False

    def finish(self) -> None:
        """The request is there: do it, at once where it may (`Connection.may_begin`)."""
        if self._exchange.connection.may_begin:
            # A change that comes alone goes to the log before there is a task, which would look
            # like more to come.
            self._surface.background.begin(self._run(), self._surface.node.committer.turn_ends)
        else:
            self._surface.spawn(self._run())

    def on_connection_close(self) -> None:
        """The client is gone: nobody reads the answer, so the script stops at its next slice."""
        if not self._running:
            return
        try:
            tell(self._surface.node.scripts, CancelScript(self._exchange.request))
        except Busy as busy:  # it then runs to its own end, and nobody reads its answer
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
        """Do what is asked, and answer. What it raises is answered too."""


def without_place(refusal: Refusal, *more: str) -> Refusal:
    """The refusal of a text that nobody has written here: it says nothing of where.

    :param more: other details that it does not say
    """
    told = copy(refusal)
    told.detail = {
        name: value
        for name, value in refusal.detail.items()
        if name not in _OF_TEXTS and name not in more
    }
    return told
