"""Printer of analyzers."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import drop, join, text
from language.printing.statements import STATEMENTS


def print_filter(node: tree.AnalyzerFilter) -> str:
    """Return a filter as DEFINE ANALYZER has it."""
    return f"{node.name}({', '.join(node.arguments)})" if node.arguments else node.name


def _define_analyzer(node: tree.DefineAnalyzer) -> str:
    filters = ", ".join(map(print_filter, node.filters))
    return join(
        "DEFINE ANALYZER",
        node.exists.value,
        quote(node.name),
        f"TOKENIZERS {', '.join(node.tokenizers)}",
        f"FILTERS {filters}" if filters else "",
        text("COMMENT", node.comment),
    )


STATEMENTS.update(
    {
        tree.DefineAnalyzer: _define_analyzer,
        tree.DropAnalyzer: lambda node: drop("ANALYZER", node, node.name),
    }
)
