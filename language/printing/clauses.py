"""Printer of shared clauses, names, and the forms of DEFINE and DROP."""

from __future__ import annotations

from typing import Any

from language import tree
from language.keywords import quote
from language.printing.expressions import print_expression, print_path
from protocol.paths import Path
from protocol.text import format_duration, quote_string


def join(*parts: str) -> str:
    """Join parts with a space, without empty ones."""
    return " ".join(part for part in parts if part)


def clause(word: str, node: tree.Expression | None) -> str:
    """Return a word and an expression after it, or an empty text without one."""
    return f"{word} {print_expression(node)}" if node is not None else ""


def paths(word: str, paths: tuple[Path, ...]) -> str:
    """Return a word and field paths after it, or an empty text without paths."""
    return f"{word} {', '.join(map(print_path, paths))}" if paths else ""


def timeout(node: Any) -> str:
    """Return the TIMEOUT clause of a statement."""
    return "" if node.timeout is None else f"TIMEOUT {format_duration(node.timeout)}"


def text(word: str, text: str | None) -> str:
    """Return a word and a quoted text after it, or an empty text without one."""
    return "" if text is None else f"{word} {quote_string(text)}"


def dotted(*names: str | None) -> str:
    """Join names with dots, without missing ones."""
    return ".".join(quote(name) for name in names if name is not None)


def define(word: str, node: Any, *names: str | None) -> str:
    """Return a DEFINE with the clauses common to all of them."""
    return join(
        f"DEFINE {word}",
        node.exists.value,
        dotted(*names),
        text("COMMENT", node.comment),
    )


def on_change(node: tree.OnChange | None) -> str:
    """Return the ON CHANGE clause of a table, or an empty text."""
    if node is None:
        return ""
    if node.topic is None:
        return "ON CHANGE NONE"
    of = f"OF {', '.join(map(quote, node.fields))}" if node.fields else ""
    return join("ON CHANGE", of, f"PUBLISH INTO {quote(node.topic)}")


def drop(word: str, node: Any, *names: str | None) -> str:
    """Return a DROP with its reason."""
    return join(f"DROP {word}", dotted(*names), text("REASON", node.reason))


def drop_on(word: str, node: Any) -> str:
    """Return a DROP of a topic's reader or group."""
    return join(on_table(f"DROP {word}", node.name, node.topic), text("REASON", node.reason))


def on_table(word: str, name: str, owner: str) -> str:
    """Return a word and a name, ON its table or topic."""
    return f"{word} {quote(name)} ON {quote(owner)}"
