"""Blocks and their patches hold exactly the values of records, and projections keep their bound."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pytest

from protocol.order import encode
from protocol.values import NONE, RecordId
from storage.columns import blocks
from storage.columns.blocks import MIXED, Dictionary, make_block, patch
from storage.columns.ids import make_ids
from storage.columns.projections import OVERLAY_KEYS, ColumnSegment, Projections, per_segment
from storage.formats import keys

DAY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "ids",
    [
        list(range(-50, 4000)),
        [f"a{number:05}" for number in range(500)],
        [UUID(int=number * 7**30) for number in range(500)],
        [1, 5, 2**60, 2**61, 2**63 - 1],
        [-5, 3, "a", "b", UUID(int=3)],
        [],
    ],
)
def test_ids_are_found_by_their_encodings(ids: list[Any]) -> None:
    encoded = sorted(map(encode, ids))
    packed = make_ids(encoded)
    assert [packed.encoded(at) for at in range(packed.count)] == encoded
    for one in [*encoded[::7], *map(encode, (17, -(10**17), 2**62, "a00017x", UUID(int=5)))]:
        at = sum(other < one for other in encoded)
        assert packed.find(one) == (at, at < len(encoded) and encoded[at] == one)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [1, -2, NONE, None, 2**63 - 1]),
        ("float", [1.5, -0.0, None]),
        ("decimal", [Decimal("1.50"), Decimal("-2.25"), NONE]),
        ("time", [DAY, NONE]),
        ("coded", [True, None, NONE, False, "x", RecordId("a", 1)]),
        ("coded", [1, 1.0, Decimal("1.0"), Decimal(1), True]),
        ("coded", [Decimal("0.00"), Decimal("-0.00")]),
        ("coded", [Decimal("1E+3"), Decimal("1E-30")]),
        ("coded", [NONE, None]),
        ("mixed", [1, [2]]),
        ("mixed", ["x" * 300]),
    ],
)
def test_a_block_has_a_kind_that_keeps_its_values(kind: str, values: list[Any]) -> None:
    block = make_block(values, Dictionary())
    assert block.kind == kind
    assert kind == MIXED or repr(block.items()) == repr(values)


VALUES: dict[str, Callable[[Random], Any]] = {
    "ints": lambda chance: chance.choice((chance.randrange(-5, 500), None, NONE)),
    "floats": lambda chance: chance.random(),
    "texts": lambda chance: chance.choice(("a", "b", NONE)),
    "money": lambda chance: Decimal(chance.randrange(-50, 50)).scaleb(-2),
    "scales": lambda chance: Decimal(chance.randrange(50)).scaleb(-chance.randrange(3)),
    "odd": lambda chance: chance.choice((1, 2, 2, 1.5, "x")) if chance.random() < 0.01 else 7,
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("texts", [False, True])
def test_a_patched_segment_has_what_was_written(
    name: str, texts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 64)
    chance, make = Random(name), VALUES[name]

    def id_of(number: int) -> bytes:
        return encode(f"k{number:04}" if texts else number)

    rows = {id_of(3 * number): make(chance) for number in range(60)}
    dictionary = Dictionary()
    segment = ColumnSegment(b"", make_ids(sorted(rows)), {
        "x": make_block([rows[id] for id in sorted(rows)], dictionary)
    })  # fmt: skip
    segments = [segment]
    for _ in range(40):
        changes: dict[bytes, dict[str, Any] | None] = {}
        for _ in range(chance.randrange(1, 20)):
            id = id_of(chance.randrange(300))
            rows.pop(id, None)
            changes[id] = None
            if chance.random() < 0.85:
                rows[id] = make(chance)
                changes[id] = {"x": rows[id]}
        found: list[ColumnSegment] = list(segments)
        for number, ids in reversed(list(per_segment(segments, sorted(changes)))):
            one = [(id, changes[id]) for id in ids]
            found[number : number + 1] = patch(segments[number], one, {"x": dictionary})
        segments = [one for one in found if one.count]
        assert segments[0].start == b"" and all(one.count <= 128 for one in segments)
        values = [value for one in segments for value in one.columns["x"].items()]
        assert repr(values) == repr([rows[id] for id in sorted(rows)])
    assert len(segments) > 1


def test_a_segment_that_becomes_mixed_is_divided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 64)
    dictionary = Dictionary()
    block = make_block([1] * 128, dictionary)
    segment = ColumnSegment(b"", make_ids([encode(number) for number in range(128)]), {"x": block})
    found = patch(segment, [(encode(128), {"x": [2]})], {"x": dictionary})
    assert [(one.count, one.columns["x"].kind) for one in found] == [
        (64, MIXED), (64, MIXED), (1, MIXED),
    ]  # fmt: skip


def _filled(projections: Projections, prefix: bytes, names: str, count: int) -> None:
    table = projections.of(prefix)
    ids = [encode(number) for number in range(count)]
    columns = {name: make_block([0.5 * n for n in range(count)], Dictionary()) for name in names}
    table.segments = [ColumnSegment(b"", make_ids(ids), columns)]
    projections.publish(prefix, table, names)


def test_the_columns_used_least_recently_leave_first() -> None:
    one, two = keys.record_prefix(1, 1, 1), keys.record_prefix(1, 1, 2)
    projections = Projections(most_bytes=25_000)
    _filled(projections, one, "ab", 1000)
    projections.use(projections.tables[one], "a")
    _filled(projections, two, "c", 1000)
    assert projections.tables[one].columns == ["a"] and projections.evicted == 1
    assert projections.tables[two].columns == ["c"]
    _filled(projections, two, "cd", 1000)
    # The last column of a table takes its ids along.
    assert list(projections.tables) == [two] and projections.bytes <= 25_000


def test_changes_are_noted_for_tables_with_columns_only() -> None:
    one, two = keys.record_prefix(1, 1, 1), keys.record_prefix(1, 1, 2)
    projections = Projections()
    _filled(projections, one, "a", 10)
    projections.note([one + encode(3), two + encode(3), keys.count(1, 1, 1)], 7)
    table = projections.tables[one]
    assert (table.overlay, table.tail) == ({encode(3): 7}, False)
    projections.note([one + encode(11)], 8)
    assert (table.overlay, table.tail) == ({encode(3): 7}, True)
    # A scan that runs may be about to read what lies beyond the end.
    table.scans = 1
    projections.note([one + encode(12)], 9)
    assert table.overlay[encode(12)] == 9


def test_many_changes_and_deleted_ranges_drop_the_blocks() -> None:
    one, two = keys.record_prefix(1, 1, 1), keys.record_prefix(1, 1, 2)
    projections = Projections()
    _filled(projections, one, "a", 10)
    _filled(projections, two, "a", 10)
    projections.note_ranges([keys.within(two)])
    assert list(projections.tables) == [one]
    table = projections.tables[one]
    table.scans = 1
    projections.note([one + encode(number) for number in range(OVERLAY_KEYS + 1)], 7)
    assert not table.overlay and not table.columns and table.segments[0].ids is None
