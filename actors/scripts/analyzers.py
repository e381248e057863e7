"""Analyzers of databases: DEFINE, DROP and INFO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from actors.scripts.analyzing import compiled
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from language import tree
from language.printing.analyzers import print_filter
from language.search.compiled import pack_definition
from language.search.definitions import check_definition
from language.search.nodes import definition_of, filter_nodes
from protocol.errors import StillHeld
from protocol.rights import DEFINE, INFO, NOTHING, SecurableKind
from protocol.values import NONE, Value
from storage.catalog import analyzers, tables
from storage.catalog.analyzers import Analyzer
from storage.catalog.places import Database
from storage.catalog.tables import Table
from storage.indexes.entries import Index
from storage.records import index_builds


@handles(tree.DefineAnalyzer, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.DATABASE)])
def define_analyzer(run: Execution, statement: tree.DefineAnalyzer, database: Database) -> Value:
    """Define an analyzer of a database.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    :raises Unknown, BadRequest, TypeRefused, TooLarge: see `definitions.check_definition`
    """
    definition = definition_of(statement)
    check_definition(definition)
    made = Analyzer(
        database,
        statement.name,
        definition.tokenizers,
        tuple((one.name, one.arguments) for one in definition.filters),
        statement.comment,
    )
    known = analyzers.find(run.transaction, database, statement.name)
    if known is not None and statement.exists is tree.Exists.SKIP:
        return NONE
    analyzers.define(run.transaction, made, IF_TAKEN[statement.exists])
    packed = pack_definition(definition)
    for _, index in _users(run, database, statement.name) if known is not None else ():
        assert index.text is not None
        if index.text.definition != packed:
            # Its segments are made again; meanwhile their records are read.
            index_builds.analyzer_changed(
                run.transaction, index, replace(index.text, definition=packed)
            )
            run.afterwards.append(run.services.indexes.fold)
    # Compile it here, so that its tables cost its definer the time.
    compiled(run.transaction, run.authorizer.analyzer(statement.name, NOTHING))
    return NONE


@handles(
    tree.DropAnalyzer,
    "none",
    writes=True,
    needs=[
        Requires(DEFINE, SecurableKind.DATABASE),
        Requires(NOTHING, SecurableKind.ANALYZER, ("name",)),
    ],
)
def drop_analyzer(
    run: Execution, statement: tree.DropAnalyzer, database: Database, analyzer: Analyzer
) -> Value:
    """Drop an analyzer. :raises StillHeld: FULLTEXT indexes use it; names them"""
    run.reason = statement.reason
    users = [f"index {index.name} on {table.name}" for table, index in
             _users(run, database, analyzer.name)]  # fmt: skip
    if users:
        raise StillHeld(
            f"analyzer {analyzer.path} is used by {', '.join(users[:_SHOWN])}"
            f"{', …' if len(users) > _SHOWN else ''}: drop these first",
            kind="analyzer",
            name=analyzer.path,
            used_by=users,
        )
    analyzers.drop(run.transaction, analyzer)
    return NONE


_SHOWN = 10
"""Most users of an analyzer that a message names."""


def _users(run: Execution, database: Database, name: str) -> Iterator[tuple[Table, Index]]:
    """Yield the FULLTEXT indexes of a database that use an analyzer."""
    for table in tables.tables(run.transaction, database, run.tick):
        for index in table.indexes:
            if index.text is not None and index.text.analyzer == name:
                yield table, index


@informs("ANALYZER", needs=[Requires(INFO, SecurableKind.ANALYZER, (0,))])
def info_for_analyzer(run: Execution, statement: tree.Info, analyzer: Analyzer) -> Value:
    """Describe an analyzer."""
    users = _users(run, analyzer.database, analyzer.name)
    used_by = [f"index {index.name} on {table.name}" for table, index in users]
    return {**described_analyzer(analyzer), "used_by": used_by}


def described_analyzer(analyzer: Analyzer) -> dict[str, Value]:
    """Return the description of an analyzer for INFO; filters as they are written."""
    return {
        "name": analyzer.name,
        "comment": analyzer.comment,
        "tokenizers": list(analyzer.tokenizers),
        "filters": [print_filter(one) for one in filter_nodes(analyzer.filters)],
    }
