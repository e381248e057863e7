"""GET of a cache key, answered as it is read: without an exchange, a delegate, a message.

For a request with a known head whose answer waits for nothing. Whatever is unusual takes the way of
every other request, which decides anew: an answer given here is the one that would have come there.
"""

from __future__ import annotations

from datetime import timedelta
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final

from protocol import jsonvalues
from protocol.text import format_duration
from protocol.values import NoneValue, Value
from surfaces.http import answers
from surfaces.http.known import KnownHead
from surfaces.http.spaces import PATHS, no_key

if TYPE_CHECKING:
    from surfaces.http.surface import HttpSurface

PLACES: Final = 1024
"""Paths of spaces that are remembered."""
_PATH: Final = PATHS["key"]
_KEY: Final = b"/key/"


class Glances:
    """Of one surface."""

    def __init__(self, surface: HttpSurface) -> None:
        self._surface = surface
        self._spaces = surface.node.spaces
        self._names: dict[bytes, tuple[str, str, str]] = {}

    def answer(self, known: KnownHead, target: bytes) -> bytes | None:
        """The whole answer to a GET; None: it is not given here."""
        surface = self._surface
        if known.token is None or known.msgpack or not surface.takes_more(known.like.host):
            return None
        at = target.find(_KEY)
        if at < 0:
            return None
        names = self._names.get(target[:at]) or self._learn(target[:at])
        key = target[at + len(_KEY) :]
        if names is None or b"%" in key or b"?" in key:
            return None
        began = surface.loop.time()
        found = self._spaces.glance(known.token, names, key.decode("ascii"))
        if found is None:
            return None
        request = surface.next_request()
        if isinstance(found, NoneValue):
            status, body = 404, answers.error_json(no_key(), request)
        else:
            status, body = 200, _json(found["value"], found["ttl"])
        surface.counters.answer("GET", _PATH, status)
        surface.counters.ran(_PATH, surface.loop.time() - began)
        return surface.plain(status, request, body)

    def _learn(self, path: bytes) -> tuple[str, str, str] | None:
        """The names in the path of a space; None when it is not one, or not written plainly."""
        parts = path.split(b"/")
        if len(parts) != 5 or parts[1] != b"kv" or b"%" in path or b"?" in path:
            return None
        namespace, database, space = (part.decode("ascii") for part in parts[2:])
        if len(self._names) >= PLACES:
            self._names.clear()
        self._names[path] = names = namespace, database, space
        return names


def _json(value: Value, ttl: timedelta | None) -> bytes:
    """The text that `answers.json_bytes` makes of the same answer."""
    if type(value) is str:
        shown = encode_basestring(value).encode()
    else:
        shown = jsonvalues.dump(value)
    lasts = b"null" if ttl is None else b'"%s"' % format_duration(ttl).encode("ascii")
    return b'{"value":%s,"ttl":%s}' % (shown, lasts)
