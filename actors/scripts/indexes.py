"""Statements on indexes: DEFINE, DROP, REBUILD, INFO."""

from __future__ import annotations

from typing import Final

from actors.scripts.execution import Execution
from actors.scripts.handlers import Need, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from language import tree
from language.printing import print_path
from protocol.rights import DEFINE, INFO, Kind
from protocol.values import NONE, Value
from storage import catalog, index_builds, records
from storage.catalog import Table
from storage.indexes import BUILDING, FAILED, REBUILDING, Index

_ON_TABLE: Final = [Need(DEFINE, Kind.TABLE, ("table",))]


@handles(tree.DefineIndex, "none", writes=True, needs=_ON_TABLE)
def define_index(run: Execution, statement: tree.DefineIndex, table: Table) -> Value:
    """Declare an index and, on a small table, build it.

    :raises AlreadyExists: the name is taken and the statement does not say what then
    :raises Duplicate: it is UNIQUE, and two records have the same values
    """
    made = index_builds.define_index(
        run.transaction,
        table,
        statement.name,
        statement.fields,
        unique=statement.unique,
        comment=statement.comment,
        taken=IF_TAKEN[statement.exists],
        tick=run.tick,
    )
    _build(run, made)
    return NONE


@handles(tree.RebuildIndex, "none", writes=True, needs=_ON_TABLE)
def rebuild_index(run: Execution, statement: tree.RebuildIndex, table: Table) -> Value:
    """Build an index anew. :raises Duplicate: as DEFINE INDEX"""
    found = catalog.index(table, statement.name)
    _build(run, index_builds.rebuild_index(run.transaction, table, found, run.tick))
    return NONE


@handles(tree.DropIndex, "none", writes=True, needs=_ON_TABLE)
def drop_index(run: Execution, statement: tree.DropIndex, table: Table) -> Value:
    """The index and its entries. :raises Unknown: the table has none of that name"""
    run.reason = statement.reason
    index_builds.drop_index(run.transaction, catalog.index(table, statement.name))
    return NONE


@informs("INDEX", needs=[Need(INFO, Kind.TABLE, (1,))])
def info_for_index(run: Execution, statement: tree.Info, table: Table) -> Value:
    """An index, and while it is being built how far that has come."""
    index = catalog.index(table, statement.names[0])
    return {"table": table.name, **described(index), **_progress(run, table, index)}


def described(index: Index) -> dict[str, Value]:
    """What an index is."""
    return {
        "name": index.name,
        "fields": [print_path(path) for path in index.paths],
        "unique": index.unique,
        "comment": index.comment,
        "state": index.state,
    }


_UNTOLD: Final = "records stand in its way; whoever may READ the table is told which"
"""The problem of an index shows what records hold."""


def _progress(run: Execution, table: Table, index: Index) -> dict[str, Value]:
    if index.state == FAILED:
        return {"problem": index.problem if run.may_read(table) else _UNTOLD}
    if index.state not in (BUILDING, REBUILDING):
        return {}
    visited = index_builds.visited(run.transaction, index)
    return {"visited": visited, "records": records.count(run.transaction, table)}


def _build(run: Execution, index: Index) -> None:
    """Once it is committed, have an index built that is not, or not anew."""
    if index.state in (BUILDING, REBUILDING):
        run.afterwards.append(run.services.indexes.wake)
