"""Analyzers of a database, resolved at the time of their use and compiled once.

An expression knows an analyzer by its name alone; its definition is read in the current
transaction, as that of a function is.
"""

from __future__ import annotations

from language.search import analysis
from language.search.definitions import Definition, TokenFilter
from storage.catalog.analyzers import Analyzer, declared_of_analyzer
from storage.txn.transaction import Transaction


def definition_of(analyzer: Analyzer) -> Definition:
    """Return the definition of a declared analyzer."""
    filters = tuple(TokenFilter(name, arguments) for name, arguments in analyzer.filters)
    return Definition(analyzer.tokenizers, filters)


def compiled(tx: Transaction, declared: Analyzer) -> analysis.Analyzer:
    """Return an analyzer compiled; cached for as long as its definition does not change."""
    at = ("analysis", declared.database.id, declared.name)
    found: analysis.Analyzer | None = tx.known(at)
    if found is None:
        found = analysis.Analyzer(definition_of(declared))
        # Rests on the declaration: a changed one drops the compiled form.
        tx.remember(at, found, *declared_of_analyzer(declared))
    return found
