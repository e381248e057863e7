from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import binary, jsonvalues, limits
from protocol.binary import (
    EncodedLinks,
    HoldsNone,
    NeedsStrictDecoder,
    pack,
    pack_columns,
    pack_some,
    shape_decoder,
    slots,
    unpack,
    unpack_short,
    unpack_strictly,
)
from protocol.errors import BadRequest, NameRefused, Refusal
from protocol.foreign import unpack_foreign
from protocol.values import NONE, RecordId, identical, moment
from tests.protocol.values import (
    datetimes,
    decimals,
    durations,
    floats,
    integers,
    records,
    strings,
    values,
)


@given(values)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    packed = pack(value)
    assert identical(unpack(packed), value)
    assert identical(unpack_foreign(packed), value)


@given(st.lists(values, max_size=6), st.integers(1, 60))
def test_some_are_packed_as_each_is_until_it_is_enough(some: list[object], enough: int) -> None:
    try:
        found = pack_some(some, enough)
    except HoldsNone:
        assert pack(NONE) in pack(some)
        return
    assert found == [pack(value) for value in some[: len(found)]]
    assert len(found) == len(some) or sum(map(len, found)) >= enough
    assert sum(map(len, found[:-1])) < enough


_COLUMNS = st.sampled_from([
    integers, floats, st.text(max_size=40), decimals, datetimes, durations, st.uuids(), records,
    st.booleans(), st.binary(max_size=40), st.none(), values, st.just(NONE) | integers,
]).flatmap(lambda kind: st.lists(kind, min_size=7, max_size=7))  # fmt: skip


@given(
    st.dictionaries(strings, _COLUMNS, min_size=1, max_size=6),
    st.integers(1, 300),
    st.booleans(),
)
def test_columns_are_packed_as_their_rows_are(
    columns: dict[str, list[object]], enough: int, has_long_name: bool
) -> None:
    if has_long_name:  # no Struct is made for such names
        columns["n" * binary.KEPT_NAMES] = [1] * 7
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = [{name: value for name, value in row.items() if value is not NONE} for row in rows]
    try:
        links = EncodedLinks()
        found = pack_columns(columns, enough, links)
        assert pack_columns(columns, enough, links) == found
    except HoldsNone:
        assert pack(NONE) in pack(rows)
        return
    assert found == [pack(row) for row in rows[: len(found)]]
    assert len(found) == len(rows) or sum(map(len, found)) >= enough
    assert sum(map(len, found[:-1])) < enough


def test_a_value_that_is_refused_leaves_nothing_in_the_next() -> None:
    for odd in (2**70, object(), [RecordId("t", 1), {"a": 2**70}], [RecordId("t", 2**70)]):
        with pytest.raises((OverflowError, TypeError)):
            pack(["before", odd, "behind"])
        assert unpack(pack([1, RecordId("t", 2), 3])) == [1, RecordId("t", 2), 3]


def test_values_are_packed_in_any_number_of_threads() -> None:
    value = [RecordId("t", [n, UUID(int=n)]) for n in range(300)]
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: pack(value), range(200))) == {pack(value)}


@given(st.dictionaries(strings.filter(binary.fits_slot), values, max_size=6))
def test_a_shape_reads_the_same_as_a_whole_decode(fields: dict[str, object]) -> None:
    names = [*fields, "absent"][-3:]
    row = shape_decoder(slots(tuple(names)))(pack(fields))
    for place, name in enumerate(names):
        assert identical(getattr(row, f"f{place}"), fields.get(name, NONE))


def test_a_shape_with_few_characters_in_its_names_is_kept_and_another_made_anew() -> None:
    """Whoever writes statements chooses the names, and what is kept is kept for good."""
    least = ("a" * (binary.KEPT_NAMES - 1), "b")
    assert slots(least) is slots(least)
    more = ("a" * binary.KEPT_NAMES, "b")
    assert slots(more) is not slots(more)


@given(st.binary(max_size=40))
def test_foreign_bytes_are_a_value_or_a_refusal(data: bytes) -> None:
    try:
        value = unpack_foreign(data)
    except Refusal:
        return
    assert identical(unpack(pack(value)), value)


def agrees(data: bytes) -> bool:
    """Whether the quick decoder makes of a message what the strict one does; false where it leaves
    it to that one."""
    try:
        found = unpack_short(data)
    except NeedsStrictDecoder:
        return False
    assert identical(found, unpack_strictly(data))
    return True


@given(values, st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=3)), max_size=3))
def test_the_quick_decoder_finds_what_the_strict_one_does(
    value: object, cuts: list[tuple[int, bytes]]
) -> None:
    """Of what clients send, and of the same with other bytes in some places."""
    data = pack(value)
    assert agrees(data)
    for place, others in cuts:
        at = place % (len(data) + 1)
        data = data[:at] + others + data[at + 1 :]
        agrees(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x82\xa1a\x01\xa1a\x02", id="a key twice"),
        pytest.param(b"\x92\xca\x00\x00\x00\x00\x82\xa1a\x01\xa1a\x02", id="and a part that grows"),
        pytest.param(b"\xca\x3f\x80\x00\x00", id="a float of 32 bits"),
        pytest.param(b"\xcc\x01", id="an integer that could be shorter"),
        pytest.param(msgpack.packb(msgpack.Timestamp(5, 1)), id="a nanosecond"),
        pytest.param(msgpack.packb({1: 2}), id="a key that is no string"),
        pytest.param(msgpack.packb({b"a": 2}), id="a key of bytes"),
        pytest.param(msgpack.packb(2**63), id="beyond the integers"),
        pytest.param(msgpack.packb(float("nan")), id="no number"),
        pytest.param(msgpack.packb({"a": 1, "b": [2**63]}), id="one beyond them, deeper"),
        pytest.param(msgpack.packb([1, {"a": float("inf")}]), id="infinity, deeper"),
        pytest.param(msgpack.packb([0.5, float("-inf")]), id="infinity below"),
        pytest.param(b"\x91" * (limits.DEPTH + 1) + b"\x01", id="too deep"),
        pytest.param(b"\x91" * 4000 + b"\x01", id="deeper than the stack"),
        pytest.param(msgpack.packb(msgpack.ExtType(99, b"")), id="an unknown extension"),
        pytest.param(pack(RecordId("a b", 1)), id="a link to no table"),
        pytest.param(pack(1) + b"\0", id="bytes behind it"),
    ],
)
def test_the_quick_decoder_leaves_the_rest_to_the_strict_one(data: bytes) -> None:
    assert not agrees(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", pack(1) + b"\0", msgpack.packb(msgpack.ExtType(99, b"")),
        msgpack.packb(msgpack.ExtType(3, b"short")), msgpack.packb(msgpack.ExtType(2, b"short")),
        msgpack.packb(msgpack.ExtType(1, b"twelve")),
        msgpack.packb(msgpack.ExtType(4, msgpack.packb([1, 2]))), msgpack.packb({1: 2}),
        b"\xdd\xff\xff\xff\xff",
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(BadRequest):
        unpack_foreign(data)


TWICE = b"\x82\xa1a\x01\xa1a\x02"
"""`{"a": 1, "a": 2}`"""


@pytest.mark.parametrize("around", [b"", b"\x91", b"\x81\xa1b", b"\x92\xc0\x81\xa1b"])
@pytest.mark.parametrize("size", [0, limits.CONTAINERS + 1])
@pytest.mark.parametrize("tick", [None, lambda: None])
def test_a_key_that_stands_twice_is_refused_as_in_json(
    around: bytes, size: int, tick: Callable[[], None] | None
) -> None:
    """In whole and in steps, counted and not."""
    rest = pack("x" * size)
    once = b"\x92" + around + b"\x82\xa1a\x01\xa1b\x02" + rest
    twice = b"\x92" + around + TWICE + rest
    assert isinstance(unpack_foreign(once, tick), list)
    with pytest.raises(BadRequest, match="duplicate key"):
        unpack_foreign(twice, tick)
    with pytest.raises(BadRequest, match="duplicate key"):
        jsonvalues.load('{"a": 1, "a": 2}')


def test_a_short_and_a_long_form_of_a_key_are_one_key() -> None:
    with pytest.raises(BadRequest, match="duplicate key"):
        unpack_foreign(b"\x82\xa1a\x01\xd9\x01a\x02")


@pytest.mark.parametrize("table", ["", "a b", "1a", "a" * 65, "é", "a.b", "`a`", "a\n"])
def test_a_link_into_a_table_that_there_can_not_be_is_refused_as_in_json(table: str) -> None:
    for value in (RecordId(table, 1), [RecordId("t", 1), {"a": RecordId(table, "x")}]):
        with pytest.raises(NameRefused):
            unpack_foreign(pack(value))
    quoted = table.replace("`", "\\\\`")
    with pytest.raises(Refusal):
        jsonvalues.load(json.dumps({"$rec": f"`{quoted}`:1"}))
    # What this node wrote itself is not looked at again.
    assert identical(unpack(pack(RecordId(table, 1))), RecordId(table, 1))


@pytest.mark.parametrize("bomb", [b"\x91" * 5000 + b"\x01", b"\x81\xa1a" * 5000 + b"\x01"])
def test_depth_is_refused(bomb: bytes) -> None:
    with pytest.raises(Refusal):
        unpack_foreign(bomb)


def stamped(nanoseconds: int) -> object:
    """A timestamp with all its digits, deep in a message."""
    return {"a": [1, {"at": msgpack.Timestamp.from_unix_nano(nanoseconds)}], "b": b"\xd7\xff"}


@pytest.mark.parametrize("size", [0, 200_000])
@given(nanoseconds=st.integers(-(10**18), 10**19))
def test_a_timestamp_is_rounded_as_a_text_is(size: int, nanoseconds: int) -> None:
    packed = msgpack.packb([stamped(nanoseconds), b"x" * size])
    value = {"a": [1, {"at": moment(nanoseconds)}], "b": b"\xd7\xff"}
    assert identical(unpack_foreign(packed, lambda: None), [value, b"x" * size])
    packed = msgpack.packb(msgpack.Timestamp.from_unix_nano(nanoseconds))
    assert identical(unpack_foreign(packed), moment(nanoseconds))


def test_a_mark_over_the_edge_of_a_piece_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = msgpack.packb([msgpack.Timestamp(5, 999), msgpack.Timestamp(-(10**10), 501)])
    for step in range(1, len(packed) + 1):
        monkeypatch.setattr(binary, "STEP_BYTES", step)
        found = unpack_foreign(packed, lambda: None)
        assert found == [moment(5 * 10**9 + 999), moment(-(10**19) + 501)]


@pytest.mark.parametrize(
    "packed",
    [
        msgpack.packb(msgpack.Timestamp(2**40, 1)),
        msgpack.packb(msgpack.Timestamp(253402300799, 999_999_999)),
        b"\xd7\xff" + ((2**30 - 1) << 34).to_bytes(8, "big"),
        b"\xc7\x03\xffabc",
    ],
)
def test_what_is_no_time_of_a_calendar_is_refused(packed: bytes) -> None:
    with pytest.raises(BadRequest):
        unpack_foreign(packed)
