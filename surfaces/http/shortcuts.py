"""GET and PUT of a cache key, done as they are read: without a route, a delegate, a message.

For requests with a known head: a GET whose answer waits for nothing, a PUT without conditions.
Whatever is unusual, a refusal above all, takes the way of every other request, which decides anew:
what is answered here is what would have been answered there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final

from protocol import jsonvalues
from protocol.errors import Refusal
from protocol.spaces import SetKey
from protocol.text import format_duration
from protocol.values import NoneValue, Value
from surfaces.http import answers
from surfaces.http.exchange import Exchange
from surfaces.http.head import Head
from surfaces.http.known import KnownHead
from surfaces.http.spaces import LONG_BODY, PATHS, no_key, parse_expire, read_value

if TYPE_CHECKING:
    from surfaces.http.connection import Connection
    from surfaces.http.surface import HttpSurface

PLACES: Final = 1024
"""Paths of spaces that are remembered."""
_PATH: Final = PATHS["key"]
_KEY: Final = b"/key/"


class Shortcuts:
    """Of one surface."""

    def __init__(self, surface: HttpSurface) -> None:
        self._surface = surface
        self._spaces = surface.node.spaces
        self._names: dict[bytes, tuple[str, str, str]] = {}
        self._put_route = surface.table.route("PUT", _PATH)

    def get(self, known: KnownHead, target: bytes) -> bytes | None:
        """The whole answer to a GET; None: it is not given here."""
        surface = self._surface
        if known.token is None or known.msgpack or not surface.takes_more(known.like.host):
            return None
        names, key = self._split(target)
        if names is None or b"?" in key:
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

    def put(self, connection: Connection, known: KnownHead, target: bytes, body: bytes) -> bool:
        """Do a PUT; its answer follows when it is durable. False: it is not done here."""
        surface = self._surface
        if known.token is None or known.msgpack or not known.reads_value:
            return False
        names, key = self._split(target)
        if names is None or len(body) > LONG_BODY or not surface.takes_more(known.like.host):
            return False
        try:
            operation = _operation(known.like, key, body)
        except Refusal:
            return False
        if operation is None:
            return False
        like = known.like
        head = Head("PUT", "", "", like.version, like.fields, like.host, True, like.length)
        exchange = Exchange(connection, head, surface.next_request())
        exchange.route = self._put_route
        exchange.complete = True
        connection.current = exchange
        if not self._spaces.set_now(known.token, names, operation, "http", _teller(exchange)):
            connection.current = None
            return False
        surface.runs(exchange)
        return True

    def _split(self, target: bytes) -> tuple[tuple[str, str, str] | None, bytes]:
        """The names in the target of a key, None when it is none or not written plainly; and the
        key, with the query."""
        at = target.find(_KEY)
        if at < 0 or b"%" in target:
            return None, b""
        space = target[:at]
        return self._names.get(space) or self._learn(space), target[at + len(_KEY) :]

    def _learn(self, path: bytes) -> tuple[str, str, str] | None:
        """The names in the path of a space; None when it is not one, or not written plainly."""
        parts = path.split(b"/")
        if len(parts) != 5 or parts[1] != b"kv" or b"?" in path:
            return None
        namespace, database, space = (part.decode("ascii") for part in parts[2:])
        if len(self._names) >= PLACES:
            self._names.clear()
        self._names[path] = names = namespace, database, space
        return names


def _operation(like: Head, key: bytes, body: bytes) -> SetKey | None:
    """What a PUT without conditions asks; None: it has some. :raises Refusal:"""
    key, _, query = key.partition(b"?")
    expire_us = None
    if query:
        name, _, lasting = query.partition(b"=")
        if name != b"expire" or b"&" in lasting or b"+" in lasting:
            return None
        expire_us = parse_expire(lasting.decode("ascii"))
    return SetKey(key.decode("ascii"), read_value(like, body), expire_us)


def _teller(exchange: Exchange) -> Callable[[BaseException | None], None]:
    """Answers a PUT when it is told how that went, unless the client has gone."""

    def told(lost: BaseException | None) -> None:
        if exchange.done:
            return
        if lost is None:
            exchange.reply(200, b'{"written":true}')
        elif isinstance(lost, Refusal):
            exchange.refuse(lost)
        else:
            exchange.fail(lost)

    exchange.set_close_callback(exchange.finished)
    return told


def _json(value: Value, ttl: timedelta | None) -> bytes:
    """The text that `answers.json_bytes` makes of the same answer."""
    if type(value) is str:
        shown = encode_basestring(value).encode()
    else:
        shown = jsonvalues.dump(value)
    lasts = b"null" if ttl is None else b'"%s"' % format_duration(ttl).encode("ascii")
    return b'{"value":%s,"ttl":%s}' % (shown, lasts)
