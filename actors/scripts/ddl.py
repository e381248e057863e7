"""Statements on namespaces, databases and tables (DDL): USE, DEFINE, DROP, INFO."""

from __future__ import annotations

from functools import partial
from typing import Any

from actors.scripts import indexes
from actors.scripts.analyzers import described_analyzer
from actors.scripts.announcing import declared
from actors.scripts.execution import Execution
from actors.scripts.functions import described_function
from actors.scripts.handlers import RequiredWhen, Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from actors.scripts.topics import described_topics
from actors.scripts.users import end_sessions
from actors.scripts.vaults import described_vaults, drop_vaults
from language import tree
from language.printing import print_path
from protocol.rights import DEFINE, INFO, NOTHING, OWN, READ, WRITE, SecurableKind
from protocol.text import duration
from protocol.values import FEW, NONE, Value, paced
from storage.catalog import analyzers, functions, places, spaces
from storage.catalog import tables as catalog_tables
from storage.catalog.on_change import OnChange
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.catalog.tables import Field, Table
from storage.records import records
from storage.topics.topics import Topic


@handles(
    tree.Use,
    "none",
    writes=False,
    needs=[Requires(NOTHING, SecurableKind.NAMESPACE, ("namespace",))],
)
def use(run: Execution, statement: tree.Use, namespace: Namespace) -> Value:
    """Change the current namespace and database for the rest of the script.

    :raises Unknown: there is none such
    """
    database = statement.database
    # Only names are kept: each later statement authorizes its place again.
    run.rights.enter(run.transaction, run.caller, namespace, database)
    run.place = namespace.name, database
    return NONE


@handles(tree.DefineNamespace, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.STORE)])
def define_namespace(run: Execution, statement: tree.DefineNamespace) -> Value:
    """Define a namespace.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    taken = IF_TAKEN[statement.exists]
    places.define_namespace(run.transaction, statement.name, statement.comment, taken)
    return NONE


@handles(
    tree.DefineDatabase,
    "none",
    writes=True,
    needs=[Requires(DEFINE, SecurableKind.NAMESPACE, ("namespace",))],
)
def define_database(run: Execution, statement: tree.DefineDatabase, namespace: Namespace) -> Value:
    """Define a database.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    taken = IF_TAKEN[statement.exists]
    places.define_database(run.transaction, namespace, statement.name, statement.comment, taken)
    return NONE


@handles(
    tree.DefineTable,
    "none",
    writes=True,
    needs=[
        Requires(DEFINE, SecurableKind.DATABASE),
        # Messages show the content of records, so it takes READ to declare them.
        Requires(READ, SecurableKind.DATABASE, (), RequiredWhen.TELLS),
        Requires(WRITE, SecurableKind.TOPIC, ("topic",)),
    ],
)
def define_table(
    run: Execution, statement: tree.DefineTable, database: Database, _topic: Topic | None
) -> Value:
    """Define a table.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    catalog_tables.define_table(
        run.transaction,
        database,
        statement.name,
        schemafull=statement.schemafull,
        comment=statement.comment,
        on_change=declared(statement.on_change),
        taken=IF_TAKEN[statement.exists],
    )
    return NONE


@handles(
    tree.DropNamespace,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.NAMESPACE, ("name",))],
)
def drop_namespace(run: Execution, statement: tree.DropNamespace, namespace: Namespace) -> Value:
    """Drop a namespace with everything in it."""
    run.reason = statement.reason
    for database in places.databases(run.transaction, namespace, run.tick):
        # Audit entries first: they are made from the rows that the drop deletes.
        drop_vaults(run, database, statement.reason)
    # Its users go with it: a later namespace of that name must not inherit them.
    for user in places.drop_namespace(run.transaction, namespace, run.tick):
        end_sessions(run, user)
    # After the commit: an attempt that conflicts must not end sweeps or waits.
    run.afterwards += (
        partial(run.services.spaces.dropped, namespace),
        run.services.topics.declarations_changed,
    )
    return NONE


@handles(
    tree.DropDatabase,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.DATABASE, ("namespace", "name"))],
)
def drop_database(run: Execution, statement: tree.DropDatabase, database: Database) -> Value:
    """Drop a database with everything in it."""
    run.reason = statement.reason
    # The same order as in DROP NAMESPACE, for the same reasons.
    drop_vaults(run, database, statement.reason)
    for user in places.drop_database(run.transaction, database, run.tick):
        end_sessions(run, user)
    run.afterwards += (
        partial(run.services.spaces.dropped, database),
        run.services.topics.declarations_changed,
    )
    return NONE


@handles(
    tree.DropTable,
    "none",
    writes=True,
    needs=[
        Requires(DEFINE, SecurableKind.DATABASE),
        # The table has to be visible; DEFINE on its database decides.
        Requires(NOTHING, SecurableKind.TABLE, ("name",)),
    ],
)
def drop_table(
    run: Execution, statement: tree.DropTable, _database: Database, table: Table
) -> Value:
    """Drop a table with its records."""
    run.reason = statement.reason
    catalog_tables.drop_table(run.transaction, table)
    return NONE


@informs("STORE", needs=[Requires(INFO, SecurableKind.STORE)])
def info_for_store(run: Execution, statement: tree.Info) -> Value:
    """Return the namespaces of the store, and the sequence of the log."""
    transaction = run.transaction
    namespaces = run.rights.namespaces(transaction, run.caller, run.tick)
    # Pending commits of others are left out: they may still be rolled back.
    newest = min(transaction.sequence, run.services.committer.commit_index)
    return {
        "store": run.services.store_id,
        # The script's own commits and those it has read count too: its answer waits for them.
        "sequence": max(newest, transaction.saw, run.ticket.sequence),
        "namespaces": list(map(_described, namespaces)),
    }


@informs("NAMESPACE", needs=[Requires(INFO, SecurableKind.NAMESPACE, (0,))])
def info_for_namespace(run: Execution, statement: tree.Info, namespace: Namespace) -> Value:
    """Describe a namespace and its databases."""
    databases = places.databases(run.transaction, namespace, run.tick)
    return {**_described(namespace), "databases": [_described(each) for each in databases]}


# Names are counted from the end, since the namespace may be left out.
@informs("DATABASE", needs=[Requires(INFO, SecurableKind.DATABASE, (-2, -1))])
def info_for_database(run: Execution, statement: tree.Info, database: Database) -> Value:
    """Describe a database with all its declarations, and the sizes of its tables and topics."""
    tx, tick = run.transaction, run.tick
    # One range read of the counters, instead of a read for each table.
    held = records.counts(tx, database, tick)
    tables = catalog_tables.tables(tx, database, tick)
    return {
        **_described(database),
        "namespace": database.namespace.name,
        "tables": [_described_table(run, each, held[each.id]) for each in tables],
        "spaces": list(map(described_space, spaces.spaces(tx, database, tick))),
        "topics": described_topics(run, database),
        "functions": list(map(described_function, functions.each(tx, database, tick))),
        "analyzers": list(map(described_analyzer, analyzers.each(tx, database, tick))),
        "vaults": described_vaults(run, database),
    }


@informs("TABLE", needs=[Requires(INFO, SecurableKind.TABLE, (0,))])
def info_for_table(run: Execution, statement: tree.Info, table: Table) -> Value:
    """Describe a table and its fields."""
    held = records.count(run.transaction, table)
    fields = [_described_field(field) for field in paced(table.fields, run.tick, FEW)]
    answer = {**_described_table(run, table, held), "fields": fields}
    columns = _described_columns(run, table)
    return {**answer, "columns": columns} if columns else answer


def _described_columns(run: Execution, table: Table) -> list[Value]:
    """Describe the column projections of a table that this node holds."""
    known = run.transaction.projections.tables.get(table.prefix)
    if known is None:
        return []
    found: list[Value] = []
    for name in known.columns:
        run.tick()
        blocks, size = known.held(name)
        dictionary = known.dictionaries.get(name)
        size += dictionary.size if dictionary is not None else 0
        found.append({"field": name, "blocks": blocks, "bytes": size})
    return found


def _described_table(run: Execution, table: Table, held: int) -> dict[str, Value]:
    """Describe a table. :param held: its number of records"""
    return {
        **_described(table),
        "schemafull": table.schemafull,
        "on_change": None if table.on_change is None else _described_on_change(table.on_change),
        "records": held,
        "indexes": list(map(indexes.described, paced(table.indexes, run.tick, FEW))),
    }


def _described_on_change(on_change: OnChange) -> dict[str, Value]:
    return {"topic": on_change.topic, "fields": list(on_change.fields)}


def described_space(space: Space) -> dict[str, Value]:
    """Return the description of a space for INFO, without reading its keys."""
    expire_us = space.expire_us
    return {**_described(space), "expire": None if expire_us is None else duration(expire_us)}


def _described_field(field: Field) -> dict[str, Value]:
    return {
        "name": print_path(field.path),
        "comment": field.comment,
        "type": field.type,
        "default": field.default,
        "value": field.value,
        "assert": field.assertion,
        "readonly": field.readonly,
    }


def _described(thing: Any) -> dict[str, Value]:
    return {"name": thing.name, "comment": thing.comment}
