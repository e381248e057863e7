"""Analyzers of databases: DEFINE, DROP and INFO."""

from __future__ import annotations

from actors.scripts.analyzing import analyzer as compiled
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from language import tree
from language.printing.analyzers import print_filter
from language.search.definitions import check_definition
from language.search.nodes import definition_of, filter_nodes
from protocol.rights import DEFINE, INFO, NOTHING, SecurableKind
from protocol.values import NONE, Value
from storage.catalog import analyzers
from storage.catalog.analyzers import Analyzer
from storage.catalog.places import Database


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
    analyzers.define(run.transaction, made, IF_TAKEN[statement.exists])
    # Compile it here, so that its tables cost its definer the time.
    compiled(run, statement.name)
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
    """Drop an analyzer."""
    run.reason = statement.reason
    analyzers.drop(run.transaction, analyzer)
    return NONE


@informs("ANALYZER", needs=[Requires(INFO, SecurableKind.ANALYZER, (0,))])
def info_for_analyzer(run: Execution, statement: tree.Info, analyzer: Analyzer) -> Value:
    """Describe an analyzer."""
    return described_analyzer(analyzer)


def described_analyzer(analyzer: Analyzer) -> dict[str, Value]:
    """Return the description of an analyzer for INFO; filters as they are written."""
    return {
        "name": analyzer.name,
        "comment": analyzer.comment,
        "tokenizers": list(analyzer.tokenizers),
        "filters": [print_filter(one) for one in filter_nodes(analyzer.filters)],
    }
