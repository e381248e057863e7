"""Catalog of places: declares, looks up and drops namespaces and databases.

Look-ups are cached until a declaration they depend on changes (`catalog_cache.py`), so finding a
place costs a dictionary access, not a read. Replacing a declaration keeps its id. A drop retires
the id for ever, so data written under an old id never appears under a new one. The same holds for
tables, cache spaces, topics, vaults and functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from protocol import binary, limits
from protocol.errors import AlreadyExists, TooLarge, Unknown
from protocol.text import check_name
from protocol.values import Tick, Value, unpaced
from storage.catalog import users
from storage.formats import keys
from storage.txn.ids import next_id

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction


class IfExists(Enum):
    """Behaviour of a declaration if the name already exists."""

    REFUSE = "refuse"
    SKIP = "skip"
    """Keep the existing declaration unchanged."""
    OVERWRITE = "overwrite"
    """Replace the declaration, but keep the id and the content."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A declared namespace."""

    id: int
    name: str
    comment: str | None = None

    @property
    def path(self) -> str:
        """Name in statements and messages."""
        return self.name


@dataclass(frozen=True, slots=True)
class Database:
    """A declared database."""

    id: int
    namespace: Namespace
    name: str
    comment: str | None = None

    @property
    def path(self) -> str:
        """Qualified name: `ns.db`."""
        return f"{self.namespace.name}.{self.name}"


# --- looking up -----------------------------------------------------------------------------------


def absent(kind: str, path: str, meant: str | None = None) -> Unknown:
    """Return the error for a name that does not exist, or that the caller may not see.

    :param meant: a similar name to suggest
    """
    hint = "" if meant is None else f"; did you mean {meant}?"
    return Unknown(f"there is no {kind} {path}{hint}", kind=kind, name=path)


def namespace(tx: Transaction, name: str) -> Namespace:
    """Return a namespace by name. :raises Unknown: it does not exist"""
    found = find_namespace(tx, name)
    if found is None:
        raise absent("namespace", name)
    return found


def find_namespace(tx: Transaction, name: str) -> Namespace | None:
    """Return a namespace by name, or None."""
    found: Namespace | None = tx.known(name)
    if found is None:
        key = keys.namespace(name)
        value = tx.get(key)
        # Absent names are not cached, so the catalog bounds the cache.
        if value is not None:
            found = tx.remember(name, _namespace(name, value), key)
    return found


def database(tx: Transaction, namespace: Namespace, name: str) -> Database:
    """Return a database by name. :raises Unknown: it does not exist"""
    found = find_database(tx, namespace, name)
    if found is None:
        raise absent("database", f"{namespace.name}.{name}")
    return found


def find_database(tx: Transaction, namespace: Namespace, name: str) -> Database | None:
    """Return a database by name, or None."""
    # All kinds of look-ups share one cache: this form is that of databases only.
    at = (0, namespace.id, name)
    found: Database | None = tx.known(at)
    if found is None:
        value = tx.get(keys.database(namespace.id, name))
        if value is not None:
            found = _database(namespace, name, value)
            tx.remember(at, found, *declared_of(found))
    return found


def declared_of(database: Database) -> tuple[bytes, ...]:
    """Return the dependency keys of a database, shared by every look-up in it; see
    `catalog_cache.py`."""
    namespace = database.namespace
    return keys.database(namespace.id, database.name), keys.namespace(namespace.name)


# There may be very many of each, so these are lazy generators that call `tick` for each row.


def namespaces(tx: Transaction, tick: Tick) -> Iterator[Namespace]:
    """Yield all namespaces, ordered by name."""
    for name, value in each_named(tx, *keys.namespaces(), tick):
        yield _namespace(name, value)


def databases(tx: Transaction, namespace: Namespace, tick: Tick) -> Iterator[Database]:
    """Yield the databases of a namespace, ordered by name."""
    for name, value in each_named(tx, *keys.databases(namespace.id), tick):
        yield _database(namespace, name, value)


def every_database(
    tx: Transaction,
    tick: Tick,
    sees: Callable[[Namespace | Database], bool] = lambda _place: True,
) -> Iterator[Database]:
    """Yield the databases of all namespaces, ordered by name.

    :param sees: predicate of namespaces and databases to include; an excluded namespace excludes
        its databases
    """
    for namespace in filter(sees, namespaces(tx, tick)):
        yield from filter(sees, databases(tx, namespace, tick))


# --- declaring ------------------------------------------------------------------------------------


def define_namespace(
    tx: Transaction, name: str, comment: str | None = None, taken: IfExists = IfExists.REFUSE
) -> Namespace:
    """Declare a namespace. If it exists, `taken` decides: refuse, keep or replace it.

    :raises AlreadyExists: the name is taken and `taken` is REFUSE
    :raises NameRefused: the name is not valid
    :raises TooLarge: the comment is too long
    """
    check_name(name, "namespace")
    check_comment(comment)
    present = find_namespace(tx, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(f"namespace {name} exists", kind="namespace", name=name)
        if taken is IfExists.SKIP:
            return present
    # The id stays, since the keys of all content contain it, while the name is only here.
    id = present.id if present is not None else next_id(tx, keys.NAMESPACE_IDS)
    made = Namespace(id, name, comment)
    tx.put(keys.namespace(name), pack_declaration(id, comment))
    return made


def define_database(
    tx: Transaction,
    namespace: Namespace,
    name: str,
    comment: str | None = None,
    taken: IfExists = IfExists.REFUSE,
) -> Database:
    """Declare a database. Parameters and errors as for `define_namespace`."""
    check_name(name, "database")
    check_comment(comment)
    present = find_database(tx, namespace, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(
                f"database {present.path} exists", kind="database", name=present.path
            )
        if taken is IfExists.SKIP:
            return present
    id = present.id if present is not None else next_id(tx, keys.DATABASE_IDS)
    tx.put(keys.database(namespace.id, name), pack_declaration(id, comment))
    return Database(id, namespace, name, comment)


# --- dropping -------------------------------------------------------------------------------------


def drop_namespace(tx: Transaction, namespace: Namespace, tick: Tick = unpaced) -> list[str]:
    """Drop a namespace with all its content and the users that belong to it or its databases.

    :param tick: called for each database in it, each user of the store, and each user dropped
    :returns: the names of the dropped users
    """
    # Before the ranges are deleted, as this transaction then finds no database any more.
    inside = {one.path for one in databases(tx, namespace, tick)}
    gone = users.drop_of_spaces(tx, {namespace.path, *inside}, tick)
    for start, end in keys.in_namespace(namespace.id):
        tx.delete_range(start, end)
    # The counter of ids stays, so the id is never allocated again.
    tx.delete(keys.namespace(namespace.name))
    return gone


def drop_database(tx: Transaction, database: Database, tick: Tick = unpaced) -> list[str]:
    """Drop a database with all its content and the users that belong to it.

    :param tick: called for each user of the store, and each user dropped
    :returns: the names of the dropped users
    """
    gone = users.drop_of_spaces(tx, {database.path}, tick)
    for start, end in keys.in_database(database.namespace.id, database.id):
        tx.delete_range(start, end)
    tx.delete(keys.database(database.namespace.id, database.name))
    return gone


# --- values ---------------------------------------------------------------------------------------


def pack_definition(kept: Mapping[str, Value]) -> bytes:
    """Encode the value of a definition. :raises TooLarge: over `limits.DEFINITION_BYTES`"""
    packed = binary.pack(dict(kept))
    if len(packed) > limits.DEFINITION_BYTES:
        raise TooLarge(
            f"a definition takes at most {limits.DEFINITION_BYTES} bytes",
            limit=limits.DEFINITION_BYTES,
            size=len(packed),
        )
    return packed


def each_named(
    tx: Transaction, start: bytes, end: bytes, tick: Tick
) -> Iterator[tuple[str, bytes]]:
    """Yield the name at the end of each key of a range, and the value.

    :param start: a key prefix; the names follow it
    :param tick: called for each row
    """
    for key, value in tx.rows(start, end, tick):
        yield key[len(start) :].decode(), value


def pack_declaration(id: int, comment: str | None, **more: Any) -> bytes:
    """Encode the value of a declaration."""
    return binary.pack({"id": id, "comment": comment, **more})


def unpack_declaration(value: bytes) -> dict[str, Any]:
    """Decode the value of a declaration."""
    fields = binary.unpack(value)
    assert isinstance(fields, dict)
    return fields


def _namespace(name: str, value: bytes) -> Namespace:
    fields = unpack_declaration(value)
    return Namespace(fields["id"], name, fields["comment"])


def _database(namespace: Namespace, name: str, value: bytes) -> Database:
    fields = unpack_declaration(value)
    return Database(fields["id"], namespace, name, fields["comment"])


def check_comment(comment: str | None) -> None:
    """Check the length of a comment. :raises TooLarge: it is too long"""
    if comment is not None and len(comment) > limits.COMMENT_CHARACTERS:
        raise TooLarge(
            f"a comment has at most {limits.COMMENT_CHARACTERS} characters",
            limit=limits.COMMENT_CHARACTERS,
            size=len(comment),
        )
