"""Estimates of the memory that values take, for the memory accounts."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from protocol import limits
from protocol.errors import TooLarge
from protocol.values import FEW, NoneValue, RecordId, Tick, paced

_POINTER: Final = 8
_OTHER: Final = 64
"""Bytes of any other value without parts, about."""
_FLOAT: Final = sys.getsizeof(0.5)
_TEXT: Final = sys.getsizeof("")
"""Bytes of a float, and of an ASCII string beside its characters."""
FLAT: Final = frozenset({str, bytes, int, float, bool, type(None)})
"""Types of values without parts, whose size is asked."""
_FIXED: Final = frozenset({Decimal, datetime, timedelta, UUID, NoneValue})
"""The other types of values without parts."""


def weigh(value: Any, tick: Tick | None = None) -> int:
    """Return about how many bytes a value would take if no part of it were shared.

    A value made by a script may hold the same array many times, and that array another one. Each is
    walked once, so that thirty doublings take thirty steps.

    :param tick: called at intervals while a large value is weighed
    :raises TooLarge: it nests too deep to be walked
    """
    return weigh_with_heights(value, {}, 0, tick)


_DEEPEST: Final = 4 * limits.DEPTH
"""Deeper than any value that an expression can build, which is limited itself: only a bug reaches
it."""


def _size_of_plain(value: list[Any], tick: Tick) -> int:
    """Return the size of the items of an array, if all are of one type without parts: columns of
    rows are. Else -1."""
    size = 0
    kind = type(value[0])
    if kind not in FLAT and kind not in _FIXED and kind is not RecordId:
        return -1
    for start in range(0, len(value), _STEP):
        tick()
        part = value[start : start + _STEP]
        if set(map(type, part)) != {kind}:
            return -1
        if kind is RecordId:
            ids = [one.id for one in part]
            if not FLAT.issuperset(map(type, ids)):
                return -1
            size += sum(map(sys.getsizeof, ids)) + (_OTHER + _POINTER) * len(part)
        elif kind in _FIXED:
            size += _OTHER * len(part)
        elif kind is float:
            size += (_FLOAT + _POINTER) * len(part)
        elif kind is str and all(map(str.isascii, part)):
            size += sum(map(len, part)) + (_TEXT + _POINTER) * len(part)
        else:
            size += sum(map(sys.getsizeof, part)) + _POINTER * len(part)
    return size


_STEP: Final = 4_096
"""Items of an array that are weighed in one step."""


def weigh_with_heights(
    value: Any, sizes: dict[int, tuple[int, int]], depth: int, tick: Tick | None
) -> int:
    """Return the size in bytes as `weigh` does, and fill `sizes`.

    :param sizes: size and height of every array and object walked so far, by identity. All are
        parts of the value, so no identity is reused meanwhile
    """
    kind = type(value)
    if kind in FLAT:
        return sys.getsizeof(value) + _POINTER
    if kind is dict or kind is list or kind is tuple:
        known = sizes.get(id(value))
        if known is not None:
            return known[0]
        if depth > _DEEPEST:
            raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
        size, height = sys.getsizeof(value), 0
        if kind is list and len(value) > FEW and tick is not None:
            plain = _size_of_plain(value, tick)
            if plain >= 0:
                sizes[id(value)] = (size + plain, 1)
                return size + plain
        parts = value.values() if kind is dict else value
        if tick is not None and len(value) > FEW:
            parts = paced(parts, tick)
        for part in parts:
            held = type(part)
            if held in FLAT:  # most parts: a call for each would dominate
                size += sys.getsizeof(part) + _POINTER
                continue
            if held in _FIXED:
                size += _OTHER
                continue
            if held is RecordId and type(part.id) in FLAT:
                size += _OTHER + sys.getsizeof(part.id) + _POINTER
                continue
            size += weigh_with_heights(part, sizes, depth + 1, tick)
            below = sizes.get(id(part))
            if below is not None and below[1] > height:
                height = below[1]
        sizes[id(value)] = (size, height + 1)
        return size
    if kind is RecordId:  # an id may be an array, of any length until it is stored
        return _OTHER + weigh_with_heights(value.id, sizes, depth + 1, tick)
    slots = getattr(kind, "__struct_fields__", None)
    if slots is not None:
        return 16 + sum(
            weigh_with_heights(getattr(value, slot), sizes, depth + 1, tick) for slot in slots
        )
    return _OTHER
