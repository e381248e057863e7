"""Operations on keys: implementation of each, and its equivalent statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from language.keywords import quote
from protocol import limits
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
    check_limit,
    check_prefix,
)
from protocol.text import duration, format_duration, quote_string
from storage.keyspace.keyspace import SpaceKeys

# A table, not a chain of tests: each operation costs one look-up.
_PERFORM: Final[dict[type, Callable[[SpaceKeys, Any], Any]]] = {
    GetKey: lambda keys, op: keys.get(op.key),
    SetKey: lambda keys, op: keys.set(
        op.key, op.value, op.expire_us, keep=op.keep, when=op.when, expires_us=op.expires_us
    ),
    SwapKey: lambda keys, op: keys.swap(op.key, op.expect, op.value, op.expire_us),
    IncrKey: lambda keys, op: keys.incr(op.key, op.by),
    DeleteKey: lambda keys, op: keys.delete(op.key),
    ExpireKey: lambda keys, op: keys.expire(op.key, op.expire_us),
    PersistKey: lambda keys, op: keys.persist(op.key),
    LockKey: lambda keys, op: keys.lock(op.key, op.holder, op.expire_us, op.fence),
    UnlockKey: lambda keys, op: keys.unlock(op.key, op.holder, op.fence),
}  # fmt: skip


def perform(keys: SpaceKeys, operation: KeyOperation) -> Any:
    """Run one operation on one key. :raises Refusal: without any change"""
    return _PERFORM[type(operation)](keys, operation)


def listed(keys: SpaceKeys, operation: ListKeys) -> Iterator[list[str]]:
    """Yield the keys of a listing, in parts. :raises Refusal: its arguments are invalid"""
    # Arguments are checked at the call, before the first part.
    return keys.listing(
        check_prefix(operation.prefix, "PREFIX"),
        check_prefix(operation.after, "AFTER"),
        check_limit(operation.limit),
    )


# --- equivalent statements ------------------------------------------------------------------------


def statements(space: str, operations: Iterable[KeyOperation]) -> str:
    """Return the equivalent statements of operations, for the statement log and INFO FOR RUNNING.
    Values are left out: the commit's effects have them."""
    name = quote(space)
    return _cut("; ".join([_statement(name, each) for each in operations]))


def _statement(space: str, operation: KeyOperation) -> str:
    if isinstance(operation, ListKeys):
        return f"KEYS FROM {space}"
    word, more = _WORDS[type(operation)]
    # As the grammar has it: GET and DELETE … FROM, all others … IN.
    preposition = "FROM" if word in ("GET", "DELETE") else "IN"
    return f"{word} {quote_string(operation.key)} {preposition} {space}{more(operation)}"


def _set_clauses(operation: SetKey) -> str:
    kept = " KEEP" if operation.keep else ""
    when = f" IF {operation.when}" if operation.when else ""
    return f" VALUE $value{_expire(operation.expire_us)}{kept}{when}"


def _expire(expire_us: int | None) -> str:
    return "" if expire_us is None else f" EXPIRE {format_duration(duration(expire_us))}"


def _fence(fence: int | None) -> str:
    """Return a fence as a comment: no statement has a clause for it."""
    return "" if fence is None else f" /* fence {fence} */"


_WORDS: Final[dict[type, tuple[str, Callable[[Any], str]]]] = {
    GetKey: ("GET", lambda op: ""),
    SetKey: ("SET", _set_clauses),
    SwapKey: ("SWAP", lambda op: f" EXPECT $expect VALUE $value{_expire(op.expire_us)}"),
    IncrKey: ("INCR", lambda op: f" BY {op.by}"),
    DeleteKey: ("DELETE", lambda op: ""),
    ExpireKey: ("EXPIRE", lambda op: f" {format_duration(duration(op.expire_us))}"),
    PersistKey: ("PERSIST", lambda op: ""),
    LockKey: (
        "LOCK",
        lambda op: f" HOLDER {quote_string(op.holder)}{_expire(op.expire_us)}{_fence(op.fence)}",
    ),
    UnlockKey: ("UNLOCK", lambda op: f" HOLDER {quote_string(op.holder)}{_fence(op.fence)}"),
}


def _cut(text: str) -> str:
    # UTF-8 takes at most four bytes a character: most texts are not encoded to be measured.
    if len(text) * 4 <= limits.STATEMENT_TEXT_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= limits.STATEMENT_TEXT_BYTES:
        return text
    kept = encoded[: limits.STATEMENT_TEXT_BYTES].decode(errors="ignore")
    return f"{kept}… ({len(encoded)} bytes)"
