"""Guarantees of an engine. Both engines run the whole suite."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.engine.engine import BATCH_BYTES, BATCH_PAIRS, Engine, EngineReader
from storage.engine.memory import MemoryEngine
from storage.engine.sealed import SealedEngine
from storage.formats.keys import Pair
from tests.storage.engines import ALL_KINDS, EngineHome, make

LOW, HIGH = b"\0\1", b"\xff\xff"


@pytest.fixture(params=ALL_KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngineHome]:
    made = make(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def engine(store: EngineHome) -> Engine:
    return store.engine


def key(number: int) -> bytes:
    return b"\0\1k%06d" % number


def put(engine: Engine, pairs: dict[bytes, bytes], applied: int | None = None) -> None:
    batch = engine.batch()
    for name, value in pairs.items():
        batch.put(name, value)
    engine.write(batch, engine.applied + 1 if applied is None else applied)


def rows(
    reader: EngineReader, start: bytes = LOW, end: bytes = HIGH, reverse: bool = False
) -> list[Pair]:
    found = []
    for step in reader.scan(start, end, reverse):
        assert step, "a step of a scan is never empty"
        found.extend(step)
    return found


def expected(
    model: dict[bytes, bytes], start: bytes = LOW, end: bytes = HIGH, reverse: bool = False
) -> list[Pair]:
    inside = [(name, value) for name, value in model.items() if start <= name < end]
    return sorted(inside, reverse=reverse)


def test_an_empty_range_is_told_where_that_is_quick(engine: Engine) -> None:
    """Never of one that holds a key; of one that never held any always."""
    put(engine, {key(n): b"v" for n in (*range(1_000), 5_000)})
    assert not engine.none_in(key(0), key(1))
    assert not engine.none_in(key(990), key(2_000))
    assert not engine.none_in(key(999), key(999) + b"\0")
    assert not engine.none_in(LOW, HIGH)
    assert engine.none_in(key(1_000), key(5_000))
    assert engine.none_in(key(999) + b"\0", key(1_001))
    assert engine.none_in(key(5_001), HIGH)
    batch = engine.batch()
    for n in range(900):
        batch.delete(key(n))
    engine.write(batch, 2)
    # It may give up among so many that were deleted, but says nothing that is wrong.
    engine.none_in(key(0), key(900))
    assert not engine.none_in(key(0), key(901))
    assert engine.none_in(key(10), key(20)), "a few deletions are no obstacle"
    batch = engine.batch()
    batch.delete_range(key(900), key(1_000))
    engine.write(batch, 3)
    put(engine, {key(950): b"back"})
    assert not engine.none_in(key(900), key(1_000))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 31, 33, BATCH_PAIRS, BATCH_PAIRS + 1, 3 * BATCH_PAIRS + 5])
def test_scans_of_every_length(engine: Engine, count: int, reverse: bool) -> None:
    """Whole steps, broken ones, and neighbours of the range on both sides."""
    model = {key(n): b"v%d" % n for n in range(5_000)}
    put(engine, model)
    start, end = key(1_000), key(1_000 + count)
    assert rows(engine, start, end, reverse) == expected(model, start, end, reverse)
    view = engine.snapshot()
    assert rows(view, start, end, reverse) == expected(model, start, end, reverse)
    view.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_once_begun_is_not_disturbed(engine: Engine, reverse: bool) -> None:
    model = {key(n): b"old" for n in range(3_000)}
    put(engine, model)
    begun = engine.scan(LOW, HIGH, reverse)
    under_way = engine.scan(LOW, HIGH, reverse)
    first = next(under_way)
    batch = engine.batch()
    batch.delete_range(key(100), key(2_900))
    for n in range(0, 100):
        batch.put(key(n), b"new")
    batch.put(key(5_000), b"new")
    engine.write(batch, 2)
    engine.flush()
    assert [pair for step in begun for pair in step] == expected(model, reverse=reverse)
    rest = [pair for step in under_way for pair in step]
    assert first + rest == expected(model, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_its_bound_while_memory_is_used_anew(engine: Engine, reverse: bool) -> None:
    model = {key(n): b"x" * 50 for n in range(4_000)}
    put(engine, model)
    begun = [engine.scan(key(5), key(3_000), reverse) for _ in range(6)]
    churn = [bytes(n) * 2 for n in range(2_000)]
    del churn
    for scan in begun:
        found = [pair for step in scan for pair in step]
        assert found == expected(model, key(5), key(3_000), reverse)


def test_views_stay_as_they_were(engine: Engine) -> None:
    model: dict[bytes, bytes] = {}
    views = []
    for turn in range(5):
        change = {key(n): b"turn %d" % turn for n in range(turn, 2_000, turn + 1)}
        put(engine, change)
        model.update(change)
        batch = engine.batch()
        batch.delete_range(key(turn * 100), key(turn * 100 + 50))
        batch.delete(key(1_999))
        engine.write(batch, engine.applied + 1)
        for n in [*range(turn * 100, turn * 100 + 50), 1_999]:
            model.pop(key(n), None)
        if turn % 2:
            engine.flush()
        views.append((engine.snapshot(), dict(model)))
    for view, then in views:
        assert rows(view) == expected(then)
        assert rows(view, reverse=True) == expected(then, reverse=True)
        for n in range(0, 2_100, 7):
            assert view.get(key(n)) == then.get(key(n))
        view.close()
        view.close()


def test_a_step_of_a_scan_is_bounded_by_its_bytes(engine: Engine) -> None:
    """Filters go over a step in one go, and hold all of its rows."""
    model = {key(n): bytes(BATCH_BYTES // 4) for n in range(11)} | {key(99): b"small"}
    put(engine, model)
    view = engine.snapshot()
    for reader in (engine, view):
        for reverse in (False, True):
            steps = list(reader.scan(LOW, HIGH, reverse=reverse))
            assert [pair for step in steps for pair in step] == expected(model, reverse=reverse)
            if not isinstance(engine, MemoryEngine):  # it holds them all anyway
                assert max(sum(len(value) for _, value in step) for step in steps) <= (
                    BATCH_BYTES + BATCH_BYTES // 4
                )
    view.close()


def test_flush_in_another_thread(engine: Engine) -> None:
    """What a flush covers was written before it began, and writes go on beside it."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def flush_again_and_again() -> None:
        try:
            while not stop.is_set():
                before = engine.applied
                engine.flush()
                # What is being written may be in it before the engine says that it is written.
                assert before <= engine.flushed_sequence() <= engine.applied + 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=flush_again_and_again)
    thread.start()
    model: dict[bytes, bytes] = {}
    for turn in range(300):
        change = {key((turn * 37 + n) % 4_000): b"%d" % turn for n in range(40)}
        put(engine, change)
        model.update(change)
        assert engine.get(key(turn * 37 % 4_000)) == b"%d" % turn
    stop.set()
    thread.join()
    assert not failures
    assert rows(engine) == expected(model)
    engine.flush()
    assert engine.flushed_sequence() == engine.applied == 300


def test_what_is_stored_is_estimated(engine: Engine) -> None:
    before = engine.stored_bytes()
    batch = engine.batch()
    for number in range(2_000):
        batch.put(b"k%06d" % number, random.Random(number).randbytes(500))
    engine.write(batch, 1)
    assert engine.stored_bytes() - before > 900_000
    engine.flush()
    assert 900_000 < engine.stored_bytes() - before < 4_000_000


def test_memory_is_reported(engine: Engine) -> None:
    put(engine, {key(n): b"x" * 1_000 for n in range(1_000)})
    assert engine.memory_bytes() > 500_000
    if not isinstance(engine, SealedEngine):  # a full disk takes nothing from that
        assert engine.unflushed_bytes() > 500_000
    engine.flush()
    assert engine.unflushed_bytes() < 500_000


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=20, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_any_history(kind: str, random: random.Random) -> None:
    """Batches, scans, views, flushes and crashes in any order, against a dictionary."""
    with tempfile.TemporaryDirectory() as path:
        store = make(kind, Path(path))
        try:
            _history(store, random)
        finally:
            store.close()


def _history(store: EngineHome, random: random.Random) -> None:
    engine, model, past = store.engine, {}, {0: {}}  # type: ignore[var-annotated]
    for _ in range(random.randint(1, 25)):
        what = random.randrange(12)
        if what < 7:
            batch = engine.batch()
            for _ in range(random.randint(1, 30)):
                name, other = key(random.randrange(60)), key(random.randrange(60))
                change = random.randrange(5)
                if change < 3:
                    value = b"%d" % random.randrange(1_000)
                    batch.put(name, value)
                    model[name] = value
                elif change < 4:
                    batch.delete(name)
                    model.pop(name, None)
                elif name < other:
                    batch.delete_range(name, other)
                    model = {k: v for k, v in model.items() if not name <= k < other}
            engine.write(batch, engine.applied + 1)
            past[engine.applied] = dict(model)
        elif what < 8:
            engine.flush()
        elif what < 9:
            flushed = engine.flushed_sequence()
            engine = store.crash()
            assert engine.applied >= flushed
            model = dict(past[engine.applied])
        else:
            start, end = sorted((key(random.randrange(61)), key(random.randrange(61))))
            for reverse in (False, True):
                wanted = expected(model, start, end, reverse)
                assert rows(engine, start, end, reverse) == wanted
                view = engine.snapshot()
                assert rows(view, start, end, reverse) == wanted
                view.close()
            assert engine.get(start) == model.get(start)
    assert rows(engine) == expected(model)
