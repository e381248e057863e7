"""Printer: AST to text. The printed text parses to the same AST.

The statements of each kind of object are printed by the module named after it.
"""

from __future__ import annotations

from dataclasses import replace

from language import tree
from language.printing import (  # noqa: F401  (statements)
    access,
    analyzers,
    backups,
    cluster,
    fields,
    flow,
    functions,
    indexes,
    node,
    places,
    records,
    spaces,
    topics,
    vaults,
)
from language.printing.expressions import print_expression, print_path
from language.printing.fields import print_type
from language.printing.flow import for_text, if_text
from language.printing.statements import print_statement
from language.secrets import hidden, unbound


def print_script(script: tree.Script) -> str:
    """Return the text of a script, one statement per line."""
    return ";\n".join(map(print_statement, script.statements))


def redacted(statement: tree.Statement) -> str:
    """Return the redacted text of a statement for logs and lists: secrets appear as `'...'`."""
    shown = hidden(statement)
    if shown:
        return print_statement(replace(statement, **shown))
    if isinstance(statement, tree.If):
        return if_text(statement, redacted)
    if isinstance(statement, tree.For):
        return for_text(statement, redacted)
    if isinstance(statement, tree.Let | tree.ReturnStatement) and isinstance(
        statement.value, tree.If
    ):
        word = f"LET ${statement.name} =" if isinstance(statement, tree.Let) else "RETURN"
        return f"{word} {if_text(statement.value, redacted)}"
    return print_statement(statement)


def redacted_together(statements: tuple[tree.Statement, ...], bound: bool) -> str:
    """Return the redacted text of the statements of one transaction.

    :param bound: True if the values of variables may be secrets, too
    """
    return "; ".join(redacted(unbound(one) if bound else one) for one in statements)


__all__ = [
    "print_expression", "print_path", "print_script", "print_statement", "print_type", "redacted",
    "redacted_together",
]  # fmt: skip
