"""Statements on indexes: DEFINE, DROP, REBUILD, INFO."""

from __future__ import annotations

from functools import partial
from typing import Final

from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from language import tree
from language.printing import print_path
from protocol.errors import Draining, Unknown
from protocol.rights import DEFINE, INFO, SecurableKind
from protocol.values import NONE, Value
from storage.catalog import tables
from storage.catalog.tables import Table
from storage.indexes import index_rows
from storage.indexes.entries import BUILDING, FAILED, REBUILDING, Index
from storage.records import index_builds, records

_ON_TABLE: Final = [Requires(DEFINE, SecurableKind.TABLE, ("table",))]


@handles(tree.DefineIndex, "none", writes=True, needs=_ON_TABLE)
def define_index(run: Execution, statement: tree.DefineIndex, table: Table) -> Value:
    """Declare an index and, on a small table or with WAIT, build it.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    :raises Duplicate: it is UNIQUE, and two records have the same values
    :raises NotInTransaction: WAIT in a transaction
    """
    # Second run: the index is declared and committed, its build is awaited.
    if run.work is not None:
        return _await(run, table)
    if statement.wait:
        run.check_may_wait()
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
    _build(run, made, waits=statement.wait)
    return NONE


@handles(tree.RebuildIndex, "none", writes=True, needs=_ON_TABLE)
def rebuild_index(run: Execution, statement: tree.RebuildIndex, table: Table) -> Value:
    """Rebuild an index. :raises Duplicate, NotInTransaction: as DEFINE INDEX"""
    # As in DEFINE INDEX.
    if run.work is not None:
        return _await(run, table)
    if statement.wait:
        run.check_may_wait()
    found = tables.index(table, statement.name)
    made = index_builds.rebuild_index(run.transaction, table, found, run.tick)
    _build(run, made, waits=statement.wait)
    return NONE


@handles(tree.DropIndex, "none", writes=True, needs=_ON_TABLE)
def drop_index(run: Execution, statement: tree.DropIndex, table: Table) -> Value:
    """Drop an index with its entries. :raises Unknown: the table has none of that name"""
    run.reason = statement.reason
    index_builds.drop_index(run.transaction, tables.index(table, statement.name))
    return NONE


@informs("INDEX", needs=[Requires(INFO, SecurableKind.TABLE, (1,))])
def info_for_index(run: Execution, statement: tree.Info, table: Table) -> Value:
    """Describe an index, with its progress while it is being built."""
    index = tables.index(table, statement.names[0])
    return {"table": table.name, **described(index), **_progress(run, table, index)}


def described(index: Index) -> dict[str, Value]:
    """Return the description of an index for INFO."""
    return {
        "name": index.name,
        "fields": [print_path(path) for path in index.paths],
        "unique": index.unique,
        "comment": index.comment,
        "state": index.state,
    }


_UNTOLD: Final = "records do not fit the index; with READ on the table the reason is shown"
"""Replaces an index's problem, which contains values of records."""


def _progress(run: Execution, table: Table, index: Index) -> dict[str, Value]:
    if index.state == FAILED:
        return {"problem": index.problem if run.may_read(table) else _UNTOLD}
    if index.state not in (BUILDING, REBUILDING):
        return {}
    visited = index_builds.visited(run.transaction, index)
    return {"visited": visited, "records": records.count(run.transaction, table)}


class _Awaited:
    """State of a statement that has declared an index and waits for its build."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def leave(self) -> None:
        """Do nothing: the build goes on."""


def _build(run: Execution, index: Index, *, waits: bool) -> None:
    """Start the build of an index after the commit, unless it is built already.

    :raises Duplicate, TooLarge: the statement waits for a build that has failed before
    """
    if index.state in (BUILDING, REBUILDING):
        # The builder starts after the commit: it reads committed declarations.
        run.afterwards.append(run.services.indexes.wake)
        if waits:
            run.waits = True
            # The wait begins with the commit: a conflict declares the index again.
            run.afterwards.append(partial(_begin_wait, run, index))
    # IF NOT EXISTS found an index whose build has failed.
    elif waits and index.state == FAILED:
        raise index_builds.refusal_of(index)


def _begin_wait(run: Execution, index: Index) -> None:
    run.work = _Awaited(index)
    run.begin_wait(run.services.topics.waits.row((0, index.id), index.key))


def _await(run: Execution, table: Table) -> Value:
    """Check the build that the statement waits for.

    :raises Duplicate, TooLarge: it can't be built
    :raises Unknown: it was dropped
    :raises Draining: the node stops
    """
    awaited, wait = run.work, run.wait
    assert isinstance(awaited, _Awaited) and wait is not None
    # Pending commits count: the last step of the build may not be released yet.
    run.need_newest()
    known = awaited.index
    found = index_rows.find(run.transaction, known.key)
    # A completed rebuild has the id of its successor.
    if found is None or found.id not in (known.id, known.anew):
        raise Unknown(
            f"index {known.name} of table {table.path} was dropped or rebuilt as another while"
            " this waited for it",
            kind="index",
            name=known.name,
        )
    if found.state == FAILED:
        raise index_builds.refusal_of(found)
    if found.state in (BUILDING, REBUILDING):
        # It waits without a time of its own: only the end of the node ends it.
        if wait.over:
            run.services.roles.check_answering(run.caller)
            raise Draining(
                f"the node is stopping: index {known.name} continues to build at its next start"
            )
        run.waits, awaited.index = True, found
    return NONE
