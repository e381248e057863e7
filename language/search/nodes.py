"""Definitions of analyzers from nodes of statements, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from language import tree
from language.parser import parse_expression
from language.search.arguments import argument_text, is_word, literal_of
from language.search.definitions import Definition, TokenFilter


def definition_of(statement: tree.DefineAnalyzer) -> Definition:
    """Return the definition that a statement holds, unchecked."""
    filters = tuple(
        TokenFilter(one.name, tuple(map(_value, one.arguments))) for one in statement.filters
    )
    return Definition(statement.tokenizers, filters)


def _value(text: str) -> Any:
    return text if is_word(text) else literal_of(parse_expression(text))


def filter_nodes(
    filters: Iterable[tuple[str, tuple[Any, ...]]],
) -> tuple[tree.AnalyzerFilter, ...]:
    """Return the nodes of filters, each given by its name and arguments."""
    return tuple(
        tree.AnalyzerFilter(name, tuple(map(argument_text, arguments)))
        for name, arguments in filters
    )
