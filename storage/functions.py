"""Functions that a database defines, as the catalog keeps them: texts, compiled by who calls them.

Nothing belongs to a function, so it has no id: what is defined under its name again takes its
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol import binary
from protocol.errors import AlreadyExists
from protocol.text import check_name
from protocol.values import Tick
from storage import keys
from storage.catalog import Database, Taken, check_comment, declared_of, each_named
from storage.definitions import pack_definition
from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Function:
    """A declared function."""

    database: Database
    name: str
    parameters: tuple[tuple[str, str], ...]
    """Of each the name and the text of its type."""
    returns: str | None
    """The text of its type; None: any value."""
    body: str
    """The text of an expression."""
    comment: str | None = None

    @property
    def path(self) -> str:
        """How people write it: `ns.db.function`."""
        return f"{self.database.path}.{self.name}"


def find(tx: Transaction, database: Database, name: str) -> Function | None:
    """The function of that name in a database, if there is one."""
    at = ("function", database.id, name)
    found: Function | None = tx.known(at)
    if found is None:
        value = tx.get(keys.function(database.namespace.id, database.id, name))
        if value is not None:
            found = _function(database, name, value)
            tx.remember(at, found, *declared_of_function(found))
    return found


def declared_of_function(function: Function) -> tuple[bytes, ...]:
    """What a function rests on; see `lookups.py`."""
    database = function.database
    key = keys.function(database.namespace.id, database.id, function.name)
    return key, *declared_of(database)


def each(tx: Transaction, database: Database, tick: Tick) -> Iterator[Function]:
    """The functions of a database, by name, as they are asked for. :param tick: called for each"""
    for name, value in each_named(tx, *keys.functions(database.namespace.id, database.id), tick):
        yield _function(database, name, value)


def define(tx: Transaction, made: Function, taken: Taken = Taken.REFUSE) -> None:
    """Declare a function, as `catalog.define_namespace` does.

    :raises AlreadyExists: the name is taken
    :raises NameRefused, TooLarge: of the name; of the comment, or of all of it
    """
    check_name(made.name, "function")
    check_comment(made.comment)
    if taken is not Taken.OVERWRITE and find(tx, made.database, made.name) is not None:
        if taken is Taken.SKIP:
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
    parameters = tuple((one, type) for one, type in kept.pop("parameters"))
    return Function(database, name, parameters, **kept)
