"""Long values read and written in steps: the same as in one go, with the loop let in often."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import binary, foreign, jsonsteps, jsonvalues, limits
from protocol import values as values_room
from protocol.errors import BadRequest, Refusal, TooLarge
from protocol.jsonsteps import WINDOW_CHARACTERS
from protocol.values import NONE, check, identical
from tests.protocol.values import values

ROWS = [{"n": n, "name": f"row {n}", "tags": ["a", "b"], "at": None} for n in range(2_500)]
SHAPES: list[Any] = [
    ROWS, {"params": {"rows": ROWS}}, list(range(30_000)), [0.5] * 25_000,
    ["", "x", "\\\"'"] * 12_000, [[]] * 30_000, [[[[["deep"] * 15_000]]]],
    {f"field {n}": n for n in range(15_000)}, {"a": "x" * 1_000_000, "b": ["y" * 100_000] * 5},
    [True, False, None] * 15_000,
]  # fmt: skip


class Ticks:
    """Counts what it is called, and can end the work."""

    def __init__(self, at_most: int = 1 << 40) -> None:
        self.count = 0
        self._at_most = at_most

    def __call__(self) -> None:
        self.count += 1
        if self.count > self._at_most:
            raise TooLarge("stopped")


@pytest.mark.parametrize("value", SHAPES, ids=range(len(SHAPES)))
def test_long_msgpack_is_read_in_steps(value: Any) -> None:
    packed, ticks = binary.pack(value), Ticks()
    assert foreign.unpack_foreign(packed, ticks) == value
    assert ticks.count >= len(packed) // binary.STEP_BYTES


@pytest.mark.parametrize("value", SHAPES, ids=range(len(SHAPES)))
def test_a_large_object_of_the_node_is_read_in_steps(value: Any) -> None:
    packed, ticks = binary.pack({"v": value}), Ticks()
    assert binary.unpack_object_in_steps(packed, ticks) == {"v": value}
    assert ticks.count >= len(packed) // binary.STEP_BYTES


@settings(max_examples=30)
@given(values)
def test_any_value_of_a_large_object_is_read_the_same_in_steps(value: Any) -> None:
    packed = binary.pack({"long": "x" * binary.STEP_BYTES, "v": value})
    ticks = Ticks()
    assert identical(binary.unpack_object_in_steps(packed, ticks), binary.unpack_object(packed))
    assert ticks.count


@pytest.mark.parametrize("value", SHAPES, ids=range(len(SHAPES)))
def test_long_json_is_read_in_steps(value: Any) -> None:
    text, ticks = json.dumps(value), Ticks()
    assert jsonvalues.parse(text.encode(), ticks) == value
    # A string is scanned at one go, whatever its length.
    strings = 1_500_000 if isinstance(value, dict) and "a" in value else 0
    assert ticks.count >= (len(text) - strings) // WINDOW_CHARACTERS
    assert ticks.count < len(text) // 100, "what is short is read many at a time"


@given(values, st.integers(64, 4096))
def test_a_json_text_reads_the_same_through_any_window(value: object, window: int) -> None:
    text = jsonvalues.dump([value, [value] * 20])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonvalues, "LONG_TEXT", 0)
        patch.setattr(jsonsteps, "WINDOW_CHARACTERS", window)
        patch.setattr(jsonsteps, "WINDOW_CHARACTERS_MIN", 16)
        found = jsonvalues.from_json(jsonvalues.parse(text, Ticks()), Ticks())
    assert identical(found, jsonvalues.load(text))


@pytest.mark.parametrize("number", ["1", "-12", "1.5", "-0.25e-7", "12345678901234567", "1e5"])
def test_a_number_is_whole_wherever_the_window_ends(number: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonvalues, "LONG_TEXT", 0)
        patch.setattr(jsonsteps, "WINDOW_CHARACTERS", 64)
        patch.setattr(jsonsteps, "WINDOW_CHARACTERS_MIN", 32)
        for before in range(100):
            text = "[" + " " * before + ", ".join([number] * 40) + "]"
            assert jsonvalues.parse(text, Ticks()) == json.loads(text)


BROKEN = ["", "{", "[1 2]", '{"a" 1}', '{"a":1,}', "[1,]", '{"a":1,"a":2}', '["x', "nope", "[1]]]]"]


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("around", ["{}", "[%s{}", "[%s[{}"])
def test_a_long_json_text_is_refused_as_a_short_one_is(text: str, around: str) -> None:
    long = around.replace("{}", text).replace("%s", "1," * 20_000)
    with pytest.raises(BadRequest) as plain:
        jsonvalues.parse(long)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonvalues, "LONG_TEXT", 0)
        with pytest.raises(BadRequest) as stepped:
            jsonvalues.parse(long, Ticks())
    assert str(stepped.value) == str(plain.value)


def test_a_json_text_that_only_nests_costs_one_pass() -> None:
    deep = "[" * 100 + "1," * 20_000 + "1" + "]" * 100
    ticks = Ticks()
    jsonvalues.parse("[" + ",".join([deep] * 15) + "]", ticks)
    assert ticks.count < 15 * 400
    with pytest.raises(TooLarge):
        jsonvalues.parse("[" * 1_000_000, Ticks())


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":', ' [ {"$obj" : '])
def test_how_deep_a_long_json_text_nests_is_counted(opening: str) -> None:
    """Compiled code goes on until its stack ends, and the process with it."""
    deep = opening * (200_000 // len(opening))
    if opening != "[":  # where the scanner, which counts by itself, may come to its end before
        decoder: Any = json.JSONDecoder()
        with pytest.raises(TooLarge, match="nest"):
            jsonsteps.load_in_steps(deep, decoder.scan_once, dict, Ticks())
    with pytest.raises(TooLarge, match="nest"):
        jsonvalues.parse(deep.encode(), Ticks())


def test_the_deepest_value_is_read_in_steps() -> None:
    value: Any = [datetime(2026, 1, 2, tzinfo=UTC)] * 20_000
    for _ in range(limits.DEPTH - 1):
        value = {"$one": value}
    check(value)
    text = jsonvalues.dump(value)
    assert jsonvalues.from_json(jsonvalues.parse(text, Ticks())) == value


@pytest.mark.parametrize("broken", [b"\x93", b"\x92\x01", b"\x91\xc1", b"\xdd\xff\xff\xff\xff"])
def test_long_msgpack_is_refused_as_short_is(broken: bytes) -> None:
    filler = binary.pack("x" * 200_000)
    for packed in (b"\x92" + filler + broken, b"\x91" + filler + broken):
        with pytest.raises(Refusal) as plain:
            foreign.unpack_foreign(packed)
        with pytest.raises(type(plain.value)):
            foreign.unpack_foreign(packed, Ticks())


def test_what_a_small_message_may_blow_up_to_is_bounded_in_steps_too() -> None:
    lists = b"\xdd" + (limits.CONTAINERS + 8).to_bytes(4, "big") + b"\x90" * (limits.CONTAINERS + 8)
    with pytest.raises(TooLarge, match="arrays and objects"):
        foreign.unpack_foreign(lists, Ticks())


Encode = Callable[[Any, Callable[[], None], Callable[[bytes], None]], None]


@pytest.mark.parametrize("value", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize(
    ("whole", "stepped"),
    [(binary.pack, binary.pack_in_steps), (jsonvalues.dump, jsonvalues.dump_in_steps)],
)
def test_long_values_are_written_in_steps(
    value: Any, whole: Callable[[Any], bytes], stepped: Encode
) -> None:
    parts: list[bytes] = []
    ticks = Ticks()
    stepped(value, ticks, parts.append)
    assert b"".join(parts) == whole(value)
    assert ticks.count >= len(parts) // values_room.PACE // 3


@settings(max_examples=15)
@given(st.one_of(values, st.lists(values, min_size=60, max_size=140)))
def test_any_value_is_written_the_same_in_steps(value: object) -> None:
    for whole, stepped in (
        (binary.pack, binary.pack_in_steps),
        (jsonvalues.dump, jsonvalues.dump_in_steps),
    ):
        parts: list[bytes] = []
        stepped(value, Ticks(), parts.append)
        assert b"".join(parts) == whole(value)


@pytest.mark.parametrize("beside", [-3, -2, -1, 0, 1, 2, 3])
def test_long_bytes_are_written_in_steps(beside: int) -> None:
    """Pieces of base64, put together, are the base64 of the whole."""
    for pieces in (1, 2, 3):
        value = random.Random(pieces).randbytes(pieces * values_room.LONG + beside)
        parts, ticks = list[bytes](), Ticks()
        jsonvalues.dump_in_steps(value, ticks, parts.append)
        assert b"".join(parts) == jsonvalues.dump(value)
        assert ticks.count >= pieces - 1


def test_tags_and_none_are_written_the_same_in_steps() -> None:
    shapes: list[Any] = [
        {"$dt": [1]}, {"a": NONE}, {"a": NONE, "$b": [NONE]}, {}, [[]], {"$x": {"$y": [{}]}},
        {"a": [], "b": NONE},
    ]  # fmt: skip
    for value in shapes:
        parts: list[bytes] = []
        jsonvalues.dump_in_steps(value, Ticks(), parts.append)
        assert b"".join(parts) == jsonvalues.dump(value)


@pytest.mark.parametrize("stepped", [binary.pack_in_steps, jsonvalues.dump_in_steps])
@pytest.mark.parametrize("held", [lambda text: [text] * 64, lambda text: [{"a": text}] * 64,
                                  lambda text: {str(n): text for n in range(64)},
                                  lambda text: [{str(n): text for n in range(64)}]])  # fmt: skip
def test_long_texts_are_written_one_by_one(stepped: Any, held: Callable[[str], Any]) -> None:
    """So that whoever takes the parts may stop before all of them are made."""
    text, parts = "x" * (2 * values_room.LONG), list[bytes]()
    stepped(held(text), Ticks(), parts.append)
    assert max(map(len, parts)) < 2 * len(text)


def test_whoever_takes_the_parts_may_stop() -> None:
    held: list[bytes] = []

    def add(part: bytes) -> None:
        held.append(part)
        if sum(map(len, held)) > 10_000:
            raise TooLarge("enough")

    for stepped in (binary.pack_in_steps, jsonvalues.dump_in_steps):
        held.clear()
        with pytest.raises(TooLarge, match="enough"):
            stepped(ROWS, Ticks(), add)
        assert sum(map(len, held)) < 50_000


# A few long strings are a few calls.
MANY_PARTS = [value for value in SHAPES if len(value) != 2]


@pytest.mark.parametrize("value", MANY_PARTS, ids=range(len(MANY_PARTS)))
def test_a_large_value_is_checked_in_steps(value: Any) -> None:
    with pytest.raises(TooLarge, match="stopped"):
        check(value, 0, Ticks(0))


@pytest.mark.parametrize("branches, deep", [(2, 14), (5, 6), (8, 5), (9, 5), (60, 3)])
@pytest.mark.parametrize("of", [list, dict])
def test_a_tree_of_any_shape_is_checked_in_steps(branches: int, deep: int, of: type) -> None:
    tree: Any = 1
    for _ in range(deep):
        tree = [tree] * branches if of is list else {str(n): tree for n in range(branches)}
    ticks = Ticks()
    check(tree, 0, ticks)
    assert ticks.count >= branches**deep // 8**4


@pytest.mark.parametrize("value", [ROWS, {"a": ROWS}, [[ROWS, list(range(5000))], {}], 5, "x"])
def test_what_is_let_go_goes_in_steps_and_what_others_hold_stays(value: Any) -> None:
    kept = jsonvalues.dump(value)
    values_held, ticks = [value], Ticks()
    values_room.let_go(values_held, ticks)
    assert not values_held and jsonvalues.dump(value) == kept
    assert ticks.count >= (0 if isinstance(value, int | str) else len(ROWS) // values_room.PACE)


@pytest.mark.parametrize(
    "value",
    [
        [[0.5] * 1536 for _ in range(1_200)],
        {f"row {n}": {"v": [0.5] * 1536} for n in range(1_200)},
        [[[0] * 70 for _ in range(20)] for _ in range(1_200)],
    ],
    ids=["vectors", "objects of vectors", "tables"],
)
def test_many_large_values_are_let_go(value: Any) -> None:
    """Each was a call inside the call for the one before it: past the limit on recursion."""
    values_held, ticks = [value], Ticks()
    values_room.let_go(values_held, ticks)
    assert not values_held and ticks.count > 1_200


def test_the_pieces_are_freed_one_after_the_other() -> None:
    class Piece(dict[str, int]):
        alive = 0

        def __init__(self) -> None:
            super().__init__()
            Piece.alive += 1

        def __del__(self) -> None:
            Piece.alive -= 1

    seen: list[int] = []
    held = [[Piece() for _ in range(10 * values_room.PACE)]]
    values_room.let_go(held, lambda: seen.append(Piece.alive))
    assert Piece.alive == 0
    assert max(a - b for a, b in pairwise(seen)) <= 2 * values_room.PACE


@pytest.mark.parametrize(
    ("value", "large"),
    [
        (1, False), ([1] * 10, False), ([1] * 11, True), ([[1] * 5] * 2, True), ("x" * 10, False),
        ("x" * 70_000, True), ({"a": {"b": [1] * 10}}, True), ({"a": [1]}, False),
    ],
)  # fmt: skip
def test_large_values_are_told_from_small_ones(value: Any, large: bool) -> None:
    assert values_room.is_large(value, 10) is large
