"""Printer of statements on namespaces, databases and tables."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import define, drop, join, on_change, text
from language.printing.statements import STATEMENTS


def _use(node: tree.Use) -> str:
    return join(
        "USE",
        "" if node.namespace is None else f"NAMESPACE {quote(node.namespace)}",
        "" if node.database is None else f"DATABASE {quote(node.database)}",
    )


def _define_table(node: tree.DefineTable) -> str:
    return join(
        "DEFINE TABLE",
        node.exists.value,
        quote(node.name),
        "SCHEMAFULL" if node.schemafull else "",
        on_change(node.on_change),
        text("COMMENT", node.comment),
    )


STATEMENTS.update(
    {
        tree.Use: _use,
        tree.DefineNamespace: lambda node: define("NAMESPACE", node, node.name),
        tree.DefineDatabase: lambda node: define("DATABASE", node, node.namespace, node.name),
        tree.DefineTable: _define_table,
        tree.DropNamespace: lambda node: drop("NAMESPACE", node, node.name),
        tree.DropDatabase: lambda node: drop("DATABASE", node, node.namespace, node.name),
        tree.DropTable: lambda node: drop("TABLE", node, node.name),
    }
)
