"""Analyzers of a database, resolved at the time of their use and compiled once.

An expression knows an analyzer by its name alone; its definition is read in the current
transaction, as that of a function is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from language.search import analysis
from language.search.definitions import Definition, TokenFilter
from protocol.rights import NOTHING
from storage.catalog.analyzers import Analyzer, declared_of_analyzer

if TYPE_CHECKING:
    from actors.scripts.execution import Execution


def definition_of(analyzer: Analyzer) -> Definition:
    """Return the definition of a declared analyzer."""
    filters = tuple(TokenFilter(name, arguments) for name, arguments in analyzer.filters)
    return Definition(analyzer.tokenizers, filters)


def analyzer(run: Execution, name: str) -> analysis.Analyzer:
    """Return an analyzer of the present database; cached for as long as it does not change.

    :raises Unknown: there is none such, or the caller may not see its database
    """
    declared = run.analyzer_row(name, NOTHING)
    tx = run.transaction
    at = ("analysis", declared.database.id, name)
    found: analysis.Analyzer | None = tx.known(at)
    if found is None:
        found = analysis.Analyzer(definition_of(declared))
        # Rests on the declaration: a changed one drops the compiled form.
        tx.remember(at, found, *declared_of_analyzer(declared))
    return found
