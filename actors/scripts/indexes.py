"""Statements on indexes: DEFINE, DROP, REBUILD, INFO."""

from __future__ import annotations

from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from actors.scripts.taken import TAKEN
from language import tree
from language.printing import print_path
from protocol.values import NONE, Value
from storage import catalog, index_builds, records
from storage.catalog import Table
from storage.indexes import BUILDING, FAILED, REBUILDING, Index


@handles(tree.DefineIndex, "none", writes=True)
def define_index(run: Execution, statement: tree.DefineIndex) -> Value:
    """Declare an index and, on a small table, build it.

    :raises AlreadyExists: the name is taken and the statement does not say what then
    :raises Duplicate: it is UNIQUE, and two records have the same values
    """
    table = _defined_on(run, statement.table)
    made = index_builds.define_index(
        run.transaction,
        table,
        statement.name,
        statement.fields,
        unique=statement.unique,
        comment=statement.comment,
        taken=TAKEN[statement.exists],
        tick=run.tick,
    )
    _build(run, made)
    return NONE


@handles(tree.RebuildIndex, "none", writes=True)
def rebuild_index(run: Execution, statement: tree.RebuildIndex) -> Value:
    """Build an index anew. :raises Duplicate: as DEFINE INDEX"""
    table = _defined_on(run, statement.table)
    found = catalog.index(table, statement.name)
    _build(run, index_builds.rebuild_index(run.transaction, table, found, run.tick))
    return NONE


@handles(tree.DropIndex, "none", writes=True)
def drop_index(run: Execution, statement: tree.DropIndex) -> Value:
    """The index and its entries. :raises Unknown: the table has none of that name"""
    table = _defined_on(run, statement.table)
    run.reason = statement.reason
    index_builds.drop_index(run.transaction, catalog.index(table, statement.name))
    return NONE


def info_for_index(run: Execution, names: tuple[str, ...]) -> Value:
    """An index, and while it is being built how far that has come."""
    name, table_name = names
    table = run.table(table_name)
    index = catalog.index(table, name)
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


def _progress(run: Execution, table: Table, index: Index) -> dict[str, Value]:
    if index.state == FAILED:
        return {"problem": index.problem}
    if index.state not in (BUILDING, REBUILDING):
        return {}
    visited = index_builds.visited(run.transaction, index)
    return {"visited": visited, "records": records.count(run.transaction, table)}


def _defined_on(run: Execution, table: str) -> Table:
    run.authorise("DEFINE")
    return run.table(table)


def _build(run: Execution, index: Index) -> None:
    """Once it is committed, have an index built that is not, or not anew."""
    if index.state in (BUILDING, REBUILDING):
        run.afterwards.append(run.services.indexes.wake)
