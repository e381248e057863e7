"""Head of a request, validated once: ambiguous requests are refused before anything runs.

llhttp, in its default strict mode, already refuses bare line feeds, folded lines, control
characters, two lengths, and a length beside a transfer coding. Further ambiguities, which two
programs might parse differently (request smuggling), are refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tornado.httputil import HTTPHeaders, RequestStartLine

from protocol.errors import BadRequest, NotImplementedHere, VersionNotSupported

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
"""Methods that the surface knows; others are answered 501. No route takes TRACE."""

SINGLE: Final = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"store-after",
        b"store-current",
        b"store-database",
        b"store-namespace",
        b"store-record",
        b"transfer-encoding",
    }
)
"""Fields that may occur only once. Other repeated fields form one list."""

_AUTHORITY: Final = re.compile(
    rb"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?\Z"
)


@dataclass(slots=True)
class RequestHead:
    """The head of one request."""

    method: str
    path: str
    """Path as sent: percent-encoded."""
    query: str
    version: str
    fields: dict[bytes, bytes]
    """Header fields by lower-case name."""
    host: str
    """Host in lower case, without port; an IPv6 address without brackets. Empty: HTTP/1.0 without
    one."""
    keep_alive: bool
    length: int
    """Length of the body in bytes; -1 if it is chunked."""
    upgrade: bool = False
    """True if Upgrade and Connection request another protocol."""

    @property
    def has_body(self) -> bool:
        """True if a body follows the head."""
        return self.length != 0

    @property
    def wants_msgpack(self) -> bool:
        """True if the response is to be msgpack rather than JSON."""
        return b"application/msgpack" in self.fields.get(b"accept", b"").lower()

    def text(self, name: bytes) -> str | None:
        """Return a field as text, None if absent."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    def tornado(self) -> tuple[RequestStartLine, HTTPHeaders]:
        """Return the same head as Tornado's handlers take it."""
        headers = HTTPHeaders()
        for name, value in self.fields.items():
            headers.add(name.decode("latin-1"), value.decode("latin-1"))
        target = f"{self.path}?{self.query}" if self.query else self.path
        return RequestStartLine(self.method, target, self.version), headers


@dataclass(slots=True)
class CachedHeaders:
    """Cached meaning of a block of header fields."""

    like: RequestHead
    """Head with these fields but without the credential; its method and target are empty."""
    start: int
    end: int
    """End offset of the credential in the block; `start` and `end` 0: there is none."""
    token: bytes | None
    """Digest of the session token, if the credential is one."""
    msgpack: bool
    reads_value: bool
    """True if the body is certainly text or JSON, so that a value may be decoded from it."""

    def head(self, method: str, target: bytes, block: bytes) -> RequestHead:
        """Return the head of a request with these fields."""
        like, fields = self.like, self.like.fields
        if self.end:
            fields = {**fields, b"authorization": block[self.start : self.end]}
        path, _, query = target.decode("ascii").partition("?")
        return RequestHead(method, path, query, like.version, fields, like.host, True, like.length)


def judge(
    method: str,
    target: bytes,
    version: str,
    fields: dict[bytes, bytes],
    keep_alive: bool,
    upgrade: bool,
) -> RequestHead:
    """Validate a request parsed by llhttp, and return its head.

    :raises BadRequest: it is ambiguous, or has no valid target
    :raises NotImplementedHere: an unsupported method or transfer coding
    :raises VersionNotSupported: neither HTTP/1.1 nor HTTP/1.0
    """
    if version not in ("1.1", "1.0"):
        raise VersionNotSupported(f"HTTP/{version} is not supported: use 1.1 or 1.0")
    if method not in METHODS:
        raise NotImplementedHere(f"the method {method} is not supported")
    length = _length(fields, version)
    authority = fields.get(b"host")
    if authority is None and version == "1.1":
        raise BadRequest("a request of HTTP/1.1 needs a Host")
    host = "" if authority is None else host_of(authority)
    path, query = _split(method, target, authority)
    return RequestHead(
        method, path, query, "HTTP/" + version, fields, host, keep_alive and not upgrade, length,
        upgrade,
    )  # fmt: skip


def host_of(authority: bytes) -> str:
    """Return the host of `host[:port]`.

    :raises BadRequest: malformed
    """
    found = _AUTHORITY.match(authority)
    if found is None:
        raise BadRequest(f"invalid Host {_shown(authority)}")
    return found["host"].decode("ascii").lower().strip("[]")


def _length(fields: dict[bytes, bytes], version: str) -> int:
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        if version == "1.0":
            raise BadRequest("Transfer-Encoding needs HTTP/1.1")
        if coding.lower() != b"chunked":
            raise NotImplementedHere(f"the transfer coding {_shown(coding)} is not supported")
        if b"content-length" in fields:
            raise BadRequest("Content-Length and Transfer-Encoding exclude each other")
        return -1
    declared = fields.get(b"content-length")
    if declared is None:
        return 0
    if not declared.isdigit() or len(declared) > 18:
        raise BadRequest(f"invalid Content-Length {_shown(declared)}")
    return int(declared)


def _split(method: str, target: bytes, authority: bytes | None) -> tuple[str, str]:
    if b"#" in target:
        raise BadRequest("a request's target must have no fragment")
    if target == b"*":
        if method != "OPTIONS":
            raise BadRequest("the target * is for OPTIONS only")
        return "*", ""
    if not target.startswith(b"/"):
        target = _without_authority(target, authority)
    path, _, query = target.decode("latin-1").partition("?")
    return path, query


def _without_authority(target: bytes, authority: bytes | None) -> bytes:
    """Return the path of an absolute target. Its authority must equal Host; otherwise the addressee
    is ambiguous."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise BadRequest(f"invalid target {_shown(target)}")
    named, _, path = rest.partition(b"/")
    named, mark, query = named.partition(b"?")
    if authority is None or named.lower() != authority.lower():
        raise BadRequest("the target and Host name different hosts")
    return b"/" + path + mark + query


def _shown(value: bytes) -> str:
    text = value[:80].decode("latin-1")
    return repr(text if len(value) <= 80 else text + "…")
