"""What compiled expressions call at run time: everything too long to stand in generated code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from language.env import Env
from language.numbers import is_whole
from language.patterns import pattern
from protocol import limits
from protocol.errors import TooLarge, TypeRefused, Unknown
from protocol.values import (
    NONE,
    PACE,
    NoneValue,
    RecordId,
    compare,
    equal,
    paced,
    type_name,
)

PLAIN: Final = frozenset({int, str, float, Decimal, datetime, timedelta, bytes, bool})
"""Types whose own operators compare two values of the same type as the language does."""


def truth(value: Any) -> bool:
    """What a condition makes of a value: true, or false, none and null as false.

    :raises TypeRefused: anything else; nothing is converted
    """
    if value is True or value is False:
        return value
    if value is None or value is NONE:
        return False
    raise TypeRefused(f"a condition is a bool, not {type_name(value)}", found=type_name(value))


def field(value: Any, name: str, env: Env) -> Any:
    """One step `.name` of a path: into an object, over a record link, into each item of an array;
    none of anything else."""
    kind = type(value)
    if kind is dict:
        return value.get(name, NONE)
    if kind is RecordId:
        if name == "id":
            return value
        record = env.record(value)
        return NONE if record is None else record.get(name, NONE)
    if kind is list:
        return [field(item, name, env) for item in value]
    return NONE


def each(value: Any, env: Env) -> Any:
    """One step `[*]` of a path: the items of an array, the values of an object; a record link is
    followed."""
    kind = type(value)
    if kind is list:
        return value
    if kind is dict:
        return list(value.values())
    if kind is RecordId:
        record = env.record(value)
        return [] if record is None else list(record.values())
    return NONE


def item(value: Any, index: Any, env: Env) -> Any:
    """One step `[index]` of a path: an array by position, from 0 or backwards from -1, an object by
    name."""
    if type(value) is list and type(index) is int:
        return value[index] if -len(value) <= index < len(value) else NONE
    if type(index) is str:
        return field(value, index, env)
    if type(value) in (list, dict):
        raise TypeRefused(f"{type_name(value)} has no item at {type_name(index)}")
    return NONE


def parameter(env: Env, name: str) -> Any:
    """The value of `$name`. :raises Unknown: neither bound with the request nor LET before"""
    try:
        return env.variables[name]
    except KeyError:
        raise Unknown(f"${name} is not bound", parameter=name) from None


def contains(container: Any, value: Any, env: Env) -> bool:
    """`CONTAINS`, and `IN` turned round: an item of an array, a part of a string, a name of an
    object. Nothing is in none or null."""
    kind = type(container)
    if kind is list:
        if type(value) is str:
            return value in container
        items = container if len(container) <= PACE else paced(container, env.tick)
        return any(equal(value, one) for one in items)
    if kind is str and type(value) is str:
        return value in container
    if kind is dict:
        return type(value) is str and value in container
    if container is None or container is NONE:
        return False
    raise TypeRefused(
        f"{type_name(container)} contains no {type_name(value)}: wanted an array, string or object"
    )


def in_range(value: Any, low: Any, high: Any, inclusive: bool) -> bool:
    """Whether a number is among the integers of a range."""
    check_bounds(low, high)
    if type(value) not in (int, float, Decimal) or not is_whole(value):
        return False
    return bool(low <= value and (value <= high if inclusive else value < high))


def check_bounds(low: Any, high: Any) -> None:
    """:raises TypeRefused: the bounds of a range that is a value are not two integers"""
    for bound in (low, high):
        if type(bound) is not int:
            raise TypeRefused(f"a range goes from int to int, not {type_name(bound)}")


def make_range(low: Any, high: Any, inclusive: bool) -> list[int]:
    """The integers of a range. :raises TooLarge: more than `limits.RANGE_ITEMS`"""
    check_bounds(low, high)
    if inclusive:
        high += 1
    if high - low > limits.RANGE_ITEMS:
        raise TooLarge(f"a range has at most {limits.RANGE_ITEMS} items", limit=limits.RANGE_ITEMS)
    return list(range(low, high))


def matches(value: Any, expression: Any) -> bool:
    """`~`: whether a regular expression matches somewhere in a string; false for none and null."""
    search = pattern(expression)
    if type(value) is str:
        return search(value) is not None
    if value is None or value is NONE:
        return False
    raise TypeRefused(f"~ takes a string, not {type_name(value)}")


def hashable(value: Any) -> Any:
    """A Python value that hashes and compares as `equal` does: numbers by worth, and a bool is
    not a number."""
    kind = type(value)
    if kind in _HASHED:
        return value
    if kind is bool:
        return (bool, value)
    if kind is list:
        return (list, tuple([hashable(one) for one in value]))
    if kind is dict:
        return (dict, frozenset([(name, hashable(one)) for name, one in value.items()]))
    assert kind is RecordId
    return (RecordId, value.table, hashable(value.id))


_HASHED: Final = frozenset(
    {int, str, float, Decimal, datetime, timedelta, bytes, UUID, type(None), NoneValue}
)


def order_key(value: Any) -> tuple[Any, ...]:
    """A Python value that sorts as the language orders: faster than a comparison in Python."""
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
    if kind is list:
        return (9, tuple([order_key(one) for one in value]))
    if kind is dict:
        return (10, tuple([(name, order_key(value[name])) for name in sorted(value)]))
    assert kind is RecordId
    return (11, value.table, order_key(value.id))


_RANKED: Final[dict[type, int]] = {
    bool: 2, int: 3, float: 3, Decimal: 3, str: 4, bytes: 5, timedelta: 6, datetime: 7,
}  # fmt: skip


def members(values: Any, env: Env) -> Callable[[Any], bool]:
    """A test for `IN values` when the same values are asked for many rows."""
    if type(values) is not list or len(values) < 4:
        return lambda value: contains(values, value, env)
    known = {hashable(value) for value in paced(values, env.tick)}
    return lambda value: hashable(value) in known


__all__ = [
    "PLAIN", "check_bounds", "compare", "contains", "each", "equal", "field", "hashable",
    "in_range", "item", "make_range", "matches", "members", "order_key", "parameter", "truth",
]  # fmt: skip
