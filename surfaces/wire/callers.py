"""Callers: the authenticated caller of a wire connection, looked up once for all requests of a
read.

The next read looks it up again, since a session can end at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from protocol.errors import Refusal
from protocol.requests import Caller
from surfaces.wire.link import WireLink

Then = Callable[[Caller], None]
Refused = Callable[[Refusal], None]


class WireCallers:
    """:param link: the connection"""

    def __init__(self, link: WireLink) -> None:
        self._link = link
        self.starting: asyncio.Future[Caller] | None = None
        """Done when the caller of the newest requests is known; None: it is."""

    def ask(self, name: str, then: Then, refused: Refused) -> None:
        """Look up the connection's present caller. An AUTH later in the stream does not affect it.

        :param name: id of one of the requests, for the log if the node fails
        :param then: called with the caller, at once if it is cached
        :param refused: called with the refusal
        """
        link = self._link
        assert link.token is not None, "something was begun for nobody"
        try:
            asked = link.wire.gate.caller(link.token, link.who, link.address)
        except Refusal as refusal:
            refused(refusal)
        except Exception:
            refused(link.failed(name))
        else:
            if isinstance(asked, Caller):
                then(asked)
                return
            self.starting = asked
            link.wire.background.follow(asked, partial(self._on_caller, name, then, refused))

    def _on_caller(
        self, name: str, then: Then, refused: Refused, asked: asyncio.Future[Caller]
    ) -> None:
        link = self._link
        if self.starting is asked:
            self.starting = None
        try:
            caller = asked.result()
        except Refusal as refusal:
            refused(refusal)
        except asyncio.CancelledError:  # the surface closes
            refused(link.wire.admission.leaving())
        except Exception:
            refused(link.failed(name))
        else:
            then(caller)
