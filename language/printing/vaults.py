"""Printer of vault statements."""

from __future__ import annotations

from typing import Any

from language import tree
from language.keywords import quote
from language.printing.clauses import clause, drop, join, text
from language.printing.expressions import STEPPED, begins_with_name, print_expression
from language.printing.statements import STATEMENTS


def _define(node: tree.DefineVault) -> str:
    return join(
        "DEFINE VAULT",
        "IF NOT EXISTS" if node.unless_there else "",
        quote(node.name),
        text("PASSPHRASE", node.passphrase),
        "" if node.bound is None else f"PASSPHRASE ${node.bound}",
        _versions(node.versions),
        text("COMMENT", node.comment),
    )


def _versions(versions: int | None) -> str:
    return "" if versions is None else f"VERSIONS {versions}"


def _alter(node: tree.AlterVault) -> str:
    setting = _versions(node.versions) or text("COMMENT", node.comment)
    return f"ALTER VAULT {quote(node.name)} SET {setting}"


def _of_record(word: str, node: Any, preposition: str, *clauses: str) -> str:
    id = print_expression(node.id)
    plain = isinstance(node.id, tree.Constant) and isinstance(node.id.value, str)
    bare = isinstance(node.id, STEPPED) and not begins_with_name(node.id)
    return join(
        word,
        id if plain or bare else f"({id})",
        f"{preposition} VAULT {quote(node.vault)}",
        *clauses,
        text("REASON", node.reason),
    )


def _write(node: tree.WriteSecret) -> str:
    return _of_record(
        "WRITE",
        node,
        "IN",
        clause("VALUE", node.value),
        "IF ABSENT" if node.absent else "",
        clause("EXPECT VERSION", node.expect),
    )


def _list(node: tree.ListSecrets) -> str:
    return join(
        f"LIST FROM VAULT {quote(node.vault)}",
        clause("PREFIX", node.prefix),
        clause("AFTER", node.after),
        clause("LIMIT", node.limit),
    )


def _trail(node: tree.InfoTrail) -> str:
    of = "ALL VAULTS" if node.vault is None else f"VAULT {quote(node.vault)}"
    return join(
        f"INFO FOR AUDIT OF {of}",
        clause("NUMBER", node.number),
        clause("BEFORE", node.before),
        clause("LIMIT", node.limit),
        "CHECK" if node.check else "",
    )


STATEMENTS.update(
    {
        tree.DefineVault: _define,
        tree.AlterVault: _alter,
        tree.DropVault: lambda node: drop("VAULT", node, node.name),
        tree.RotateVault: lambda node: join(
            f"ROTATE VAULT {quote(node.name)}", text("REASON", node.reason)
        ),
        tree.WriteSecret: _write,
        tree.RevealSecret: lambda node: _of_record(
            "REVEAL", node, "FROM", clause("VERSION", node.version)
        ),
        tree.EraseSecret: lambda node: _of_record("ERASE", node, "FROM"),
        tree.ListSecrets: _list,
        tree.InfoTrail: _trail,
    }
)
