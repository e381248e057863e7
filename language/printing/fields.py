"""Printer of field statements and field types."""

from __future__ import annotations

from typing import Any, Final

from language import tree
from language.keywords import quote
from language.printing.clauses import clause, join, on_change, text
from language.printing.expressions import print_path
from language.printing.statements import STATEMENTS
from protocol.text import format_value


def print_type(node: tree.FieldType) -> str:
    """Return the text of a field type."""
    return _TYPES[type(node)](node)  # type: ignore[no-any-return]


def _array_type(node: tree.ArrayType) -> str:
    if node.most is None:
        return "array" if node.of == tree.PlainType("any") else f"array<{print_type(node.of)}>"
    return f"array<{print_type(node.of)}, {node.most}>"


def _record_type(node: tree.RecordType) -> str:
    return f"record<{' | '.join(map(quote, node.tables))}>" if node.tables else "record"


_TYPES: Final[dict[type, Any]] = {
    tree.PlainType: lambda node: node.kind,
    tree.OptionType: lambda node: f"option<{print_type(node.of)}>",
    tree.ArrayType: _array_type,
    tree.RecordType: _record_type,
    tree.LiteralType: lambda node: format_value(node.value),
    tree.UnionType: lambda node: " | ".join(map(print_type, node.members)),
}


def _define_field(node: tree.DefineField) -> str:
    return join(
        "DEFINE FIELD",
        node.exists.value,
        f"{print_path(node.path)} ON {quote(node.table)} TYPE {print_type(node.type)}",
        clause("DEFAULT", node.default),
        clause("VALUE", node.value),
        clause("ASSERT", node.assertion),
        "READONLY" if node.readonly else "",
        text("COMMENT", node.comment),
        "UNCHECKED" if node.unchecked else "",
    )


def _alter_field(node: tree.AlterField) -> str:
    return join(
        f"ALTER FIELD {print_path(node.path)} ON {quote(node.table)} SET",
        "" if node.type is None else f"TYPE {print_type(node.type)}",
        clause("DEFAULT", node.default),
        clause("VALUE", node.value),
        clause("ASSERT", node.assertion),
        {None: "", True: "READONLY", False: "READONLY NONE"}[node.readonly],
        _new_comment(node.comment),
    )


def _alter_table(node: tree.AlterTable) -> str:
    return join(
        f"ALTER TABLE {quote(node.name)} SET",
        {None: "", True: "SCHEMAFULL", False: "SCHEMALESS"}[node.schemafull],
        on_change(node.on_change),
        _new_comment(node.comment),
    )


def _new_comment(comment: str | None) -> str:
    return "COMMENT NONE" if comment == "" else text("COMMENT", comment)


STATEMENTS.update(
    {
        tree.DefineField: _define_field,
        tree.AlterTable: _alter_table,
        tree.AlterField: _alter_field,
        tree.DropField: lambda node: f"DROP FIELD {print_path(node.path)} ON {quote(node.table)}",
    }
)
