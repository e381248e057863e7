"""Data clauses of writing statements: CONTENT, MERGE, SET and UNSET; and DIFF.

No value is changed in place: the path to a change is copied, the rest is shared (copy-on-write).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from language import tree
from language.budget import PartsBudget, bounded, is_bounded
from language.charges import WIDE
from language.columns import omitted
from language.compile import Compiled, compile_expression, is_made
from language.env import Env
from language.error_places import placed
from language.numbers import add, negate, subtract
from language.operators import members, merged
from language.rows import WHOLE
from protocol import limits
from protocol.errors import BadRequest, Refusal, TooLarge, TypeRefused
from protocol.paths import EACH, Path
from protocol.values import FEW, NONE, Tick, identical, paced, ticking, type_name

Change = dict[str, Any]
"""A step of a DIFF: `op` (add, remove, replace), `path` as in JSON Pointer, and `value` except for
remove."""

Write = Callable[[dict[str, Any], Env], dict[str, Any]]
"""`(record before, env) -> record after`; the first is not changed."""


def plan_data(data: tree.Data) -> Write:
    """Return the function that applies CONTENT, MERGE, SET or UNSET to a record.

    Every expression of a SET sees the record before the statement, regardless of its position in
    the list. A field set to NONE is removed. NONE inside a value is dropped when it is stored.
    """
    if isinstance(data, tree.Set):
        return _set(data)
    if isinstance(data, tree.Unset):
        paths = data.paths
        return lambda before, env: _without(before, paths, env.tick)
    return _content(data) if isinstance(data, tree.Content) else _merge(data)


def _content(data: tree.Content) -> Write:
    compute = _bounded_expression(data.value)
    return lambda before, env: dict(_object(compute(before, env), "CONTENT"))


def _merge(data: tree.Merge) -> Write:
    compute = _bounded_expression(data.value)
    return lambda before, env: merged(before, _object(compute(before, env), "MERGE"), env)


def _set(data: tree.Set) -> Write:
    parts = [
        (each, _bounded_expression(each.value), is_made(each.value)) for each in data.assignments
    ]

    many = len(parts) > FEW

    def work(before: dict[str, Any], env: Env) -> dict[str, Any]:
        all_made = PartsBudget(env.memory)
        computed = []
        for each, compute, is_new in parts:
            if many:
                env.tick(WIDE)
            value = compute(before, env)
            computed.append((each, all_made.add(value, env.tick) if is_new else value))
        after: Any = before
        for each, value in paced(computed, env.tick) if many else computed:
            if each.operator == "=":
                after = assigned(after, each.path, value, env.tick)
            else:
                after = _adjusted(after, each, value, env)
        return all_made.made(dict(before) if after is before else after)

    return work


def _adjusted(after: Any, each: tree.Assignment, value: Any, env: Env) -> Any:
    adjust = _increased if each.operator == "+=" else _decreased
    try:
        return altered(after, each.path, lambda known: adjust(known, value, env), env.tick)
    except Refusal as refusal:
        raise placed(refusal, each.at) from refusal.__cause__


def _increased(known: Any, value: Any, env: Env) -> Any:
    """`+=`: as `+`, but an array appends a value that is no array, and an absent field becomes the
    value."""
    if known is NONE:
        return value
    # Copied for each assignment, of which there may be hundreds.
    return add(known, [value] if type(known) is list and type(value) is not list else value, env)


def _decreased(known: Any, value: Any, env: Env) -> Any:
    """`-=`: as `-`, but an array removes all items equal to the value or to an item of an array.

    An absent field counts as 0; with an array it stays absent.
    """
    if known is NONE:
        return NONE if type(value) not in _NEGATED else negate(value)
    if type(known) is list:
        gone = members(value if type(value) is list else [value], env)
        return [item for item in ticking(known, len(known), env.tick) if not gone(item)]
    return subtract(known, value)


_NEGATED: Final = frozenset({int, float, Decimal, timedelta})


def _bounded_expression(expression: tree.Expression) -> Compiled:
    compute = compile_expression(expression, WHOLE)
    if is_bounded(expression):
        return compute
    return lambda before, env: bounded(compute(before, env), env.tick)


def _object(value: Any, word: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeRefused(f"{word} takes an object, not {type_name(value)}", found=type_name(value))
    return value


def _without(before: dict[str, Any], paths: tuple[Path, ...], tick: Tick) -> dict[str, Any]:
    after: Any = dict(before)
    for path in paths:
        after = omitted(after, path, tick)
    return after  # type: ignore[no-any-return]


def assigned(value: Any, path: Path, new: Any, tick: Tick) -> Any:
    """Return a copy of a value with `new` at a path. Missing parts on the way are created.

    :raises BadRequest, TypeRefused: as `altered`
    """
    return altered(value, path, lambda _: new, tick)


Alter = Callable[[Any], Any]
"""Returns the new value for an old one, which may be NONE."""


def altered(value: Any, path: Path, alter: Alter, tick: Tick) -> Any:
    """Return a copy of a value with a function applied at a path. Missing parts are created.

    :param tick: called before each array, and periodically in long values
    :raises BadRequest: a position past the end of an array, or in an absent value
    :raises TypeRefused: a step into a value without parts
    """
    if not path:
        return alter(value)
    step, rest = path[0], path[1:]
    if step is EACH:
        return _altered_each(value, rest, alter, tick)
    if type(step) is int:
        return _altered_item(value, step, rest, alter, tick)
    if value is NONE or value is None:
        value = {}
    if type(value) is list:
        return [altered(item, path, alter, tick) for item in ticking(value, len(value), tick)]
    if type(value) is not dict:
        raise TypeRefused(f"{type_name(value)} has no field {step} to set", found=type_name(value))
    if len(value) > FEW:
        tick()
    part = altered(value.get(step, NONE), rest, alter, tick)
    found = {**value, step: part}
    if part is NONE:
        del found[step]
    return found


def _altered_each(value: Any, rest: Path, alter: Alter, tick: Tick) -> Any:
    if type(value) is list:
        parts = (altered(item, rest, alter, tick) for item in ticking(value, len(value), tick))
        return [part for part in parts if part is not NONE]
    if type(value) is dict:
        fields = ticking(value.items(), len(value), tick)
        found = ((name, altered(item, rest, alter, tick)) for name, item in fields)
        return {name: part for name, part in found if part is not NONE}
    raise TypeRefused(f"{type_name(value)} has no items to set", found=type_name(value))


def _altered_item(value: Any, at: int, rest: Path, alter: Alter, tick: Tick) -> Any:
    if type(value) is dict:
        raise TypeRefused("an object has no positions", found="object")
    items = [] if value is NONE or value is None else value
    if type(items) is not list:
        raise TypeRefused(f"{type_name(value)} has no items to set", found=type_name(value))
    if not -len(items) <= at <= len(items):
        raise BadRequest(f"position {at} is past the end of an array of {len(items)}")
    if len(items) > FEW:
        tick()
    if at == len(items):
        part = altered(NONE, rest, alter, tick)
        return items if part is NONE else [*items, part]
    at %= len(items)
    part = altered(items[at], rest, alter, tick)
    return items[:at] + ([] if part is NONE else [part]) + items[at + 1 :]


def diff(before: dict[str, Any], after: dict[str, Any], tick: Tick = lambda: None) -> list[Change]:
    """Return the steps from one object to another, as in JSON Patch (RFC 6902).

    :param tick: called periodically while large values are compared
    """
    changes: list[Change] = []
    _diff(before, after, "", changes, 0, tick)
    return changes


def _diff(
    before: Any, after: Any, path: str, changes: list[Change], depth: int, tick: Tick
) -> None:
    if depth > limits.DEPTH:
        raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
    if type(before) is dict and type(after) is dict:
        for name in before:
            if name not in after:
                changes.append({"op": "remove", "path": f"{path}/{_pointer(name)}"})
        for name, value in ticking(after.items(), len(after), tick):
            here = f"{path}/{_pointer(name)}"
            if name in before:
                _diff(before[name], value, here, changes, depth + 1, tick)
            else:
                changes.append({"op": "add", "path": here, "value": value})
    elif type(before) is list and type(after) is list:
        _diff_arrays(before, after, path, changes, depth, tick)
    elif not identical(before, after, tick):
        changes.append({"op": "replace", "path": path, "value": after})


def _diff_arrays(
    before: list[Any],
    after: list[Any],
    path: str,
    changes: list[Change],
    depth: int,
    tick: Tick,
) -> None:
    both = min(len(before), len(after))
    for at in ticking(range(both), both, tick):
        one, two = before[at], after[at]
        # Most items are unchanged: a call for each would dominate the cost.
        if one is not two or type(one) in (list, dict):
            _diff(one, two, f"{path}/{at}", changes, depth + 1, tick)
    # From the end, so that every position is still right when its step is taken.
    for at in paced(range(len(before) - 1, len(after) - 1, -1), tick):
        changes.append({"op": "remove", "path": f"{path}/{at}"})
    for at in paced(range(len(before), len(after)), tick):
        changes.append({"op": "add", "path": f"{path}/{at}", "value": after[at]})


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
