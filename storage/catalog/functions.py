"""User-defined functions of a database in the catalog, stored as text and compiled by callers.

A function has no id, because no data belongs to it: a new definition replaces the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol import binary
from protocol.errors import AlreadyExists
from protocol.text import check_name
from protocol.values import Tick
from storage.catalog.places import (
    Database,
    IfExists,
    check_comment,
    declared_of,
    each_named,
    pack_definition,
)
from storage.formats import keys
from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Function:
    """A declared function."""

    database: Database
    name: str
    parameters: tuple[tuple[str, str], ...]
    """Name and type (source text) of each parameter."""
    returns: str | None
    """Source text of the return type; None: any value."""
    body: str
    """Source text of the expression."""
    comment: str | None = None

    @property
    def path(self) -> str:
        """Qualified name: `ns.db.function`."""
        return f"{self.database.path}.{self.name}"


def find(tx: Transaction, database: Database, name: str) -> Function | None:
    """Return a function by name, or None."""
    # By id: a database of the same name that is declared later never finds this function.
    at = ("function", database.id, name)
    found: Function | None = tx.known(at)
    if found is None:
        value = tx.get(keys.function(database.namespace.id, database.id, name))
        if value is not None:
            found = _function(database, name, value)
            tx.remember(at, found, *declared_of_function(found))
    return found


def declared_of_function(function: Function) -> tuple[bytes, ...]:
    """Return the dependency keys of a function; see `catalog_cache.py`."""
    database = function.database
    key = keys.function(database.namespace.id, database.id, function.name)
    # The cached object holds its database, so a changed declaration of that makes it stale.
    return key, *declared_of(database)


def each(tx: Transaction, database: Database, tick: Tick) -> Iterator[Function]:
    """Yield the functions of a database lazily, ordered by name. :param tick: called for each"""
    for name, value in each_named(tx, *keys.functions(database.namespace.id, database.id), tick):
        yield _function(database, name, value)


def define(tx: Transaction, made: Function, taken: IfExists = IfExists.REFUSE) -> None:
    """Declare a function, as `places.define_namespace` does.

    :raises AlreadyExists: the name is taken
    :raises NameRefused: the name is not valid
    :raises TooLarge: the name, the comment, or the definition is too long
    """
    check_name(made.name, "function")
    check_comment(made.comment)
    # OVERWRITE needs no look-up, since there is no id to keep.
    if taken is not IfExists.OVERWRITE and find(tx, made.database, made.name) is not None:
        if taken is IfExists.SKIP:
            return
        raise AlreadyExists(f"function {made.path} exists", kind="function", name=made.path)
    packed = pack_definition(
        {
            "parameters": [list(one) for one in made.parameters],
            "returns": made.returns,
            "body": made.body,
            "comment": made.comment,
        }
    )
    database = made.database
    tx.put(keys.function(database.namespace.id, database.id, made.name), packed)


def drop(tx: Transaction, function: Function) -> None:
    """Drop a function."""
    database = function.database
    tx.delete(keys.function(database.namespace.id, database.id, function.name))


def _function(database: Database, name: str, value: bytes) -> Function:
    kept: Any = binary.unpack(value)
    # The other fields are stored under the names of the attributes.
    parameters = tuple((one, type) for one, type in kept.pop("parameters"))
    return Function(database, name, parameters, **kept)
