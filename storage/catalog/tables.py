"""Catalog of tables: declares, looks up and drops tables and their fields.

A table object carries its fields and indexes, so looking it up loads them. Definitions of fields
are stored as text; code that writes records compiles them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from protocol import binary, limits
from protocol.errors import AlreadyExists, TooLarge, Unknown
from protocol.paths import Path, read_path, stored_path
from protocol.text import check_name
from protocol.values import Tick, unpaced
from storage.catalog.on_change import OnChange, pack_on_change, unpack_on_change
from storage.catalog.places import (
    Database,
    IfExists,
    absent,
    check_comment,
    declared_of,
    each_named,
    pack_declaration,
    pack_definition,
    unpack_declaration,
)
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes import index_rows
from storage.indexes.entries import Index, IndexMaintainer, keeper
from storage.txn.ids import next_id

if TYPE_CHECKING:
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


# --- looking up -----------------------------------------------------------------------------------


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


def declared_of_table(table: Table) -> tuple[bytes, ...]:
    """Return the dependency keys of a table, including its fields and indexes."""
    numbers = (table.database.namespace.id, table.database.id)
    return (
        keys.table(*numbers, table.name),
        # The prefix stands for all fields, also for one that is declared later.
        keys.fields(*numbers, table.id)[0],
        keys.indexes(*numbers, table.id)[0],
        *declared_of(table.database),
    )


def table_names(tx: Transaction, database: Database, most: int) -> list[str]:
    """Return the names of a database's first `most` tables, in order."""
    named = each_named(tx, *keys.tables(database.namespace.id, database.id), unpaced)
    return [name for name, _ in islice(named, most)]


def tables(tx: Transaction, database: Database, tick: Tick) -> Iterator[Table]:
    """Yield the tables of a database, ordered by name."""
    numbers = (database.namespace.id, database.id)
    # One scan for the fields of all tables: one scan per table would dominate the cost.
    defined = load_fields(tx, *keys.of_all(keys.FIELD, *numbers), tick)
    indexes = index_rows.load(tx, *keys.of_all(keys.INDEX, *numbers), tick)
    for name, value in each_named(tx, *keys.tables(*numbers), tick):
        yield _table(database, name, value, defined, indexes)


# --- declaring ------------------------------------------------------------------------------------


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
    value = pack_declaration(
        made.id, comment, schemafull=schemafull, on_change=pack_on_change(on_change)
    )
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
    tx.put(_field_key(table, made.name), pack_field(made))
    return True


def find_field(table: Table, name: str) -> Field:
    """Return a table's field by path. :raises Unknown: it is not defined"""
    for present in table.fields:
        if present.name == name:
            return present
    name = f"{table.path}.{name}"
    raise Unknown(f"there is no field {name}", kind="field", name=name)


# --- dropping -------------------------------------------------------------------------------------


def drop_table(tx: Transaction, table: Table) -> None:
    """Drop a table with its records and indexes."""
    # One range: the frame is as small for a million records as for none.
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


# --- values ---------------------------------------------------------------------------------------


def load_fields(
    tx: Transaction, start: bytes, end: bytes, tick: Tick
) -> dict[int, tuple[Field, ...]]:
    """Return the fields in a key range by table id, each after its parent field.

    :param tick: called for each field
    """
    found: dict[int, list[Field]] = {}
    for key, value in tx.rows(start, end, tick):
        kept: Any = binary.unpack(value)
        path = read_path(kept.pop("path"))
        table, name = keys.field_at(key)
        # In key order: a path sorts behind its own beginning, so a parent comes first.
        found.setdefault(table, []).append(Field(path, name, **kept))
    return {table: tuple(fields) for table, fields in found.items()}


def pack_field(field: Field) -> bytes:
    """Encode a field for `load_fields`.

    :raises TooLarge: over `limits.DEFINITION_BYTES`, or the path too long
    """
    # The path is a part of the key.
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


def _looked_up(tx: Transaction, database: Database, name: str, value: bytes) -> Table:
    numbers = (database.namespace.id, database.id, unpack_declaration(value)["id"])
    defined = load_fields(tx, *keys.fields(*numbers), unpaced)
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
    row = unpack_declaration(value)
    on_change = unpack_on_change(row.get("on_change"))
    table = _placed(row["id"], database, name, row["schemafull"], row["comment"], on_change)
    mine, declared = defined.get(table.id, ()), indexes.get(table.id, ())
    if not mine and not declared:
        return table
    # Successors are maintained as well, so that they are complete when their build ends.
    to_come = [coming for index in declared if (coming := index_rows.successor(index)) is not None]
    return replace(table, fields=mine, indexes=declared, keeper=keeper([*declared, *to_come]))


def _placed(
    id: int, database: Database, name: str, schemafull: bool, comment: str | None,
    on_change: OnChange | None,
) -> Table:  # fmt: skip
    numbers = (database.namespace.id, database.id, id)
    prefix, count_key = keys.record_prefix(*numbers), keys.count(*numbers)
    return Table(id, database, name, schemafull, comment, on_change, prefix, count_key)


def index(table: Table, name: str) -> Index:
    """Return a table's index by name. :raises Unknown: it does not exist"""
    for found in table.indexes:
        if found.name == name:
            return found
    raise Unknown(f"table {table.path} has no index {name}", kind="index", name=name)
