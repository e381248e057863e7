"""What statements share: clauses, names, and the forms of DEFINE and DROP."""

from __future__ import annotations

from typing import Any

from language import tree
from language.keywords import quote
from language.printing.expressions import print_expression, print_path
from protocol.paths import Path
from protocol.text import format_duration, quote_string


def join(*parts: str) -> str:
    """Parts with a space between them; those that are empty are left out."""
    return " ".join(part for part in parts if part)


def clause(word: str, node: tree.Expression | None) -> str:
    """A word and an expression behind it; nothing where there is none."""
    return f"{word} {print_expression(node)}" if node is not None else ""


def paths(word: str, paths: tuple[Path, ...]) -> str:
    """A word and paths of fields behind it; nothing where there are none."""
    return f"{word} {', '.join(map(print_path, paths))}" if paths else ""


def timeout(node: Any) -> str:
    """The TIMEOUT of a statement."""
    return "" if node.timeout is None else f"TIMEOUT {format_duration(node.timeout)}"


def text(word: str, text: str | None) -> str:
    """A word and a quoted text behind it; nothing where there is none."""
    return "" if text is None else f"{word} {quote_string(text)}"


def dotted(*names: str | None) -> str:
    """Names joined by dots; those that are not given are left out."""
    return ".".join(quote(name) for name in names if name is not None)


def define(word: str, node: Any, *names: str | None) -> str:
    """A DEFINE with the clauses that all of them have."""
    return join(
        f"DEFINE {word}",
        node.exists.value,
        dotted(*names),
        text("COMMENT", node.comment),
    )


def on_change(node: tree.OnChange | None) -> str:
    """Where a table tells of its changes; nothing where that is not said."""
    if node is None:
        return ""
    if node.topic is None:
        return "ON CHANGE NONE"
    of = f"OF {', '.join(map(quote, node.fields))}" if node.fields else ""
    return join("ON CHANGE", of, f"PUBLISH INTO {quote(node.topic)}")


def drop(word: str, node: Any, *names: str | None) -> str:
    """A DROP with its reason."""
    return join(f"DROP {word}", dotted(*names), text("REASON", node.reason))


def drop_on(word: str, node: Any) -> str:
    """A DROP of a reader or group of a topic."""
    return join(on_table(f"DROP {word}", node.name, node.topic), text("REASON", node.reason))


def on_table(word: str, name: str, owner: str) -> str:
    """A word and a name, ON the table or topic it belongs to."""
    return f"{word} {quote(name)} ON {quote(owner)}"
