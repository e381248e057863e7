from __future__ import annotations

import pytest

from language import tree
from language.lexer import Tokens
from language.parser import parse, parse_expression
from language.printing import print_script
from protocol import limits
from protocol.errors import (
    BadRequest,
    NameRefused,
    NumberTooLarge,
    Refusal,
    TooLarge,
    TypeRefused,
    UnexpectedToken,
    Unknown,
)
from tests.tables import case


def refusal(text: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(text)
    return caught.value


def test_a_refusal_says_what_was_found_and_expected_and_shows_where() -> None:
    found = refusal("SELECT *\n  FROM t WHERE a = 1 AN b = 2")
    assert isinstance(found, UnexpectedToken)
    assert found.detail == {
        "found": "`AN`", "expected": "`;` or the end of the statement", "line": 2, "column": 22,
        "near": "FROM t WHERE a = 1 AN b = 2\n" + " " * 19 + "^",
    }  # fmt: skip
    assert found.message == (
        "found `AN`, expected `;` or the end of the statement (line 2, column 22)\n"
        "FROM t WHERE a = 1 AN b = 2\n                   ^"
    )


@pytest.mark.parametrize(
    "text, kind, line, column",
    [
        ("", None, 0, 0), ("SELECT FROM t", UnexpectedToken, 1, 8),
        ("SELEC * FROM t", UnexpectedToken, 1, 1), ("SELECT a, FROM t", UnexpectedToken, 1, 11),
        ("RETURN 1 = 2 = 3", UnexpectedToken, 1, 14), ("RETURN 1..2..3", UnexpectedToken, 1, 12),
        ("RETURN 'abc", UnexpectedToken, 1, 8), ("RETURN 1;\n/* no end", UnexpectedToken, 2, 1),
        ("RETURN 12ab", UnexpectedToken, 1, 8), ("RETURN d'yesterday'", UnexpectedToken, 1, 8),
        ("RETURN u'short'", UnexpectedToken, 1, 8), ("RETURN b'?'", UnexpectedToken, 1, 8),
        ("RETURN '\\u{110000}'", BadRequest, 1, 8),
        ("RETURN 9223372036854775808", NumberTooLarge, 1, 8),
        ("RETURN 1e999", NumberTooLarge, 1, 8), ("RETURN 1e9999dec", NumberTooLarge, 1, 8),
        ("RETURN nothing::like(1)", Unknown, 1, 8), ("RETURN string::len(1, 2)", BadRequest, 1, 8),
        ("DEFINE TABLE " + "a" * 65, NameRefused, 1, 14),
        ("DEFINE TABLE `a b`", NameRefused, 1, 14), ("DEFINE NODE", UnexpectedToken, 1, 12),
        ("DEFINE USER ana ROLE owner", UnexpectedToken, 1, 27),
        ("INFO FOR HISTORY t:1", UnexpectedToken, 1, 18),
        ("INFO FOR HISTORY OF", UnexpectedToken, 1, 20),
        ("INFO FOR HISTORY OF t:1..5", UnexpectedToken, 1, 27),
        ("CREATE t:1..5", UnexpectedToken, 1, 8), ("CREATE t: 1", UnexpectedToken, 1, 11),
        ("UPSERT t SET a = 1", UnexpectedToken, 1, 8),
        ("UPDATE t:1 WHERE a", UnexpectedToken, 1, 12), ("DELETE t:1..=", UnexpectedToken, 1, 14),
        ("SELECT * FROM t TIMEOUT 0s", UnexpectedToken, 1, 25),
        ("SELECT VALUE * FROM t", UnexpectedToken, 1, 14),
        ("SELECT VALUE a, b FROM t", UnexpectedToken, 1, 15),
        ("IF true { RETURN 1", UnexpectedToken, 1, 19), ("RETURN 1 }", UnexpectedToken, 1, 10),
        ("RETURN 1,;", UnexpectedToken, 1, 9), (";, RETURN 1", UnexpectedToken, 1, 2),
        ("RETURN true OR , false", UnexpectedToken, 1, 16),
        ("RETURN " + "a::" * 1000 + "b()", UnexpectedToken, 1, 210),
        ("RETURN { a: 1 } RETURN 2", UnexpectedToken, 1, 17),
        ("\ufeffRETURN 'a\nb' x", UnexpectedToken, 2, 4),
        ("DROP TABLE t REASON '" + "x" * 501 + "'", TooLarge, 1, 21),
        ("RETURN '\ud800'", TypeRefused, 1, 9),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_where_it_stands(
    text: str, kind: type[Refusal] | None, line: int, column: int
) -> None:
    if kind is None:
        assert parse(text).statements == ()
        return
    found = refusal(text)
    assert type(found) is kind
    assert (found.detail["line"], found.detail["column"]) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        "DEFINE USER ana 'hunter22'",
        "DEFINE USER ana ROLE owner PASSWORD 'hunter22",
        "DEFINE USER ana ROLE owner PASSWORD hunter22",
        "DEFINE USER ana ROLE owner PASSHASH `hunter22` x",
        "DEFINE USER ana ROLE owner PASSWORD 22hunter22",
        "ALTER USER ana SET PASSWORD 'hunter22' oops",
        "-- don't\nALTER USER ana SET PASSWORD 'hunter22' oops",
        "ALTER USER ana SET PASSWORD\n'x\nhunter22' oops",
        "RETURN 1; ALTER USER ana SET PASSWORD \"hunter22\" + 'hunter22'",
        "ALTER USER ana SET 'hunter22' PASSWORD /* 'hunter22' */ x",
    ],
)
def test_a_refusal_shows_no_string_of_a_text_about_passwords(text: str) -> None:
    found = refusal(text)
    assert "hunter22" not in str(found) and "hunter22" not in repr(found.answer())


def test_other_texts_show_their_strings() -> None:
    assert "`'abc'`" in refusal("RETURN 1 'abc'").message


@pytest.mark.parametrize(
    "text",
    ["[" * 65 + "]" * 65, "(" * 65 + "1" + ")" * 65, "NOT " * 65 + "true", "- " * 65 + "x",
     "{ a: " * 65 + "1" + "}" * 65, "1" + " + 1" * 200, "a" + ".b" * 200, "$a" + "[0]" * 200,
     "(SELECT VALUE " * 65 + "1" + " FROM t)" * 65, "string::len(" * 65 + "1" + ")" * 65],
)  # fmt: skip
def test_depth_is_bounded_by_a_named_error(text: str) -> None:
    assert isinstance(refusal(f"RETURN {text}"), TooLarge)


def test_blocks_are_bounded_too() -> None:
    assert isinstance(refusal("IF true { " * 65 + "}" * 65), TooLarge)
    parse("IF true { " * 64 + "}" * 64)


def test_as_deep_as_values_may_be_is_allowed_and_printed_back() -> None:
    value, blocks = "[" * limits.DEPTH + "]" * limits.DEPTH, limits.NESTING - limits.DEPTH
    row = value.replace("[", "{ a: ", 1)[:-1] + "}"
    for text in (
        f"RETURN {value}",
        f"INSERT INTO t [{row}, {row}]",
        "IF true { " * blocks + f"RETURN {value}" + "}" * blocks,
        "RETURN " + "string::len(" * blocks + value + ")" * blocks,
        "RETURN " + "string::len(" * 64 + "[" * 32 + "]" * 32 + ")" * 64,
    ):
        with case(text):
            script = parse(text)
            assert parse(print_script(script)) == script
    for text in (
        f"RETURN [{row}, [{value}]]",
        f"INSERT INTO t [[{row}]]",
        "IF true { " * (blocks + 1) + f"RETURN {value}" + "}" * (blocks + 1),
    ):
        with case(text):
            assert isinstance(refusal(text), TooLarge)


def test_long_chains_of_conditions_are_no_depth() -> None:
    text = " OR ".join(f"a = {n} AND b = {n}" for n in range(5000))
    node = parse_expression(text)
    height, level = 0, [node]
    while level:
        level = [
            part for one in level if isinstance(one, tree.Binary) for part in (one.left, one.right)
        ]
        height += 1
    assert height < 20


def test_a_script_longer_than_its_limit_is_refused() -> None:
    assert isinstance(refusal("-- " + "x" * limits.SCRIPT_BYTES), TooLarge)


def test_a_long_text_is_parsed_in_slices() -> None:
    ticks: list[int] = []
    rows = ", ".join(f"{{ a: {n}, b: 'text' }}" for n in range(20_000))
    script = parse(f"INSERT INTO t [{rows}]", lambda: ticks.append(1))
    (statement,) = script.statements
    assert isinstance(statement, tree.Insert) and isinstance(statement.rows, tree.Array)
    assert len(statement.rows.items) == 20_000 and len(ticks) > 50


def test_names_of_clauses_may_name_fields_and_tables() -> None:
    parse("SELECT order, group, limit, start, value FROM order ORDER BY order LIMIT 1 START 2")
    (statement,) = parse("SELECT value FROM t").statements
    assert isinstance(statement, tree.Select) and not statement.value
    (statement,) = parse("SELECT value - 1 FROM t").statements
    assert isinstance(statement, tree.Select) and not statement.value
    (statement,) = parse("SELECT VALUE -1 FROM t").statements
    assert isinstance(statement, tree.Select) and statement.value
    (statement,) = parse("SELECT VALUE value FROM t").statements
    assert isinstance(statement, tree.Select) and statement.value


def test_comments_and_keywords_in_any_case() -> None:
    text = "-- one\n// two\n# three\n/* four\n* */ select * FrOm t /**/ wHeRe a"
    (statement,) = parse(text).statements
    assert isinstance(statement, tree.Select)
    assert statement.at == text.index("select")


def test_blocks_need_no_semicolon_after_them() -> None:
    script = parse("IF true { RETURN 1 } FOR $x IN [1] { } LET $y = IF true { 1 } RETURN 2;;")
    assert [type(one).__name__ for one in script.statements] == [
        "If", "For", "Let", "ReturnStatement",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1", "[1, 2]", "a.b", "$x", "'x'", "t:1", "string::len('x')"])
def test_a_long_text_is_read_piece_by_piece_without_a_seam(text: str) -> None:
    whole = parse(";".join(f"({text})" for _ in range(5000)))
    assert len(whole.statements) == 5000 and len(set(whole.statements)) == 1
    padded = parse(f"({text}) {';' * 20_000} ({text})")
    assert len(padded.statements) == 2


def test_a_text_that_is_wrong_at_its_head_is_not_read_to_its_end() -> None:
    ticks: list[int] = []
    with pytest.raises(UnexpectedToken):
        parse("RETURN )" + " x" * 1_000_000, lambda: ticks.append(1))
    assert len(ticks) < 10, "it is searched for secrets, which is quick, and not read"


def test_tokens_after_one_that_is_bad_are_not_read() -> None:
    assert len(Tokens("'" + "/* " * 100_000).kinds) == 2
    assert len(Tokens("/* " * 100_000).kinds) == 2


def test_every_position_is_found_in_a_text_of_many_lines() -> None:
    tokens = Tokens("a\n\n b\r\nc")
    assert [tokens.place(start) for start in tokens.starts] == [(1, 1), (3, 2), (4, 1), (4, 2)]


@pytest.mark.parametrize("text", ["1;", "IF true { 1; 1; 1 }"])
def test_a_script_has_so_many_statements_and_no_more(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protocol.limits.STATEMENTS", 8)
    parse(text * 2)
    with pytest.raises(TooLarge) as caught:
        parse(text * 9)
    column = caught.value.detail["column"]
    assert isinstance(column, int) and column > 1


@pytest.mark.parametrize("form", ["{}", "[{}]", "{{ a: [{}] }}", "sum({})", "t:[{}]", "a = {}"])
def test_trees_are_told_apart_by_the_types_of_their_constants(form: str) -> None:
    alike = ["1", "true", "1.0", "1dec", "1.0dec"]
    trees = [parse_expression(form.format(text)) for text in alike]
    for number, one in enumerate(trees):
        assert [one == other for other in trees] == [number == n for n in range(len(trees))]
    assert parse_expression(form.format("0.0")) != parse_expression(form.format("-0.0"))
    assert parse_expression(form.format("1.50dec")) == parse_expression(form.format("1.50dec"))
