"""Printer of cache space statements."""

from __future__ import annotations

from typing import Any

from language import tree
from language.keywords import quote
from language.printing.clauses import clause, drop, join, text
from language.printing.expressions import STEPPED, begins_with_name, print_expression
from language.printing.statements import STATEMENTS
from protocol.text import format_duration


def _define_space(node: tree.DefineSpace) -> str:
    return join(
        "DEFINE SPACE",
        node.exists.value,
        quote(node.name),
        "" if node.expire is None else f"EXPIRE {format_duration(node.expire)}",
        text("COMMENT", node.comment),
    )


def _of_key(word: str, node: Any) -> str:
    """Return `word key IN space` with its clauses, in the order of the grammar."""
    key = print_expression(node.key)
    plain = isinstance(node.key, tree.Constant) and isinstance(node.key.value, str)
    bare = isinstance(node.key, STEPPED) and not begins_with_name(node.key)
    return join(
        word,
        key if plain or bare else f"({key})",
        f"{'FROM' if word in ('GET', 'DELETE') else 'IN'} {quote(node.space)}",
        clause("HOLDER", getattr(node, "holder", None)),
        clause("EXPECT", getattr(node, "expect", None)),
        clause("VALUE", getattr(node, "value", None)),
        clause("BY", getattr(node, "by", None)),
        _expire("" if word == "EXPIRE" else "EXPIRE", getattr(node, "expire", None)),
        clause("EXPIRE AT", getattr(node, "expire_at", None)),
        "KEEP" if getattr(node, "keep", False) else "",
        f"IF {node.when}" if getattr(node, "when", None) else "",
    )


def _expire(word: str, node: tree.Expression | None) -> str:
    if node is None:
        return ""
    text = print_expression(node)
    # The name of a field or table might parse as the AT of EXPIRE AT.
    return join(word, f"({text})" if text[:2].upper() == "AT" else text)


def _list_keys(node: tree.ListKeys) -> str:
    return join(
        f"KEYS FROM {quote(node.space)}",
        clause("PREFIX", node.prefix),
        clause("AFTER", node.after),
        clause("LIMIT", node.limit),
    )


def _drop_keys(node: tree.DropKeys) -> str:
    return join(
        f"DROP KEYS IN {quote(node.space)}",
        clause("PREFIX", node.prefix),
        text("REASON", node.reason),
    )


STATEMENTS.update(
    {
        tree.DefineSpace: _define_space,
        tree.DropSpace: lambda node: drop("SPACE", node, node.name),
        tree.GetKey: lambda node: _of_key("GET", node),
        tree.SetKey: lambda node: _of_key("SET", node),
        tree.SwapKey: lambda node: _of_key("SWAP", node),
        tree.IncrKey: lambda node: _of_key("INCR", node),
        tree.DeleteKey: lambda node: _of_key("DELETE", node),
        tree.ExpireKey: lambda node: _of_key("EXPIRE", node),
        tree.PersistKey: lambda node: _of_key("PERSIST", node),
        tree.LockKey: lambda node: _of_key("LOCK", node),
        tree.UnlockKey: lambda node: _of_key("UNLOCK", node),
        tree.ListKeys: _list_keys,
        tree.DropKeys: _drop_keys,
    }
)
