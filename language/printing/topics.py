"""Printer of topic, reader and group statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from language import tree
from language.keywords import quote
from language.printing.clauses import clause, drop, drop_on, join, on_table, text
from language.printing.expressions import leftmost, print_expression
from language.printing.statements import STATEMENTS
from protocol.text import format_duration, format_size, quote_string


def _define_topic(node: tree.DefineTopic) -> str:
    return join(
        "DEFINE TOPIC",
        node.exists.value,
        quote(node.name),
        _setting("KEEP", node.keep),
        _setting("BYTES", node.max_bytes, format_size),
        _setting("LARGEST", node.largest, format_size),
        _setting("DEDUP", node.dedup),
        "FULL REFUSE" if node.full == "REFUSE" else "",
        text("COMMENT", node.comment),
    )


def _setting(word: str, value: Any, show: Callable[[Any], str] | None = None) -> str:
    if value is None:
        return ""
    return f"{word} {format_duration(value) if show is None else show(value)}"


_CHANGES: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "keep": ("KEEP", format_duration),
    "max_bytes": ("BYTES", format_size),
    "largest": ("LARGEST", format_size),
    "dedup": ("DEDUP", format_duration),
    "full": ("FULL", str),
    "comment": ("COMMENT", quote_string),
    "deadline": ("DEADLINE", format_duration),
    "in_flight": ("IN FLIGHT", str),
    "deliveries": ("DELIVERIES", str),
    "dead_letter": ("DEAD LETTER", quote),
    "backoff": ("BACKOFF", lambda steps: ", ".join(map(format_duration, steps))),
}
"""Words of each setting, and the formatter of its value."""


def _changes(changes: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, value in changes:
        words, show = _CHANGES[name]
        yield f"{words} {'NONE' if value is None or value == () else show(value)}"


def _alter_topic(node: tree.AlterTopic) -> str:
    return f"ALTER TOPIC {quote(node.name)} SET {', '.join(_changes(node.changes))}"


def _trim_topic(node: tree.TrimTopic) -> str:
    return join(
        f"TRIM TOPIC {quote(node.name)}",
        clause("BEFORE", node.before),
        text("REASON", node.reason),
    )


def _position(node: tree.Position) -> str:
    if node.value is None:
        return node.kind
    text = print_expression(node.value)
    if node.kind == "TIME":
        return f"TIME {text}"
    # A bare field name might parse as one of the words above.
    return f"({text})" if isinstance(leftmost(node.value), tree.Name) else text


def _position_clause(word: str, position: tree.Position | None) -> str:
    return "" if position is None else f"{word} {_position(position)}"


def _define_reader(node: tree.DefineReader) -> str:
    return join(
        "DEFINE READER",
        node.exists.value,
        f"{quote(node.name)} ON {quote(node.topic)}",
        _position_clause("AT", node.position),
    )


def _alter_reader(node: tree.AlterReader) -> str:
    return join(
        on_table("ALTER READER", node.name, node.topic),
        _position_clause("SET POSITION", node.position),
        text("REASON", node.reason),
    )


def _define_group(node: tree.DefineGroup) -> str:
    given = [(name, getattr(node, name)) for name in ("in_flight", "deliveries", "dead_letter")]
    given.append(("backoff", node.backoff or None))
    return join(
        "DEFINE GROUP",
        node.exists.value,
        f"{quote(node.name)} ON {quote(node.topic)} DEADLINE {format_duration(node.deadline)}",
        *_changes((name, value) for name, value in given if value is not None),
        "ORDERED BY KEY" if node.ordered else "",
        _position_clause("AT", node.position),
    )


def _alter_group(node: tree.AlterGroup) -> str:
    moved = [] if node.position is None else [_position_clause("POSITION", node.position)]
    return join(
        on_table("ALTER GROUP", node.name, node.topic),
        f"SET {', '.join([*moved, *_changes(node.changes)])}",
        text("REASON", node.reason),
    )


def _publish(node: tree.Publish) -> str:
    return join(
        f"PUBLISH INTO {quote(node.topic)}",
        clause("VALUES" if node.many else "VALUE", node.value),
        clause("KEY", node.key),
        clause("ID", node.id),
        clause("HEADERS", node.headers),
        clause("DELAY", node.delay),
        clause("AT", node.at_time),
        clause("EXPECT", node.expect),
    )


def _read_topic(node: tree.ReadTopic) -> str:
    return join(
        f"READ FROM {quote(node.topic)}",
        clause("AFTER", node.after),
        "" if node.reader is None else f"AS {quote(node.reader)}",
        clause("LIMIT", node.limit),
        clause("WAIT", node.wait),
    )


def _take(node: tree.Take) -> str:
    return join(
        "TAKE",
        "" if node.count is None else print_expression(node.count),
        f"FROM {quote(node.topic)} AS {quote(node.group)}",
        clause("MEMBER", node.member),
        clause("WAIT", node.wait),
    )


def _settled(word: str, node: Any) -> str:
    """Return the text of a statement on delivered messages: ACK, NACK, EXTEND or GIVE UP."""
    return join(
        f"{word} {quote(node.topic)} AS {quote(node.group)}",
        clause("RECEIPTS", node.receipts),
        clause("BY", getattr(node, "by", None)),
        clause("DELAY", getattr(node, "delay", None)),
        clause("ERROR", getattr(node, "error", None)),
    )


def _redrive(node: tree.Redrive) -> str:
    return join(
        f"REDRIVE FROM {quote(node.dead)} TO {quote(node.topic)}", clause("LIMIT", node.limit)
    )


STATEMENTS.update(
    {
        tree.DefineTopic: _define_topic,
        tree.AlterTopic: _alter_topic,
        tree.DropTopic: lambda node: drop("TOPIC", node, node.name),
        tree.TrimTopic: _trim_topic,
        tree.Publish: _publish,
        tree.ReadTopic: _read_topic,
        tree.DefineReader: _define_reader,
        tree.CommitReader: lambda node: join(
            on_table("COMMIT READER", node.name, node.topic), clause("AT", node.position)
        ),
        tree.AlterReader: _alter_reader,
        tree.DropReader: lambda node: drop_on("READER", node),
        tree.DefineGroup: _define_group,
        tree.AlterGroup: _alter_group,
        tree.DropGroup: lambda node: drop_on("GROUP", node),
        tree.Take: _take,
        tree.Ack: lambda node: _settled("ACK", node),
        tree.Nack: lambda node: _settled("NACK", node),
        tree.Extend: lambda node: _settled("EXTEND", node),
        tree.GiveUp: lambda node: _settled("GIVE UP", node),
        tree.Redrive: _redrive,
    }
)
