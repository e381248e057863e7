"""CORS: pages of other origins in browsers.

Only the origins of `DEFINE NODE ORIGINS`, each listed in full, may read responses, and only with a
token that the page itself presents. No Access-Control-Allow-Credentials is ever sent, so a browser
adds no credential of its own. Basic credentials, which a browser stores and sends for other pages
too, are refused from all foreign pages. Otherwise a page of any site could post a script as plain
text without a preflight (CSRF).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import ForeignOrigin
from protocol.requests import NodeStatus
from surfaces.http.head import RequestHead
from surfaces.http.hosts import is_foreign

REQUEST_FIELDS: Final = (
    b"Authorization, Content-Type, Accept, Store-Namespace, Store-Database, Store-After,"
    b" Store-Current, Store-Record"
)
"""Request headers that a page may send: all that a route reads."""
ANSWER_FIELDS: Final = (
    b"Store-Request, Store-Version, Store-Seq, Store-Fence, Store-Backup-Form, Digest,"
    b" Content-Disposition, Retry-After"
)
"""Response headers that a page may read, beyond those that browsers always allow."""
PREFLIGHT_SECONDS: Final = 600
"""Seconds that a browser may cache a preflight response."""


def check_credential(head: RequestHead, endpoints: Sequence[str]) -> None:
    """Refuse Basic credentials of foreign pages.

    :raises ForeignOrigin: a page of another origin, declared or not, presents Basic
    """
    if not head.fields.get(b"authorization", b"").lstrip().lower().startswith(b"basic"):
        return
    origin = head.fields[b"origin"].decode("latin-1")
    if is_foreign(origin, head.fields.get(b"host", b"").decode("latin-1"), endpoints):
        raise ForeignOrigin(
            "a page of another origin needs a token: send Authorization: Bearer",
            origin=origin[:200],
        )


def foreign_page(head: RequestHead, status: NodeStatus) -> str | None:
    """Return the origin, cut for display, of a page that is neither the node's own nor one of
    `DEFINE NODE ORIGINS`. None for such pages, and for requests without a page."""
    origin = head.text(b"origin")
    if origin is None or origin.lower() in status.origins:
        return None
    host = head.text(b"host") or ""
    return origin[:200] if is_foreign(origin, host, status.endpoints) else None


def fields(head: RequestHead, origins: Sequence[str]) -> bytes:
    """Return the CORS header lines of any response to a request with an Origin."""
    lines = b"Vary: Origin\r\n"
    origin = _origin(head)
    if origin in origins:
        lines += b"Access-Control-Allow-Origin: %s\r\n" % origin.encode("ascii")
        lines += b"Access-Control-Expose-Headers: %s\r\n" % ANSWER_FIELDS
    return lines


def preflight(head: RequestHead, origins: Sequence[str], methods: str) -> bytes:
    """Return the further header lines of a preflight response."""
    if b"access-control-request-method" not in head.fields or _origin(head) not in origins:
        return b""
    return (
        b"Access-Control-Allow-Methods: %s\r\nAccess-Control-Allow-Headers: %s\r\n"
        b"Access-Control-Max-Age: %d\r\n"
        % (methods.encode("ascii"), REQUEST_FIELDS, PREFLIGHT_SECONDS)
    )


def _origin(head: RequestHead) -> str:
    return head.fields.get(b"origin", b"").decode("latin-1").lower()
