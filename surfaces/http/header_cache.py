"""Header cache: skips parsing of header fields seen before. A client's requests differ in their
first line, seldom in the rest.

The bytes from the request line's end to the empty line are kept as a hash, with the parse results
of llhttp and `judge`. The same bytes again, behind an ordinary request line, have the same meaning,
so neither parser is called again. Only that one line is matched by a grammar of our own; everything
else goes to llhttp.

The bytes contain a credential. They are kept only as a hash keyed with a secret of this process,
and for a minute at most. The credential itself is read again from each request.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from actors.sessions import token_digest
from protocol import limits
from protocol.errors import SignInRefused
from surfaces.http.credentials import Token, credential
from surfaces.http.head import CachedHeaders, RequestHead

REMEMBERED: Final = 1024
BLOCK_BYTES: Final = 2 * limits.KIB
"""Maximum bytes of a cached block of header fields: those of a browser take one to two KiB."""
MISSES: Final = 16
"""Misses in a row after which a connection stops looking up: its heads all differ."""
_PLAIN: Final = frozenset(
    kind + parameter
    for kind in (b"text/plain", b"application/json")
    for parameter in (b"", b"; charset=utf-8", b";charset=utf-8")
)
TARGET_BYTES: Final = 4 * limits.KIB

REQUEST_LINE: Final = re.compile(
    rb"(GET|HEAD|POST|PUT|DELETE) (/[A-Za-z0-9._~:@%%/?&=+,-]{0,%d}) HTTP/1\.1\r\n" % TARGET_BYTES
)


class HeaderCache:
    """Parsed header blocks.

    :param secret: key of this process, at least 16 random bytes
    """

    def __init__(self, secret: bytes) -> None:
        self._begun = blake2b(key=secret, digest_size=16)
        self._known: dict[bytes, CachedHeaders] = {}

    def __len__(self) -> int:
        return len(self._known)

    def name(self, block: bytes) -> bytes:
        """Return the cache key of a block."""
        hashed = self._begun.copy()
        hashed.update(block)
        return hashed.digest()

    def find(self, name: bytes) -> CachedHeaders | None:
        """Return the cached meaning of a block, or None."""
        return self._known.get(name)

    def forget(self) -> None:
        """Drop all entries. Called once a minute."""
        self._known.clear()

    def learn(self, name: bytes, block: bytes, head: RequestHead) -> None:
        """Store the parse results of a block. Blocks are cached only if they request a plain
        response to a small body of declared length."""
        # The response to a foreign page depends on the origins declared at that time.
        asks_more = b"expect" in head.fields or b"origin" in head.fields
        plain = head.keep_alive and head.version == "HTTP/1.1" and not asks_more
        if not plain or not 0 <= head.length <= limits.SMALL_BODY_BYTES:
            return
        fields = dict(head.fields)
        given = fields.pop(b"authorization", None)
        start = end = 0
        if given is not None:
            start = block.find(given)
            end = start + len(given)
            if not given or start < 0:
                return
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        like = RequestHead("", "", "", head.version, fields, head.host, True, head.length)
        self._known[name] = CachedHeaders(
            like, start, end, _token(head), head.wants_msgpack, _reads_value(head)
        )


def _reads_value(head: RequestHead) -> bool:
    kind = head.fields.get(b"content-type")
    return b"content-encoding" not in head.fields and (kind is None or kind.lower() in _PLAIN)


def _token(head: RequestHead) -> bytes | None:
    try:
        given = credential(head)
    except SignInRefused:
        return None
    return token_digest(given.token) if isinstance(given, Token) else None
