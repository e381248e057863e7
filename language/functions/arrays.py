"""`array::…` functions. None of them changes its argument."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from functools import cmp_to_key, partial
from typing import Any, Final
from uuid import UUID

from language.closures import Closure
from language.env import Env
from language.functions.table import check_array, function
from language.operators import hashable, order_key, truth
from language.pieces import SLICE, cut, slices
from protocol.values import FEW, NONE, PACE, NoneValue, compare


@function("array::len", "array", result="int")
def length(items: list[Any]) -> int:
    """Number of items."""
    return len(items)


@function("array::first", "array", result="any")
def first(items: list[Any]) -> Any:
    """First item; NONE for an empty array."""
    return items[0] if items else NONE


@function("array::last", "array", result="any")
def last(items: list[Any]) -> Any:
    """Last item; NONE for an empty array."""
    return items[-1] if items else NONE


@function("array::sort", "array", "bool", result="array", env=True)
def sort(env: Env, items: list[Any], descending: bool = False) -> list[Any]:
    """Items sorted in the order of values; the sort is stable."""
    key = order_of(items, env)
    if len(items) <= SLICE:
        return sorted(items, key=key, reverse=descending)
    # One call to `sorted` for a million items would block the event loop for a second. Sorted runs
    # are merged with ticks instead; `merge` is stable, so the result is the same.
    runs = [sorted(run, key=key, reverse=descending) for run in slices(items, env)]
    merged: list[Any] = []
    for item in heapq.merge(*runs, key=key, reverse=descending):
        merged.append(item)
        if len(merged) % FEW == 0:
            env.tick()
    return merged


def order_of(items: list[Any], env: Env) -> Callable[[Any], Any]:
    """Return the sort key function for items.

    Items whose comparison may take long are compared directly, with ticks. Thousands of precomputed
    keys would be compared without yielding, and the keys of arrays would double their memory.
    """
    for part in slices(items, env):
        if not (_QUICK.issuperset(map(type, part)) and all(map(_is_short, part))):
            return cmp_to_key(partial(_compared, env))
    return partial(order_key, tick=env.tick)


_QUICK: Final = frozenset({NoneValue, type(None), bool, int, float, str, timedelta, datetime, UUID})
"""Types with fast comparisons: thousands take a few milliseconds."""


def _is_short(item: Any) -> bool:
    return type(item) is not str or len(item) <= PACE


def _compared(env: Env, left: Any, right: Any) -> int:
    env.tick(FEW)
    return compare(left, right, env.tick)


@function("array::distinct", "array", result="array", env=True)
def distinct(env: Env, items: list[Any]) -> list[Any]:
    """Distinct items, each at its first position."""
    found: dict[Any, Any] = {}
    for part in slices(items, env):
        for item in part:
            found.setdefault(hashable(item, env.tick), item)
    return list(found.values())


@function("array::flatten", "array", result="array", env=True)
def flatten(env: Env, items: list[Any]) -> list[Any]:
    """Items with nested arrays expanded, one level deep."""
    flat: list[Any] = []
    for part in slices(items, env):
        for item in part:
            if type(item) is list:
                check_array(len(flat) + len(item))
                env.tick(len(item))
                flat += cut(item, env)
            else:
                flat.append(item)
        check_array(len(flat))
    return flat


@function("array::push", "array", "any", result="array", env=True)
def push(env: Env, items: list[Any], item: Any) -> list[Any]:
    """Items with one more appended."""
    found = cut(items, env)
    found.append(item)
    return found


@function("array::slice", "array", "int", "int", result="array", env=True)
def slice_(env: Env, items: list[Any], start: int, end: int | None = None) -> list[Any]:
    """Items from start up to end, exclusive; negative positions count from the end."""
    return cut(items, env, start, end)


@function("array::map", "array", "closure", result="array", takes=1)
def map_(items: list[Any], each: Closure) -> list[Any]:
    """Results of the closure for each item."""
    return each.all_of(items)


@function("array::filter", "array", "closure", result="array", takes=1)
def filter_(items: list[Any], holds: Closure) -> list[Any]:
    """Items for which the closure returns true."""
    # Closed at once, also on errors: until then the closure's variable shadows another.
    with closing(holds.of_each(items)) as answers:
        return [item for item, fits in zip(items, answers, strict=True) if truth(fits)]


@function("array::find", "array", "closure", result="any", takes=1)
def find(items: list[Any], holds: Closure) -> Any:
    """First item for which the closure returns true; NONE if there is none."""
    with closing(holds.of_each(items)) as answers:
        return next(
            (item for item, found in zip(items, answers, strict=True) if truth(found)), NONE
        )


@function("array::any", "array", "closure", result="bool", takes=1)
def any_(items: list[Any], holds: Closure) -> bool:
    """True if the closure returns true for at least one item."""
    with closing(holds.of_each(items)) as answers:
        return any(map(truth, answers))


@function("array::all", "array", "closure", result="bool", takes=1)
def all_(items: list[Any], holds: Closure) -> bool:
    """True if the closure returns true for every item."""
    with closing(holds.of_each(items)) as answers:
        return all(map(truth, answers))


@function("array::fold", "array", "any", "closure", result="any", takes=2)
def fold(items: list[Any], start: Any, step: Closure) -> Any:
    """Left fold: applies the closure to the accumulator, from start on, and each item in turn."""
    return step.folded(start, items)
