"""Fast path for operations on a cache key with a cached header block, executed while they are read.
They need no delegate, and a GET that waits for nothing needs no exchange.

An unusual request falls back to the ordinary path, which parses it again and may refuse it. The
engine and the responses are the same, refusals included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from protocol import limits
from protocol.errors import Refusal
from protocol.spaces import GetKey, check_key
from surfaces.http import answers
from surfaces.http.exchange import Exchange, HttpLink, Route
from surfaces.http.head import CachedHeaders, RequestHead
from surfaces.http.queries import parameters
from surfaces.http.shared import Http
from surfaces.http.spaces import (
    PATHS,
    WAYS,
    KeyRequest,
    is_long,
    no_key,
    read_value,
    shown_value,
)

PLACES: Final = 1024
"""Maximum number of cached paths of spaces."""
_PATH: Final = PATHS["key"]
_KEY: Final = b"/key/"


class FastConnection(HttpLink, Protocol):
    """A connection that answers one request at a time."""

    current: Exchange | None


class FastPath:
    """Fast path of one surface.

    :param route: returns the route of a method and a path
    """

    def __init__(self, surface: Http, route: Callable[[str, str], Route]) -> None:
        self._surface = surface
        self._spaces = surface.node.spaces
        self._names: dict[bytes, tuple[str, str, str]] = {}
        self._get = route("GET", _PATH)
        self._ways = {
            (method.encode(), word.encode()): (route(method, PATHS[word]), way)
            for (method, word), way in WAYS.items()
            if method != "GET"
        }

    def get(self, connection: FastConnection, known: CachedHeaders, target: bytes) -> bool:
        """Answer a GET, or start it. Return False to fall back to the ordinary path."""
        surface = self._surface
        if known.token is None or known.msgpack or not surface.takes_more(known.like.host):
            return False
        names, key = self._split(target)
        if names is None or b"?" in key:
            return False
        try:
            operation = GetKey(check_key(key.decode("ascii")))
        except Refusal:
            return False
        began = surface.loop.time()
        asked = KeyRequest(None, shown_value)
        try:
            found = self._spaces.run(asked, known.token, names, (operation,))
        except Exception as error:
            self._exchange(asked, connection, known, self._get)
            asked.on_result(None, error)
            return True
        if found is None:
            self._exchange(asked, connection, known, self._get)
            return True
        (answer,) = found
        if isinstance(answer, Refusal) or is_long(answer):
            self._exchange(asked, connection, known, self._get)
            asked.on_result(found, None)
            return True
        request = surface.next_request()
        if type(answer) is dict:
            status, body = 200, shown_value(answer, msgpack=False)[0]
        else:
            status, body = 404, answers.error_json(no_key(), request)
        data = surface.plain(status, request, body)
        if not connection.takes(len(data)):
            return False
        surface.counters.answer("GET", _PATH, status)
        surface.counters.ran(_PATH, surface.loop.time() - began)
        connection.send(data)
        return True

    def write(
        self,
        connection: FastConnection,
        known: CachedHeaders,
        method: bytes,
        target: bytes,
        body: bytes,
    ) -> bool:
        """Start a write; its response follows. Return False to fall back to the ordinary path."""
        surface = self._surface
        counts = len(body) > limits.UNCOUNTED_BYTES
        if known.token is None or known.msgpack or not known.reads_value or counts:
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
        try:
            given = partial(read_value, known.like, body)
            asked_for = parameters(query.decode("ascii"), route.query)
            operation = way.read(given, parts[6].decode("ascii"), asked_for)
        except Refusal:
            return False
        asked = KeyRequest(None, way.show)
        self._exchange(asked, connection, known, route)
        asked.ask(known.token, names, operation)
        return True

    def _exchange(
        self, asked: KeyRequest, connection: FastConnection, known: CachedHeaders, route: Route
    ) -> None:
        """Attach an exchange to the operation, which counts as running from here on."""
        surface, like = self._surface, known.like
        head = RequestHead(
            route.method, "", "", like.version, like.fields, like.host, True, like.length
        )
        asked.exchange = exchange = Exchange(connection, head, surface.next_request())
        exchange.route = route
        exchange.complete = True
        exchange.set_close_callback(exchange.finished)
        connection.current = exchange
        exchange.runs(connection.user)

    def _split(self, target: bytes) -> tuple[tuple[str, str, str] | None, bytes]:
        """Split the target of a key: names (None if it is none, or percent-encoded), and the key
        with the query."""
        at = target.find(_KEY)
        if at < 0 or b"%" in target:
            return None, b""
        space = target[:at]
        return self._names.get(space) or self._learn(space), target[at + len(_KEY) :]

    def _learn(self, path: bytes) -> tuple[str, str, str] | None:
        """Return the names in the path of a space, and cache them. None if it is none, or
        percent-encoded."""
        parts = path.split(b"/")
        if len(parts) != 5 or parts[1] != b"kv" or b"?" in path or b"%" in path:
            return None
        namespace, database, space = (part.decode("ascii") for part in parts[2:])
        if len(self._names) >= PLACES:
            self._names.clear()
        self._names[path] = names = namespace, database, space
        return names
