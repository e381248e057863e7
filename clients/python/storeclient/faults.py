"""Finds the invalid part of a request: its name and path, for error messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from storeclient.values import pack

DEPTH: Final = 64


def named(body: Mapping[str, Any]) -> str | None:
    """Return the name of the invalid part of a request: `$name.a[3]` of a parameter, or the name of
    an argument. None: no such part was found."""
    for name, value in body.items():
        inside = value.items() if name == "params" and isinstance(value, Mapping) else None
        if inside is None:
            if (way := _way(value, 0)) is not None:
                return f"{name}{way}"
            continue
        for parameter, item in inside:
            if (way := _way(item, 0)) is not None:
                return f"${parameter}{way}"
    return None


def _way(value: Any, depth: int) -> str | None:
    """Return the path to the invalid part of a value; None: there is none."""
    if depth > DEPTH:
        return ""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                return f"[{name!r}]"
            if (way := _way(item, depth + 1)) is not None:
                return f".{name}{way}"
        return None
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            if (way := _way(item, depth + 1)) is not None:
                return f"[{number}]{way}"
        return None
    if is_dataclass(value) and not isinstance(value, type) and not _packs(value):
        for field in fields(value):
            if (way := _way(getattr(value, field.name), depth + 1)) is not None:
                return f".{field.name}{way}"
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    return None if _packs(value) else ""


def _packs(value: Any) -> bool:
    try:
        pack(value)
    except (TypeError, ValueError, ArithmeticError):
        return False
    return True
