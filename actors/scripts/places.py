"""Statements on places and tables: USE, DEFINE, DROP, INFO."""

from __future__ import annotations

from typing import Any

from actors.scripts import indexes
from actors.scripts.execution import Execution, Place, chosen
from actors.scripts.handlers import handles
from actors.scripts.taken import TAKEN
from actors.scripts.topics import described_topic
from language import tree
from protocol.text import duration
from protocol.values import NONE, Value
from storage import catalog, records
from storage.catalog import Namespace, Space, Table
from storage.fields import Field
from storage.topics import each_topic


@handles(tree.Use, "none")
def use(run: Execution, statement: tree.Use) -> Value:
    """Stand in another place for the rest of the script. :raises Unknown: there is none such"""
    place = run.place
    if statement.namespace is not None:
        place = Place(statement.namespace, statement.database)
    elif statement.database is not None:
        place = Place(place.namespace, statement.database)
    namespace = catalog.namespace(run.transaction, chosen(place.namespace))
    if place.database is not None:
        catalog.database(run.transaction, namespace, place.database)
    run.place = place
    return NONE


@handles(tree.DefineNamespace, "none", writes=True)
def define_namespace(run: Execution, statement: tree.DefineNamespace) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    may_define(run)
    taken = TAKEN[statement.exists]
    catalog.define_namespace(run.transaction, statement.name, statement.comment, taken)
    return NONE


@handles(tree.DefineDatabase, "none", writes=True)
def define_database(run: Execution, statement: tree.DefineDatabase) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    may_define(run)
    namespace = _namespace(run, statement.namespace)
    taken = TAKEN[statement.exists]
    catalog.define_database(run.transaction, namespace, statement.name, statement.comment, taken)
    return NONE


@handles(tree.DefineTable, "none", writes=True)
def define_table(run: Execution, statement: tree.DefineTable) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    may_define(run)
    catalog.define_table(
        run.transaction,
        run.database(),
        statement.name,
        schemafull=statement.schemafull,
        comment=statement.comment,
        taken=TAKEN[statement.exists],
    )
    return NONE


@handles(tree.DropNamespace, "none", writes=True)
def drop_namespace(run: Execution, statement: tree.DropNamespace) -> Value:
    """The namespace and everything in it."""
    may_define(run)
    run.reason = statement.reason
    catalog.drop_namespace(run.transaction, catalog.namespace(run.transaction, statement.name))
    run.afterwards += (run.services.spaces.look, run.services.topics.look)
    return NONE


@handles(tree.DropDatabase, "none", writes=True)
def drop_database(run: Execution, statement: tree.DropDatabase) -> Value:
    """The database and everything in it."""
    may_define(run)
    run.reason = statement.reason
    namespace = _namespace(run, statement.namespace)
    catalog.drop_database(
        run.transaction, catalog.database(run.transaction, namespace, statement.name)
    )
    run.afterwards += (run.services.spaces.look, run.services.topics.look)
    return NONE


@handles(tree.DropTable, "none", writes=True)
def drop_table(run: Execution, statement: tree.DropTable) -> Value:
    """The table and its records."""
    may_define(run)
    run.reason = statement.reason
    catalog.drop_table(run.transaction, run.table(statement.name))
    return NONE


def info_for_store(run: Execution, names: tuple[str, ...]) -> Value:
    """The namespaces of the store, and where its log stands."""
    return {
        "store": run.services.store_id,
        "sequence": run.transaction.sequence,
        "namespaces": [_described(each) for each in catalog.namespaces(run.transaction)],
    }


def info_for_namespace(run: Execution, names: tuple[str, ...]) -> Value:
    """A namespace and its databases."""
    found = _namespace(run, names[0] if names else None)
    databases = catalog.databases(run.transaction, found)
    return {**_described(found), "databases": [_described(each) for each in databases]}


def info_for_database(run: Execution, names: tuple[str, ...]) -> Value:
    """A database with its tables, spaces and topics, and how much tables and topics hold."""
    transaction = run.transaction
    if len(names) == 2:
        found = catalog.database(transaction, _namespace(run, names[0]), names[1])
    elif names:
        found = catalog.database(transaction, _namespace(run, None), names[0])
    else:
        found = run.database()
    tables = [_described_table(run, each) for each in catalog.tables(transaction, found)]
    described: list[Value] = []
    for topic in each_topic(transaction, found):
        described.append(described_topic(run, topic))
        run.tick()
    return {
        **_described(found),
        "namespace": found.namespace.name,
        "tables": tables,
        "spaces": [described_space(each) for each in catalog.spaces(transaction, found)],
        "topics": described,
    }


def info_for_table(run: Execution, names: tuple[str, ...]) -> Value:
    """A table and its fields."""
    table = run.table(names[0])
    fields = [_described_field(field) for field in table.fields]
    return {**_described_table(run, table), "fields": fields}


def _described_table(run: Execution, table: Table) -> dict[str, Value]:
    return {
        **_described(table),
        "schemafull": table.schemafull,
        "records": records.count(run.transaction, table),
        "indexes": list(map(indexes.described, table.indexes)),
    }


def described_space(space: Space) -> dict[str, Value]:
    """What INFO shows of a space without looking at its keys."""
    expire_us = space.expire_us
    return {**_described(space), "expire": None if expire_us is None else duration(expire_us)}


def _described_field(field: Field) -> dict[str, Value]:
    return {
        **_described(field),
        "type": field.type,
        "default": field.default,
        "assert": field.assertion,
        "readonly": field.readonly,
    }


def _described(thing: Any) -> dict[str, Value]:
    return {"name": thing.name, "comment": thing.comment}


def _namespace(run: Execution, name: str | None) -> Namespace:
    return catalog.namespace(run.transaction, chosen(name or run.place.namespace))


def may_define(run: Execution) -> None:
    """:raises NotAllowed: the caller may not define things here"""
    run.authorise("DEFINE")
