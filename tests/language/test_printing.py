from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from language import tree
from language.parser import parse, parse_expression
from language.printing import expressions, print_expression, print_script, redacted
from protocol.errors import Refusal
from tests.language.test_mutations import scripts
from tests.language.trees import EXPRESSIONS


def exact(node: Any) -> str:
    """The tree as text without positions: unlike `==`, it tells 1 from true and 1.0."""
    if isinstance(node, tuple):
        return f"({', '.join(map(exact, node))})"
    if hasattr(node, "__dataclass_fields__"):
        parts = (
            exact(getattr(node, f)) for f in node.__dataclass_fields__ if f not in ("at", "text")
        )
        return f"{type(node).__name__}({', '.join(parts)})"
    return f"{type(node).__name__}:{node!r}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EXPRESSIONS)
def test_an_expression_printed_and_parsed_is_the_same(node: tree.Expression) -> None:
    text = print_expression(node)
    assert exact(parse_expression(text)) == exact(node), text


def test_every_script_of_the_cases_printed_and_parsed_is_the_same() -> None:
    """They hold every clause of every statement, and each statement without it."""
    for text in scripts():
        try:
            script = parse(text)
        except Refusal:
            continue
        shown = print_script(script)
        assert exact(parse(shown).statements) == exact(script.statements), text
        assert print_script(parse(shown)) == shown


def test_the_check_of_the_round_trip_tells_values_that_python_calls_equal() -> None:
    assert exact(parse_expression("1")) != exact(parse_expression("true"))
    assert exact(parse_expression("1")) != exact(parse_expression("1.0"))


def test_the_round_trip_catches_a_lost_parenthesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_at_least", lambda node, level: print_expression(node))
    node = parse_expression("(1 + 2) * 3")
    assert exact(parse_expression(print_expression(node))) != exact(node)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("a or b or (c or d)", "a OR b OR c OR d"), ("(a or b) and c", "(a OR b) AND c"),
        ("not (a = 1)", "NOT a = 1"), ("(not a) = 1", "(NOT a) = 1"), ("- 5", "-5"),
        ("-(5)", "-(5)"), ("2 - -5", "2 - -5"), ("2 - (-x)", "2 - -x"), ("(-5)[0]", "(-5)[0]"),
        ("a - (b - c) - d", "a - (b - c) - d"), ("1..=10", "1 ..= 10"),
        ("{ 'a b': 1, c: [], }", "{ 'a b': 1, c: [] }"), ("`order`.`group`", "`order`.`group`"),
        ("person:`any text`", "person:`any text`"), ("x.*.y", "x[*].y"),
    ],
)  # fmt: skip
def test_parentheses_stand_only_where_they_are_needed(text: str, shown: str) -> None:
    assert print_expression(parse_expression(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "DEFINE USER ana ROLE owner PASSWORD 'hunter22'",
        "DEFINE USER ana ROLE owner PASSHASH 'hunter22' COMMENT 'c'",
        "ALTER USER ana SET PASSWORD 'hunter22'",
        "IF true { ALTER USER ana SET PASSWORD 'hunter22' }",
        "IF true { RETURN 1 } ELSE { ALTER USER ana SET PASSWORD 'hunter22' }",
        "FOR $x IN [1] { IF $x { DEFINE USER ana ROLE owner PASSWORD 'hunter22' } }",
        "LET $x = IF true { DEFINE USER ana ROLE owner PASSWORD 'hunter22' }",
        "RETURN IF true { DEFINE USER ana ROLE owner PASSWORD 'hunter22' }",
    ],
)
def test_a_redacted_statement_shows_no_secret_wherever_it_stands(text: str) -> None:
    (statement,) = parse(text).statements
    shown = redacted(statement)
    assert "hunter22" not in shown and "'...'" in shown
    assert "hunter22" not in repr(statement)
    assert type(parse(shown).statements[0]) is type(statement)
