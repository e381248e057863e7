"""Projection: columns and their names, OMIT, SPLIT and FETCH."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from language import tree
from language.charges import WIDE
from language.compile import compile_expression
from language.env import Env
from language.printing import print_expression
from language.rows import Row, Shape, item_value
from protocol.errors import BadRequest
from protocol.paths import EACH, Path
from protocol.values import FEW, NONE, PACE, RecordId, Tick, ticking


def column_path(column: tree.Column) -> tuple[str, ...]:
    """Return the path of a column in the result row.

    It is the alias, the field path of the expression, the name of the called function or parameter,
    or the printed expression.
    """
    if column.alias is not None:
        return (column.alias,)
    node, steps = column.expression, []
    while isinstance(node, tree.Attribute):
        steps.append(node.name)
        node = node.of
    if isinstance(node, tree.Name):
        return (node.name, *reversed(steps))
    if isinstance(column.expression, tree.Call):
        return (column.expression.name,)
    if isinstance(column.expression, tree.Parameter):
        return (column.expression.name,)
    return (print_expression(column.expression),)


def check_names(names: list[tuple[str, ...]], columns: tuple[tree.Column, ...]) -> None:
    """Check that column names do not clash.

    :raises BadRequest: two columns have the same path, or one lies inside another
    """
    seen: dict[tuple[str, ...], tree.Expression] = {}
    for name, column in zip(names, columns, strict=True):
        if seen.setdefault(name, column.expression) != column.expression:
            shadowed = ".".join(name)
            raise BadRequest(f"two columns are called {shadowed}: name one with AS", name=shadowed)
    for name in seen:
        for end in range(1, len(name)):
            if name[:end] in seen:
                outer, inner = ".".join(name[:end]), ".".join(name)
                raise BadRequest(
                    f"the column {inner} would be inside the column {outer}: name one with AS",
                    name=inner,
                )


def compile_columns(
    columns: tuple[tree.Column, ...], everything: bool, shape: Shape
) -> Callable[[Row, Env], Any]:
    """Return the function that projects a row. `everything` starts from the whole row."""
    parts = [(column_path(c), compile_expression(c.expression, shape)) for c in columns]
    many = len(parts) > FEW

    def work(row: Row, env: Env) -> Any:
        if everything and not parts:
            return item_value(row)
        found = dict(row) if everything else {}
        for path, compute in parts:
            if many:
                env.tick(WIDE)
            value = compute(row, env)
            if value is not NONE:
                place(found, path, value)
        return found

    return work


def place(found: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Store a value at a path of a new object. Objects on the way are copied or created."""
    for name in path[:-1]:
        inner = found.get(name)
        found[name] = found = dict(inner) if type(inner) is dict else {}
    found[path[-1]] = value


def omitted(value: Any, path: Path, tick: Tick) -> Any:
    """Return a copy of a value without the parts at a path (OMIT, UNSET). :param tick: see
    `changed`"""
    return changed(value, path, lambda _: NONE, tick)


def fetched(value: Any, path: Path, env: Env) -> Any:
    """Return a value with the record links at a path replaced by their records (FETCH).

    An array of links is replaced item by item. A link to a missing record stays a link.
    """
    return changed(value, path, lambda found: _follow(found, env), env.tick, env)


def _follow(value: Any, env: Env) -> Any:
    if type(value) is RecordId:
        record = env.record(value)
        return value if record is None else record
    if type(value) is list:
        return [_follow(item, env) for item in ticking(value, len(value), env.tick)]
    return value


def changed(
    value: Any, path: Path, work: Callable[[Any], Any], tick: Tick, env: Env | None = None
) -> Any:
    """Return a copy of a value with a function applied to the parts that a path addresses.

    The part is removed if the function returns NONE. A step by name applies to every item of an
    array. With an `env`, a record link on the way is followed and replaced.

    :param tick: called before each array, and periodically in long values
    """
    if not path:
        return work(value)
    if env is not None and type(value) is RecordId:
        value = _follow(value, env)
    step, rest = path[0], path[1:]
    if type(value) is list:
        if type(step) is int:
            return _changed_item(value, step, rest, work, tick, env)
        below = rest if step is EACH else path
        items = ticking(value, len(value), tick)
        parts = (changed(item, below, work, tick, env) for item in items)
        return [part for part in parts if part is not NONE]
    if type(value) is not dict:
        return value
    if step is EACH:
        fields = ticking(value.items(), len(value), tick)
        left = ((name, changed(item, rest, work, tick, env)) for name, item in fields)
        return {name: part for name, part in left if part is not NONE}
    if step not in value:
        return value
    if len(value) > FEW:
        tick()
    part = changed(value[step], rest, work, tick, env)
    found = {**value, step: part}
    if part is NONE:
        del found[step]
    return found


def _changed_item(
    value: list[Any],
    at: int,
    rest: Path,
    work: Callable[[Any], Any],
    tick: Tick,
    env: Env | None,
) -> list[Any]:
    if not -len(value) <= at < len(value):
        return value
    if len(value) > FEW:
        tick()
    at %= len(value)
    part = changed(value[at], rest, work, tick, env)
    return value[:at] + ([] if part is NONE else [part]) + value[at + 1 :]


def split(rows: list[dict[str, Any]], path: Path, env: Env) -> Iterator[list[dict[str, Any]]]:
    """Yield one row for each item of the array at a path (SPLIT), in non-empty batches.

    A row without an array there is yielded unchanged.
    """
    found = []
    for row in rows:
        value: Any = row
        for step in path:
            value = value.get(step, NONE) if type(value) is dict else NONE
        if type(value) is not list:
            found.append(row)
            continue
        for item in value:
            found.append(_with(row, path, item, env.tick))
            if len(found) >= PACE:
                env.tick()
                yield found
                found = []
    if found:
        yield found


def _with(row: dict[str, Any], path: Path, item: Any, tick: Tick) -> dict[str, Any]:
    found = changed(row, path, lambda _: item, tick)
    assert type(found) is dict
    return found
