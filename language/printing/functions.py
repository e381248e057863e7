"""Printer of user-defined functions."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import drop, join, text
from language.printing.expressions import print_expression
from language.printing.fields import print_type
from language.printing.statements import STATEMENTS


def _define_function(node: tree.DefineFunction) -> str:
    parameters = ", ".join(f"${one.name}: {print_type(one.type)}" for one in node.parameters)
    return join(
        "DEFINE FUNCTION",
        node.exists.value,
        f"{quote(node.name)}({parameters})",
        "" if node.returns is None else f"-> {print_type(node.returns)}",
        f"{{ {print_expression(node.body)} }}",
        text("COMMENT", node.comment),
    )


STATEMENTS.update(
    {
        tree.DefineFunction: _define_function,
        tree.DropFunction: lambda node: drop("FUNCTION", node, node.name),
    }
)
