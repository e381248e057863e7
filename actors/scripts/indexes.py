"""Statements on indexes: DEFINE, DROP, REBUILD, CHECK, INFO."""

from __future__ import annotations

from functools import partial
from typing import Final

from actors.scripts import analyzing, measuring, vector_indexes
from actors.scripts.arrays import load_arrays
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from language import tree
from language.printing import print_path
from language.search.compiled import analyzer_of, digest_of, pack_definition
from protocol import limits, order
from protocol.errors import BadRequest, Draining, Unknown
from protocol.rights import DEFINE, INFO, NOTHING, SecurableKind
from protocol.values import NONE, RecordId, Value
from storage.catalog import tables
from storage.catalog.tables import Table
from storage.indexes import index_rows
from storage.indexes.check import IndexCheck
from storage.indexes.entries import BUILDING, FAILED, REBUILDING, Index
from storage.indexes.text_options import TextOptions
from storage.indexes.vector_options import VectorOptions
from storage.records import index_builds, index_checks, records
from storage.search import segments

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
    if run.statement_work is not None:
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
        text=_text_options(run, statement),
        vector=_vector_options(statement),
        taken=IF_TAKEN[statement.exists],
        tick=run.tick,
    )
    _build(run, made, waits=statement.wait)
    return NONE


def _text_options(run: Execution, statement: tree.DefineIndex) -> TextOptions | None:
    """Return the options of a FULLTEXT index, with the definition of its analyzer.

    :raises Unknown: there is no such analyzer
    :raises BadRequest: a number is out of its range
    """
    text = statement.text
    if text is None:
        return None
    if not 0 <= text.saturation <= MOST_SATURATION or not 0 <= text.length <= 1:
        raise BadRequest(f"BM25 takes k1 from 0 to {MOST_SATURATION}, and b from 0 to 1")
    factors = dict(text.boosts)
    names = list(map(print_path, statement.fields))
    if not factors.keys() <= set(names):
        raise BadRequest("BOOST names fields of the index")
    if any(not 0 < factor <= limits.BOOST for factor in factors.values()):
        raise BadRequest(f"a boost is a number above 0, at most {limits.BOOST}")
    return TextOptions(
        text.analyzer,
        pack_definition(analyzing.definition_of(run.authorizer.analyzer(text.analyzer, NOTHING))),
        text.saturation,
        text.length,
        tuple(factors.get(name, 1.0) for name in names) if factors else (),
    )


def _vector_options(statement: tree.DefineIndex) -> VectorOptions | None:
    vector = statement.vector
    if vector is None:
        return None
    return VectorOptions(vector.dimension, vector.distance, vector.type, vector.recall)


MOST_SATURATION: Final = 100
"""Largest k1 of BM25."""


@handles(tree.RebuildIndex, "none", writes=True, needs=[*_ON_TABLE, measuring.FILTER_READS])
def rebuild_index(run: Execution, statement: tree.RebuildIndex, table: Table) -> Value:
    """Rebuild an index. With MEASURE the leader measures its recall when it has the new lists.

    :raises Duplicate, NotInTransaction: as DEFINE INDEX
    :raises BadRequest: MEASURE of another index than a VECTOR index
    """
    # As in DEFINE INDEX.
    if run.statement_work is not None:
        return _await(run, table)
    if statement.wait:
        run.check_may_wait()
    found = tables.index(table, statement.name)
    asked = None if statement.over is None else measuring.asked(run, table, found, statement.over)
    made = index_builds.rebuild_index(run.transaction, table, found, run.tick)
    if asked is not None:
        measuring.keep_request(run, made, *asked)
    _build(run, made, waits=statement.wait)
    return NONE


@handles(tree.CheckIndex, "info", writes=False, needs=_ON_TABLE)
def check_index(run: Execution, statement: tree.CheckIndex, table: Table) -> Value:
    """Compare an index with all records of its table.

    :raises Unknown: the table has no index of that name
    :raises BadRequest: it is not built
    """
    index = tables.index(table, statement.name)
    if not index.is_complete:
        raise BadRequest(
            f"index {index.name} of table {table.path} can't be checked: its state is {index.state}"
        )
    tx = run.transaction
    if index.text is not None or index.vector is not None:
        load_arrays(run.fiber)
    if index.text is not None:
        found = _check_text(run, table, index, index.text)
    elif index.vector is not None:
        from storage.search.vector_checking import check_vectors

        found = check_vectors(tx, table.prefix, index, run.tick, run.hold)
    else:
        found = index_checks.check_entries(tx, table, index, run.tick)
    told: dict[str, Value] = {
        "records": found.records,
        "entries": found.entries,
        "missing": found.missing,
        "surplus": found.surplus,
    }
    # The id of a record is content of the table.
    if found.first is not None and run.may_read(table):
        told["first"] = RecordId(table.name, order.decode_id(found.first))
    return told


def _check_text(run: Execution, table: Table, index: Index, text: TextOptions) -> IndexCheck:
    from storage.search.checking import check_text

    analyzer, digest = analyzer_of(text.definition), digest_of(text.definition)
    postings = partial(analyzer.postings, tick=run.tick)
    return check_text(run.transaction, table.prefix, index, digest, postings, run.tick, run.hold)


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
    told = {"table": table.name, **described(index)}
    if index.vector is not None:
        told |= vector_indexes.info(run, table, index, index.vector)
    elif index.text is not None:
        told |= _segments(run, table, index)
    return {**told, **_progress(run, table, index)}


def _segments(run: Execution, table: Table, index: Index) -> dict[str, Value]:
    """Describe the segments of a FULLTEXT index and its backlog."""
    tx = run.transaction
    known = segments.heads_of(tx, index.entries)
    fresh, size = segments.fresh_backlog(tx, table.prefix, index.entries, run.tick)
    told: dict[str, Value] = {
        "records": sum(head.live for head in known),
        "terms": sum(head.terms for head in known),
        "tokens": sum(sum(head.words) for head in known),
        "segments": len(known),
        "fresh": {"records": fresh, "bytes": size},
        "bytes": sum(head.size for head in known),
    }
    # A writer of a word who sees that these grow knows that no other record has it.
    for name in () if run.may_read(table) else ("terms", "tokens", "bytes"):
        del told[name]
    return told


def described(index: Index) -> dict[str, Value]:
    """Return the description of an index for INFO."""
    return {
        "name": index.name,
        "fields": [print_path(path) for path in index.paths],
        "unique": index.unique,
        "comment": index.comment,
        "state": index.state,
        **({} if index.text is None else _described_text(index.text)),
        **({} if index.vector is None else vector_indexes.described(index.vector)),
    }


def _described_text(text: TextOptions) -> dict[str, Value]:
    return {
        "analyzer": text.analyzer,
        "scoring": [text.saturation, text.length],
        "boosts": list(text.boosts) or None,
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
    if index.segmented:
        run.afterwards.append(run.services.indexes.fold)  # its records are fresh
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
    run.statement_work = _Awaited(index)
    run.begin_wait(run.services.topics.waits.row((0, index.id), index.key))


def _await(run: Execution, table: Table) -> Value:
    """Check the build that the statement waits for.

    :raises Duplicate, TooLarge: it can't be built
    :raises Unknown: it was dropped
    :raises Draining: the node stops
    """
    awaited, wait = run.statement_work, run.wait
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
