"""Operators: how tightly they bind, and which operands they take.

From loosest to tightest: OR; AND; NOT; comparisons, IN, CONTAINS, ~ (these do not chain); ranges;
??; + and -; * / %; unary minus; paths.
"""

from __future__ import annotations

from typing import Any, Final

from language import tree

OR, AND, COMPARISON, RANGE, COALESCE, SUM, PRODUCT = 1, 2, 4, 5, 6, 7, 8

LEVELS: Final[dict[str, int]] = {
    "OR": OR, "AND": AND, "=": COMPARISON, "!=": COMPARISON, "<": COMPARISON, "<=": COMPARISON,
    ">": COMPARISON, ">=": COMPARISON, "IN": COMPARISON, "NOT IN": COMPARISON,
    "CONTAINS": COMPARISON, "~": COMPARISON, "??": COALESCE, "+": SUM, "-": SUM, "*": PRODUCT,
    "/": PRODUCT, "%": PRODUCT,
}  # fmt: skip
"""How tightly each operator binds."""

GRAMMAR: Final = """
expression = disjunction
negation = NOT negation | comparison
unary = {"-" | "+"} operand
"""
"""What stands between them is made of `LEVELS`."""


def chain(operator: Any, operands: list[tree.Expression]) -> tree.Expression:
    """`a OR b OR c …` as a balanced tree: what the parser makes of such a chain."""
    if len(operands) == 1:
        return operands[0]
    middle = (len(operands) + 1) // 2
    return tree.Binary(
        operator, chain(operator, operands[:middle]), chain(operator, operands[middle:])
    )


def takes_no_rows(operator: str, left: tree.Expression, right: tree.Expression) -> bool:
    """Whether an operand is an array of rows, and the operator wants one value.

    `=` and `!=` may compare arrays: beside what may be one, a subquery may stand.
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
    """The operands of a chain of AND or OR, from left to right."""
    if isinstance(node, tree.Binary) and node.operator == operator:
        return operands_of(node.left, operator) + operands_of(node.right, operator)
    return [node]
