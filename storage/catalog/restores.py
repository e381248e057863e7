"""Marks of databases and namespaces that a script restore is filling.

A mark is written by the commit that creates a namespace or database, and deleted by the commit that
completes the restore. A cancelled restore, and a start that finds a mark, drops what is marked: a
namespace or database is restored completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from protocol import binary
from protocol.values import unpaced
from storage.catalog import places, users
from storage.catalog.places import Database, Namespace
from storage.formats import keys
from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class RestoreMark:
    """Mark of a namespace or database that a restore has created.

    :ivar namespace, database: ids; for a namespace the second is 0 :ivar names: names of the
    namespace, and of the database
    """

    namespace: int
    database: int
    names: tuple[str, ...]

    @property
    def key(self) -> bytes:
        """State key of the mark."""
        return keys.restoring(self.namespace, self.database)

    @property
    def row(self) -> bytes:
        """Value of the mark: the names, because after a lost leadership the ids may be assigned to
        another namespace or database."""
        return binary.pack(list(self.names))


def mark(tx: Transaction, place: Namespace | Database) -> RestoreMark:
    """Mark a namespace or database that was created and is to be filled."""
    if isinstance(place, Namespace):
        made = RestoreMark(place.id, 0, (place.name,))
    else:
        made = RestoreMark(place.namespace.id, place.id, (place.namespace.name, place.name))
    tx.put(made.key, made.row)
    return made


def marks(tx: Transaction) -> list[RestoreMark]:
    """Return all marks."""
    return [
        RestoreMark(*keys.restoring_at(key), tuple(binary.unpack(value)))  # type: ignore[arg-type]
        for pairs in tx.scan(*keys.all_restoring())
        for key, value in pairs
    ]


def is_unfinished(tx: Transaction, database: Database) -> bool:
    """True if a database is still being filled."""
    return tx.get(keys.restoring(database.namespace.id, database.id)) is not None


def finish(tx: Transaction, made: Iterable[RestoreMark]) -> None:
    """Delete the marks of complete namespaces and databases."""
    for one in made:
        tx.delete(one.key)


def undo(
    tx: Transaction, made: Iterable[RestoreMark], goes: Callable[[Database], None]
) -> tuple[list[Namespace | Database], list[str]]:
    """Drop the marked namespaces and databases that still exist.

    A namespace stays if other transactions have put databases or users into it.

    :param goes: called for each database before it is dropped
    :returns: the dropped ones, and the names of the users that belonged to them
    """
    dropped: list[Namespace | Database] = []
    gone: list[str] = []
    # Databases first: their namespace is dropped only if it is empty by then.
    for one in sorted(made, key=lambda one: one.database == 0):
        if tx.get(one.key) != one.row:
            continue  # another transaction dropped the place, or its creation was rolled back
        namespace = places.namespace(tx, one.names[0])
        assert namespace.id == one.namespace, "a mark goes with its place"
        if one.database:
            database = places.database(tx, namespace, one.names[1])
            assert database.id == one.database, "a mark goes with its place"
            goes(database)
            gone += places.drop_database(tx, database)
            dropped.append(database)
        # Other transactions use the namespace by now, so only the mark goes.
        elif _has_databases(tx, namespace) or _has_users(tx, namespace):
            tx.delete(one.key)
        else:
            gone += places.drop_namespace(tx, namespace)
            dropped.append(namespace)
    return dropped, gone


def _has_databases(tx: Transaction, namespace: Namespace) -> bool:
    return any(True for _ in places.databases(tx, namespace, unpaced))


def _has_users(tx: Transaction, namespace: Namespace) -> bool:
    # Asked only without databases, so their users need no look.
    return any(user.space == namespace.name for user in users.everyone(tx))
