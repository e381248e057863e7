"""`object::…` functions."""

from __future__ import annotations

from typing import Any

from language.env import Env
from language.functions.table import function
from language.operators import merged
from language.pieces import slices
from protocol.errors import TypeRefused
from protocol.values import NONE, type_name


@function("object::keys", "object", result="array", env=True)
def keys(env: Env, fields: dict[str, Any]) -> list[str]:
    """Field names of an object, in their order."""
    each = slices(fields.items(), env)
    return [name for part in each for name, value in part if value is not NONE]


@function("object::values", "object", result="array", env=True)
def values(env: Env, fields: dict[str, Any]) -> list[Any]:
    """Field values of an object, in their order."""
    return [value for part in slices(fields.values(), env) for value in part if value is not NONE]


@function("object::merge", "object", "object", result="object", env=True)
def merge(env: Env, fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The first object merged with the second's fields, as by MERGE; NONE removes a field."""
    return merged(fields, changes, env)


@function("object::pick", "object", "array", result="object", env=True)
def pick(env: Env, fields: dict[str, Any], names: list[Any]) -> dict[str, Any]:
    """Object with only these fields, in the order of the names; missing ones are left out."""
    _check_names("object::pick", names, env)
    found: dict[str, Any] = {}
    for part in slices(names, env):
        found.update((name, fields[name]) for name in part if fields.get(name, NONE) is not NONE)
    return found


@function("object::omit", "object", "array", result="object", env=True)
def omit(env: Env, fields: dict[str, Any], names: list[Any]) -> dict[str, Any]:
    """Object without these fields."""
    _check_names("object::omit", names, env)
    unwanted = {name for part in slices(names, env) for name in part}
    each = slices(fields.items(), env)
    return {name: value for part in each for name, value in part if name not in unwanted}


def _check_names(function: str, names: list[Any], env: Env) -> None:
    for part in slices(names, env):
        odd = next((name for name in part if type(name) is not str), None)
        if odd is not None:
            raise TypeRefused(
                f"{function} takes the names of fields, not {type_name(odd)}", found=type_name(odd)
            )
