"""Statements on places and tables: USE, DEFINE, DROP, INFO."""

from __future__ import annotations

from functools import partial
from typing import Any

from actors.scripts import indexes
from actors.scripts.announcing import declared
from actors.scripts.execution import Execution
from actors.scripts.functions import described_function
from actors.scripts.handlers import Need, When, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from actors.scripts.topics import described_topics
from actors.scripts.users import end_sessions
from actors.scripts.vaults import described_vaults, drop_vaults
from language import tree
from language.printing import print_path
from protocol.rights import DEFINE, INFO, NOTHING, OWN, READ, WRITE, Kind
from protocol.text import duration
from protocol.values import FEW, NONE, Value, paced
from storage import catalog, functions, records
from storage.announcing import OnChange
from storage.catalog import Database, Namespace, Space, Table
from storage.fields import Field
from storage.topics import Topic


@handles(tree.Use, "none", writes=False, needs=[Need(NOTHING, Kind.NAMESPACE, ("namespace",))])
def use(run: Execution, statement: tree.Use, namespace: Namespace) -> Value:
    """Stand in another place for the rest of the script. :raises Unknown: there is none such"""
    database = statement.database
    run.rights.enter(run.transaction, run.caller, namespace, database)
    run.place = namespace.name, database
    return NONE


@handles(tree.DefineNamespace, "none", writes=True, needs=[Need(DEFINE, Kind.STORE)])
def define_namespace(run: Execution, statement: tree.DefineNamespace) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    taken = IF_TAKEN[statement.exists]
    catalog.define_namespace(run.transaction, statement.name, statement.comment, taken)
    return NONE


@handles(
    tree.DefineDatabase, "none", writes=True, needs=[Need(DEFINE, Kind.NAMESPACE, ("namespace",))]
)
def define_database(run: Execution, statement: tree.DefineDatabase, namespace: Namespace) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    taken = IF_TAKEN[statement.exists]
    catalog.define_database(run.transaction, namespace, statement.name, statement.comment, taken)
    return NONE


@handles(
    tree.DefineTable,
    "none",
    writes=True,
    needs=[
        Need(DEFINE, Kind.DATABASE),
        Need(READ, Kind.DATABASE, (), When.TELLS),
        Need(WRITE, Kind.TOPIC, ("topic",)),
    ],
)
def define_table(
    run: Execution, statement: tree.DefineTable, database: Database, _topic: Topic | None
) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    catalog.define_table(
        run.transaction,
        database,
        statement.name,
        schemafull=statement.schemafull,
        comment=statement.comment,
        on_change=declared(statement.on_change),
        taken=IF_TAKEN[statement.exists],
    )
    return NONE


@handles(tree.DropNamespace, "none", writes=True, needs=[Need(OWN, Kind.NAMESPACE, ("name",))])
def drop_namespace(run: Execution, statement: tree.DropNamespace, namespace: Namespace) -> Value:
    """The namespace and everything in it."""
    run.reason = statement.reason
    for database in catalog.databases(run.transaction, namespace, run.tick):
        drop_vaults(run, database, statement.reason)
    for user in catalog.drop_namespace(run.transaction, namespace, run.tick):
        end_sessions(run, user)
    run.afterwards += (
        partial(run.services.spaces.dropped, namespace),
        run.services.topics.declarations_changed,
    )
    return NONE


@handles(
    tree.DropDatabase, "none", writes=True, needs=[Need(OWN, Kind.DATABASE, ("namespace", "name"))]
)
def drop_database(run: Execution, statement: tree.DropDatabase, database: Database) -> Value:
    """The database and everything in it."""
    run.reason = statement.reason
    drop_vaults(run, database, statement.reason)
    for user in catalog.drop_database(run.transaction, database, run.tick):
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
    needs=[Need(DEFINE, Kind.DATABASE), Need(NOTHING, Kind.TABLE, ("name",))],
)
def drop_table(
    run: Execution, statement: tree.DropTable, _database: Database, table: Table
) -> Value:
    """The table and its records."""
    run.reason = statement.reason
    catalog.drop_table(run.transaction, table)
    return NONE


@informs("STORE", needs=[Need(INFO, Kind.STORE)])
def info_for_store(run: Execution, statement: tree.Info) -> Value:
    """The namespaces of the store, and where its log stands."""
    transaction = run.transaction
    namespaces = run.rights.namespaces(transaction, run.caller, run.tick)
    newest = min(transaction.sequence, run.services.committer.released_upto)
    return {
        "store": run.services.store_id,
        # The script's own commits and what it has seen count too: its answer waits for them.
        "sequence": max(newest, transaction.saw, run.ticket.sequence),
        "namespaces": list(map(_described, namespaces)),
    }


@informs("NAMESPACE", needs=[Need(INFO, Kind.NAMESPACE, (0,))])
def info_for_namespace(run: Execution, statement: tree.Info, namespace: Namespace) -> Value:
    """A namespace and its databases."""
    databases = catalog.databases(run.transaction, namespace, run.tick)
    return {**_described(namespace), "databases": [_described(each) for each in databases]}


@informs("DATABASE", needs=[Need(INFO, Kind.DATABASE, (-2, -1))])
def info_for_database(run: Execution, statement: tree.Info, database: Database) -> Value:
    """A database with what is defined in it, and how much its tables and topics hold."""
    tx, tick = run.transaction, run.tick
    held = records.counts(tx, database, tick)
    tables = catalog.tables(tx, database, tick)
    return {
        **_described(database),
        "namespace": database.namespace.name,
        "tables": [_described_table(run, each, held[each.id]) for each in tables],
        "spaces": list(map(described_space, catalog.spaces(tx, database, tick))),
        "topics": described_topics(run, database),
        "functions": list(map(described_function, functions.each(tx, database, tick))),
        "vaults": described_vaults(run, database),
    }


@informs("TABLE", needs=[Need(INFO, Kind.TABLE, (0,))])
def info_for_table(run: Execution, statement: tree.Info, table: Table) -> Value:
    """A table and its fields."""
    held = records.count(run.transaction, table)
    fields = [_described_field(field) for field in paced(table.fields, run.tick, FEW)]
    return {**_described_table(run, table, held), "fields": fields}


def _described_table(run: Execution, table: Table, held: int) -> dict[str, Value]:
    """:param held: records"""
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
    """What INFO shows of a space without looking at its keys."""
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
