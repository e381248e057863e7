"""Analyzers of a database in the catalog: tokenizers, filters and the filters' literal arguments.

They are compiled by their callers. An analyzer has no id, because no data belongs to it: a new
definition replaces the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol import binary, limits
from protocol.errors import AlreadyExists, TooLarge
from protocol.text import check_name
from protocol.values import Tick
from storage.catalog.places import Database, IfExists, check_comment, declared_of, each_named
from storage.formats import keys
from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Analyzer:
    """A declared analyzer."""

    database: Database
    name: str
    tokenizers: tuple[str, ...]
    filters: tuple[tuple[str, tuple[Any, ...]], ...]
    """Name and arguments of each filter, in their order."""
    comment: str | None = None

    @property
    def path(self) -> str:
        """Qualified name: `ns.db.analyzer`."""
        return f"{self.database.path}.{self.name}"


def find(tx: Transaction, database: Database, name: str) -> Analyzer | None:
    """Return an analyzer by name, or None."""
    # By id: a database of the same name that is declared later never finds this analyzer.
    at = ("analyzer", database.id, name)
    found: Analyzer | None = tx.known(at)
    if found is None:
        value = tx.get(keys.analyzer(database.namespace.id, database.id, name))
        if value is not None:
            found = _analyzer(database, name, value)
            tx.remember(at, found, *declared_of_analyzer(found))
    return found


def declared_of_analyzer(analyzer: Analyzer) -> tuple[bytes, ...]:
    """Return the dependency keys of an analyzer; see `catalog_cache.py`."""
    database = analyzer.database
    key = keys.analyzer(database.namespace.id, database.id, analyzer.name)
    # The cached object holds its database, so a changed declaration of that makes it stale.
    return key, *declared_of(database)


def each(tx: Transaction, database: Database, tick: Tick) -> Iterator[Analyzer]:
    """Yield the analyzers of a database lazily, ordered by name. :param tick: called for each"""
    for name, value in each_named(tx, *keys.analyzers(database.namespace.id, database.id), tick):
        yield _analyzer(database, name, value)


def define(tx: Transaction, made: Analyzer, taken: IfExists = IfExists.REFUSE) -> None:
    """Declare an analyzer, as `places.define_namespace` does.

    :raises AlreadyExists: the name is taken
    :raises NameRefused: the name is not valid
    :raises TooLarge: the name, the comment, or the definition is too long
    """
    check_name(made.name, "analyzer")
    check_comment(made.comment)
    # OVERWRITE needs no look-up, since there is no id to keep.
    if taken is not IfExists.OVERWRITE and find(tx, made.database, made.name) is not None:
        if taken is IfExists.SKIP:
            return
        raise AlreadyExists(f"analyzer {made.path} exists", kind="analyzer", name=made.path)
    packed = binary.pack(
        {
            "tokenizers": list(made.tokenizers),
            "filters": [[name, list(arguments)] for name, arguments in made.filters],
            "comment": made.comment,
        }
    )
    if len(packed) > limits.ANALYZER_BYTES:
        raise TooLarge(
            f"an analyzer takes at most {limits.ANALYZER_BYTES} bytes",
            limit=limits.ANALYZER_BYTES,
            size=len(packed),
        )
    database = made.database
    tx.put(keys.analyzer(database.namespace.id, database.id, made.name), packed)


def drop(tx: Transaction, analyzer: Analyzer) -> None:
    """Drop an analyzer."""
    database = analyzer.database
    tx.delete(keys.analyzer(database.namespace.id, database.id, analyzer.name))


def _analyzer(database: Database, name: str, value: bytes) -> Analyzer:
    kept: Any = binary.unpack(value)
    return Analyzer(
        database,
        name,
        tuple(kept["tokenizers"]),
        tuple((one, tuple(arguments)) for one, arguments in kept["filters"]),
        kept["comment"],
    )
