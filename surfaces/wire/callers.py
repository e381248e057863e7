"""The caller on a wire connection: looked up once for all that one read has brought, and anew for
each read, since a session can end at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from protocol.errors import Refusal
from protocol.requests import Caller
from surfaces.wire.link import Link

Then = Callable[[Caller], None]
Refused = Callable[[Refusal], None]


class Callers:
    """:param link: the connection"""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.starting: asyncio.Future[Caller] | None = None
        """Done when it is known whose those are that were read last; None: it is."""

    def ask(self, name: str, then: Then, refused: Refused) -> None:
        """Find out who the peer is now: an AUTH behind what was read changes nothing.

        :param name: of a request among them, should the node fail
        :param then: called with who it is, at once if that is known
        :param refused: called with why nobody is let in
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
            link.wire.background.follow(asked, partial(self._judged, name, then, refused))

    def _judged(
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
