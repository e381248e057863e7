"""Table of the routes under /kv."""

from __future__ import annotations

from typing import Final

from protocol import limits
from surfaces.http import spaces
from surfaces.http.exchange import Route
from surfaces.http.operation import (
    ANY,
    BOOLEAN,
    NULL_OR_STRING,
    STRING,
    Json,
    Operation,
    RouteParameter,
    answers,
    object_of,
    parameter,
)

_LIVES: Final = "a duration above zero, such as 5m"
_EXPIRE: Final = parameter("expire", _LIVES)
_EXPIRES: Final = parameter("expire", _LIVES, required=True)
_HOLDER: Final = parameter("holder", "name of the lock's holder", required=True)


def _route(
    method: str,
    path: str,
    summary: str,
    answer: Json,
    *query: RouteParameter,
    body: Json | None = None,
    body_max: int = limits.SMALL_BODY_BYTES,
) -> Route:
    return Route(
        method, path, lean=spaces.KeyDelegate, credential="required",
        accepts=("text/plain", "application/json", "application/msgpack") if body else (),
        body_max=body_max, query=query, body=body,
        operation=Operation(
            summary, answers("the result", answer, msgpack=True), (403, 409, 422, 429),
            msgpack=True,
        ),
    )  # fmt: skip


def _flag(name: str) -> Json:
    return object_of({name: BOOLEAN})


ROUTES: Final = (
    _route(
        "GET", spaces.LIST, "Keys of a cache space, in order",
        object_of({"keys": {"type": "array", "items": STRING}}),
        parameter("prefix", "prefix of the keys"),
        parameter("after", "return keys after this one"),
        parameter("limit", "1 to 1000; default 1000", type="integer"),
    ),
    _route(
        "GET", spaces.PATHS["key"], "The value of a key, and its time to live",
        object_of({"value": ANY, "ttl": NULL_OR_STRING}),
    ),
    _route(
        "PUT", spaces.PATHS["key"], "Set a key", _flag("written"), _EXPIRE,
        parameter("if", "condition of the write", enum=["absent", "present"]),
        body=ANY, body_max=limits.CACHE_VALUE_BYTES,
    ),
    _route("DELETE", spaces.PATHS["key"], "Delete a key", _flag("deleted")),
    _route(
        "POST", spaces.PATHS["swap"], "Set a key if it holds what is expected", _flag("written"),
        _EXPIRE,
        body=object_of({"expect": ANY, "value": ANY}),
        body_max=2 * limits.CACHE_VALUE_BYTES + limits.KIB,
    ),
    _route(
        "POST", spaces.PATHS["incr"], "Count", object_of({"value": ANY}),
        parameter("by", "default 1", type="integer"),
    ),
    _route("POST", spaces.PATHS["expire"], "Set the expiry of a key", _flag("found"), _EXPIRES),
    _route("POST", spaces.PATHS["persist"], "Remove the expiry of a key", _flag("found")),
    _route(
        "POST", spaces.PATHS["lock"],
        "Acquire or extend a lock; if held, its fence is in Store-Fence",
        _flag("held"), _HOLDER, _EXPIRES,
    ),
    _route("POST", spaces.PATHS["unlock"], "Release a lock", _flag("released"), _HOLDER),
)  # fmt: skip
