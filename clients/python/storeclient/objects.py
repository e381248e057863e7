"""Conversion of rows to dataclasses."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def into(kind: type[T], value: Any) -> T:
    """Convert a value of the language to an instance of a class.

        @dataclass
        class Item:
            id: RecordId
            name: str
            colour: Colour            # an Enum, by its value
            sizes: list[Size]         # dataclasses inside
            note: str | None = None

        items = [into(Item, row) for row in db.query("SELECT * FROM item")]

    Fields that the class lacks are ignored; those that the row lacks take their defaults. In the
    other direction, a dataclass passed as a parameter becomes an object, an Enum its value.

    :raises TypeError: the value is not of that type, or a field without a default is missing; the
        message names it
    """
    return _made(kind, value, getattr(kind, "__name__", str(kind)))  # type: ignore[no-any-return]


def _made(kind: Any, value: Any, where: str) -> Any:
    if kind is Any or kind is object:
        return value
    origin = get_origin(kind)
    if origin is Union or origin is types.UnionType:
        return _one_of(get_args(kind), value, where)
    if origin in (list, tuple, set, frozenset):
        return _items(origin, get_args(kind), value, where)
    if origin is dict or origin is Mapping:
        return _entries(get_args(kind)[1], value, where)
    if not isinstance(kind, type):
        return value  # a type that can't be checked
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    if issubclass(kind, Enum):
        return _enum(kind, value, where)
    if kind is float and type(value) is int:
        return float(value)
    raise _mistyped(where, kind, value)


def _mistyped(where: str, kind: Any, value: Any) -> TypeError:
    name = getattr(kind, "__name__", str(kind))
    return TypeError(f"{where} is a {name}, not a {type(value).__name__}: {value!r:.80}")


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    said: TypeError | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _made(kind, value, where)
        except TypeError as error:
            said = said or error
    raise said or TypeError(f"{where} is not one of {kinds}")


def _items(origin: Any, kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, list):
        raise _mistyped(where, list, value)
    if origin is tuple and not (len(kinds) == 2 and kinds[1] is Ellipsis):
        if len(kinds) != len(value):
            raise TypeError(f"{where} has {len(value)} items, expected {len(kinds)}")
        each = kinds
    else:
        each = (kinds[0],) * len(value)
    return origin(
        _made(kind, item, f"{where}[{n}]")
        for n, (kind, item) in enumerate(zip(each, value, strict=True))
    )


def _entries(kind: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mistyped(where, dict, value)
    return {name: _made(kind, item, f"{where}.{name}") for name, item in value.items()}


def _enum(kind: type[Enum], value: Any, where: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise TypeError(f"{where} is a {kind.__name__}, which has no {value!r:.80}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _mistyped(where, kind, value)
    hints, given = _hints(kind), {}
    for field in fields(kind):
        if not field.init:
            continue
        if field.name in value:
            given[field.name] = _made(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise TypeError(f"{where} has no {field.name}")
    return kind(**given)
