"""Places that are being made from a script: what a node that ends meanwhile leaves half done.

A mark stands beside each database and namespace that a restore has made, from the commit that made
them to the one that filled the last of them. Whoever gives a restore up, and a start that finds a
mark, drops what it stands for: places are there wholly, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from protocol import binary
from protocol.values import unpaced
from storage import catalog, keys, users
from storage.catalog import Database, Namespace
from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Mark:
    """A place that a restore has made.

    :ivar namespace, database: its numbers; of a namespace the second is 0
    :ivar names: of the namespace, and of the database
    """

    namespace: int
    database: int
    names: tuple[str, ...]

    @property
    def key(self) -> bytes:
        """Where it stands."""
        return keys.restoring(self.namespace, self.database)

    @property
    def row(self) -> bytes:
        """What stands there. Behind a lost lead the ids may be those of another place."""
        return binary.pack(list(self.names))


def mark(tx: Transaction, place: Namespace | Database) -> Mark:
    """A place was made, and is to be filled."""
    if isinstance(place, Namespace):
        made = Mark(place.id, 0, (place.name,))
    else:
        made = Mark(place.namespace.id, place.id, (place.namespace.name, place.name))
    tx.put(made.key, made.row)
    return made


def marks(tx: Transaction) -> list[Mark]:
    """All that stand."""
    return [
        Mark(*keys.restoring_at(key), tuple(binary.unpack(value)))  # type: ignore[arg-type]
        for pairs in tx.scan(*keys.all_restoring())
        for key, value in pairs
    ]


def is_unfinished(tx: Transaction, database: Database) -> bool:
    """Whether a database is still being filled."""
    return tx.get(keys.restoring(database.namespace.id, database.id)) is not None


def finish(tx: Transaction, made: Iterable[Mark]) -> None:
    """What was made is filled: it stays."""
    for one in made:
        tx.delete(one.key)


def undo(
    tx: Transaction, made: Iterable[Mark], goes: Callable[[Database], None]
) -> tuple[list[Namespace | Database], list[str]]:
    """Drop what is marked, as far as it is still there: the databases, and the namespaces unless
    somebody else has put something into them meanwhile.

    :param goes: is told of each database before it is dropped
    :returns: what was dropped, and the names of the users whose space it was
    """
    dropped: list[Namespace | Database] = []
    gone: list[str] = []
    for one in sorted(made, key=lambda one: one.database == 0):
        if tx.get(one.key) != one.row:
            continue  # somebody else has dropped it, or it was rolled back
        namespace = catalog.namespace(tx, one.names[0])
        assert namespace.id == one.namespace, "a mark goes with its place"
        if one.database:
            database = catalog.database(tx, namespace, one.names[1])
            assert database.id == one.database, "a mark goes with its place"
            goes(database)
            gone += catalog.drop_database(tx, database)
            dropped.append(database)
        elif _has_databases(tx, namespace) or _has_users(tx, namespace):
            tx.delete(one.key)
        else:
            gone += catalog.drop_namespace(tx, namespace)
            dropped.append(namespace)
    return dropped, gone


def _has_databases(tx: Transaction, namespace: Namespace) -> bool:
    return any(True for _ in catalog.databases(tx, namespace, unpaced))


def _has_users(tx: Transaction, namespace: Namespace) -> bool:
    return any(user.space == namespace.name for user in users.everyone(tx))
