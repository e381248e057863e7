"""Small texts that would cost much: each is refused by name, having computed next to nothing."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from language.budget import bounded
from language.lexer import statement_past, token_past
from language.parser import parse
from protocol import limits
from protocol.binary import pack
from protocol.errors import Refusal, TooLarge
from protocol.weights import weigh
from tests.language.surroundings import Tables

MIB = 1024 * 1024
LONG = "9" * 1_000_000

TEXTS = {
    "an int of a million digits": f"RETURN {LONG}",
    "a negative one": f"RETURN -{LONG}",
    "a float of a million digits": f"RETURN {LONG}.5",
    "a decimal of a thousand digits": f"RETURN {LONG[:1000]}dec",
    "a decimal with a huge exponent": "RETURN 1e1000000dec",
    "a decimal with an exponent of many digits": f"RETURN 1e{LONG[:1000]}dec",
    "a float with a huge exponent": f"RETURN 1e{LONG[:1000]}",
    "a record id of a million digits": f"RETURN t:{LONG}",
    "a duration of a million digits": f"RETURN {LONG}s",
    "parentheses": "RETURN " + "(" * 100_000,
    "brackets": "RETURN " + "[" * 100_000,
    "braces": "RETURN " + "{ a: " * 100_000,
    "signs": "RETURN " + "- " * 100_000 + "1",
    "negations": "RETURN " + "NOT " * 100_000 + "true",
    "columns": "SELECT " + "a, " * 100_000 + "b FROM t",
    "aggregates": "SELECT "
    + ", ".join(f"sum(a + {n})" for n in range(20_000))
    + " FROM t GROUP ALL",
    "groups": "SELECT count() FROM t GROUP BY " + "a, " * 100_000 + "b",
    "orders": "SELECT a FROM t ORDER BY " + "a, " * 100_000 + "b",
    "returned columns": "DELETE t RETURN " + "a, " * 100_000 + "b",
    "assignments": "UPDATE t SET " + "a = 1, " * 100_000 + "b = 1",
    "paths to unset": "UPDATE t UNSET " + "a, " * 100_000 + "b",
    "paths to leave out": "SELECT * OMIT " + "a, " * 100_000 + "b FROM t",
    "sources": "SELECT * FROM " + "t, " * 100_000 + "t",
    "endpoints": "DEFINE NODE ENDPOINTS " + "'a', " * 100_000 + "'a'",
    "a chain of conditions": "RETURN true" + " AND true" * 100_000,
    "a chain of sums": "RETURN 1" + " + 1" * 100_000,
    "a path": "RETURN $a" + ".a" * 100_000,
    "indexes": "RETURN $a" + "[0]" * 100_000,
    "blocks": "IF true { " * 100_000,
    "calls": "RETURN " + "string::len(" * 100_000,
    "subqueries": "RETURN " + "(SELECT * FROM " * 10_000,
    "unclosed quotes": "'\"" * 100_000 + "'",
    "unclosed comments": "RETURN 1 " + "/* " * 100_000,
    "backslashes": "RETURN '" + "\\" * 100_001,
}
VALUES = {
    "a power of ints": "math::pow(2, 9223372036854775807)",
    "a power of floats": "math::pow(1e300, 1e300)",
    "a power of decimals": "math::pow(9e6143dec, 9e6143dec)",
    "a power of a decimal near one": "math::pow(1.000000000000000000001dec, 9e30dec)",
    "an int of a decimal": "type::int(9e6143dec)", "a floor of a decimal": "math::floor(9e6143dec)",
    "an int of a text": f"type::int('{LONG}')", "a float of a text": f"type::float('{LONG}')",
    "a decimal of a text": f"type::decimal('{LONG}')",
    "a duration of a text": f"type::duration('{LONG}s')",
    "a record of a text": f"type::record('t:{LONG}')",
    "a product of decimals": "9e6143dec * 9e6143dec", "a range": "0..9223372036854775807",
    "a joined string": "string::join(0..3, $letters)", "a join": "string::join($many, $letters)",
    "a replacement": "string::replace($letters, 'a', $letters)",
    "a split": "string::split($letters + $letters, 'a')", "a doubled string": "$big + $big",
    "a pattern": f"'a' ~ '{'(' * 1000}'",
    "repetitions in a pattern": "'a' ~ '((a{1000}){1000}){1000}'",
    "a long pattern": f"'a' ~ '{'a?' * 600}'",
    "a pattern of many classes": r"'a' ~ '(?i)" + r"\\PL" * 65 + "'",
    "a pattern of many steps on a long text": "$letters ~ 'b[ab]{500}x'",
    "an ordinary pattern on a text of 9 MiB": "$big ~ 'y+z'",
    "a pattern of many steps on a long text of other letters": "$accents ~ '[^a]{200}x'",
    "a long format": f"time::format(time::now(), '{'%A' * 1000}')",
    "a long pad": "math::round(1.5dec, 9223372036854775807)",
}  # fmt: skip
VARIABLES: dict[str, Any] = {
    "letters": "a" * MIB, "many": ["x"] * 1000, "big": "x" * (9 * MIB), "accents": "é" * MIB,
}  # fmt: skip


def grown(work: Callable[[], Any], match: str | None = None) -> tuple[int, Refusal]:
    """The most bytes held at once while some work was refused, and the refusal."""
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match=match) as caught:
            work()
        return tracemalloc.get_traced_memory()[1], caught.value
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_that_would_cost_much_is_refused(text: str) -> None:
    assert grown(lambda: parse(text))[0] < 32 * MIB + 40 * len(text)


@pytest.mark.parametrize("text", ["RETURN [" + "1," * 600_000 + "1]", "1;" * 300_000])
def test_what_is_too_long_is_refused_before_much_is_made_of_it(text: str) -> None:
    held, refusal = grown(lambda: parse(text), match="a script has at most")
    assert held < 8 * MIB and isinstance(refusal, TooLarge)
    line, column = refusal.detail["line"], refusal.detail["column"]
    assert line == 1 and isinstance(column, int) and column > 500_000


@pytest.mark.parametrize(
    ("text", "tokens", "statements"),
    [
        ("", 0, 0), ("1;2;3", 5, 2), ("1;; ;2;", 6, 2), ("';';\"\\\";\";1", 5, 2), ("`;`;", 2, 1),
        ("--;\n1;/*;*/2;//;\n#;", 4, 2), ("a-b/c;", 6, 1), ("{1;2};", 6, 2), ("'open;;", 1, 0),
        ("/*;", 1, 0), ("-" + "1 - " * 1000 + "1;", 2003, 1), ("b';';u';'", 3, 1),
    ],
)  # fmt: skip
def test_tokens_and_statements_are_counted_as_they_are_parsed(
    text: str, tokens: int, statements: int
) -> None:
    for past, count in ((token_past, tokens), (statement_past, statements)):
        assert past(text, count, None) is None
        if count:
            at = past(text, count - 1, None)
            assert at is not None
            assert (text[at] == ";") or past is token_past
    for times in (1000, 5000):  # over the borders of what is read in one go
        assert token_past("1;" * times, 2 * times - 1, None) == 2 * times - 1
        assert statement_past("1;" * times, times - 1, None) == 2 * times - 1


@pytest.mark.parametrize(
    "text", ["'" * 100_001, "/*" * 100_000, "- /*;" * 30_000, "`" * 100_001, '"\\' * 100_000]
)
def test_counting_takes_linear_time_whatever_the_text_says(text: str) -> None:
    assert statement_past(text, 10**9, None) is token_past(text, 10**9, None) is None


@pytest.mark.parametrize("text", VALUES.values(), ids=VALUES.keys())
def test_a_value_that_would_cost_much_is_refused(text: str) -> None:
    env = Tables()
    assert grown(lambda: env.value(text, **VARIABLES))[0] < 32 * MIB


def test_the_rest_of_decimals_far_apart_takes_no_more_digits_than_theirs() -> None:
    env = Tables()
    assert env.value("9e6143dec % 7e-6000dec") == Decimal("3e-6000")


def test_patterns_take_linear_time_whatever_they_say() -> None:
    env = Tables()
    assert env.value("$x ~ '(a+)+(a+)+(a+)+b'", x="a" * 100_000) is False
    assert env.value("$x ~ '^(a|aa)+$'", x="a" * 100_000 + "b") is False


def test_others_get_their_turn_before_each_match_that_takes_long() -> None:
    """One call is as long as it is; however many of them, KILL and TIMEOUT come in between."""
    text = "ab" * 8000
    env = Tables(t=[{"text": text}] * 100)
    before = env.ticks
    env.value("(SELECT VALUE id FROM t WHERE text ~ 'b[ab]{500}x')")
    assert env.ticks - before >= 100
    before = env.ticks
    env.value("array::map($texts, |$text| $text ~ 'b[ab]{500}x')", texts=[text] * 100)
    assert env.ticks - before >= 100


@pytest.mark.parametrize(
    "call",
    [
        "string::upper(v)",
        "string::split(v, 'a')",
        "crypto::sha256(v)",
        "string::replace(v, 'a', '')",
    ],
)
def test_others_get_their_turn_before_each_call_on_a_long_text(call: str) -> None:
    """A batch of rows of a megabyte each took seconds, and no TIMEOUT came in between."""
    env = Tables(batch=100, t=[{"v": "ab" * 10_000}] * 100)
    env.value(f"(SELECT VALUE id FROM t WHERE {call} = 'x')")
    assert env.ticks >= 100
    env = Tables(batch=100, t=[{"v": "ab"}] * 100)
    env.value(f"(SELECT VALUE id FROM t WHERE {call} = 'x')")
    assert env.ticks < 100


def test_what_a_pattern_refuses_says_how_long_a_text_may_be() -> None:
    with pytest.raises(TooLarge, match=r"at most [0-9]+ bytes, this one has 1048576") as caught:
        Tables().value("$x ~ 'b[ab]{500}x'", x="a" * MIB)
    assert caught.value.detail["size"] == MIB


def test_the_rig_catches_a_number_that_is_computed_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(text: str, negative: bool) -> Any:
        held = [text] * (8 * MIB)
        return len(held) and int(Decimal(text[:10]))

    monkeypatch.setattr("language.parsing.literals._integer", careless)
    with pytest.raises(pytest.fail.Exception):
        grown(lambda: parse(f"RETURN {LONG}"))


def doubled(times: int) -> Any:
    value: Any = [1]
    for _ in range(times):
        value = [value, value]
    return value


def test_a_value_that_holds_itself_many_times_is_weighed_in_as_many_steps() -> None:
    assert bounded(doubled(10)) == doubled(10)
    with pytest.raises(TooLarge):
        bounded(doubled(50))
    with pytest.raises(TooLarge):
        bounded({"a": [doubled(40)] * 1000})
    assert weigh(doubled(60)) > 2**60


def test_a_value_that_grew_deep_is_refused_before_anything_recurses_into_it() -> None:
    value: Any = 1
    for depth in range(1, 100):
        value = {"a": value} if depth % 2 else [value]
        if depth <= 64:
            assert bounded(value) is value
        else:
            with pytest.raises(TooLarge):
                bounded(value)


def test_subqueries_that_double_their_rows_are_refused() -> None:
    text = "[1]"
    for _ in range(28):
        text = f"(SELECT VALUE [$this, $this] FROM {text})"
    with pytest.raises(TooLarge):
        Tables().value(text)


def test_packed_values_of_a_text_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs one token, and an empty array in it a byte: a text of 15 MB took 790 MB."""
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES", MIB)
    packed = f"m'{base64.b64encode(pack([[]] * 5_000)).decode()}'"
    assert len(parse(f"RETURN [{packed}, {packed}]; RETURN {packed}").statements) == 2
    for text in (f"RETURN [{', '.join([packed] * 4)}]", f"RETURN {packed};\n" * 4):
        with pytest.raises(TooLarge, match="packed values") as caught:
            parse(text)
        assert caught.value.detail["limit"] == MIB
        assert caught.value.detail["line"] == (1 if "[" in text else 4)
