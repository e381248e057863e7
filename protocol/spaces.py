"""What is done to the keys of a cache space: one frozen operation for each statement on a key.

Surfaces make them of routes and of wire messages, scripts of statements; `storage/spaces.py` has
the rules. An operation's answer is an object with exactly the fields that its docstring names.
`writes`: whether it needs a node that is writable; `needs`: what its caller needs on the space.
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
    """A value as it is stored: of a large one, which a surface has checked and packed in turns with
    others' work. Who does an operation does not give up the loop meanwhile."""

    content: bytes
    """Empty: what no key can hold, for it is too large."""


class GetKey(Struct, frozen=True):
    """`{value, ttl}`, or NONE when there is no such key; `ttl` is NULL for one that stays."""

    writes: ClassVar[bool] = False
    needs: ClassVar[Verbs] = READ
    key: str


class SetKey(Struct, frozen=True):
    """`{written}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    value: Value | Packed
    expire_us: int | None = None
    """None: what the space says; without that the key stays."""
    keep: bool = False
    """Whether an expiry that the key has is kept."""
    when: When | None = None
    expires_us: int | None = None
    """When it expires, microseconds since 1970, in place of `expire_us`; a moment that is over is
    one too: the key is gone then."""


class SwapKey(Struct, frozen=True):
    """`{written}`: whether the key held `expect`, in type and value. NONE expects no key."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE | READ
    key: str
    expect: Value | Packed
    value: Value | Packed
    expire_us: int | None = None


class IncrKey(Struct, frozen=True):
    """`{value}`: the new one."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    by: int = 1


class DeleteKey(Struct, frozen=True):
    """`{deleted}`: whether there was one."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str


class ExpireKey(Struct, frozen=True):
    """`{found}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    expire_us: int


class PersistKey(Struct, frozen=True):
    """`{found}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str


class LockKey(Struct, frozen=True):
    """`{held, fence, until}`; when it is not held `fence` is NULL, and `until` says when the key
    falls free, NULL for never."""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    holder: str
    expire_us: int
    fence: int | None = None
    """Only extends a lock that is held under this fence, and acquires none."""


class UnlockKey(Struct, frozen=True):
    """`{released}`"""

    writes: ClassVar[bool] = True
    needs: ClassVar[Verbs] = WRITE
    key: str
    holder: str
    fence: int | None = None
    """Only releases a lock that is held under this fence."""


class ListKeys(Struct, frozen=True):
    """`{keys}`, in the order of their bytes."""

    writes: ClassVar[bool] = False
    needs: ClassVar[Verbs] = READ
    prefix: Any = ""
    after: Any = ""
    limit: Any = limits.KEYS_LISTED
    """As they were given; what they may be is judged where they are listed."""


KeyOperation = (
    GetKey | SetKey | SwapKey | IncrKey | DeleteKey | ExpireKey | PersistKey | LockKey | UnlockKey
    | ListKeys
)  # fmt: skip

KeyAnswer = dict[str, Any] | NoneValue | Refusal
"""A refusal is the answer of one operation among several."""


class Room:
    """How many bytes of values operations may still answer that were asked for together, in one
    request or several. Whoever does them takes from it; with none left, nothing more is done."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


# --- values as they are stored --------------------------------------------------------------------


def packed(value: Value, tick: Tick | None = None) -> Packed:
    """A value of a key, checked and packed.

    :param tick: called now and then while a large one is gone through
    :raises TypeRefused, NumberTooLarge: see `values.check`
    :raises TooLarge: deeper than it may be, or longer than `limits.CACHE_VALUE_BYTES`
    """
    if value is NONE:
        raise TypeRefused("NONE is no value of a key: it means that there is none", found="none")
    check(value, 0, tick)
    content = _content(value, tick)
    if not content:
        most = limits.CACHE_VALUE_BYTES
        raise TooLarge(f"a value of a key takes at most {most} bytes, this one more", limit=most)
    return Packed(content)


def expected(value: Value, tick: Tick | None = None) -> NoneValue | Packed:
    """What SWAP expects of a key, checked and packed; NONE expects no key. As `packed`, and what is
    too long is no error: no key holds it."""
    check(value, 0, tick)
    return NONE if value is NONE else Packed(_content(value, tick))


def _content(value: Any, tick: Tick | None) -> bytes:
    """A value as it is stored; nothing where it is too long."""
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
    """It takes more bytes than a value of a key may."""


class _Parts:
    """Collects what `_content` packs. :raises _TooLong: as soon as it is more than it may be"""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self._left = limits.CACHE_VALUE_BYTES

    def add(self, part: bytes) -> None:
        """One more part."""
        self._left -= len(part)
        if self._left < 0:
            raise _TooLong
        self.found.append(part)


# --- what is given --------------------------------------------------------------------------------

EXPIRE_MOST_US: Final = 1000 * 365 * 86_400 * 1_000_000
"""A thousand years: the moment still fits a datetime."""


def check_key(key: object) -> str:
    """A key of a cache space. :raises TypeRefused: no string :raises BadRequest: its length, a NUL
    in it"""
    if type(key) is not str:
        raise TypeRefused(f"a key is a string, not {_type(key)}", found=_type(key))
    size = len(key)
    if not key.isascii():
        check_unicode(key)
        size = len(key.encode())
    if not 1 <= size <= limits.KEY_BYTES:
        raise BadRequest(f"a key has 1 to {limits.KEY_BYTES} bytes, this one {size}", bytes=size)
    if "\0" in key:
        raise BadRequest("a key holds no NUL")
    return key


def check_holder(holder: object) -> str:
    """Who holds a lock: text with the bounds of a key. :raises TypeRefused, BadRequest:"""
    if type(holder) is not str:
        raise TypeRefused(f"a holder is a string, not {_type(holder)}", found=_type(holder))
    size = len(holder.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= limits.KEY_BYTES:
        raise BadRequest(f"a holder has 1 to {limits.KEY_BYTES} bytes, this one {size}", bytes=size)
    return holder


def check_prefix(prefix: object, what: str) -> str:
    """What keys begin with, or come after; may be empty. :raises TypeRefused, BadRequest:"""
    if type(prefix) is not str:
        raise TypeRefused(f"{what} is a string, not {_type(prefix)}", found=_type(prefix))
    check_unicode(prefix)
    if len(prefix.encode()) > limits.KEY_BYTES:
        raise BadRequest(f"{what} has at most {limits.KEY_BYTES} bytes")
    return prefix


def check_expire(expire_us: int) -> int:
    """How long a key lives. :raises ExpireRefused: not at all, or beyond all bounds"""
    if expire_us <= 0:
        raise ExpireRefused("an expiry is longer than nothing", microseconds=expire_us)
    if expire_us > EXPIRE_MOST_US:
        raise ExpireRefused("an expiry is at most a thousand years", microseconds=expire_us)
    return expire_us


def check_expires(expires_us: int, now_us: int) -> int:
    """When a key expires, microseconds since 1970. :raises ExpireRefused: beyond all bounds"""
    if expires_us > now_us + EXPIRE_MOST_US:
        raise ExpireRefused("an expiry is at most a thousand years away", microseconds=expires_us)
    return max(expires_us, 1)


def check_limit(limit: object) -> int:
    """How many keys are listed. :raises BadRequest:"""
    if type(limit) is not int or not 0 <= limit <= limits.KEYS_LISTED:
        raise BadRequest(f"a limit of keys is 0 to {limits.KEYS_LISTED}", limit=limits.KEYS_LISTED)
    return limit


def _type(value: Any) -> str:
    return type_name(value)
