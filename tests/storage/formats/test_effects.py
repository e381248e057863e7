"""The body of a frame."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import limits
from storage.formats import effects, keys
from storage.formats.effects import Attribution, EffectsDamaged
from storage.formats.entries import Entry

some_bytes = st.binary(max_size=40)
sequences = st.integers(0, 2**63)
one_effect = st.one_of(
    st.tuples(st.just(effects.PUT), some_bytes, some_bytes),
    st.tuples(st.just(effects.DELETE), some_bytes),
    st.tuples(st.just(effects.DELETE_RANGE), some_bytes, some_bytes),
    st.tuples(st.just(effects.PUT_RECORD), some_bytes, some_bytes, sequences),
    st.tuples(st.just(effects.DELETE_RECORD), some_bytes, sequences),
)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
attributions = st.builds(
    Attribution, by=texts, how=texts, statement=st.none() | texts, reason=st.none() | texts
)


@settings(max_examples=40)
@given(attribution=attributions, found=st.lists(one_effect, max_size=8))
def test_comes_back_as_it_went(attribution: Attribution, found: list[Any]) -> None:
    commit = effects.decode(effects.encode(attribution, found))
    assert commit.attribution == attribution
    assert commit.effects == found


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536])
@pytest.mark.parametrize("size", [7, 16, 40_000])
def test_joined_is_as_encoded_at_once(count: int, size: int) -> None:
    found: list[Any] = [(effects.PUT_RECORD, b"k%d" % n, b"v", n) for n in range(count)]
    who = Attribution("ana", "http", "CREATE", "why")
    chunks = [effects.encode_some(found[at : at + size]) for at in range(0, count, size)]
    assert effects.join(who, chunks) == effects.encode(who, found)


@pytest.mark.parametrize(
    "body",
    [
        [], ["ana"], ["ana", "http", None, None], [1, "http", None, None, []],
        ["ana", "http", None, None, [[]]], ["ana", "http", None, None, [[9, b"k"]]],
        ["ana", "http", None, None, [["put", b"k"]]],
        ["ana", "http", None, None, [[True, b"k", b"v"]]], ["ana", "http", None, None, [[1, b"k"]]],
        ["ana", "http", None, None, [[1, b"k", b"v", b"w"]]],
        ["ana", "http", None, None, [[1, "k", b"v"]]],
        ["ana", "http", None, None, [[4, b"k", b"v", "7"]]], {"by": "ana"},
    ],
)  # fmt: skip
def test_other_forms_are_damage(body: Any) -> None:
    with pytest.raises(EffectsDamaged):
        effects.decode(msgpack.packb(body))


def test_every_cut_is_damage() -> None:
    body = effects.encode(Attribution("ana", "http", "CREATE"), [(effects.PUT, b"k", b"v")])
    for size in range(len(body)):
        with pytest.raises(EffectsDamaged):
            effects.decode(body[:size])
    with pytest.raises(EffectsDamaged):
        effects.decode(body + b"\0")


RECORD = keys.STORE_RANGE + bytes((keys.RECORD,)) + b"r"
COUNT = keys.STORE_RANGE + bytes((keys.COUNT,)) + b"t"
REMOVED: list[Any] = [(effects.DELETE_RECORD, RECORD, 3), (effects.PUT, COUNT, bytes(8))]


def test_what_changes_nothing_takes_no_reserve() -> None:
    """A refusal or a sign-in that is kept: what a full disk keeps free is for who makes room."""
    entry = Entry(1, "r-1", "192.0.2.1:1", None, None, ((),))
    assert not effects.only_removes(effects.encode(Attribution("a", "b", entry=entry), []))


@pytest.mark.parametrize(
    ("more", "removes"),
    [
        ([], True),
        ([(effects.DELETE_RANGE, RECORD, RECORD + b"z"), (effects.DELETE, RECORD)], True),
        ([(effects.PUT_RECORD, RECORD, b"", 3)], False),
        ([(effects.PUT, RECORD, b"")], False),
        ([(effects.DELETE, bytes(1000) + b"%d" % n) for n in range(1100)], False),
    ],
    ids=["records", "ranges", "and writes one", "and puts one", "too much"],
)
def test_what_only_removes(more: list[Any], removes: bool) -> None:
    assert effects.only_removes(effects.encode(Attribution("a", "b"), REMOVED + more)) == removes


@pytest.mark.parametrize("size", [0, 10, 300_000, 3_000_000])
def test_steps_find_what_decoding_finds(size: int) -> None:
    done = [
        (effects.PUT, b"\x00\x01\x20a", b"1"),
        (effects.PUT_RECORD, b"\x00\x01\x30k", bytes(size), 7),
        *((effects.DELETE_RECORD, b"\x00\x01\x30%d" % number, number) for number in range(2_000)),
        (effects.DELETE_RANGE, b"a", b"b"),
    ]
    who = effects.Attribution("ana", "http", "x", None)
    ticks = list[int]()
    found = list(effects.decode_in_steps(effects.encode(who, done), lambda: ticks.append(1)))
    assert found == [who, *done]
    assert len(ticks) > 3 + size // limits.MIB


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_steps_refuse_what_is_no_commit(cut: int) -> None:
    body = effects.encode(effects.Attribution("ana", "http"), [(effects.DELETE, b"x" * 300)])
    with pytest.raises(effects.EffectsDamaged):
        list(effects.decode_in_steps(body[:cut], lambda: None))
    strange = effects.encode(effects.Attribution("ana", "http"), [(99, b"x")])
    more = bytes((body[0] + 2,)) + body[1:] + b"\xc0\xc0"
    for longer in (strange, body + b"\xc0", more):
        with pytest.raises(effects.EffectsDamaged):
            list(effects.decode_in_steps(longer, lambda: None))
