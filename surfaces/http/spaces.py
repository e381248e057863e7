"""Routes under /kv: operations on a key of a cache space, and listings of keys.

Each request is one call of the engine (`actors/spaces`), which also looks up the session token. A
hot route, so a lean delegate, and without a task if the credential is a token. A request with a
cached header block comes here without a delegate, from `fast_path.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from tornado.httputil import HTTPMessageDelegate

from actors.execution.request import RequestOrigin
from actors.sessions import token_digest
from actors.spaces import SEQ, Answers, CallerOrToken, Names, parse_value
from protocol import binary, jsonvalues, limits
from protocol.errors import BadRequest, NoKey, Refusal
from protocol.foreign import unpack_foreign
from protocol.requests import Caller, Surface
from protocol.spaces import (
    DeleteKey,
    ExpireKey,
    GetKey,
    IncrKey,
    KeyOperation,
    ListKeys,
    LockKey,
    Packed,
    PersistKey,
    SetKey,
    SwapKey,
    UnlockKey,
    check_expire,
    check_holder,
    check_key,
    check_limit,
    check_prefix,
    expected,
    packed,
)
from protocol.text import format_duration, parse_duration
from protocol.values import MICROSECOND, Tick, Value, check_parts, is_large, let_go
from surfaces.http import answers, results
from surfaces.http.body_weights import read_counted, whole
from surfaces.http.callers import caller
from surfaces.http.credentials import Token, credential
from surfaces.http.exchange import Exchange
from surfaces.http.head import RequestHead
from surfaces.http.queries import decoded, integer
from surfaces.http.shared import Http

LIST: Final = "/kv/{ns}/{db}/{space}"
OPERATIONS: Final[tuple[str, ...]] = ("key", "swap", "incr", "expire", "persist", "lock", "unlock")
PATHS: Final[dict[str, str]] = {word: f"{LIST}/{word}/{{key}}" for word in OPERATIONS}

LONG_VALUES: Final = 4
"""Number of values encoded in slices at a time. Each takes many times its bytes until then; a
further one is encoded and freed at once."""
LONG_BODY: Final = 16 * limits.KIB
"""Bytes from which on a body is decoded in slices."""

Given = Callable[[], Any]
"""Returns the value of a request's body, in a long body packed already."""
Show = Callable[[Any, bool], tuple[bytes, bytes]]
"""Encodes an answer (flag: as msgpack): the body, and further header lines."""


def template(path: str) -> str | None:
    """Return the route template for a path under /kv, or None. The part for {key} may contain
    slashes."""
    parts = path.split("/", 6)
    if len(parts) == 5:
        return LIST
    return PATHS.get(parts[5]) if len(parts) == 7 else None


class KeyDelegate(HTTPMessageDelegate):
    """Delegate of one key operation."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange
        assert exchange.head is not None
        self._head = exchange.head
        self._beginning = False
        """True while the request is authenticated and decoded. Until then it counts as running and
        its body is charged, even if the client has gone: the work goes on."""

    def finish(self) -> None:
        """Start the operation: the body is complete."""
        exchange, head = self._exchange, self._head
        exchange.msgpack = head.wants_msgpack
        try:
            given = credential(head)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        if type(given) is not Token or len(exchange.body) > limits.UNCOUNTED_BYTES:
            self._spawn_work(self._sign_in())
            return
        try:
            self._ask(token_digest(given.token))
        except Refusal as refusal:
            self._spawn_work(self._refuse_signed_in(refusal))

    def on_connection_close(self) -> None:
        """Finish the exchange: the client is gone. A submitted operation is still executed."""
        if not self._beginning:
            self._exchange.finished()

    def _spawn_work(self, work: Coroutine[Any, Any, None]) -> None:
        self._beginning = True
        self._surface.spawn(self._begun(work))

    async def _begun(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._beginning = False
            if self._exchange.connection.closed:
                self._exchange.finished()

    async def _sign_in(self) -> None:
        """Authenticate first: for passwords, and for bodies that are charged."""
        exchange = self._exchange
        try:
            who = await caller(exchange)
            given: Given | None = None
            if len(exchange.body) > limits.UNCOUNTED_BYTES and self._way.pack is not None:
                value, who = await self._read_counted(who)
                given = lambda: value  # noqa: E731
            if not exchange.connection.closed:
                self._ask(who, given)
        except Refusal as refusal:
            self._refuse(refusal)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            exchange.fail(error)

    async def _read_counted(self, who: Caller) -> tuple[Any, Caller]:
        """Return the decoded value and the caller. A long body is decoded and packed in slices."""
        exchange, pack = self._exchange, self._way.pack
        assert pack is not None
        is_long = len(exchange.body) > LONG_BODY
        read = partial(read_value, self._head)
        found, who = await read_counted(exchange, who, read, LONG_BODY, whole)
        held = [found]
        del found
        if not is_long:
            return held.pop(), who
        packed = await self._surface.long_work.run(who.user, partial(pack, held))
        return packed, await caller(exchange)

    @property
    def _way(self) -> KeyRoute:
        parts, method = self._head.path.split("/", 6), self._head.method
        return WAYS["GET" if method == "HEAD" else method, parts[5] if len(parts) == 7 else ""]

    async def _refuse_signed_in(self, refusal: Refusal) -> None:
        """Refuse a request only after authentication: an anonymous client learns neither errors of
        a request nor if something exists."""
        exchange = self._exchange
        try:
            await caller(exchange)
        except Refusal as unknown:
            refusal = unknown
        except asyncio.CancelledError:
            raise
        except Exception as error:
            exchange.fail(error)
            return
        self._refuse(refusal)

    def _refuse(self, refusal: Refusal) -> None:
        if not self._exchange.done:
            self._exchange.refuse(refusal)

    def _ask(self, who: CallerOrToken, given: Given | None = None) -> None:
        """Decode the request and execute it.

        :param given: returns the value of the body, if that is decoded already
        :raises Refusal: malformed request
        """
        exchange, head = self._exchange, self._head
        parts = head.path.split("/", 6)
        way = self._way
        given = given or partial(read_value, head, exchange.body)
        operation = way.read(given, parts[-1], exchange.parameters())
        namespace, database, space = map(decoded, parts[2:5])
        exchange.body = b""
        KeyRequest(exchange, way.show).ask(who, (namespace, database, space), operation)


class KeyRequest:
    """Operation of a request: receives the outcome, and answers.

    :param exchange: the request; None: on the fast path, which attaches one if the operation has to
        wait
    """

    __slots__ = ("_show", "exchange")

    surface: Surface = "http"

    def __init__(self, exchange: Exchange | None, show: Show) -> None:
        self.exchange = exchange
        self._show = show

    @property
    def connection(self) -> KeyRequest:
        return self  # a connection has one request at a time

    @property
    def origin(self) -> RequestOrigin:
        assert self.exchange is not None
        return RequestOrigin(self.exchange.request, self.surface, self.exchange.connection.address)

    def ask(self, who: CallerOrToken, names: Names, operation: KeyOperation) -> None:
        """Execute the operation, and answer when its outcome is known."""
        assert self.exchange is not None
        spaces = self.exchange.connection.surface.node.spaces
        try:
            found = spaces.run(self, who, names, (operation,))
        except Exception as error:
            self.on_result(None, error)
        else:
            if found is not None:
                self.on_result(found, None)

    def on_result(self, answer: Answers | None, lost: BaseException | None) -> None:
        exchange = self.exchange
        assert exchange is not None
        if exchange.done:
            return
        try:
            if lost is not None:
                raise lost
            assert answer is not None
            (one,) = answer
            if isinstance(one, Refusal):
                raise one
            exchange.known = True
            if not exchange.connection.known:
                _set_user(exchange)
            surface = exchange.connection.surface
            if surface.long_values < LONG_VALUES and is_long(one):
                surface.long_values += 1
                surface.spawn(self._answer_long(one))
                return
            body, fields = self._show(one, exchange.msgpack)
            exchange.reply(200, body, answers.MSGPACK if exchange.msgpack else answers.JSON, fields)
        except Refusal as refusal:
            exchange.refuse(refusal)
        except Exception as error:
            exchange.fail(error)

    async def _answer_long(self, found: Any) -> None:
        """Answer with a value that is encoded, and freed, in slices."""
        exchange = self.exchange
        assert exchange is not None
        surface, msgpack = exchange.connection.surface, exchange.msgpack
        work, user = surface.long_work, exchange.user
        try:
            body = await work.run(user, partial(_long_value, found, msgpack))
            if not exchange.done:
                exchange.reply(200, body, answers.MSGPACK if msgpack else answers.JSON)
            held = [found.pop("value")]
            await work.run(user, partial(let_go, held))
        except Refusal as refusal:
            exchange.refuse(refusal)
        except Exception as error:
            exchange.fail(error)
        finally:
            surface.long_values -= 1


def _set_user(exchange: Exchange) -> None:
    """Set the connection's user from the session token, to charge its unread responses."""
    assert exchange.head is not None
    given = credential(exchange.head)
    if isinstance(given, Token):
        connection = exchange.connection
        connection.knows(connection.surface.user_of_token(token_digest(given.token)))


# --- requests ---------------------------------------------------------------------------------


def _key(raw: str) -> str:
    return check_key(decoded(raw))


def _expire(query: dict[str, str]) -> int | None:
    text = query.get("expire")
    return None if text is None else _lives(text)


def _lives(text: str) -> int:
    return check_expire(parse_duration(text) // MICROSECOND)


def _lasting(query: dict[str, str]) -> int:
    return _lives(query["expire"])


def _holder(query: dict[str, str]) -> str:
    return check_holder(query["holder"])


def read_value(head: RequestHead, body: bytes, tick: Tick | None = None) -> Value:
    """Decode the value of a body, or its pair of values: text of the language, JSON or msgpack. The
    nesting depth is checked when it is packed.

    :raises Refusal: malformed
    """
    kind = head.fields.get(b"content-type", b"text/plain").lower()
    if kind.startswith(b"application/json"):
        return jsonvalues.from_json(jsonvalues.parse(body, tick), tick, check_parts)
    if kind.startswith(b"application/msgpack"):
        return unpack_foreign(body, tick, check_parts)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8 at byte {error.start}") from None
    return parse_value(text, around=1)


def _pack(held: list[Any], tick: Tick) -> Packed:
    """Pack the value in a list, and free it.

    :raises Refusal: as `packed`
    """
    found = packed(held[0], tick)
    let_go(held, tick)
    return found


def _pack_pair(held: list[Any], tick: Tick) -> Any:
    """Pack the values in the body of a swap, and free them.

    :raises Refusal: as `packed`
    """
    pair = held[0]
    if not _is_pair(pair):
        return pair
    found = {"expect": expected(pair["expect"], tick), "value": packed(pair["value"], tick)}
    del pair
    let_go(held, tick)
    return found


def _is_pair(body: Any) -> bool:
    return isinstance(body, dict) and body.keys() == {"expect", "value"}


def _get(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return GetKey(_key(raw))


def _set(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    when = query.get("if")
    if when not in (None, "absent", "present"):
        raise BadRequest(f"if must be absent or present, not {str(when)[:40]!r}")
    key, expire_us = _key(raw), _expire(query)
    value = given()
    if when is None:
        return SetKey(key, value, expire_us)
    return SetKey(key, value, expire_us, when="ABSENT" if when == "absent" else "PRESENT")


def _swap(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    key, expire_us = _key(raw), _expire(query)
    pair = given()
    if not _is_pair(pair):
        raise BadRequest("the body must be an object of expect and value")
    return SwapKey(key, pair["expect"], pair["value"], expire_us)


def _delete(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return DeleteKey(_key(raw))


def _incr(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return IncrKey(_key(raw), integer(query.get("by", "1"), "by"))


def _expiring(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return ExpireKey(_key(raw), _lasting(query))


def _persist(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return PersistKey(_key(raw))


def _lock(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return LockKey(_key(raw), _holder(query), _lasting(query))


def _unlock(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    return UnlockKey(_key(raw), _holder(query))


def _list(given: Given, raw: str, query: dict[str, str]) -> KeyOperation:
    limit = check_limit(integer(query.get("limit", str(limits.KEYS_LISTED)), "limit"))
    prefix = check_prefix(query.get("prefix", ""), "prefix")
    return ListKeys(prefix, check_prefix(query.get("after", ""), "after"), limit)


# --- responses --------------------------------------------------------------------------------


def _as_is(answer: Any, msgpack: bool) -> tuple[bytes, bytes]:
    seq = answer.pop(SEQ, 0)
    fields = b"Store-Seq: %d\r\n" % seq if seq else b""
    return binary.pack(answer) if msgpack else jsonvalues.encode_plain(answer), fields


def _shown_count(answer: Any, msgpack: bool) -> tuple[bytes, bytes]:
    """Encode the answer of an INCR. In JSON an int above 2^53 is tagged, as in a GET."""
    if msgpack:
        return _as_is(answer, msgpack)
    value = jsonvalues.dump(answer["value"])
    _, fields = _as_is(answer, msgpack)
    return b'{"value":%s}' % value, fields


def no_key() -> NoKey:
    """Return the refusal of a GET without a key."""
    return NoKey("there is no such key")


def shown_value(answer: Any, msgpack: bool) -> tuple[bytes, bytes]:
    """Encode the answer of a GET.

    :raises NoKey: the key does not exist
    """
    if not isinstance(answer, dict):
        raise no_key()
    value, ttl = answer["value"], answer["ttl"]
    if msgpack:
        return binary.pack({"value": value, "ttl": _lasts(ttl)}), b""
    return b'{"value":%s,"ttl":%s}' % (jsonvalues.dump(value), jsonvalues.dump(_lasts(ttl))), b""


def is_long(answer: Any) -> bool:
    """True if a value is encoded in slices: one of many parts. A string of any length is encoded in
    one call."""
    if type(answer) is not dict:
        return False
    return is_large(answer.get("value"), results.SMALL, limits.CACHE_VALUE_BYTES)


def _long_value(answer: dict[str, Any], msgpack: bool, tick: Tick) -> bytes:
    """Encode the answer of a GET with a large value."""
    value, lasts = answer["value"], _lasts(answer["ttl"])
    parts: list[bytes] = []
    if msgpack:
        parts += (results.MSGPACK.object_begin(2), binary.pack("value"))
        binary.pack_in_steps(value, tick, parts.append)
        parts += (binary.pack("ttl"), binary.pack(lasts))
    else:
        parts.append(b'{"value":')
        jsonvalues.dump_in_steps(value, tick, parts.append)
        parts.append(b',"ttl":%s}' % jsonvalues.dump(lasts))
    return b"".join(parts)


def _lasts(ttl: timedelta | None) -> str | None:
    return None if ttl is None else format_duration(ttl)


def _shown_lock(answer: Any, msgpack: bool) -> tuple[bytes, bytes]:
    held = answer["held"]
    fence = b"Store-Fence: %d\r\n" % answer["fence"] if held else b""
    body, fields = _as_is({"held": held, SEQ: answer.get(SEQ, 0)}, msgpack)
    return body, fence + fields


@dataclass(frozen=True, slots=True)
class KeyRoute:
    """Method and path of a key operation: decoder of its request, encoder of its answer."""

    read: Callable[[Given, str, dict[str, str]], KeyOperation]
    show: Show = _as_is
    pack: Callable[[list[Any], Tick], Any] | None = None
    """Packs the value in a one-element list for storage; None: the body is ignored."""


WAYS: Final[dict[tuple[str, str], KeyRoute]] = {
    ("GET", "key"): KeyRoute(_get, shown_value),
    ("PUT", "key"): KeyRoute(_set, pack=_pack),
    ("DELETE", "key"): KeyRoute(_delete),
    ("POST", "swap"): KeyRoute(_swap, pack=_pack_pair),
    ("POST", "incr"): KeyRoute(_incr, _shown_count),
    ("POST", "expire"): KeyRoute(_expiring),
    ("POST", "persist"): KeyRoute(_persist),
    ("POST", "lock"): KeyRoute(_lock, _shown_lock),
    ("POST", "unlock"): KeyRoute(_unlock),
    ("GET", ""): KeyRoute(_list),
}
