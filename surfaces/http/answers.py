"""Responses as bytes: status lines, common header fields, the JSON shape of an error."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from protocol.errors import COMMITTED, Refusal
from protocol.jsonvalues import encode_plain, to_json
from protocol.version import VERSION

JSON: Final[bytes] = b"application/json; charset=utf-8"
MSGPACK: Final[bytes] = b"application/msgpack"
TEXT: Final = b"text/plain; charset=utf-8"
HTML: Final = b"text/html; charset=utf-8"

NO_STORE: Final = b"no-store"

COMMON: Final = b"Store-Version: %s\r\nX-Content-Type-Options: nosniff\r\n" % VERSION.encode()
"""Header fields of every response."""

_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """Return the status line of a response, with its line end."""
    return _LINES.get(status) or _line(status)


def _line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n".encode("ascii")


_LINES: Final = {status: _line(status) for status in _REASONS}


def field(name: str, value: str) -> bytes:
    """Return one header line. A line break or other control character in `value` could end the
    header section early, so it is replaced."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in value)
    return f"{name}: {clean}\r\n".encode("latin-1", "replace")


def error(refusal: Refusal, request: str) -> dict[str, Any]:
    """Return the `error` object of a response."""
    return refusal.answer(request)


def error_json(refusal: Refusal, request: str) -> bytes:
    """Return an error response body as JSON."""
    return encode_plain({"error": to_json(error(refusal, request))})


def status_of(refusal: Refusal, origin: bool) -> int:
    """Return the HTTP status for a refusal: normally the `status` in its error object.

    Browsers take 408 as a statement about the connection and send the request again, up to three
    times, even if it was executed. So a page gets 503 instead, in the status line alone.

    :param origin: True if a page sent the request: its browser sent Origin
    """
    return 503 if origin and refusal.status == 408 else refusal.status


def error_fields(refusal: Refusal) -> bytes:
    """Return the header fields that an error's status requires."""
    fields = b""
    if refusal.status == 401:
        fields += b"WWW-Authenticate: Bearer\r\n"
    if refusal.status == 426:
        fields += b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    wait = refusal.detail.get("retry_after_s", refusal.retry_after_s)
    if wait is not None and COMMITTED not in refusal.detail:
        fields += b"Retry-After: %d\r\n" % max(1, round(float(str(wait))))
    allow = refusal.detail.get("allow")
    if refusal.status == 405 and isinstance(allow, list):
        fields += b"Allow: %s\r\n" % ", ".join(allow).encode("ascii")
    return fields
