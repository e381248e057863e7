"""Field definitions in the catalog, stored as text. Code that writes records compiles them.

A table object carries its fields, so looking up the table loads them. A table without any has no
extra cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol import binary, limits
from protocol.errors import TooLarge
from protocol.paths import Path, read_path, stored_path
from protocol.values import Tick
from storage.catalog.definitions import pack_definition
from storage.formats import keys
from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Field:
    """A defined field of a table."""

    path: Path
    """Steps of the path: names, and `EACH`."""
    name: str
    """Path in the language's notation."""
    type: str
    """Source text of the type."""
    default: str | None = None
    """Source text of DEFAULT."""
    value: str | None = None
    """Source text of VALUE."""
    assertion: str | None = None
    """Source text of ASSERT."""
    readonly: bool = False
    comment: str | None = None


def load(tx: Transaction, start: bytes, end: bytes, tick: Tick) -> dict[int, tuple[Field, ...]]:
    """Return the fields in a key range by table id, each after its parent field.

    :param tick: called for each field
    """
    found: dict[int, list[Field]] = {}
    for key, value in tx.rows(start, end, tick):
        kept: Any = binary.unpack(value)
        path = read_path(kept.pop("path"))
        table, name = keys.field_at(key)
        found.setdefault(table, []).append(Field(path, name, **kept))
    return {table: tuple(fields) for table, fields in found.items()}


def pack(field: Field) -> bytes:
    """Encode a field for `load`. :raises TooLarge: over `limits.DEFINITION_BYTES`, or the path too
    long"""
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
