"""Pages of other origins, in browsers: which may read answers, and how they are told.

Only those of `DEFINE NODE ORIGINS`, each named in full, and only with a token that the page itself
presents: no field of credentials is ever sent, so that a browser adds none of its own. Basic, which
a browser keeps and sends for other pages too, is refused from all pages but the node's own: a page
of any site may post a script as plain text without asking first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import ForeignOrigin
from protocol.requests import NodeStatus
from surfaces.http.head import Head
from surfaces.http.hosts import is_foreign

REQUEST_FIELDS: Final = (
    b"Authorization, Content-Type, Accept, Store-Namespace, Store-Database, Store-After,"
    b" Store-Current, Store-Record"
)
"""What a page may send: all that a route reads."""
ANSWER_FIELDS: Final = (
    b"Store-Request, Store-Version, Store-Seq, Store-Fence, Store-Backup-Form, Digest,"
    b" Content-Disposition, Retry-After"
)
"""What a page may read of an answer, beside what browsers let it anyway."""
PREFLIGHT_SECONDS: Final = 600
"""How long a browser may keep the answer to its question."""


def check_credential(head: Head, endpoints: Sequence[str]) -> None:
    """:raises ForeignOrigin: a page of another origin, declared or not, presents Basic"""
    if not head.fields.get(b"authorization", b"").lstrip().lower().startswith(b"basic"):
        return
    origin = head.fields[b"origin"].decode("latin-1")
    if is_foreign(origin, head.fields.get(b"host", b"").decode("latin-1"), endpoints):
        raise ForeignOrigin(
            "a page of another origin presents a token: Authorization: Bearer", origin=origin[:200]
        )


def foreign_page(head: Head, status: NodeStatus) -> str | None:
    """The origin of a page that is neither the node's own nor one of `DEFINE NODE ORIGINS`, cut to
    be shown; None where no page asks, or one of those."""
    origin = head.text(b"origin")
    if origin is None or origin.lower() in status.origins:
        return None
    host = head.text(b"host") or ""
    return origin[:200] if is_foreign(origin, host, status.endpoints) else None


def fields(head: Head, origins: Sequence[str]) -> bytes:
    """The field lines of any answer to a request with an Origin."""
    lines = b"Vary: Origin\r\n"
    origin = _origin(head)
    if origin in origins:
        lines += b"Access-Control-Allow-Origin: %s\r\n" % origin.encode("ascii")
        lines += b"Access-Control-Expose-Headers: %s\r\n" % ANSWER_FIELDS
    return lines


def preflight(head: Head, origins: Sequence[str], methods: str) -> bytes:
    """More of them, when a browser asks whether it may ask."""
    if b"access-control-request-method" not in head.fields or _origin(head) not in origins:
        return b""
    return (
        b"Access-Control-Allow-Methods: %s\r\nAccess-Control-Allow-Headers: %s\r\n"
        b"Access-Control-Max-Age: %d\r\n"
        % (methods.encode("ascii"), REQUEST_FIELDS, PREFLIGHT_SECONDS)
    )


def _origin(head: Head) -> str:
    return head.fields.get(b"origin", b"").decode("latin-1").lower()
