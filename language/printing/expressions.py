"""Printer of expressions, with parentheses only where the text would parse to another AST."""

from __future__ import annotations

import base64
from typing import Any, Final

from language import tree
from language.keywords import KEYWORDS, quote
from language.parsing.operators import COMPARISON, LEVELS, RANGE, operands_of
from language.printing.statements import print_statement
from protocol import limits
from protocol.binary import pack
from protocol.paths import Path, path_text
from protocol.text import NAME, format_value, quote_string
from protocol.values import RecordId

_UNARY: Final = 9


_PREFIX_NOT: Final = 3
_ALONE: Final = 10
"""Level of expressions without an operator."""


STEPPED: Final = (
    tree.Name, tree.Parameter, tree.Call, tree.Subquery, tree.Array, tree.Object,
    tree.RecordLiteral, tree.Attribute, tree.Index, tree.Each,
    tree.Collected,
)  # fmt: skip
"""Expressions that may start a path without parentheses."""


def print_expression(node: tree.Expression) -> str:
    """Return the text of an expression."""
    return _PRINTERS[type(node)](node)  # type: ignore[no-any-return]


def _level(node: tree.Expression) -> int:
    if isinstance(node, tree.Binary):
        return LEVELS[node.operator]
    if isinstance(node, tree.Nearest):
        return COMPARISON
    if isinstance(node, tree.Range):
        return RANGE
    if isinstance(node, tree.Unary):
        return _PREFIX_NOT if node.operator == "NOT" else _UNARY
    return _ALONE


def _at_least(node: tree.Expression, level: int) -> str:
    text = print_expression(node)
    return text if _level(node) >= level else f"({text})"


def _binary(node: tree.Binary) -> str:
    level = LEVELS[node.operator]
    if node.operator in ("OR", "AND"):
        parts = operands_of(node, node.operator)
        return f" {node.operator} ".join(_at_least(part, level + 1) for part in parts)
    left = _at_least(node.left, level + 1 if level == COMPARISON else level)
    return f"{left} {node.operator} {_at_least(node.right, level + 1)}"


def _nearest(node: tree.Nearest) -> str:
    left = _at_least(node.of, COMPARISON + 1)
    probes = "" if node.probes is None else f" PROBES {_operand(node.probes)}"
    return f"{left} NEAREST {_operand(node.count)} TO {_operand(node.to)}{probes}"


def _operand(node: tree.Expression) -> str:
    text = print_expression(node)
    return text if _level(node) == _ALONE and text[0] not in "+-" else f"({text})"


def _range(node: tree.Range) -> str:
    dots = "..=" if node.inclusive else ".."
    return f"{_at_least(node.low, RANGE + 1)} {dots} {_at_least(node.high, RANGE + 1)}"


def _unary(node: tree.Unary) -> str:
    if node.operator == "NOT":
        return f"NOT {_at_least(node.operand, COMPARISON)}"
    text = print_expression(node.operand)
    # A sign before a digit would become part of the literal, two minus signs a comment.
    bare = isinstance(node.operand, STEPPED) and not (text[0].isdigit() or text[0] in "-+")
    return f"{node.operator}{text}" if bare else f"{node.operator}({text})"


def _base(node: tree.Expression) -> str:
    text = print_expression(node)
    if isinstance(node, tree.Subquery):
        return text if text[0] == "(" else f"({text})"
    return text if isinstance(node, STEPPED) else f"({text})"


def _index(node: tree.Index) -> str:
    return f"{_base(node.of)}[{print_expression(node.index)}]"


def _array(node: tree.Array) -> str:
    return f"[{', '.join(map(print_expression, node.items))}]"


def _object(node: tree.Object) -> str:
    if not node.fields:
        return "{}"
    fields = (f"{_key(name)}: {print_expression(value)}" for name, value in node.fields)
    return f"{{ {', '.join(fields)} }}"


def _key(name: str) -> str:
    return name if NAME.match(name) and "-" not in name else quote_string(name)


def _record(node: tree.RecordLiteral) -> str:
    return f"{quote(node.table)}:{identity(node.id)}"


def identity(node: tree.Expression) -> str:
    """Return the text of a record's id, as it follows the colon."""
    if isinstance(node, tree.Constant) and isinstance(node.value, str):
        return quote(node.value)
    return print_expression(node)


def _constant(node: tree.Constant) -> str:
    # An array or object in one constant was written as a packed literal.
    if type(node.value) in (list, dict, RecordId):
        return packed(pack(node.value))
    return format_value(node.value)


def packed(value: bytes) -> str:
    """Return a literal for a value in its stored, packed form."""
    return f"m'{base64.b64encode(value).decode()}'"


def _call(node: tree.Call) -> str:
    return f"{node.name}({', '.join(map(print_expression, node.arguments))})"


def _subquery(node: tree.Subquery) -> str:
    select = node.select
    if select.back is None:
        return f"({print_statement(select)})"
    (source,) = select.sources
    assert isinstance(source, tree.TableTarget)
    return f"<-{'.'.join(map(quote, (source.table, *map(str, select.back))))}"


def _choice(node: tree.Choice) -> str:
    parts = ["CASE"]
    if node.subject is not None:
        text = print_expression(node.subject)
        # A brace after CASE would parse as that of an IF whose condition ends with a field `case`.
        parts.append(f"({text})" if text[0] in "{<" else text)
    for condition, value in node.branches:
        parts.append(f"WHEN {print_expression(condition)} THEN {print_expression(value)}")
    if node.otherwise is not None:
        parts.append(f"ELSE {print_expression(node.otherwise)}")
    return " ".join([*parts, "END"])


def _closure(node: tree.Closure) -> str:
    names = ", ".join(f"${name}" for name in node.parameters)
    return f"|{names}| {print_expression(node.body)}"


_PRINTERS: Final[dict[type, Any]] = {
    tree.Constant: _constant,
    tree.Parameter: lambda node: f"${node.name}",
    tree.Array: _array,
    tree.Object: _object,
    tree.RecordLiteral: _record,
    tree.Name: lambda node: quote(node.name),
    tree.Attribute: lambda node: f"{_base(node.of)}.{quote(node.name)}",
    tree.Index: _index,
    tree.Each: lambda node: f"{_base(node.of)}[*]",
    tree.Collected: lambda node: f"({print_expression(node.of)})",
    tree.Unary: _unary,
    tree.Binary: _binary,
    tree.Nearest: _nearest,
    tree.Range: _range,
    tree.Call: _call,
    tree.Closure: _closure,
    tree.Subquery: _subquery,
    tree.Choice: _choice,
}


def print_path(path: Path) -> str:
    """Return the text of a field path."""
    return path_text(path, KEYWORDS)


def begins_with_name(node: tree.Expression) -> bool:
    """True if the text of an expression starts with a field's name."""
    while isinstance(node, tree.Attribute | tree.Index | tree.Each):
        node = node.of
    return isinstance(node, tree.Name)


def leftmost(node: tree.Expression) -> tree.Expression:
    """Return the leftmost operand of an expression's text, ignoring parentheses and signs."""
    while True:
        if isinstance(node, tree.Binary):
            node = node.left
        elif isinstance(node, tree.Range):
            node = node.low
        elif isinstance(node, tree.Attribute | tree.Index | tree.Each | tree.Collected):
            node = node.of
        else:
            return node


assert limits.DEPTH < 100, "printing recurses as deep as trees are high"
