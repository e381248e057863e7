"""`object::…`."""

from __future__ import annotations

from typing import Any

from language.functions.table import function


@function("object::keys", "object", result="array")
def keys(fields: dict[str, Any]) -> list[str]:
    """The names of an object's fields, as they stand."""
    return list(fields)


@function("object::values", "object", result="array")
def values(fields: dict[str, Any]) -> list[Any]:
    """The values of an object's fields, as they stand."""
    return list(fields.values())
