"""Work on large values and in wide expressions is charged for as it is done: each function of the
language goes through a large argument in pieces, or is one quick call of the interpreter's own."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from types import FrameType
from typing import Any, Final
from uuid import UUID

import pytest

from actors.execution.fiber import ITEMS_A_US
from language import patterns
from language.charges import STRETCH, WIDE, charged, cost_of_nodes
from language.closures import Closure
from language.compile import compile_expression
from language.functions import TABLE
from language.names import NODE, Numbers, shape_of
from language.parser import parse_expression
from language.pieces import PIECE, SLICE, find, parts
from language.planning import CHARGES
from language.rows import SLOTS, WHOLE
from language.search.fields import TextOf
from protocol import limits
from protocol.errors import BadRequest, Cancelled, Refusal, TooLarge
from protocol.text import format_value, pieces
from protocol.values import NONE, PACE, check_record_id
from tests.language.surroundings import Tables
from tests.tables import case

MANY: Final = 12
"""Pieces of a text."""
SLICES: Final = 26
"""Slices of an array or object."""
TEXT: Final = "aΐΣ 'b" * (MANY * PIECE // 6)
BLANK: Final = " " * (MANY * PIECE)
ITEMS: Final[list[Any]] = list(range(SLICES * SLICE))
NAMES: Final[list[Any]] = [f"n{n}" for n in ITEMS]
FIELDS: Final[dict[str, Any]] = dict.fromkeys(NAMES, 1)
VECTOR: Final[list[Any]] = [1.5] * limits.DIMENSIONS
MARKED: Final = TextOf(("body",), TEXT)
ROWS: Final = [{"id": n} for n in ITEMS]
MOMENT: Final = datetime(2026, 11, 29, tzinfo=UTC)

AT_ONCE: Final = 1
"""Looks at the clock of a function that does one thing, quick however large its argument is."""

FUNCTIONS: Final[dict[str, tuple[tuple[Any, ...], int]]] = {
    "array::all": ((ITEMS, "|true|"), SLICES), "array::any": ((ITEMS, "|false|"), SLICES),
    "array::distinct": ((ITEMS,), SLICES), "array::filter": ((ITEMS, "|true|"), SLICES),
    "array::find": ((ITEMS, "|false|"), SLICES), "array::first": ((ITEMS,), AT_ONCE),
    "array::flatten": (([ITEMS, *ITEMS],), SLICES), "array::fold": ((ITEMS, 1, "|true|"), SLICES),
    "array::last": ((ITEMS,), AT_ONCE), "array::len": ((ITEMS,), AT_ONCE),
    "array::map": ((ITEMS, "|true|"), SLICES),
    "array::push": ((ITEMS * 4, 1), 4 * len(ITEMS) // PIECE),
    "array::slice": ((ITEMS * 4, 1, -1), 4 * len(ITEMS) // PIECE),
    "array::sort": ((ITEMS, True), SLICES),
    "collect": ((ITEMS,), SLICES), "count": ((ITEMS,), SLICES),
    "count_distinct": ((ITEMS,), SLICES),
    "crypto::md5": ((TEXT,), MANY), "crypto::sha256": ((TEXT.encode(),), MANY),
    "first": (([None] * len(ITEMS),), SLICES), "last": ((ITEMS,), SLICES),
    "max": ((ITEMS,), SLICES),
    "mean": ((ITEMS,), SLICES), "median": ((ITEMS,), SLICES), "min": ((NAMES,), SLICES),
    "object::keys": ((FIELDS,), SLICES), "object::merge": ((FIELDS, FIELDS), 2 * SLICES),
    "object::omit": ((FIELDS, NAMES), 3 * SLICES - 2),
    "object::pick": ((FIELDS, NAMES), 2 * SLICES - 1),
    "object::values": ((FIELDS,), SLICES), "stddev": ((ITEMS,), SLICES),
    "search::all": ((ITEMS,), AT_ONCE), "search::any": ((ITEMS,), AT_ONCE),
    "search::analyze": (("plain", TEXT), MANY),
    "search::fuzzy": ((TEXT, 1), AT_ONCE), "search::matches": ((TEXT, "b", "plain"), MANY),
    "search::not": ((TEXT,), AT_ONCE), "search::phrase": ((TEXT, 0), AT_ONCE),
    "search::prefix": ((TEXT,), AT_ONCE), "search::boost": ((TEXT, 2), AT_ONCE),
    "search::score": ((TEXT,), AT_ONCE), "search::highlight": ((MARKED,), MANY),
    "search::snippet": ((MARKED,), MANY), "search::offsets": ((MARKED,), MANY),
    "search::rrf": (([ROWS],), 2 * SLICES),
    "string::contains": ((TEXT, "zz"), MANY - 1), "string::ends": ((TEXT, TEXT), AT_ONCE),
    "string::join": ((NAMES, "-"), 2 * SLICES - 1), "string::len": ((TEXT,), AT_ONCE),
    "string::lower": ((TEXT,), MANY), "string::replace": ((TEXT, "b", "cd"), MANY),
    "string::slice": ((TEXT, 1, -1), AT_ONCE), "string::split": ((TEXT, "Σ"), MANY),
    "string::starts": ((TEXT, TEXT), AT_ONCE), "string::trim": ((BLANK,), MANY),
    "string::upper": ((TEXT,), MANY), "sum": ((ITEMS,), SLICES),
    "type::datetime": ((TEXT,), AT_ONCE), "type::decimal": (("9" * len(TEXT),), AT_ONCE),
    "type::duration": ((TEXT,), AT_ONCE), "type::float": (("9" * len(TEXT),), AT_ONCE),
    "type::int": (("9" * len(TEXT),), AT_ONCE), "type::of": ((ITEMS,), AT_ONCE),
    "type::record": (("t", ITEMS), AT_ONCE), "type::string": ((["'" * len(TEXT)],), MANY),
    "time::add": ((MOMENT, 1, TEXT), AT_ONCE), "time::diff": ((MOMENT, MOMENT, TEXT), AT_ONCE),
    "time::format": ((MOMENT, TEXT), AT_ONCE), "time::parse": ((TEXT,), AT_ONCE),
    "time::trunc": ((MOMENT, TEXT), AT_ONCE),
    "vector::cosine": ((VECTOR, VECTOR), 8), "vector::dot": ((VECTOR, VECTOR), 6),
    "vector::euclidean": ((VECTOR, VECTOR), 6),
}  # fmt: skip
"""Of each function a large argument, and how often it looks at the clock at least."""
SMALL: Final = frozenset({"bool", "int", "number", "datetime", "duration", "uuid", "record"})
"""Kinds of arguments that are never large."""
LONGEST: Final = (SLICES - 2) * SLICE
"""Steps of the interpreter between two looks at the clock: fewer than there are items."""


class Watched(Tables):
    """Counts the steps between two looks at the clock, and may be ended at one of them."""

    ends_at = 0

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.longest = 0

    def tick(self, cost: int = PACE) -> None:
        before = self.ticks
        super().tick(cost)
        if self.ticks > before:
            self.longest, self.steps = max(self.longest, self.steps), 0
            if self.ticks == self.ends_at:
                raise Cancelled("killed")

    def call(self, name: str, arguments: list[Any]) -> Any:
        """Call a function of the language, whatever it answers or refuses."""
        outer = sys.gettrace()
        sys.settrace(self._entered)
        try:
            TABLE[name].run(self, *arguments)
        except Cancelled:
            raise
        except Refusal:
            pass
        finally:
            sys.settrace(outer)
        self.longest = max(self.longest, self.steps)

    def _entered(self, frame: FrameType, event: str, found: Any) -> Any:
        self.steps += 1
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, found: Any) -> Any:
        self.steps += 1
        return self._stepped


def arguments(env: Tables, given: tuple[Any, ...]) -> list[Any]:
    """The arguments of a function, with closures for what stands between bars."""
    names = ("x", "y")[: len(given) - 1]
    return [
        Closure(names, partial(_answer, one == "|true|"), None, env, 64)
        if type(one) is str and one[:1] == "|"
        else one
        for one in given
    ]


def _answer(answer: bool, row: Any, env: Any) -> bool:
    return answer


def test_every_function_that_takes_what_may_be_large_is_looked_at() -> None:
    small = {
        name for name, one in TABLE.items() if SMALL.issuperset(p.kind for p in one.parameters)
    }
    assert set(FUNCTIONS) == set(TABLE) - small


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gives_way_within_a_large_argument(name: str) -> None:
    given, looks = FUNCTIONS[name]
    env = Watched()
    env.call(name, arguments(env, given))
    assert env.ticks >= looks and env.longest < LONGEST
    if env.ticks:
        ended = Watched()
        ended.ends_at = env.ticks
        with pytest.raises(Cancelled):
            ended.call(name, arguments(ended, given))


def test_a_function_charges_for_what_it_makes_of_few_arguments() -> None:
    env = Watched()
    env.variables["text"] = TEXT
    call = "array::len([string::join([$text, 'x'], '')])"
    env.value(f"[{', '.join([call] * 20)}]")
    assert env.ticks >= 20


TWIN: Final = TEXT[:-1] + TEXT[-1]
OPERATORS: Final = {
    "$text = $twin": AT_ONCE, "$text < $twin": AT_ONCE, "[$text, $text] = [$twin, $twin]": 2,
    "$text + $twin": AT_ONCE, "$four + $four": 8 * len(ITEMS) // PIECE,
    "'Σa' IN $text": MANY - 1, "$text CONTAINS $twin": AT_ONCE, "-1 IN $items": SLICES,
    "'-' IN $eight": 8 * SLICES - 2, "$fields.*": SLICES - 1, "$items[*].a": SLICES,
    "$items.a": SLICES,
    "0..100000": 100_000 // PIECE, "$text ~ 'x$'": AT_ONCE, "$fields = $fields": SLICES,
    "$items = $items": SLICES, "$items < $items": SLICES, "$fields < $fields": SLICES,
    "min([$items, $items])": SLICES, "$items ?? 1": 0, "$items[3]": 0,
}  # fmt: skip
"""How often an operator on large values looks at the clock at least."""


def test_operators_on_large_values_give_way() -> None:
    for text, looks in OPERATORS.items():
        with case(text):
            env = Watched()
            env.variables.update(
                text=TEXT, twin=TWIN, items=ITEMS, four=ITEMS * 4, eight=NAMES * 8, fields=FIELDS
            )
            env.value(text)
            assert env.ticks >= looks


WIDE_EXPRESSIONS: Final = {
    "an array of calls": "[" + ", ".join(["string::len(s)"] * 2000) + "]",
    "arrays in arrays": "[" + ", ".join(["[n, [n, n], {a: n}]"] * 1000) + "]",
    "an object": "{" + ", ".join(f"a{n}: n" for n in range(4000)) + "}",
    "OR": " OR ".join(f"n = -{n + 1}" for n in range(1500)),
    "sums": "[" + ", ".join([" + ".join(["n"] * 30)] * 100) + "]",
    "branches": "CASE "
    + " ".join(f"WHEN n = -1 OR n = -2 THEN {n}" for n in range(900))
    + " END",
}  # fmt: skip


@pytest.mark.parametrize("what", WIDE_EXPRESSIONS)
def test_a_wide_expression_gives_way_within_one_row(what: str) -> None:
    """Of one row closures are called, of many code is generated, for as much as is compiled
    quickly."""
    for select, rows in (
        ("SELECT VALUE {} FROM t", 1),
        ("SELECT VALUE n FROM t WHERE [{}] = 1", 70),
    ):
        env = Tables(batch=512, t=[{"n": 1, "s": "x"}] * rows)
        env.run(select.format(WIDE_EXPRESSIONS[what]))
        assert env.ticks >= rows * 4000 // PACE - 1


def test_rows_of_wide_columns_give_way() -> None:
    env = Tables(batch=512, t=[{"n": 1}] * 100)
    columns = ", ".join(f"n + {number} AS c{number}" for number in range(100))
    (*_, last) = env.run(f"SELECT {columns} FROM t")
    assert last == {f"c{number}": 1 + number for number in range(100)}
    assert env.ticks >= 100 * 100 * 2 // PACE


def test_a_short_expression_is_charged_for_by_nobody() -> None:
    env = Tables(batch=512, t=[{"n": n, "s": "x"} for n in range(512)])
    env.run("SELECT n + 1 AS m, string::upper(s) AS s FROM t WHERE n > 5 AND s = 'x'")
    assert env.ticks <= 2, "for the batch, and between its rows"
    expression = parse_expression("[a + 1, string::len(b), c.d[0]]")
    assert charged(expression) is expression
    assert cost_of_nodes(expression) < WIDE < STRETCH


def test_a_tree_is_charged_for_while_it_is_compiled() -> None:
    env = Tables()
    node = parse_expression(WIDE_EXPRESSIONS["OR"])
    outer = CHARGES.set(env.tick)
    try:
        before = env.ticks
        compile_expression(node, shape_of(node))
    finally:
        CHARGES.reset(outer)
    assert env.ticks - before >= 3 * 4000 * NODE // PACE


def test_rows_of_many_fields_are_objects() -> None:
    """To make a class with thousands of slots takes long, in one go."""
    wide = " OR ".join(f"f{n} = 1" for n in range(SLOTS + 1))
    assert shape_of(parse_expression(wide)) is WHOLE
    assert not shape_of(parse_expression(wide.partition(" OR ")[2])).whole
    env = Tables(t=[{f"f{n}": 1} for n in (0, SLOTS, SLOTS + 1)])
    assert len(env.run(f"SELECT f0 FROM t WHERE {wide}")) == 2


def test_a_pattern_is_compiled_once_and_charged_for() -> None:
    env = Tables(t=[{"s": f"name {n}"} for n in range(2 * patterns.PATTERNS_KNOWN)])
    of_each = "SELECT VALUE s FROM t WHERE s ~ string::join(['^', s, '$'], '')"
    assert len(env.run(of_each)) == 2 * patterns.PATTERNS_KNOWN
    assert env.ticks >= 2 * patterns.PATTERNS_KNOWN
    assert len(patterns._known) <= patterns.PATTERNS_KNOWN
    before = env.ticks
    for _ in range(3):
        with pytest.raises(BadRequest, match="not a pattern"):
            env.value("'a' ~ '(a'")
    assert env.ticks == before + 1, "why it is none is remembered"


def test_what_takes_long_in_one_call_is_charged_for_before_it_begins() -> None:
    charged: list[int] = []
    patterns.pattern("ab", charged.append)
    for _ in range(2):
        match = patterns.pattern(r"(?i)\PL{2}" + r"\pN" * 63, charged.append)
    assert match("a 1", charged.append) is False
    assert charged[0] < limits.SLICE_US * ITEMS_A_US < charged[1]
    assert len(charged) == 3, "for each that is compiled, and for the match"
    steps = patterns.pattern("b[ab]{500}x", lambda cost: None)
    assert steps("ab" * 8000, charged.append) is False
    assert charged[3] > limits.SLICE_US * ITEMS_A_US


@pytest.mark.parametrize("part", ["a", "ab", "aab", "ba" * 20, "b" * 30, "abcd" * PIECE, "Σ"])
def test_texts_in_pieces_are_what_they_are_whole(part: str) -> None:
    env = Tables()
    texts = [
        "aab" * PIECE,
        "a" * (PIECE - 1) + part + "ba" * PIECE + part,
        part * (PIECE // len(part) + 2),
    ]
    for text in texts:
        assert find(text, part, env) == text.find(part)
        assert [one for some in parts(text, part, env) for one in some] == text.split(part)
        assert env.value("string::replace($t, $p, 'xyz')", t=text, p=part) == text.replace(
            part, "xyz"
        )
        assert env.value("string::lower($t)", t=text.upper()) == text.upper().lower()
    padded = BLANK + part + BLANK
    assert env.value("string::trim($t)", t=padded) == part
    assert env.value("string::trim($t)", t=BLANK) == ""


def test_what_sorts_and_groups_large_values_gives_way() -> None:
    """A comparison of two of them takes long, and there are thousands."""
    env = Tables()
    large = [[*ITEMS[:2000], n] for n in (3, 1, 2)]
    found = env.value("array::sort($large)", large=large * 4)
    assert [one[-1] for one in found] == [1] * 4 + [2] * 4 + [3] * 4 and env.ticks >= 12
    before = env.ticks
    other = [list(map(Decimal, ITEMS)), {**FIELDS, "x": NONE}, "a" + TEXT[1:]]
    same = env.value("array::distinct($two)", two=[ITEMS, FIELDS, TEXT, *other])
    assert len(same) == 3 and env.ticks - before >= 4 * SLICES


@pytest.mark.parametrize("id", [["a" * 300], [[1] * 200, [2] * 200], ITEMS, "é" * 200])
def test_a_record_id_too_large_to_be_stored_is_refused_at_once(id: Any) -> None:
    with pytest.raises(TooLarge, match="at most 256 bytes"):
        check_record_id(id)


def test_the_text_of_a_long_value_is_written_in_pieces() -> None:
    value = {"a": "it's\n" * PIECE, "b": bytes(range(256)) * 100, "c'" * PIECE: 1}
    found = list(pieces(value))
    assert "".join(found) == format_value(value)
    assert max(map(len, found)) <= 2 * PIECE


def test_constants_that_collide_are_told_apart_by_a_salted_key() -> None:
    """Python's hash of these is the same for all: 5 000 of them would be compared pair by pair."""
    prime = 2**61 - 1
    numbers, hashed = Numbers(), Counter[int]()
    for n in range(1, 200):
        number = numbers.add(parse_expression(f"u'{UUID(int=n * prime)}'"))
        hashed[number] += 1
    assert len(hashed) == 199
    assert len({hash(key) for key in numbers._numbers}) > 199
