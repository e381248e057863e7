"""Operator precedence and operand checks.

From loosest to tightest: OR; AND; NOT; comparisons, IN, CONTAINS, ~, @@, NEAREST (these do not
chain); ranges; ??; + and -; * / %; unary minus; paths.
"""

from __future__ import annotations

from typing import Any, Final

from language import tree

OR, AND, COMPARISON, RANGE, COALESCE, SUM, PRODUCT = 1, 2, 4, 5, 6, 7, 8

LEVELS: Final[dict[str, int]] = {
    "OR": OR, "AND": AND, "=": COMPARISON, "!=": COMPARISON, "<": COMPARISON, "<=": COMPARISON,
    ">": COMPARISON, ">=": COMPARISON, "IN": COMPARISON, "NOT IN": COMPARISON,
    "CONTAINS": COMPARISON, "~": COMPARISON, "@@": COMPARISON, "??": COALESCE, "+": SUM,
    "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT,
}  # fmt: skip
"""Precedence of each operator; higher binds tighter."""

GRAMMAR: Final = """
expression = disjunction
negation = NOT negation | comparison
unary = {"-" | "+"} operand
"""
"""Grammar rules; those of binary operators are generated from `LEVELS`."""


def chain(operator: Any, operands: list[tree.Expression]) -> tree.Expression:
    """Build the balanced tree for a chain `a OR b OR c …`, as the parser does."""
    if len(operands) == 1:
        return operands[0]
    middle = (len(operands) + 1) // 2
    return tree.Binary(
        operator, chain(operator, operands[:middle]), chain(operator, operands[middle:])
    )


def takes_no_rows(operator: str, left: tree.Expression, right: tree.Expression) -> bool:
    """True if an operand is an array of rows, but the operator takes one value.

    `=` and `!=` may compare arrays: a subquery is valid beside an operand that may be an array.
    """
    if operator not in _ON_ONE_VALUE and operator not in ("=", "!="):
        return False
    for one, other in ((left, right), (right, left)):
        plain = isinstance(one, tree.Subquery) and not one.select.only
        if plain and (operator in _ON_ONE_VALUE or isinstance(other, _ONE_VALUES)):
            return True
    return False


_ON_ONE_VALUE: Final = frozenset({"<", "<=", ">", ">=", "-", "*", "/", "%", "~"})
_ONE_VALUES: Final = (tree.Constant, tree.RecordLiteral, tree.Name, tree.Attribute)
ONE_VALUE: Final = (
    "`{}` takes one value, and a subquery is an array of rows: write (SELECT VALUE … FROM ONLY …)"
    " or (SELECT VALUE …)[0]"
)


def operands_of(node: tree.Expression, operator: str) -> list[tree.Expression]:
    """Return the operands of a chain of AND or OR, from left to right."""
    if isinstance(node, tree.Binary) and node.operator == operator:
        return operands_of(node.left, operator) + operands_of(node.right, operator)
    return [node]
