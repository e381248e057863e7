"""Operations on the keys of a cache space: one immutable struct for each kind of statement.

Surfaces build them from routes and wire messages, scripts from statements;
`storage/keyspace/keyspace.py` holds the rules. The answer of an operation is an object with exactly
the fields that its docstring names. `writes`: True if it needs a writable node; `needs`: the verbs
that its caller needs on the space.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from protocol import binary, limits
from protocol.errors import BadRequest, ExpireRefused, Refusal, TooLarge, TypeRefused
from protocol.rights import READ, WRITE, Verbs
from protocol.values import (
    NONE,
    NoneValue,
    Tick,
    Value,
    check,
    check_unicode,
    type_name,
    without_none,
)

When = Literal["ABSENT", "PRESENT"]


class Packed(Struct, frozen=True):
    """A value in its stored encoding. Surfaces check and pack large values in slices, before the
    operation, which must not yield the event loop."""

    content: bytes
    """Empty: a value too large for any key."""


class GetKey(Struct, frozen=True):
    """Answer: `{value, ttl}`, or NONE if the key does not exist; `ttl` is NULL for one without
    expiry."""

    writes: ClassVar[bool] = False
    needs: ClassVar[Verbs] = READ
    key: str


class SetKey(Struct, frozen=True):
    """Answer: `{written}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    value: Value | Packed
    expire_us: int | None = None
    """Time to live in microseconds; None: the space's default, without which the key does not
    expire."""
    keep: bool = False
    """True to keep the key's current expiry."""
    when: When | None = None
    expires_us: int | None = None
    """Absolute expiry, microseconds since 1970, in place of `expire_us`. A past one is valid: it
    deletes the key."""


class SwapKey(Struct, frozen=True):
    """Compare-and-swap. Answer: `{written}`, true if the key held `expect`, in type and value. NONE
    expects that there is no key."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE | READ
    key: str
    expect: Value | Packed
    value: Value | Packed
    expire_us: int | None = None


class IncrKey(Struct, frozen=True):
    """Answer: `{value}`, the new one."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    by: int = 1


class DeleteKey(Struct, frozen=True):
    """Answer: `{deleted}`, true if the key existed."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str


class ExpireKey(Struct, frozen=True):
    """Answer: `{found}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    expire_us: int


class PersistKey(Struct, frozen=True):
    """Answer: `{found}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str


class LockKey(Struct, frozen=True):
    """Answer: `{held, fence, until}`. If another holder has the lock, `fence` is NULL, and `until`
    says when the lock expires, NULL for never."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    holder: str
    expire_us: int
    fence: int | None = None
    """Fencing token: only extend a lock held under it, and acquire none."""


class UnlockKey(Struct, frozen=True):
    """Answer: `{released}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    holder: str
    fence: int | None = None
    """Fencing token: only release a lock held under it."""


class ListKeys(Struct, frozen=True):
    """Answer: `{keys}`, in the order of their bytes."""

    writes: ClassVar[bool] = False
    needs: ClassVar[Verbs] = READ
    prefix: Any = ""
    after: Any = ""
    limit: Any = limits.KEYS_LISTED
    """Arguments as given; they are validated where the keys are listed."""


KeyOperation = (
    GetKey | SetKey | SwapKey | IncrKey | DeleteKey | ExpireKey | PersistKey | LockKey | UnlockKey
    | ListKeys
)  # fmt: skip

KeyAnswer = dict[str, Any] | NoneValue | Refusal
"""Answer of one operation; a refusal is the answer of one among several."""


class Room:
    """Bytes of values that a batch of operations, from one request or several, may still answer.
    The engine deducts each value; at 0 it stops."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


# --- values as they are stored --------------------------------------------------------------------


def packed(value: Value, tick: Tick | None = None) -> Packed:
    """Check and pack a value of a key.

    :param tick: called at intervals while a large one is processed
    :raises TypeRefused, NumberTooLarge: see `values.check`
    :raises TooLarge: nested too deep, or longer than `limits.CACHE_VALUE_BYTES`
    """
    if value is NONE:
        raise TypeRefused("the value of a key can't be NONE: delete the key instead", found="none")
    check(value, 0, tick)
    content = _content(value, tick)
    if not content:
        most = limits.CACHE_VALUE_BYTES
        raise TooLarge(f"the value of a key is too large: at most {most} bytes", limit=most)
    return Packed(content)


def expected(value: Value, tick: Tick | None = None) -> NoneValue | Packed:
    """Check and pack the value that SWAP expects of a key, like `packed`; NONE expects no key. A
    value that is too long is no error, since no key holds it."""
    check(value, 0, tick)
    return NONE if value is NONE else Packed(_content(value, tick))


def _content(value: Any, tick: Tick | None) -> bytes:
    """Return the stored encoding of a value; empty if it is too long."""
    if type(value) is dict or type(value) is list:
        value = without_none({"value": value}, tick)["value"]
    if tick is None:
        content = binary.pack(value)
        return content if len(content) <= limits.CACHE_VALUE_BYTES else b""
    parts = _Parts()
    try:
        binary.pack_in_steps(value, tick, parts.add)
    except _TooLong:
        return b""
    return b"".join(parts.found)


class _TooLong(Exception):
    """The value is longer than `limits.CACHE_VALUE_BYTES`."""


class _Parts:
    """Collects the parts that `_content` packs. :raises _TooLong: once they exceed the limit"""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self._left = limits.CACHE_VALUE_BYTES

    def add(self, part: bytes) -> None:
        """Append a part."""
        self._left -= len(part)
        if self._left < 0:
            raise _TooLong
        self.found.append(part)


# --- what is given --------------------------------------------------------------------------------

EXPIRE_MOST_US: Final = 1000 * 365 * 86_400 * 1_000_000
"""A thousand years in microseconds: such an expiry still fits a datetime."""


def check_key(key: object) -> str:
    """Return the key if it is valid in a cache space. :raises TypeRefused: not a string :raises
    BadRequest: its length, or a NUL in it"""
    if type(key) is not str:
        raise TypeRefused(f"a key is a string, not {_type(key)}", found=_type(key))
    size = len(key)
    if not key.isascii():
        check_unicode(key)
        size = len(key.encode())
    if not 1 <= size <= limits.KEY_BYTES:
        raise BadRequest(f"a key has 1 to {limits.KEY_BYTES} bytes, this one {size}", bytes=size)
    if "\0" in key:
        raise BadRequest("a key can't contain NUL")
    return key


def check_holder(holder: object) -> str:
    """Return the holder of a lock if it is valid: a string, as long as a key may be. :raises
    TypeRefused, BadRequest:"""
    if type(holder) is not str:
        raise TypeRefused(f"a holder is a string, not {_type(holder)}", found=_type(holder))
    size = len(holder.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= limits.KEY_BYTES:
        raise BadRequest(f"a holder has 1 to {limits.KEY_BYTES} bytes, this one {size}", bytes=size)
    return holder


def check_prefix(prefix: object, what: str) -> str:
    """Return a prefix or cursor of keys if it is valid; it may be empty. :raises TypeRefused,
    BadRequest:"""
    if type(prefix) is not str:
        raise TypeRefused(f"{what} is a string, not {_type(prefix)}", found=_type(prefix))
    check_unicode(prefix)
    if len(prefix.encode()) > limits.KEY_BYTES:
        raise BadRequest(f"{what} has at most {limits.KEY_BYTES} bytes")
    return prefix


def check_expire(expire_us: int) -> int:
    """Return a time to live in microseconds if it is valid. :raises ExpireRefused: not above 0, or
    over a thousand years"""
    if expire_us <= 0:
        raise ExpireRefused("an expiry must be above zero", microseconds=expire_us)
    if expire_us > EXPIRE_MOST_US:
        raise ExpireRefused("an expiry must be at most 1000 years", microseconds=expire_us)
    return expire_us


def check_expires(expires_us: int, now_us: int) -> int:
    """Return an absolute expiry, microseconds since 1970, if it is valid. :raises ExpireRefused:
    over a thousand years ahead"""
    if expires_us > now_us + EXPIRE_MOST_US:
        raise ExpireRefused("an expiry must be at most 1000 years away", microseconds=expires_us)
    return max(expires_us, 1)


def check_limit(limit: object) -> int:
    """Return the limit of a listing of keys if it is valid. :raises BadRequest:"""
    if type(limit) is not int or not 0 <= limit <= limits.KEYS_LISTED:
        raise BadRequest(f"a limit of keys is 0 to {limits.KEYS_LISTED}", limit=limits.KEYS_LISTED)
    return limit


def _type(value: Any) -> str:
    return type_name(value)
