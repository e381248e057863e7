"""Names, conditions, loops."""

from __future__ import annotations

from typing import Any

from language import tree
from language.printing.expressions import leftmost, print_expression
from language.printing.statements import STATEMENTS, print_statement


def _block(block: tree.Block, show: Any) -> str:
    return f"{{ {'; '.join(map(show, block.statements))} }}" if block.statements else "{ }"


def if_text(node: tree.If, show: Any) -> str:
    """An IF, its statements shown by `show`."""
    parts = [f"IF {print_expression(test)} {_block(block, show)}" for test, block in node.branches]
    if node.otherwise is not None:
        parts.append(_block(node.otherwise, show))
    return " ELSE ".join(parts)


def for_text(node: tree.For, show: Any) -> str:
    """A FOR, its statements shown by `show`."""
    return f"FOR ${node.variable} IN {print_expression(node.items)} {_block(node.body, show)}"


def _value(node: tree.Expression | tree.Answering) -> str:
    return print_statement(node) if type(node) in STATEMENTS else print_expression(node)  # type: ignore[arg-type]


def _evaluate(node: tree.Evaluate) -> str:
    """An expression as a statement; one that begins with a field's name, which a statement can't,
    in parentheses."""
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
