"""KV requests: decoding of operations on the keys of a cache space. Strict, field by field, like
other bodies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from actors.spaces import Names
from protocol import limits
from protocol.errors import BadRequest, Refusal
from protocol.frames import WireMessage
from protocol.spaces import (
    DeleteKey,
    ExpireKey,
    GetKey,
    IncrKey,
    KeyOperation,
    ListKeys,
    LockKey,
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
from protocol.values import MICROSECOND, Tick
from surfaces.wire.bodies import field, operation

_PLACE: Final = frozenset({"op", "ns", "db", "space"})


def read_keys(body: dict[str, Any] | None) -> tuple[Names, KeyOperation]:
    """Decode KV. Return the space and the operation.

    :raises BadRequest: a field is missing, unknown, or of the wrong type
    :raises Refusal: an argument of the operation is refused
    """
    body = body or {}
    read = operation("KV", body, _OPERATIONS)
    namespace, database, space = body.get("ns"), body.get("db"), body.get("space")
    if type(namespace) is not str or type(database) is not str or type(space) is not str:
        raise BadRequest("KV needs ns, db and space", field="space")
    return (namespace, database, space), read(body)


def with_values_packed(message: WireMessage, tick: Tick) -> WireMessage:
    """Return a long KV with its values packed as stored. Packing runs in slices. A value that is
    refused makes the message carry that refusal."""
    body = message.body or {}
    try:
        if body.get("op") in ("set", "swap") and "value" in body:
            body["value"] = packed(body["value"], tick)
            if "expect" in body:
                body["expect"] = expected(body["expect"], tick)
    except Refusal as refusal:
        return WireMessage(message.kind, message.id, None, refusal)
    return message


def _set_key(body: dict[str, Any]) -> KeyOperation:
    when = field("KV", body, "if", str)
    if when not in (None, "absent", "present"):
        raise BadRequest("KV if must be absent or present", field="if")
    keep = field("KV", body, "keep", bool) or False
    expire_us = _expire(body)
    if keep and expire_us is not None:
        raise BadRequest("KV takes expire or keep, not both", field="keep")
    word: Any = None if when is None else when.upper()
    return SetKey(check_key(body.get("key")), _given(body, "value"), expire_us, keep, word)


def _given(body: dict[str, Any], name: str) -> Any:
    if name not in body:
        raise BadRequest(f"KV needs {name}", field=name)
    return body[name]


def _expire(body: dict[str, Any]) -> int | None:
    expire = field("KV", body, "expire", timedelta)
    return None if expire is None else check_expire(expire // MICROSECOND)


def _lasting(body: dict[str, Any]) -> int:
    expire_us = _expire(body)
    if expire_us is None:
        raise BadRequest("KV needs expire", field="expire")
    return expire_us


def _fence(body: dict[str, Any]) -> int | None:
    fence = field("KV", body, "fence", int)
    if fence is not None and fence < 1:
        raise BadRequest("KV fence must be 1 or more, as returned by lock", field="fence")
    return fence


def _by(body: dict[str, Any]) -> int:
    by = field("KV", body, "by", int)
    return 1 if by is None else by


def _listing(body: dict[str, Any]) -> KeyOperation:
    limit = field("KV", body, "limit", int)
    return ListKeys(
        check_prefix(field("KV", body, "prefix", str) or "", "prefix"),
        check_prefix(field("KV", body, "after", str) or "", "after"),
        limits.KEYS_LISTED if limit is None else check_limit(limit),
    )


_OPERATIONS: Final[
    dict[str, tuple[frozenset[str], Callable[[dict[str, Any]], KeyOperation]]]
] = {
    word: (_PLACE | {*fields.split()}, read)
    for word, fields, read in (
        ("get", "key", lambda body: GetKey(check_key(body.get("key")))),
        ("set", "key value expire keep if", _set_key),
        (
            "swap",
            "key expect value expire",
            lambda body: SwapKey(
                check_key(body.get("key")), _given(body, "expect"), _given(body, "value"),
                _expire(body),
            ),
        ),
        ("incr", "key by", lambda body: IncrKey(check_key(body.get("key")), _by(body))),
        ("delete", "key", lambda body: DeleteKey(check_key(body.get("key")))),
        (
            "expire",
            "key expire",
            lambda body: ExpireKey(check_key(body.get("key")), _lasting(body)),
        ),
        ("persist", "key", lambda body: PersistKey(check_key(body.get("key")))),
        (
            "lock",
            "key holder expire fence",
            lambda body: LockKey(
                check_key(body.get("key")), check_holder(body.get("holder")), _lasting(body),
                _fence(body),
            ),
        ),
        (
            "unlock",
            "key holder fence",
            lambda body: UnlockKey(
                check_key(body.get("key")), check_holder(body.get("holder")), _fence(body)
            ),
        ),
        ("keys", "prefix after limit", _listing),
    )
}  # fmt: skip
