"""OMIT and UNSET: a value without what a path leads to."""

from __future__ import annotations

from typing import Any

from protocol.paths import EACH, Path
from protocol.values import FEW, NONE, Tick, ticking


def omitted(value: Any, path: Path, tick: Tick) -> Any:
    """A value without what a path leads to; the value itself is not changed. A step by name goes
    into every item of an array, and no record link is followed.

    :param tick: called before each array, and now and then in what is long
    """
    if not path:
        return NONE
    step, rest = path[0], path[1:]
    if type(value) is list:
        if type(step) is int:
            return _without_item(value, step, rest, tick)
        below = rest if step is EACH else path
        items = ticking(value, len(value), tick)
        parts = (omitted(item, below, tick) for item in items)
        return [part for part in parts if part is not NONE]
    if type(value) is not dict:
        return value
    if step is EACH:
        fields = ticking(value.items(), len(value), tick)
        left = ((name, omitted(item, rest, tick)) for name, item in fields)
        return {name: part for name, part in left if part is not NONE}
    if step not in value:
        return value
    if len(value) > FEW:
        tick()
    found = dict(value)
    part = omitted(value[step], rest, tick)
    if part is NONE:
        del found[step]
    else:
        found[step] = part
    return found


def _without_item(value: list[Any], at: int, rest: Path, tick: Tick) -> list[Any]:
    if not -len(value) <= at < len(value):
        return value
    if len(value) > FEW:
        tick()
    at %= len(value)
    part = omitted(value[at], rest, tick)
    return value[:at] + ([] if part is NONE else [part]) + value[at + 1 :]
