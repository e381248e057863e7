"""Catalog: declares, looks up and drops namespaces, databases, tables, fields and cache spaces.

Look-ups are cached until a declaration they depend on changes (`catalog_cache.py`), so finding a
table costs a dictionary access, not a read. Replacing a declaration keeps its id. A drop retires
the id for ever, so data written under an old id never appears under a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Any

from protocol import binary, limits
from protocol.errors import AlreadyExists, TooLarge, Unknown
from protocol.text import check_name
from protocol.values import Tick, unpaced
from storage.catalog import fields, users
from storage.catalog.fields import Field
from storage.catalog.on_change import OnChange, pack_on_change, unpack_on_change
from storage.formats import keys
from storage.formats.effects import SEQUENCE_BYTES
from storage.indexes import index_rows
from storage.indexes.entries import Index, IndexMaintainer, keeper
from storage.txn.ids import next_id
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


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table."""

    id: int
    database: Database
    name: str
    schemafull: bool = False
    comment: str | None = None
    on_change: OnChange | None = None
    """Change notifications of the table; None: it sends none."""
    prefix: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its records."""
    count_key: bytes = field(default=b"", repr=False, compare=False)
    """Key of its record counter."""
    fields: tuple[Field, ...] = ()
    """Definitions of its records' fields."""
    indexes: tuple[Index, ...] = field(default=(), compare=False)
    keeper: IndexMaintainer | None = field(default=None, repr=False, compare=False)
    """Maintains its indexes; None if it has none."""

    @property
    def path(self) -> str:
        """Qualified name: `ns.db.table`."""
        return f"{self.database.path}.{self.name}"


@dataclass(frozen=True, slots=True)
class Space:
    """A declared cache space."""

    id: int
    database: Database
    name: str
    expire_us: int | None = None
    """Default time to live of a key written without an expiry, in µs; None: no expiry."""
    comment: str | None = None
    entries: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its entries."""
    contents: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its large values, stored apart from their entries."""
    expiries: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its expiry index."""
    count_key: bytes = field(default=b"", repr=False, compare=False)
    """Key of its entry counter."""

    @property
    def path(self) -> str:
        """Qualified name: `ns.db.space`."""
        return f"{self.database.path}.{self.name}"


# --- looking up ---------------------------------------------------------------------------------


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
    at = (0, namespace.id, name)
    found: Database | None = tx.known(at)
    if found is None:
        value = tx.get(keys.database(namespace.id, name))
        if value is not None:
            found = _database(namespace, name, value)
            tx.remember(at, found, *declared_of(found))
    return found


def table(tx: Transaction, database: Database, name: str) -> Table:
    """Return a table by name. :raises Unknown: it does not exist"""
    found = find_table(tx, database, name)
    if found is None:
        raise absent("table", f"{database.path}.{name}")
    return found


def find_table(tx: Transaction, database: Database, name: str) -> Table | None:
    """Return a table by name, or None."""
    at = (database.id, name)
    found: Table | None = tx.known(at)
    if found is None:
        value = tx.get(keys.table(database.namespace.id, database.id, name))
        if value is not None:
            found = _looked_up(tx, database, name, value)
            tx.remember(at, found, *declared_of_table(found))
    return found


def space(tx: Transaction, database: Database, name: str) -> Space:
    """Return a cache space by name. :raises Unknown: it does not exist"""
    found = find_space(tx, database, name)
    if found is None:
        raise absent("space", f"{database.path}.{name}")
    return found


def find_space(tx: Transaction, database: Database, name: str) -> Space | None:
    """Return a cache space by name, or None."""
    at = ("space", database.id, name)
    found: Space | None = tx.known(at)
    if found is None:
        value = tx.get(keys.space(database.namespace.id, database.id, name))
        if value is not None:
            found = _space(database, name, value)
            tx.remember(at, found, *declared_of_space(found))
    return found


def declared_of(database: Database) -> tuple[bytes, ...]:
    """Return the dependency keys of a database, shared by every look-up in it; see
    `catalog_cache.py`."""
    namespace = database.namespace
    return keys.database(namespace.id, database.name), keys.namespace(namespace.name)


def declared_of_table(table: Table) -> tuple[bytes, ...]:
    """Return the dependency keys of a table, including its fields and indexes."""
    numbers = (table.database.namespace.id, table.database.id)
    return (
        keys.table(*numbers, table.name),
        keys.fields(*numbers, table.id)[0],
        keys.indexes(*numbers, table.id)[0],
        *declared_of(table.database),
    )


def declared_of_space(space: Space) -> tuple[bytes, ...]:
    """Return the dependency keys of a cache space."""
    database = space.database
    key = keys.space(database.namespace.id, database.id, space.name)
    return key, *declared_of(database)


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

    :param sees: predicate of places to include; an excluded namespace excludes its databases
    """
    for namespace in filter(sees, namespaces(tx, tick)):
        yield from filter(sees, databases(tx, namespace, tick))


def table_names(tx: Transaction, database: Database, most: int) -> list[str]:
    """Return the names of a database's first `most` tables, in order."""
    named = each_named(tx, *keys.tables(database.namespace.id, database.id), unpaced)
    return [name for name, _ in islice(named, most)]


def tables(tx: Transaction, database: Database, tick: Tick) -> Iterator[Table]:
    """Yield the tables of a database, ordered by name."""
    numbers = (database.namespace.id, database.id)
    # One scan for the fields of all tables: one scan per table would dominate the cost.
    defined = fields.load(tx, *keys.of_all(keys.FIELD, *numbers), tick)
    indexes = index_rows.load(tx, *keys.of_all(keys.INDEX, *numbers), tick)
    for name, value in each_named(tx, *keys.tables(*numbers), tick):
        yield _table(database, name, value, defined, indexes)


def spaces(tx: Transaction, database: Database, tick: Tick) -> Iterator[Space]:
    """Yield the cache spaces of a database, ordered by name."""
    for name, value in each_named(tx, *keys.spaces(database.namespace.id, database.id), tick):
        yield _space(database, name, value)


# --- declaring ----------------------------------------------------------------------------------


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
    id = present.id if present is not None else next_id(tx, keys.NAMESPACE_IDS)
    made = Namespace(id, name, comment)
    tx.put(keys.namespace(name), _packed(id, comment))
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
    tx.put(keys.database(namespace.id, name), _packed(id, comment))
    return Database(id, namespace, name, comment)


def define_table(
    tx: Transaction,
    database: Database,
    name: str,
    *,
    schemafull: bool = False,
    comment: str | None = None,
    on_change: OnChange | None = None,
    taken: IfExists = IfExists.REFUSE,
) -> Table:
    """Declare a table, as `define_namespace` does. Replacing a declaration keeps its records."""
    check_name(name, "table")
    check_comment(comment)
    present = find_table(tx, database, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(f"table {present.path} exists", kind="table", name=present.path)
        if taken is IfExists.SKIP:
            return present
        made = replace(present, schemafull=schemafull, comment=comment, on_change=on_change)
    else:
        id = next_id(tx, keys.TABLE_IDS)
        made = _placed(id, database, name, schemafull, comment, on_change)
    value = _packed(made.id, comment, schemafull=schemafull, on_change=pack_on_change(on_change))
    if present is None:
        # Stamped at commit: the value becomes the sequence of the declaring commit.
        tx.put_record(_declared_key(made), b"", 0)
    tx.put(keys.table(database.namespace.id, database.id, name), value)
    return made


def declared_at(tx: Transaction, table: Table) -> int:
    """Return the sequence of the commit that declared a table. 0: this transaction declares it. 1:
    an older version, which did not record the sequence, declared it."""
    value = tx.get(_declared_key(table))
    return 1 if value is None else int.from_bytes(value[:SEQUENCE_BYTES], "big")


def _declared_key(table: Table) -> bytes:
    return keys.table_declared(table.database.namespace.id, table.database.id, table.id)


def define_field(
    tx: Transaction, table: Table, made: Field, taken: IfExists = IfExists.REFUSE
) -> bool:
    """Define a field of a table, as `define_namespace` does. Return True if anything was written.

    :raises TooLarge: its path, its texts or the number of fields
    """
    check_comment(made.comment)
    if any(present.name == made.name for present in table.fields):
        if taken is IfExists.REFUSE:
            name = f"{table.path}.{made.name}"
            raise AlreadyExists(f"field {name} exists", kind="field", name=name)
        if taken is IfExists.SKIP:
            return False
    elif len(table.fields) >= limits.FIELDS:
        raise TooLarge(f"a table has at most {limits.FIELDS} fields", limit=limits.FIELDS)
    tx.put(_field_key(table, made.name), fields.pack(made))
    return True


def find_field(table: Table, name: str) -> Field:
    """Return a table's field by path. :raises Unknown: it is not defined"""
    for present in table.fields:
        if present.name == name:
            return present
    name = f"{table.path}.{name}"
    raise Unknown(f"there is no field {name}", kind="field", name=name)


def define_space(
    tx: Transaction,
    database: Database,
    name: str,
    *,
    expire_us: int | None = None,
    comment: str | None = None,
    taken: IfExists = IfExists.REFUSE,
) -> Space:
    """Declare a cache space, as `define_namespace` does. Replacing a declaration keeps its keys and
    the expiry of each."""
    check_name(name, "space")
    check_comment(comment)
    present = find_space(tx, database, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(f"space {present.path} exists", kind="space", name=present.path)
        if taken is IfExists.SKIP:
            return present
        made = replace(present, expire_us=expire_us, comment=comment)
    else:
        made = _made_space(next_id(tx, keys.SPACE_IDS), database, name, expire_us, comment)
    value = _packed(made.id, comment, expire=expire_us)
    tx.put(keys.space(database.namespace.id, database.id, name), value)
    return made


# --- dropping -----------------------------------------------------------------------------------


def drop_namespace(tx: Transaction, namespace: Namespace, tick: Tick = unpaced) -> list[str]:
    """Drop a namespace with all its content and the users that belong to it or its databases.

    :param tick: called for each database in it, each user of the store, and each user dropped
    :returns: the names of the dropped users
    """
    inside = {one.path for one in databases(tx, namespace, tick)}
    gone = users.drop_of_spaces(tx, {namespace.path, *inside}, tick)
    for start, end in keys.in_namespace(namespace.id):
        tx.delete_range(start, end)
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


def drop_table(tx: Transaction, table: Table) -> None:
    """Drop a table with its records and indexes."""
    tx.delete_range(*keys.within(table.prefix))
    tx.delete(table.count_key)
    # A range delete, since `delete` refuses keys whose values are stamped.
    tx.delete_range(*keys.within(_declared_key(table)))
    database = table.database
    tx.delete_range(*keys.fields(database.namespace.id, database.id, table.id))
    if table.indexes:
        for start, end in keys.index_ranges(database.namespace.id, database.id, table.id):
            tx.delete_range(start, end)
    tx.delete(keys.table(database.namespace.id, database.id, table.name))


def drop_field(tx: Transaction, table: Table, name: str) -> None:
    """Drop the definition of a field; records keep their values. :raises Unknown: not defined"""
    tx.delete(_field_key(table, find_field(table, name).name))


def _field_key(table: Table, name: str) -> bytes:
    database = table.database
    return keys.field(database.namespace.id, database.id, table.id, name)


def drop_space(tx: Transaction, space: Space) -> None:
    """Drop a cache space with its keys."""
    for prefix in (space.entries, space.contents, space.expiries):
        tx.delete_range(*keys.within(prefix))
    tx.delete(space.count_key)
    database = space.database
    tx.delete(keys.space(database.namespace.id, database.id, space.name))


# --- values -------------------------------------------------------------------------------------


def each_named(
    tx: Transaction, start: bytes, end: bytes, tick: Tick
) -> Iterator[tuple[str, bytes]]:
    """Yield the name at the end of each key of a range, and the value.

    :param start: a key prefix; the names follow it
    :param tick: called for each row
    """
    for key, value in tx.rows(start, end, tick):
        yield key[len(start) :].decode(), value


def _packed(id: int, comment: str | None, **more: Any) -> bytes:
    return binary.pack({"id": id, "comment": comment, **more})


def _unpacked(value: bytes) -> dict[str, Any]:
    fields = binary.unpack(value)
    assert isinstance(fields, dict)
    return fields


def _namespace(name: str, value: bytes) -> Namespace:
    fields = _unpacked(value)
    return Namespace(fields["id"], name, fields["comment"])


def _database(namespace: Namespace, name: str, value: bytes) -> Database:
    fields = _unpacked(value)
    return Database(fields["id"], namespace, name, fields["comment"])


def _looked_up(tx: Transaction, database: Database, name: str, value: bytes) -> Table:
    numbers = (database.namespace.id, database.id, _unpacked(value)["id"])
    defined = fields.load(tx, *keys.fields(*numbers), unpaced)
    return _table(database, name, value, defined, {numbers[-1]: index_rows.each(tx, *numbers)})


def _table(
    database: Database,
    name: str,
    value: bytes,
    defined: Mapping[int, tuple[Field, ...]],
    indexes: Mapping[int, tuple[Index, ...]],
) -> Table:
    """Decode a table's declaration.

    :param defined: fields by table id; may hold other tables'
    :param indexes: indexes by table id; may hold other tables'
    """
    row = _unpacked(value)
    on_change = unpack_on_change(row.get("on_change"))
    table = _placed(row["id"], database, name, row["schemafull"], row["comment"], on_change)
    mine, declared = defined.get(table.id, ()), indexes.get(table.id, ())
    if not mine and not declared:
        return table
    to_come = [coming for index in declared if (coming := index_rows.successor(index)) is not None]
    return replace(table, fields=mine, indexes=declared, keeper=keeper([*declared, *to_come]))


def _placed(
    id: int, database: Database, name: str, schemafull: bool, comment: str | None,
    on_change: OnChange | None,
) -> Table:  # fmt: skip
    numbers = (database.namespace.id, database.id, id)
    prefix, count_key = keys.record_prefix(*numbers), keys.count(*numbers)
    return Table(id, database, name, schemafull, comment, on_change, prefix, count_key)


def _space(database: Database, name: str, value: bytes) -> Space:
    fields = _unpacked(value)
    return _made_space(fields["id"], database, name, fields["expire"], fields["comment"])


def _made_space(
    id: int, database: Database, name: str, expire_us: int | None, comment: str | None
) -> Space:
    numbers = (database.namespace.id, database.id, id)
    return Space(
        id, database, name, expire_us, comment,
        entries=keys.in_space(keys.ENTRY, *numbers),
        contents=keys.in_space(keys.CONTENT, *numbers),
        expiries=keys.in_space(keys.EXPIRY, *numbers),
        count_key=keys.in_space(keys.ENTRY_COUNT, *numbers),
    )  # fmt: skip


def index(table: Table, name: str) -> Index:
    """Return a table's index by name. :raises Unknown: it does not exist"""
    for found in table.indexes:
        if found.name == name:
            return found
    raise Unknown(f"table {table.path} has no index {name}", kind="index", name=name)


def check_comment(comment: str | None) -> None:
    """Check the length of a comment. :raises TooLarge: it is too long"""
    if comment is not None and len(comment) > limits.COMMENT_CHARACTERS:
        raise TooLarge(
            f"a comment has at most {limits.COMMENT_CHARACTERS} characters",
            limit=limits.COMMENT_CHARACTERS,
            size=len(comment),
        )
