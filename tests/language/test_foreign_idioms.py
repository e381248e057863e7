"""What a refused text was perhaps to say."""

from __future__ import annotations

import re

import pytest

from language.parser import parse
from language.parsing import foreign_idioms
from protocol.errors import Refusal, UnexpectedToken, Unknown

MEANT = re.compile(r"; did you mean (.*)\? \(line ")


def meant(text: str) -> str | None:
    """What the refusal of a text supposes."""
    with pytest.raises(UnexpectedToken) as caught:
        parse(text)
    found = MEANT.search(caught.value.message)
    return None if found is None else found[1]


@pytest.mark.parametrize(
    "text, supposed",
    [
        ("SELECT * FROM t WHERE a == 1", "`a = b`"),
        ("SELECT * FROM t WHERE a <> 1", "`a != b`"),
        ("SELECT * FROM t WHERE a = 1 && b = 2", "`AND`"),
        ("SELECT * FROM t WHERE a = 1 || b = 2", "`OR`, or `+` between strings"),
        ("SELECT * FROM t WHERE !a", "`NOT`"),
        ("SELECT * FROM t WHERE a IS NOT NULL", "`x = NULL`, or `x = NONE` for what is absent"),
        (
            "SELECT * FROM t WHERE a like 'b%'",
            "`x ~ '^a'` or `string::starts(x, 'a')`, which both use an index, or `x CONTAINS 'a'`",
        ),
        (
            "SELECT * FROM t WHERE a BETWEEN 1 AND 9",
            "`x IN 1..=9` of ints, or `x >= 1 AND x <= 9`",
        ),
        (
            "SELECT IF a THEN 1 ELSE 2 END FROM t",
            "`IF c { … }`, or `CASE WHEN c THEN … END`",
        ),
        ("SELECT count(*) FROM t", "`count()` with GROUP ALL or GROUP BY"),
        (
            "SELECT a FROM t UNION SELECT a FROM u",
            "`SELECT … FROM a, b`, or `(SELECT …) + (SELECT …)`",
        ),
        (
            "INSERT INTO t { a: 1 } ON CONFLICT DO NOTHING",
            "`INSERT INTO t … ON DUPLICATE UPDATE SET …`, or `… IGNORE`",
        ),
        ("SELECT owner->name FROM t", "a path through a link: `a.b.name`"),
        ("SELECT * FROM t:1->likes->t", "a path through a link: `a.b.name`"),
        ("SELECT * FROM t LIMIT 1 OFFSET 2", "`START n`"),
        ("LET $a += 1", "`a = a + 1`"),
        ("INSERT INTO t (a) VALUES (1)", "`INSERT INTO t [{ a: 1 }]`"),
        ("DELETE FROM t WHERE a = 1", "`DELETE t`"),
        ("DEFINE INDEX i ON t COLUMNS a", "`FIELDS`"),
        ("REMOVE TABLE t", "`DROP`"),
        ("BEGIN; ROLLBACK", "`CANCEL`"),
        ("LIVE SELECT * FROM t", "a change feed, `GET /watch?table=t` or the client's `watch`"),
        (
            "SELECT sum(a) OVER (PARTITION BY b) FROM t",
            "`GROUP BY`; there are no window functions",
        ),
        ("WITH r AS (SELECT 1) SELECT * FROM r", "`LET $rows = (SELECT …)` before the statement"),
        (
            "DEFINE EVENT e ON t WHEN true THEN 1",
            "`ALTER TABLE t SET ON CHANGE PUBLISH INTO topic`",
        ),
        (
            "CREATE VIEW v AS SELECT * FROM t",
            "`LET $rows = (SELECT …)` in a script, or `DEFINE FUNCTION`",
        ),
        ("SETEX k 10 v", "`SET 'key' IN space VALUE … EXPIRE 1m`"),
        ("XREADGROUP GROUP g c STREAMS s", "`TAKE FROM topic AS group`"),
        ("SELCT * FROM t", "`SELECT`"),
        ("IF true { UPDTE t SET a = 1 }", "`UPDATE`"),
    ],
)
def test_other_ways_to_say_it_are_known(text: str, supposed: str) -> None:
    assert meant(text) == supposed


@pytest.mark.parametrize(
    "text, supposed",
    [
        ("INSERT INTO t VALUES (1, 2)", "`INSERT INTO t [{ a: 1 }]`"),
        ("RETURN now()", "time::now"),
        ("RETURN upper('a')", "string::upper"),
        ("SELECT avg(a) FROM t GROUP ALL", "mean"),
        ("SELECT coalesce(a, b) FROM t", "`a ?? b`"),
        ("RETURN string::length('a')", "string::len"),
        ("RETURN array::concat([1], [2])", "`a + b`"),
        ("RETURN array::union([1], [2])", "`array::distinct(a + b)`"),
        ("RETURN rand::string(10)", "`type::string(rand::uuid())`"),
    ],
)
def test_other_names_of_functions_are_known(text: str, supposed: str) -> None:
    with pytest.raises(Unknown, match=re.escape(f"; did you mean {supposed}? (line 1")):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE a = 1 AN b = 2", "XYZZY", "SELECT * FROM t WHERE a =", "DELETE t t",
        "DEFINE USER u ROLE owner PASSWORD like", "S" * 100_000,
    ],
)  # fmt: skip
def test_otherwise_nothing_is_supposed(text: str) -> None:
    assert meant(text) is None


def test_what_is_known_elsewhere_may_name_things_here() -> None:
    for word in foreign_idioms._WORDS:
        try:
            parse(f"DEFINE TABLE {word}; SELECT {word} FROM {word} WHERE {word} = 1")
        except Refusal as refusal:
            pytest.fail(f"{word}: {refusal.message}")
