"""Printer of control flow statements."""

from __future__ import annotations

from typing import Any

from language import tree
from language.printing.expressions import leftmost, print_expression
from language.printing.statements import STATEMENTS, print_statement


def _block(block: tree.Block, show: Any) -> str:
    return f"{{ {'; '.join(map(show, block.statements))} }}" if block.statements else "{ }"


def if_text(node: tree.If, show: Any) -> str:
    """Return the text of an IF; `show` prints its statements."""
    parts = [f"IF {print_expression(test)} {_block(block, show)}" for test, block in node.branches]
    if node.otherwise is not None:
        parts.append(_block(node.otherwise, show))
    return " ELSE ".join(parts)


def for_text(node: tree.For, show: Any) -> str:
    """Return the text of a FOR; `show` prints its statements."""
    return f"FOR ${node.variable} IN {print_expression(node.items)} {_block(node.body, show)}"


def _value(node: tree.Expression | tree.Answering) -> str:
    return print_statement(node) if type(node) in STATEMENTS else print_expression(node)  # type: ignore[arg-type]


def _evaluate(node: tree.Evaluate) -> str:
    """Return an expression as a statement, in parentheses if it starts with a field's name, which
    no statement may do."""
    text = print_expression(node.value)
    return f"({text})" if isinstance(leftmost(node.value), tree.Name) else text


STATEMENTS.update(
    {
        tree.Let: lambda node: f"LET ${node.name} = {_value(node.value)}",
        tree.ReturnStatement: lambda node: f"RETURN {_value(node.value)}",
        tree.Evaluate: lambda node: _evaluate(node),
        tree.If: lambda node: if_text(node, print_statement),
        tree.For: lambda node: for_text(node, print_statement),
        tree.Throw: lambda node: f"THROW {print_expression(node.value)}",
        tree.Begin: lambda node: "BEGIN",
        tree.Commit: lambda node: "COMMIT",
        tree.Cancel: lambda node: "CANCEL",
    }
)
