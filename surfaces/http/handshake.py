"""WebSocket handshake: validation of the upgrade request (RFC 6455, 4.2.1).

A browser can't set Authorization for a socket, only subprotocols. So a token may be offered as a
subprotocol, `store.bearer.<token>`. It is never echoed, and never part of the query, which proxies
log.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Final

from protocol.errors import BadRequest, ForeignOrigin, UpgradeRequired
from protocol.requests import NodeStatus
from surfaces.http import cors
from surfaces.http.credentials import Token
from surfaces.http.head import RequestHead

VERSION: Final = b"13"
BEARER: Final = "store.bearer."
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Token of RFC 9110: the syntax of a subprotocol."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer of a client in its upgrade request.

    :ivar subprotocols: without the one that is a token
    :ivar token: token of a browser, whose page can't read a refused upgrade
    """

    subprotocols: tuple[str, ...]
    token: Token | None = field(repr=False)

    @property
    def names_some(self) -> bool:
        """True if a subprotocol has to be selected."""
        return bool(self.subprotocols) or self.token is not None


def judge(head: RequestHead) -> Offer:
    """Validate an upgrade request, and return its offer.

    :raises UpgradeRequired: it requests no WebSocket, or another version
    :raises BadRequest: it is malformed
    """
    wanted = head.fields.get(b"upgrade", b"").lower()
    if head.method != "GET" or wanted != b"websocket":
        raise UpgradeRequired("this route is a WebSocket: send Upgrade: websocket")
    if head.version != "HTTP/1.1":
        raise BadRequest("a WebSocket request must be HTTP/1.1")
    if not head.upgrade:
        raise BadRequest("Connection: Upgrade is missing; a proxy in between must forward it")
    if head.has_body:
        raise BadRequest("a WebSocket request must have no body")
    version = head.fields.get(b"sec-websocket-version")
    if version is None:
        raise BadRequest("Sec-WebSocket-Version is missing")
    if version != VERSION:
        raise UpgradeRequired(
            "unsupported version of WebSocket: send Sec-WebSocket-Version: 13", version=13
        )
    _check_key(head.fields.get(b"sec-websocket-key"))
    return _offer(head)


def check_page(head: RequestHead, status: NodeStatus) -> None:
    """Refuse an upgrade by a foreign page. A browser lets any page open a socket to any host, and
    sends its stored credentials for that host (cross-site WebSocket hijacking).

    :raises ForeignOrigin: the page is neither the node's own nor declared
    """
    origin = cors.foreign_page(head, status)
    # A browser that hides a page's origin still sends Sec-Fetch-Site.
    site = head.fields.get(b"sec-fetch-site", b"none").lower()
    if b"origin" not in head.fields and site not in (b"none", b"same-origin"):
        origin = "null"
    if origin is not None:
        raise ForeignOrigin(
            f"a page of {origin!r} may not open a WebSocket: it is not in the node's ORIGINS",
            origin=origin,
        )


def _check_key(key: bytes | None) -> None:
    if key is None:
        raise BadRequest("Sec-WebSocket-Key is missing")
    try:
        found = base64.b64decode(key, validate=True)
    except binascii.Error:
        found = b""
    if len(found) != 16:
        raise BadRequest("Sec-WebSocket-Key must be 16 bytes in base64")


def _offer(head: RequestHead) -> Offer:
    """Decode the subprotocols. Error messages never contain their values, since these may be a
    token."""
    given = head.text(b"sec-websocket-protocol")
    if given is None:
        return Offer((), None)
    names = [name.strip(" \t") for name in given.split(",")]
    if not all(_TOKEN.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise BadRequest("Sec-WebSocket-Protocol must be a list of distinct names")
    tokens = [name.removeprefix(BEARER) for name in names if name.startswith(BEARER)]
    if len(tokens) > 1 or tokens == [""]:
        raise BadRequest(f"Sec-WebSocket-Protocol must have at most one token: {BEARER}<token>")
    if tokens and b"authorization" in head.fields:
        raise BadRequest("send either Authorization or a token as a subprotocol, not both")
    others = tuple(name for name in names if not name.startswith(BEARER))
    return Offer(others, Token(tokens[0]) if tokens else None)
