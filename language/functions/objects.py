"""`object::…`."""

from __future__ import annotations

from typing import Any

from language.env import Env
from language.functions.table import function, slices
from language.operators import merged
from protocol.errors import TypeRefused
from protocol.values import NONE, present_fields, type_name


@function("object::keys", "object", result="array")
def keys(fields: dict[str, Any]) -> list[str]:
    """The names of an object's fields, as they stand."""
    return list(present_fields(fields))


@function("object::values", "object", result="array")
def values(fields: dict[str, Any]) -> list[Any]:
    """The values of an object's fields, as they stand."""
    return list(present_fields(fields).values())


@function("object::merge", "object", "object", result="object")
def merge(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The first object with the second's fields put over its own, as MERGE does; none removes."""
    return merged(fields, changes)


@function("object::pick", "object", "array", result="object", env=True)
def pick(env: Env, fields: dict[str, Any], names: list[Any]) -> dict[str, Any]:
    """The fields of these names, in the order of the names; those that it lacks are left out."""
    _check_names("object::pick", names)
    found: dict[str, Any] = {}
    for part in slices(names, env):
        found.update((name, fields[name]) for name in part if fields.get(name, NONE) is not NONE)
    return found


@function("object::omit", "object", "array", result="object")
def omit(fields: dict[str, Any], names: list[Any]) -> dict[str, Any]:
    """An object without the fields of these names."""
    _check_names("object::omit", names)
    unwanted = frozenset(names)
    return {name: value for name, value in fields.items() if name not in unwanted}


def _check_names(function: str, names: list[Any]) -> None:
    odd = next((name for name in names if type(name) is not str), None)
    if odd is not None:
        raise TypeRefused(
            f"{function} takes the names of fields, not {type_name(odd)}", found=type_name(odd)
        )
