"""The rules of places and tables: declared, looked up, dropped.

Look-ups are remembered for as long as what they rest on does not change (`lookups.py`), so finding
a table costs a dictionary, not a read. What is declared keeps its id when it is overwritten; what
is dropped takes its id with it, so nothing written under the old one can ever be seen under a new
one.
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
from storage import fields, index_rows, keys, users
from storage.announcing import OnChange, kept, read_kept
from storage.effects import SEQUENCE_BYTES
from storage.fields import Field
from storage.ids import next_id
from storage.indexes import Index, Keeper, keeper
from storage.transactions import Transaction


class Taken(Enum):
    """What declaring does when the name is taken."""

    REFUSE = "refuse"
    SKIP = "skip"
    """What is there stays as it is."""
    OVERWRITE = "overwrite"
    """What is there is declared anew and keeps its content."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A declared namespace."""

    id: int
    name: str
    comment: str | None = None

    @property
    def path(self) -> str:
        """How people write it."""
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
        """How people write it: `ns.db`."""
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
    """Where it tells of its changes; None: nowhere."""
    prefix: bytes = field(default=b"", repr=False, compare=False)
    """What the keys of its records begin with."""
    count_key: bytes = field(default=b"", repr=False, compare=False)
    """The counter of its records."""
    fields: tuple[Field, ...] = ()
    """What is defined of its records' fields."""
    indexes: tuple[Index, ...] = field(default=(), compare=False)
    keeper: Keeper | None = field(default=None, repr=False, compare=False)
    """What keeps its indexes exact; None when it has none."""

    @property
    def path(self) -> str:
        """How people write it: `ns.db.table`."""
        return f"{self.database.path}.{self.name}"


@dataclass(frozen=True, slots=True)
class Space:
    """A declared cache space."""

    id: int
    database: Database
    name: str
    expire_us: int | None = None
    """What a key lives that is written without an expiry; None: for ever."""
    comment: str | None = None
    entries: bytes = field(default=b"", repr=False, compare=False)
    """What the keys of its entries begin with."""
    contents: bytes = field(default=b"", repr=False, compare=False)
    """The same, of its large values."""
    expiries: bytes = field(default=b"", repr=False, compare=False)
    """The same, of its expiry index."""
    count_key: bytes = field(default=b"", repr=False, compare=False)
    """The counter of its entries."""

    @property
    def path(self) -> str:
        """How people write it: `ns.db.space`."""
        return f"{self.database.path}.{self.name}"


# --- looking up ---------------------------------------------------------------------------------


def absent(kind: str, path: str, meant: str | None = None) -> Unknown:
    """The refusal of a name that stands for nothing, or for nothing that the caller may see.

    :param meant: a name that it may stand for
    """
    hint = "" if meant is None else f"; did you mean {meant}?"
    return Unknown(f"there is no {kind} {path}{hint}", kind=kind, name=path)


def namespace(tx: Transaction, name: str) -> Namespace:
    """The namespace of that name. :raises Unknown:"""
    found = find_namespace(tx, name)
    if found is None:
        raise absent("namespace", name)
    return found


def find_namespace(tx: Transaction, name: str) -> Namespace | None:
    """The namespace of that name, if there is one."""
    found: Namespace | None = tx.known(name)
    if found is None:
        key = keys.namespace(name)
        value = tx.get(key)
        if value is not None:
            found = tx.remember(name, _namespace(name, value), key)
    return found


def database(tx: Transaction, namespace: Namespace, name: str) -> Database:
    """The database of that name in a namespace. :raises Unknown:"""
    found = find_database(tx, namespace, name)
    if found is None:
        raise absent("database", f"{namespace.name}.{name}")
    return found


def find_database(tx: Transaction, namespace: Namespace, name: str) -> Database | None:
    """The database of that name in a namespace, if there is one."""
    at = (0, namespace.id, name)
    found: Database | None = tx.known(at)
    if found is None:
        value = tx.get(keys.database(namespace.id, name))
        if value is not None:
            found = _database(namespace, name, value)
            tx.remember(at, found, *declared_of(found))
    return found


def table(tx: Transaction, database: Database, name: str) -> Table:
    """The table of that name in a database. :raises Unknown:"""
    found = find_table(tx, database, name)
    if found is None:
        raise absent("table", f"{database.path}.{name}")
    return found


def find_table(tx: Transaction, database: Database, name: str) -> Table | None:
    """The table of that name in a database, if there is one."""
    at = (database.id, name)
    found: Table | None = tx.known(at)
    if found is None:
        value = tx.get(keys.table(database.namespace.id, database.id, name))
        if value is not None:
            found = _looked_up(tx, database, name, value)
            tx.remember(at, found, *declared_of_table(found))
    return found


def space(tx: Transaction, database: Database, name: str) -> Space:
    """The cache space of that name in a database. :raises Unknown:"""
    found = find_space(tx, database, name)
    if found is None:
        raise absent("space", f"{database.path}.{name}")
    return found


def find_space(tx: Transaction, database: Database, name: str) -> Space | None:
    """The cache space of that name in a database, if there is one."""
    at = ("space", database.id, name)
    found: Space | None = tx.known(at)
    if found is None:
        value = tx.get(keys.space(database.namespace.id, database.id, name))
        if value is not None:
            found = _space(database, name, value)
            tx.remember(at, found, *declared_of_space(found))
    return found


def declared_of(database: Database) -> tuple[bytes, ...]:
    """What a database rests on, and with it all that is looked up in it; see `lookups.py`."""
    namespace = database.namespace
    return keys.database(namespace.id, database.name), keys.namespace(namespace.name)


def declared_of_table(table: Table) -> tuple[bytes, ...]:
    """What a table rests on, its fields and indexes among it."""
    numbers = (table.database.namespace.id, table.database.id)
    return (
        keys.table(*numbers, table.name),
        keys.fields(*numbers, table.id)[0],
        keys.indexes(*numbers, table.id)[0],
        *declared_of(table.database),
    )


def declared_of_space(space: Space) -> tuple[bytes, ...]:
    """What a cache space rests on."""
    database = space.database
    key = keys.space(database.namespace.id, database.id, space.name)
    return key, *declared_of(database)


# There may be very many of each: they are read as they are asked for, and `tick` is called for
# each row.


def namespaces(tx: Transaction, tick: Tick) -> Iterator[Namespace]:
    """All namespaces, by name."""
    for name, value in each_named(tx, *keys.namespaces(), tick):
        yield _namespace(name, value)


def databases(tx: Transaction, namespace: Namespace, tick: Tick) -> Iterator[Database]:
    """The databases of a namespace, by name."""
    for name, value in each_named(tx, *keys.databases(namespace.id), tick):
        yield _database(namespace, name, value)


def every_database(
    tx: Transaction,
    tick: Tick,
    sees: Callable[[Namespace | Database], bool] = lambda _place: True,
) -> Iterator[Database]:
    """The databases of all namespaces, by name.

    :param sees: whether a place is among what is looked for; nothing in another one is
    """
    for namespace in filter(sees, namespaces(tx, tick)):
        yield from filter(sees, databases(tx, namespace, tick))


def table_names(tx: Transaction, database: Database, most: int) -> list[str]:
    """The names of the tables of a database, the first of them in order where there are more."""
    named = each_named(tx, *keys.tables(database.namespace.id, database.id), unpaced)
    return [name for name, _ in islice(named, most)]


def tables(tx: Transaction, database: Database, tick: Tick) -> Iterator[Table]:
    """The tables of a database, by name."""
    numbers = (database.namespace.id, database.id)
    # One scan for those of all tables: one a table would take longer than all else.
    defined = fields.load(tx, *keys.of_all(keys.FIELD, *numbers), tick)
    indexes = index_rows.load(tx, *keys.of_all(keys.INDEX, *numbers), tick)
    for name, value in each_named(tx, *keys.tables(*numbers), tick):
        yield _table(database, name, value, defined, indexes)


def spaces(tx: Transaction, database: Database, tick: Tick) -> Iterator[Space]:
    """The cache spaces of a database, by name."""
    for name, value in each_named(tx, *keys.spaces(database.namespace.id, database.id), tick):
        yield _space(database, name, value)


# --- declaring ----------------------------------------------------------------------------------


def define_namespace(
    tx: Transaction, name: str, comment: str | None = None, taken: Taken = Taken.REFUSE
) -> Namespace:
    """Declare a namespace, or with `taken` another than REFUSE keep or change the one there is.

    :raises AlreadyExists: the name is taken
    :raises NameRefused, TooLarge: of the name, of the comment
    """
    check_name(name, "namespace")
    check_comment(comment)
    present = find_namespace(tx, name)
    if present is not None:
        if taken is Taken.REFUSE:
            raise AlreadyExists(f"namespace {name} exists", kind="namespace", name=name)
        if taken is Taken.SKIP:
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
    taken: Taken = Taken.REFUSE,
) -> Database:
    """Declare a database, as `define_namespace` does."""
    check_name(name, "database")
    check_comment(comment)
    present = find_database(tx, namespace, name)
    if present is not None:
        if taken is Taken.REFUSE:
            raise AlreadyExists(
                f"database {present.path} exists", kind="database", name=present.path
            )
        if taken is Taken.SKIP:
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
    taken: Taken = Taken.REFUSE,
) -> Table:
    """Declare a table, as `define_namespace` does. One that is overwritten keeps its records."""
    check_name(name, "table")
    check_comment(comment)
    present = find_table(tx, database, name)
    if present is not None:
        if taken is Taken.REFUSE:
            raise AlreadyExists(f"table {present.path} exists", kind="table", name=present.path)
        if taken is Taken.SKIP:
            return present
        made = replace(present, schemafull=schemafull, comment=comment, on_change=on_change)
    else:
        id = next_id(tx, keys.TABLE_IDS)
        made = _placed(id, database, name, schemafull, comment, on_change)
    value = _packed(made.id, comment, schemafull=schemafull, on_change=kept(on_change))
    if present is None:
        tx.put_record(_declared_key(made), b"", 0)
    tx.put(keys.table(database.namespace.id, database.id, name), value)
    return made


def declared_at(tx: Transaction, table: Table) -> int:
    """The sequence of the commit that declared a table; 0 of one that this transaction has
    declared, and 1 in a store whose version did not keep it."""
    value = tx.get(_declared_key(table))
    return 1 if value is None else int.from_bytes(value[:SEQUENCE_BYTES], "big")


def _declared_key(table: Table) -> bytes:
    return keys.table_declared(table.database.namespace.id, table.database.id, table.id)


def define_field(tx: Transaction, table: Table, made: Field, taken: Taken = Taken.REFUSE) -> bool:
    """Define a field of a table, as `define_namespace` does. Answers whether anything changed.

    :raises TooLarge: its path, its texts or the number of fields
    """
    check_comment(made.comment)
    if any(present.name == made.name for present in table.fields):
        if taken is Taken.REFUSE:
            name = f"{table.path}.{made.name}"
            raise AlreadyExists(f"field {name} exists", kind="field", name=name)
        if taken is Taken.SKIP:
            return False
    elif len(table.fields) >= limits.FIELDS:
        raise TooLarge(f"a table has at most {limits.FIELDS} fields", limit=limits.FIELDS)
    tx.put(_field_key(table, made.name), fields.pack(made))
    return True


def find_field(table: Table, name: str) -> Field:
    """The field of that path in a table. :raises Unknown:"""
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
    taken: Taken = Taken.REFUSE,
) -> Space:
    """Declare a cache space, as `define_namespace` does. One that is overwritten keeps its keys,
    each with the expiry it has."""
    check_name(name, "space")
    check_comment(comment)
    present = find_space(tx, database, name)
    if present is not None:
        if taken is Taken.REFUSE:
            raise AlreadyExists(f"space {present.path} exists", kind="space", name=present.path)
        if taken is Taken.SKIP:
            return present
        made = replace(present, expire_us=expire_us, comment=comment)
    else:
        made = _made_space(next_id(tx, keys.SPACE_IDS), database, name, expire_us, comment)
    value = _packed(made.id, comment, expire=expire_us)
    tx.put(keys.space(database.namespace.id, database.id, name), value)
    return made


# --- dropping -----------------------------------------------------------------------------------


def drop_namespace(tx: Transaction, namespace: Namespace, tick: Tick = unpaced) -> list[str]:
    """Drop a namespace with all that is in it, the users whose space it is among them.

    :param tick: called for each database in it and each user there is
    :returns: the names of these users
    """
    inside = {one.path for one in databases(tx, namespace, tick)}
    gone = users.drop_of_spaces(tx, {namespace.path, *inside}, tick)
    for start, end in keys.in_namespace(namespace.id):
        tx.delete_range(start, end)
    tx.delete(keys.namespace(namespace.name))
    return gone


def drop_database(tx: Transaction, database: Database, tick: Tick = unpaced) -> list[str]:
    """Drop a database with all that is in it, the users whose space it is among them.

    :param tick: as for a namespace
    :returns: as for a namespace
    """
    gone = users.drop_of_spaces(tx, {database.path}, tick)
    for start, end in keys.in_database(database.namespace.id, database.id):
        tx.delete_range(start, end)
    tx.delete(keys.database(database.namespace.id, database.name))
    return gone


def drop_table(tx: Transaction, table: Table) -> None:
    """Drop a table with its records."""
    tx.delete_range(*keys.within(table.prefix))
    tx.delete(table.count_key)
    tx.delete_range(*keys.within(_declared_key(table)))
    database = table.database
    tx.delete_range(*keys.fields(database.namespace.id, database.id, table.id))
    if table.indexes:
        for start, end in keys.index_ranges(database.namespace.id, database.id, table.id):
            tx.delete_range(start, end)
    tx.delete(keys.table(database.namespace.id, database.id, table.name))


def drop_field(tx: Transaction, table: Table, name: str) -> None:
    """Drop the definition of a field; records keep what they hold. :raises Unknown:"""
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
    """The names that follow the start of a range in its keys, with the values there.

    :param tick: called for each
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
    """:param defined: the fields of tables, this one's among them, by the table's id
    :param indexes: the same, of indexes
    """
    row = _unpacked(value)
    on_change = read_kept(row.get("on_change"))
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
    """The index of that name of a table. :raises Unknown:"""
    for found in table.indexes:
        if found.name == name:
            return found
    raise Unknown(f"table {table.path} has no index {name}", kind="index", name=name)


def check_comment(comment: str | None) -> None:
    """:raises TooLarge: a comment is too long"""
    if comment is not None and len(comment) > limits.COMMENT_CHARACTERS:
        raise TooLarge(
            f"a comment has at most {limits.COMMENT_CHARACTERS} characters",
            limit=limits.COMMENT_CHARACTERS,
            size=len(comment),
        )
