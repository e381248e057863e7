"""Printer of record statements."""

from __future__ import annotations

from typing import Any

from language import tree
from language.keywords import quote
from language.printing.clauses import clause, join, paths, timeout
from language.printing.expressions import (
    STEPPED,
    begins_with_name,
    identity,
    print_expression,
    print_path,
)
from language.printing.statements import STATEMENTS


def target(node: tree.Target) -> str:
    """Return the text of a statement's target."""
    if isinstance(node, tree.TableTarget):
        return quote(node.table)
    if isinstance(node, tree.RecordRange):
        low = "" if node.low is None else identity(node.low)
        high = "" if node.high is None else identity(node.high)
        return f"{quote(node.table)}:{low}{'..=' if node.inclusive else '..'}{high}"
    # A bare name would parse as a table, and a sign or operator is not allowed here.
    text = print_expression(node.expression)
    bare = isinstance(node.expression, STEPPED) and not begins_with_name(node.expression)
    return text if bare else f"({text})"


def _column(node: tree.Column) -> str:
    text = print_expression(node.expression)
    return text if node.alias is None else f"{text} AS {quote(node.alias)}"


def _columns(columns: tuple[tree.Column, ...]) -> str:
    return ", ".join(map(_column, columns))


def _group(group: tuple[tree.Expression, ...] | None) -> str:
    if group is None:
        return ""
    return f"GROUP BY {', '.join(map(print_expression, group))}" if group else "GROUP ALL"


def _order(order: tuple[tree.Order, ...]) -> str:
    if not order:
        return ""
    parts = (print_expression(o.expression) + (" DESC" if o.descending else "") for o in order)
    return f"ORDER BY {', '.join(parts)}"


def select_text(node: tree.Select) -> str:
    """Return the text of a SELECT."""
    shown = ["*"] if node.everything else []
    if node.columns:
        shown.append(_columns(node.columns))
    return join(
        f"SELECT{' DISTINCT' if node.distinct else ''}{' VALUE' if node.value else ''}",
        ", ".join(shown),
        paths("OMIT", node.omit),
        f"FROM {'ONLY ' if node.only else ''}{', '.join(map(target, node.sources))}",
        clause("WHERE", node.where),
        f"SPLIT {print_path(node.split)}" if node.split is not None else "",
        _group(node.group),
        clause("HAVING", node.having),
        _order(node.order),
        clause("LIMIT", node.limit),
        clause("START", node.start),
        paths("FETCH", node.fetch),
        "CURRENT" if node.current else "",
        timeout(node),
    )


def _data(node: tree.Data | None) -> str:
    if node is None:
        return ""
    if isinstance(node, tree.Set):
        return f"SET {', '.join(map(_assignment, node.assignments))}"
    if isinstance(node, tree.Unset):
        return paths("UNSET", node.paths)
    word = "CONTENT" if isinstance(node, tree.Content) else "MERGE"
    return f"{word} {print_expression(node.value)}"


def _assignment(node: tree.Assignment) -> str:
    return f"{print_path(node.path)} {node.operator} {print_expression(node.value)}"


def _returning(node: tree.Return | None) -> str:
    if node is None:
        return ""
    if node.kind != "FIELDS":
        return f"RETURN {node.kind}"
    text = _columns(node.columns)
    if text.startswith("NONE"):
        # Without parentheses the constant NONE would parse as RETURN NONE.
        first = len(print_expression(node.columns[0].expression))
        text = f"({text[:first]}){text[first:]}"
    return f"RETURN {text}"


def _write(word: str, node: Any) -> str:
    return join(
        word,
        target(node.target),
        _data(getattr(node, "data", None)),
        clause("WHERE", getattr(node, "where", None)),
        clause("LIMIT", getattr(node, "limit", None)),
        _returning(node.returning),
        timeout(node),
    )


def _insert(node: tree.Insert) -> str:
    return join(
        f"INSERT INTO {quote(node.table)}",
        "COLUMNS" if node.columns else "",
        print_expression(node.rows),
        "IGNORE" if node.ignore else "",
        f"ON DUPLICATE UPDATE {_data(node.on_duplicate)}" if node.on_duplicate else "",
        _returning(node.returning),
        timeout(node),
    )


STATEMENTS.update(
    {
        tree.Create: lambda node: _write("CREATE", node),
        tree.Insert: _insert,
        tree.Upsert: lambda node: _write("UPSERT", node),
        tree.Update: lambda node: _write("UPDATE", node),
        tree.Delete: lambda node: _write("DELETE", node),
        tree.Select: select_text,
    }
)
