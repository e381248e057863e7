"""Operations on a cache key, done as they are read: without a delegate, a message, an actor's turn.

For requests with a known head: a GET whose answer waits for nothing, and what writes. Whatever is
unusual, a refusal above all, takes the way of every other request, which decides anew: what is
answered here is what would have been answered there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

from actors.spaces import Origin
from protocol import jsonvalues
from protocol.errors import Refusal
from protocol.text import format_duration
from protocol.values import NoneValue, Value
from surfaces.http import answers
from surfaces.http.exchange import Exchange
from surfaces.http.head import Head
from surfaces.http.known import KnownHead
from surfaces.http.spaces import (
    LONG_BODY,
    PATHS,
    WAYS,
    Show,
    no_key,
    parameters,
    read_value,
)

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
        self._ways = {
            (method.encode(), word.encode()): (surface.table.route(method, PATHS[word]), way)
            for (method, word), way in WAYS.items()
            if method != "GET"
        }

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

    def write(
        self, connection: Connection, known: KnownHead, method: bytes, target: bytes, body: bytes
    ) -> bool:
        """Do what writes; its answer follows when it is durable. False: it is not done here."""
        surface = self._surface
        if known.token is None or known.msgpack or not known.reads_value or len(body) > LONG_BODY:
            return False
        path, _, query = target.partition(b"?")
        parts = path.split(b"/", 6)
        if len(parts) != 7 or not surface.takes_more(known.like.host):
            return False
        space = path[: sum(map(len, parts[1:5])) + 4]
        names = self._names.get(space) or self._learn(space)
        written = self._ways.get((method, parts[5]))
        if names is None or written is None:
            return False
        route, way = written
        like = known.like
        try:
            given = partial(read_value, like, body)
            asked = parameters(query.decode("ascii"), way.query)
            operation = way.read(given, parts[6].decode("ascii"), asked)
        except Refusal:
            return False
        head = Head(route.method, "", "", like.version, like.fields, like.host, True, like.length)
        exchange = Exchange(connection, head, surface.next_request())
        exchange.route = route
        exchange.complete = exchange.known = True
        connection.current = exchange
        told = _teller(exchange, way.show)
        origin = Origin(exchange.request, "http", connection.address)
        if not self._spaces.write_now(known.token, names, operation, origin, told):
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
        if len(parts) != 5 or parts[1] != b"kv" or b"?" in path or b"%" in path:
            return None
        namespace, database, space = (part.decode("ascii") for part in parts[2:])
        if len(self._names) >= PLACES:
            self._names.clear()
        self._names[path] = names = namespace, database, space
        return names


def _teller(
    exchange: Exchange, show: Show
) -> Callable[[dict[str, Any], BaseException | None], None]:
    """Answers a request when it is told how that went, unless the client has gone."""

    def told(answer: dict[str, Any], lost: BaseException | None) -> None:
        if exchange.done:
            return
        if lost is None:
            plain, fields = show(answer, False)
            exchange.reply(200, answers.json_bytes(plain), fields=fields)
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
