"""GET /health and GET /ready: answered from what the node shows, without asking an actor, so that
they answer when mailboxes are full and while the node drains."""

from __future__ import annotations

from typing import Final

from tornado.httputil import HTTPMessageDelegate

from protocol.jsonvalues import encode_plain
from surfaces.http.exchange import Exchange
from surfaces.http.shared import Http

NOT_READY: Final = b"Retry-After: 1\r\n"


class Health(HTTPMessageDelegate):
    """Whether the node is alive and its store open. A node that is stopping is alive."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange

    def finish(self) -> None:
        """Answer."""
        status = self._surface.node.status()
        body = {
            "status": status.health,
            "version": status.version,
            "sequence": status.sequence,
            "uptime": round(status.uptime_seconds, 3),
        }
        self._exchange.reply(503 if status.health == "failed" else 200, encode_plain(body))


class Ready(HTTPMessageDelegate):
    """Whether the node should be sent traffic, and if not, why."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange

    def finish(self) -> None:
        """Answer."""
        self._surface.was_probed = True
        status = self._surface.node.status()
        reason = status.reason or self._surface.unready()
        body = {
            "ready": reason is None,
            "reason": reason,
            "roles": list(status.roles),
            "held_up": status.held_up,
        }
        if reason is None:
            self._exchange.reply(200, encode_plain(body))
        else:
            self._exchange.reply(503, encode_plain(body), fields=NOT_READY)
