"""Printer of user and privilege statements."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import dotted, drop, join, text
from language.printing.statements import STATEMENTS


def _define_user(node: tree.DefineUser) -> str:
    return join(
        "DEFINE USER",
        node.exists.value,
        quote(node.name),
        f"ROLE {node.role}",
        f"ON {_securable(node.space)}" if node.space else "",
        _password(node),
        text("PASSHASH", node.passhash),
        text("COMMENT", node.comment),
    )


def _alter_user(node: tree.AlterUser) -> str:
    return f"ALTER USER {quote(node.name)} SET {_password(node) or f'ROLE {node.role}'}"


def _password(node: tree.DefineUser | tree.AlterUser) -> str:
    return text("PASSWORD", node.password) if node.bound is None else f"PASSWORD ${node.bound}"


def _securable(node: tree.SecurableRef) -> str:
    return join(node.kind, dotted(*node.names))


def _verbs_on(node: tree.Grant | tree.Revoke) -> str:
    return f"{', '.join(node.verbs)} ON {_securable(node.securable)}"


STATEMENTS.update(
    {
        tree.DefineUser: _define_user,
        tree.AlterUser: _alter_user,
        tree.DropUser: lambda node: drop("USER", node, node.name),
        tree.Grant: lambda node: f"GRANT {_verbs_on(node)} TO {quote(node.user)}",
        tree.Revoke: lambda node: f"REVOKE {_verbs_on(node)} FROM {quote(node.user)}",
    }
)
