"""One number for the whole state."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.engine.engine import Engine
from storage.engine.memory import MemoryEngine
from storage.engine.rocksdb import RocksEngine
from storage.engine.state_hash import state_hash
from storage.formats import keys
from tests.storage.books import Book

Model = dict[bytes, bytes]
pairs = st.dictionaries(st.binary(max_size=3), st.binary(max_size=3), max_size=8)
ENTRY = bytes((keys.INDEX_ENTRY,))


def filled(engine: Engine, model: Model) -> Engine:
    batch = engine.batch()
    for key, value in model.items():
        batch.put(keys.STORE_RANGE + key, value)
    engine.write(batch, 1)
    return engine


@given(one=pairs, two=pairs)
def test_equal_exactly_when_the_state_is(one: Model, two: Model) -> None:
    left, right = filled(MemoryEngine(), one), filled(MemoryEngine(), two)
    one, two = (
        {key: model[key] for key in model if not key.startswith(ENTRY)} for model in (one, two)
    )
    assert (state_hash(left) == state_hash(right)) == (one == two)


def test_what_indexes_hold_is_left_out_and_nothing_beside_it() -> None:
    nothing = state_hash(MemoryEngine())
    assert state_hash(filled(MemoryEngine(), {ENTRY: b"x", ENTRY + b"\xff\xff": b"x"})) == nothing
    for beside in (b"\x4f\xff", b"\x51"):
        assert state_hash(filled(MemoryEngine(), {beside: b"x"})) != nothing


def test_borders_between_key_and_value_count() -> None:
    assert state_hash(filled(MemoryEngine(), {b"ab": b"c"})) != state_hash(
        filled(MemoryEngine(), {b"a": b"bc"})
    )


def test_the_same_on_every_engine_and_however_it_got_there(tmp_path: Path) -> None:
    model = {b"%05d" % n: b"v%d" % n for n in range(3_000)}
    rocks = filled(RocksEngine(str(tmp_path / "state")), model)
    wanted = state_hash(rocks)
    assert state_hash(filled(MemoryEngine(), dict(reversed(model.items())))) == wanted
    rocks.flush()
    batch = rocks.batch()
    batch.put(keys.STORE_RANGE + b"x", b"")
    rocks.write(batch, 2)
    assert state_hash(rocks) != wanted
    batch = rocks.batch()
    batch.delete(keys.STORE_RANGE + b"x")
    rocks.write(batch, 3)
    assert state_hash(rocks) == wanted
    rocks.close()


def test_a_transaction_can_be_hashed() -> None:
    """What is in flight counts as it will once it is in the engine."""
    book = Book()
    tx = book.begin_transaction()
    tx.put(keys.STORE_RANGE + b"\x40a", b"1")
    book.commit(tx)
    with book.begin_transaction() as reader:
        wanted = state_hash(reader)
    assert state_hash(book.engine) != wanted
    book.durable()
    assert state_hash(book.engine) == wanted
