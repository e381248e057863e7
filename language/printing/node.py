"""Users and the node."""

from __future__ import annotations

from language import tree
from language.printing.clauses import dotted, drop, join, on_table, text
from language.printing.expressions import print_expression
from language.printing.statements import STATEMENTS
from language.words import quote
from protocol.text import quote_string


def _define_user(node: tree.DefineUser) -> str:
    kind = "NAMESPACE" if len(node.space) == 1 else "DATABASE"
    return join(
        "DEFINE USER",
        node.exists.value,
        quote(node.name),
        f"ROLE {node.role}",
        f"ON {kind} {dotted(*node.space)}" if node.space else "",
        text("PASSWORD", node.password),
        text("PASSHASH", node.passhash),
        text("COMMENT", node.comment),
    )


def _alter_user(node: tree.AlterUser) -> str:
    setting = text("PASSWORD", node.password) or f"ROLE {node.role}"
    return f"ALTER USER {quote(node.name)} SET {setting}"


def _define_node(node: tree.DefineNode) -> str:
    roles = "" if node.roles is None else f"ROLES {', '.join(node.roles) or 'NONE'}"
    addresses = ", ".join(map(quote_string, node.endpoints or ()))
    origins = ""
    if node.origins is not None:
        origins = f"ORIGINS {', '.join(map(quote_string, node.origins)) or 'NONE'}"
    return join("DEFINE NODE", roles, f"ENDPOINTS {addresses}" if addresses else "", origins)


def _info(node: tree.Info) -> str:
    if node.subject in ("INDEX", "GROUP"):
        return on_table(f"INFO FOR {node.subject}", *node.names)
    return join("INFO FOR", node.subject, dotted(*node.names))


STATEMENTS.update(
    {
        tree.DefineUser: _define_user,
        tree.AlterUser: _alter_user,
        tree.DropUser: lambda node: drop("USER", node, node.name),
        tree.DefineNode: _define_node,
        tree.Info: _info,
        tree.Kill: lambda node: f"KILL {print_expression(node.id)}",
    }
)
