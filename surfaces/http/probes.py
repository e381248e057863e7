"""Health probes: GET /health and GET /ready.

They are answered from the node's status, without asking an actor. So they answer when mailboxes are
full and while the node drains.
"""

from __future__ import annotations

from typing import Final

from tornado.httputil import HTTPMessageDelegate

from protocol.jsonvalues import encode_plain
from protocol.version import BUILD
from surfaces.http.exchange import Exchange
from surfaces.http.shared import Http

NOT_READY: Final = b"Retry-After: 1\r\n"


class Health(HTTPMessageDelegate):
    """Delegate of GET /health: 200 if the node is alive and its store open. A stopping node is
    alive."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange

    def finish(self) -> None:
        """Answer the probe."""
        status = self._surface.node.status()
        body = {
            "status": status.health,
            "version": status.version,
            "build": BUILD,
            "sequence": status.sequence,
            "uptime": round(status.uptime_seconds, 3),
        }
        self._exchange.reply(503 if status.health == "failed" else 200, encode_plain(body))


class Ready(HTTPMessageDelegate):
    """Delegate of GET /ready: 200 if the node should get traffic, else 503 with the reason."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange

    def finish(self) -> None:
        """Answer the probe."""
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
