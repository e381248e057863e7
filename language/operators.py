"""Runtime of compiled expressions: operators, paths, hash keys and sort keys too long for generated
code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from language.env import Env
from language.numbers import is_whole
from language.patterns import pattern
from language.pieces import PIECE, cost_of, find, pieces, slices
from language.sizing import made
from protocol import limits, values
from protocol.errors import TooLarge, TypeRefused, Unknown
from protocol.order import encode
from protocol.paths import EACH
from protocol.values import (
    FEW,
    HASH_SALT,
    LONG,
    NONE,
    PACE,
    NoneValue,
    RecordId,
    Tick,
    paced,
    present_fields,
    ticking,
    type_name,
)

PLAIN: Final = frozenset({int, float, Decimal, datetime, timedelta, bool})
"""Types whose Python comparison of two values of the same type matches the language's, and whose
values are never large."""
_TEXTS: Final = frozenset({str, bytes})
"""Types whose Python comparison matches the language's, but whose values may be large."""


def _compared(left: Any, right: Any, env: Env) -> int | None:
    """Compare two values of one class. Return -1, 0 or 1; None if `< <= > >=` are false for them.

    They are false for values of different classes, and if either is NONE or null. Inside arrays,
    objects and record ids the total order over all values holds, in which indexes are sorted.
    Ticks, because the values may be large.
    """
    kind = type(left)
    if kind is not type(right) and values.rank(left) != values.rank(right):
        return None
    if kind is NoneValue or left is None:
        return None
    return values.compare(left, right, env.tick)


def less(left: Any, right: Any, env: Env) -> bool:
    """`<`, within one class of the order."""
    found = _compared(left, right, env)
    return found is not None and found < 0


def at_most(left: Any, right: Any, env: Env) -> bool:
    """`<=`, within one class of the order."""
    found = _compared(left, right, env)
    return found is not None and found <= 0


def greater(left: Any, right: Any, env: Env) -> bool:
    """`>`, within one class of the order."""
    found = _compared(left, right, env)
    return found is not None and found > 0


def at_least(left: Any, right: Any, env: Env) -> bool:
    """`>=`, within one class of the order."""
    found = _compared(left, right, env)
    return found is not None and found >= 0


BRACKETED: Final[dict[str, Callable[[Any, Any, Env], bool]]] = {
    "<": less, "<=": at_most, ">": greater, ">=": at_least,
}  # fmt: skip
"""Operators that compare within one class of the value order."""


def equal(left: Any, right: Any, env: Env) -> bool:
    """`=`. Ticks, because the values may be large."""
    kind = type(left)
    if kind is type(right) and (kind in PLAIN or (kind in _TEXTS and len(left) <= LONG)):
        return bool(left == right)
    return values.equal(left, right, env.tick)


def truth(value: Any) -> bool:
    """Convert a condition's value to a bool. NONE and null count as false.

    :raises TypeRefused: any other type; no value is converted
    """
    if value is True or value is False:
        return value
    if value is None or value is NONE:
        return False
    raise TypeRefused(f"a condition is a bool, not {type_name(value)}", found=type_name(value))


def field(value: Any, name: str, env: Env) -> Any:
    """Evaluate a path step `.name`: of an object, of a linked record, or of each item of an array.

    The result is NONE for any other value.
    """
    kind = type(value)
    if kind is dict:
        return value.get(name, NONE)
    if kind is RecordId:
        if name == "id":
            return value
        record = env.record(value)
        return NONE if record is None else record.get(name, NONE)
    if kind is list:
        return [field(item, name, env) for item in ticking(value, len(value), env.tick)]
    return NONE


def each(value: Any, env: Env) -> Any:
    """Evaluate a path step `[*]`: the items of an array, or the values of an object or linked
    record."""
    kind = type(value)
    if kind is list:
        return value
    if kind is dict:
        fields = slices(value.values(), env)
        return [one for part in fields for one in part if one is not NONE]
    if kind is RecordId:
        record = env.record(value)
        return [] if record is None else list(record.values())
    return NONE


def item(value: Any, index: Any, env: Env) -> Any:
    """Evaluate a path step `[index]`: an array item by position, or an object's field by name.

    Positions count from 0, or backwards from -1.
    """
    if type(value) is list and type(index) is int:
        return value[index] if -len(value) <= index < len(value) else NONE
    if type(index) is str:
        return field(value, index, env)
    if type(value) in (list, dict):
        raise TypeRefused(f"{type_name(value)} has no item at {type_name(index)}")
    return NONE


def walk(value: Any, steps: Sequence[Any], env: Env) -> Any:
    """Evaluate the steps of a path: names, positions and `EACH`.

    `EACH`, and a name applied to an array, apply all later steps to every item. SET, UNSET, OMIT
    and FETCH follow the same rule.
    """
    for at, step in enumerate(steps):
        if step is EACH:
            value = each(value, env)
            if type(value) is list and at + 1 < len(steps):
                rest = steps[at + 1 :]
                return [walk(one, rest, env) for one in ticking(value, len(value), env.tick)]
        elif type(step) is str and type(value) is list:
            rest = steps[at:]
            return [walk(one, rest, env) for one in ticking(value, len(value), env.tick)]
        else:
            value = item(value, step, env)
    return value


def parameter(env: Env, name: str) -> Any:
    """Return the value of `$name`. :raises Unknown: neither bound by the request nor set by LET"""
    try:
        return env.variables[name]
    except KeyError:
        raise Unknown(f"${name} is not bound", parameter=name) from None


def contains(container: Any, value: Any, env: Env) -> bool:
    """`CONTAINS`, and `IN` with its operands swapped.

    Tests for an item of an array, a substring, or a field name of an object. NONE and null contain
    nothing.
    """
    kind = type(container)
    if kind is list:
        if len(container) > FEW:
            env.tick(len(container))
        if type(value) is str and len(value) <= PACE:
            return (
                value in container if len(container) <= PIECE else _is_among(value, container, env)
            )
        items = container if len(container) <= PACE else paced(container, env.tick)
        return any(equal(value, one, env) for one in items)
    if kind is str and type(value) is str:
        if len(container) <= FEW:
            return value in container
        env.tick(cost_of(len(container)))
        return find(container, value, env) >= 0
    if kind is dict:
        return type(value) is str and container.get(value, NONE) is not NONE
    if container is None or container is NONE:
        return False
    raise TypeRefused(
        f"{type_name(container)} can't contain {type_name(value)}: expected an array,"
        " string or object"
    )


def _is_among(value: str, container: list[Any], env: Env) -> bool:
    return any(value in part for part in slices(container, env))


def in_range(value: Any, low: Any, high: Any, inclusive: bool) -> bool:
    """True if a number is one of the integers of a range."""
    check_bounds(low, high)
    if type(value) not in (int, float, Decimal) or not is_whole(value):
        return False
    return bool(low <= value and (value <= high if inclusive else value < high))


def check_bounds(low: Any, high: Any) -> None:
    """Check the bounds of a range. :raises TypeRefused: not two integers"""
    for bound in (low, high):
        if type(bound) is not int:
            raise TypeRefused(f"the bounds of a range are ints, not {type_name(bound)}")


def make_range(low: Any, high: Any, inclusive: bool, env: Env) -> list[int]:
    """Return the integers of a range. :raises TooLarge: more than `limits.RANGE_ITEMS`"""
    check_bounds(low, high)
    if inclusive:
        high += 1
    if high - low > limits.RANGE_ITEMS:
        raise TooLarge(f"a range has at most {limits.RANGE_ITEMS} items", limit=limits.RANGE_ITEMS)
    items: list[int] = []
    for start in range(low, high, PIECE):
        env.tick()
        items += range(start, min(start + PIECE, high))
    made(40 * len(items))
    return items


def matches(value: Any, expression: Any, env: Env) -> bool:
    """`~`: true if a regular expression matches anywhere in a string. False for NONE and null."""
    match = pattern(expression, env.tick)
    if type(value) is str:
        return match(value, env.tick)
    if value is None or value is NONE:
        return False
    raise TypeRefused(f"~ takes a string, not {type_name(value)}")


def hashable(value: Any, tick: Tick) -> Any:
    """Return a key that hashes and compares as `equal` does: numbers by value, and a bool is not a
    number.

    The hash is salted, so that a client cannot choose colliding values (hash flooding). Python's
    own hashes of int, float, Decimal, UUID, datetime and timedelta are not salted: 12 000 colliding
    keys cost a minute in a `dict`.

    :param tick: called periodically while a large value is processed
    """
    kind = type(value)
    if kind is str:
        return value if len(value) <= LONG else _large_key(value, tick)
    if kind is int:
        return value * HASH_SALT
    if kind is float or kind is Decimal:
        return _number_key(value)
    if kind is list:
        if len(value) > PACE:
            return _large_key(value, tick)
        items = ticking(value, len(value), tick)
        return (
            list,
            tuple(
                [
                    one if type(one) is str and len(one) <= LONG else hashable(one, tick)
                    for one in items
                ]
            ),
        )
    if kind is dict:
        present = present_fields(value, tick)
        if len(present) > PACE:
            return _large_key(present, tick)
        fields = ticking(present.items(), len(present), tick)
        return (
            dict,
            frozenset(
                [
                    (name, one if type(one) is str and len(one) <= LONG else hashable(one, tick))
                    for name, one in fields
                ]
            ),
        )
    if kind is bytes and len(value) > LONG:
        return _large_key(value, tick)
    return encode(value)


def _large_key(value: Any, tick: Tick) -> bytes:
    """Return a digest as the key of a large value, so that hashing and comparing it takes constant
    time.

    No encoding starts with the same byte.
    """
    found = blake2b(digest_size=32)
    _feed(found.update, value, tick)
    return b"\xff" + found.digest()


def _feed(update: Callable[[bytes], None], value: Any, tick: Tick) -> None:
    kind = type(value)
    if kind is list:
        update(b"[")
        for one in ticking(value, len(value), tick):
            _feed(update, one, tick)
        update(b"]")
    elif kind is dict:
        fields = present_fields(value, tick)
        update(b"{")
        for name in ticking(sorted(fields), len(fields), tick):
            _feed(update, name, tick)
            _feed(update, fields[name], tick)
        update(b"}")
    elif (kind is str or kind is bytes) and len(value) > LONG:
        update(b"s%d:" % len(value) if kind is str else b"b%d:" % len(value))
        for piece in pieces(value, tick):
            update(piece.encode() if kind is str else piece)
    else:
        update(encode(value))


def _number_key(value: Any) -> int | bytes:
    """Return the key of a float or decimal. It is the key of the equal int, if there is one.

    The prefix of the ratio differs from those of `encode`, so that unequal values have different
    keys.
    """
    if type(value) is Decimal and value and abs(value.adjusted()) > _RATIO_DIGITS:
        return encode(value)  # a float is never worth the same
    above, below = value.as_integer_ratio()
    if below == 1 and limits.INT_MIN <= above <= limits.INT_MAX:
        return int(above) * HASH_SALT
    return b"/%d/%d" % (above, below)


_RATIO_DIGITS: Final = 400
"""Upper bound for the decimal digits of a double, before or after the point."""


def order_key(value: Any, tick: Tick | None = None) -> tuple[Any, ...]:
    """Return a Python tuple that sorts as the language orders values. Faster than comparing in
    Python.

    Arrays and objects become one flat tuple. Each part follows its rank, and the end is -1, which
    is below every rank. A tuple for each part would create a million objects for a large array,
    compared and freed without yielding.

    :param tick: called periodically while a large value is processed
    """
    kind = type(value)
    rank = _RANKED.get(kind)
    if rank is not None:
        return (rank, value)
    if value is NONE:
        return (0,)
    if value is None:
        return (1,)
    if kind is UUID:
        return (8, value.int)
    flat: list[Any] = []
    _flatten(value, flat, tick)
    return tuple(flat)


def _flatten(value: Any, flat: list[Any], tick: Tick | None) -> None:
    kind = type(value)
    rank = _RANKED.get(kind)
    if rank is not None:
        flat += (rank, value)
    elif kind is list:
        flat.append(9)
        for one in ticking(value, len(value), tick):
            _flatten(one, flat, tick)
        flat.append(-1)
    elif kind is dict:
        flat.append(10)
        value = present_fields(value, tick)
        for name in ticking(sorted(value), len(value), tick):
            flat += (4, name)
            _flatten(value[name], flat, tick)
        flat.append(-1)
    elif kind is RecordId:
        flat += (11, value.table)
        _flatten(value.id, flat, tick)
    else:
        flat += order_key(value)


_RANKED: Final[dict[type, int]] = {
    bool: 2, int: 3, float: 3, Decimal: 3, str: 4, bytes: 5, timedelta: 6, datetime: 7,
}  # fmt: skip


def members(among: Any, env: Env) -> Callable[[Any], bool]:
    """Return a test for `IN values`, backed by a hash set, for many rows and constant values."""
    if type(among) is not list or len(among) < 4:
        return lambda value: contains(among, value, env)
    known = {hashable(one, env.tick) for one in paced(among, env.tick)}
    return lambda value: hashable(value, env.tick) in known


def merged(before: dict[str, Any], changes: dict[str, Any], env: Env) -> dict[str, Any]:
    """Merge the fields of one object into another, recursively. NONE removes a field."""
    if len(before) <= FEW:
        found = dict(before)
    else:
        env.tick(len(before))
        found = {}
        for part in slices(before.items(), env):
            found.update(part)
    items = changes.items()
    for name, value in items if len(changes) <= FEW else paced(items, env.tick):
        known = found.get(name)
        if value is NONE:
            found.pop(name, None)
        elif type(value) is dict and type(known) is dict:
            found[name] = merged(known, value, env)
        else:
            found[name] = value
    return found


__all__ = [
    "BRACKETED", "PLAIN", "check_bounds", "contains", "each", "equal", "field", "hashable",
    "in_range", "item", "make_range", "matches", "members", "merged", "order_key",
    "parameter", "truth", "walk",
]  # fmt: skip
