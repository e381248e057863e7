"""Definitions of fields, as the catalog keeps them: texts, compiled by whoever writes records.

A table carries its fields: finding it finds them, and one without any costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol import binary, limits
from protocol.errors import TooLarge
from protocol.paths import Path, read_path, stored_path
from protocol.values import Tick
from storage import keys
from storage.definitions import pack_definition
from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Field:
    """A defined field of a table."""

    path: Path
    """Its steps: names, and `EACH`."""
    name: str
    """Its path as people write it."""
    type: str
    """The text of its type."""
    default: str | None = None
    """The text of its DEFAULT."""
    value: str | None = None
    """The text of its VALUE."""
    assertion: str | None = None
    """The text of its ASSERT."""
    readonly: bool = False
    comment: str | None = None


def load(tx: Transaction, start: bytes, end: bytes, tick: Tick) -> dict[int, tuple[Field, ...]]:
    """The fields in a range of keys by the id of their table: each after the one it is below.

    :param tick: called for each
    """
    found: dict[int, list[Field]] = {}
    for key, value in tx.rows(start, end, tick):
        kept: Any = binary.unpack(value)
        path = read_path(kept.pop("path"))
        table, name = keys.field_at(key)
        found.setdefault(table, []).append(Field(path, name, **kept))
    return {table: tuple(fields) for table, fields in found.items()}


def pack(field: Field) -> bytes:
    """The value that `load` reads. :raises TooLarge: over `limits.DEFINITION_BYTES`"""
    if len(field.name.encode()) > limits.PATH_BYTES:
        raise TooLarge(
            f"a field's path takes at most {limits.PATH_BYTES} bytes", limit=limits.PATH_BYTES
        )
    return pack_definition(
        {
            "path": stored_path(field.path),
            "type": field.type,
            "default": field.default,
            "value": field.value,
            "assertion": field.assertion,
            "readonly": field.readonly,
            "comment": field.comment,
        }
    )
