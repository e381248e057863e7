"""As much of JSON Schema as `/openapi.json` uses: says where a value does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    "$ref", "type", "enum", "oneOf", "properties", "required", "additionalProperties", "items",
    "description", "format",
}  # fmt: skip


def misfits(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """Why `value` does not fit; empty when it does."""
    return list(_misfits(value, schema, schemas, "$"))


def _misfits(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str) -> Iterator[str]:
    assert set(schema) <= _KNOWN, f"{at}: this checker does not know {set(schema) - _KNOWN}"
    if "$ref" in schema:
        yield from _misfits(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, at)
        return
    if "oneOf" in schema:
        fitting = [one for one in schema["oneOf"] if not misfits(value, one, schemas)]
        if len(fitting) != 1:
            yield f"{at}: fits {len(fitting)} of {len(schema['oneOf'])}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "type" in schema and not _has_type(value, schema["type"]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, dict):
        yield from _object_misfits(value, schema, schemas, at)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _misfits(item, schema["items"], schemas, f"{at}[{number}]")


def _object_misfits(
    value: dict[str, Any], schema: dict[str, Any], schemas: dict[str, Any], at: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: no {name}"
    for name, item in value.items():
        if name in properties:
            yield from _misfits(item, properties[name], schemas, f"{at}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{at}: {name} is not described"


def _has_type(value: Any, wanted: str | list[str]) -> bool:
    if isinstance(wanted, list):
        return any(_has_type(value, one) for one in wanted)
    if wanted == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[wanted])
