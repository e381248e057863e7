"""The ledger: time, replay, hand-over, and the way to the engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from protocol import limits
from protocol.errors import Busy, Conflict
from protocol.paths import EACH
from protocol.values import unpaced
from storage.catalog import places, tables
from storage.engine.engine import Batch, EngineFailed
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.formats import keys
from storage.formats.effects import EffectsDamaged
from storage.formats.frames import Frame
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.records import index_builds, records
from storage.txn import ledger, replay, validation, write_set
from storage.txn.ledger import Ledger, StateUnusable
from storage.txn.priority_lock import PriorityLock
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from storage.txn.transaction import Transaction
from tests.simulation.environment import START_US, ManualClock, SeededRng
from tests.storage.books import Book, digests

HOUR_US = 3_600_000_000


def key(number: int) -> bytes:
    return keys.STORE_RANGE + b"\x40" + number.to_bytes(4, "big")


def put(book: Book, *numbers: int) -> int:
    tx = book.begin_transaction()
    for number in numbers:
        tx.put(key(number), b"%d" % number)
    return book.commit(tx)


def some_table(tx: Transaction) -> tables.Table:
    """That of these tests; defined, unless it is there."""
    if not list(places.namespaces(tx, unpaced)):
        place = places.define_database(tx, places.define_namespace(tx, "n"), "d")
        return tables.define_table(tx, place, "t")
    return tables.table(tx, places.database(tx, places.namespace(tx, "n"), "d"), "t")


@pytest.fixture
def book() -> Book:
    return Book()


# --- time ---------------------------------------------------------------------------------------


def test_log_time_begins_at_the_wall_and_follows_the_monotonic_clock(book: Book) -> None:
    assert book.ledger.log_time() == START_US
    book.clock.advance(5)
    book.clock.step_wall(-HOUR_US)
    assert book.ledger.log_time() == START_US + 5
    book.clock.step_wall(3 * HOUR_US)
    assert book.ledger.log_time() == START_US + 5


@pytest.mark.parametrize("wall_us", [START_US - HOUR_US, START_US, START_US + HOUR_US])
def test_log_time_never_falls_behind_the_log(wall_us: int) -> None:
    clock = ManualClock(wall_us)
    made = Ledger(
        MemoryEngine(),
        LogEnd(0, 1, START_US),
        clock,
        SeededRng(1),
        lambda frame: None,
        derived.kept,
    )
    assert made.log_time() == max(START_US, wall_us)
    clock.advance(7)
    assert made.log_time() == max(START_US, wall_us) + 7


def test_log_time_is_not_behind_what_was_followed_once_it_leads(book: Book) -> None:
    """Who led before had a clock that is an hour ahead."""
    put(book, 1)
    last = book.frames[-1]
    ahead = Frame(last.sequence + 1, 2, last.time + HOUR_US, 0, last.body)
    for _ in book.ledger.follow(ahead):
        pass
    book.ledger.lead(3)
    assert book.ledger.log_time() == ahead.time
    book.clock.advance(5)
    assert book.ledger.log_time() == ahead.time + 5
    assert book.begin_transaction().now_us == ahead.time + 5


def test_log_time_of_who_follows_is_not_that_of_a_frame_that_was_taken_back(book: Book) -> None:
    """It led with a clock that is an hour ahead, and nobody had what it committed."""
    put(book, 1)
    book.durable()
    book.clock.advance(HOUR_US)
    put(book, 2)
    book.ledger.roll_back(1)
    book.ledger.adopt_log_time(2, START_US + 5)
    assert book.ledger.log_time() == START_US + 5


# --- commits ------------------------------------------------------------------------------------


def test_refused_by_the_log_is_as_if_not_tried(book: Book) -> None:
    put(book, 1)

    def refuse(frame: Frame) -> None:
        raise Busy("no room in the mailbox")

    real, book.ledger._hand_over = book.ledger._hand_over, refuse
    with pytest.raises(Busy):
        put(book, 2)
    book.ledger._hand_over = real
    assert book.begin_transaction().get(key(2)) is None
    assert put(book, 3) == 2


def test_ended_is_ended(book: Book) -> None:
    tx = book.begin_transaction()
    tx.release()
    tx.release()
    with pytest.raises(AssertionError):
        tx.put(key(1), b"")
    with pytest.raises(AssertionError):
        book.commit(tx)


def test_control_given_away_without_a_pause_is_a_bug(book: Book) -> None:
    careless = book.begin_transaction()
    careless.put(key(1), b"")
    put(book, 2)
    with pytest.raises(AssertionError, match="without a pause"):
        careless.pause()
    with pytest.raises(AssertionError, match="without a pause"):
        book.commit(careless)


def test_a_view_is_let_go_with_its_transaction(book: Book) -> None:
    tx = book.begin_transaction()
    tx.pause()
    put(book, 1)
    assert len(book.ledger.state.conflicts) == 1
    tx.release()
    assert len(book.ledger.state.conflicts) == 0
    with pytest.raises(AssertionError, match="closed view"):
        tx.get(key(1))


def test_changes_remembered_are_bounded(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_KEYS", 10)
    slow, reader = book.begin_transaction(), book.begin_transaction()
    slow.pause()
    reader.pause()
    for number in range(1, 30):
        put(book, number)
    assert book.ledger.state.conflicts.keys <= 10
    slow.put(key(0), b"")
    with pytest.raises(Conflict, match="too long"):
        book.commit(slow)
    assert reader.get(key(1)) is None
    book.commit(reader)


def test_who_paused_is_compared_in_steps_before_its_commit(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in the commit with what came since alone, however many there were."""
    monkeypatch.setattr(validation, "COMPARE_LOOKS", 10)
    touch, looked = ReadSet.touch, 0

    def counted(self: ReadSet, *changed: Any) -> bool:
        nonlocal looked
        looked += 1
        return touch(self, *changed)

    monkeypatch.setattr(ReadSet, "touch", counted)
    slow = book.begin_transaction()
    for number in range(100, 200, 2):
        list(slow.scan(key(number), key(number + 1)))
    slow.pause()
    for number in range(50):
        put(book, number, number + 1_000)
    slow.put(key(2_000), b"")
    each = []
    for _ in book.ledger.prepare(slow):
        each.append(looked)
        looked = 0
    assert sum(each) + looked == 50 and max(each) < 5
    looked = 0
    put(book, 1)
    book.commit(slow)
    assert looked == 1


def test_what_was_read_is_not_gone_through_for_each_range_that_is_deleted(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "COMPARE_KEYS", 10)
    slow = book.begin_transaction()
    for number in range(100):
        slow.get(key(number))
    slow.pause()
    for number in range(30):
        tx = book.begin_transaction()
        tx.delete_range(key(1_000 + number), key(1_001 + number))
        book.commit(tx)

    class Counted(set[bytes]):
        times = 0

        def __iter__(self) -> Iterator[bytes]:
            Counted.times += 1
            return super().__iter__()

    slow.reads._keys = Counted(slow.reads._keys)
    slow.put(key(2_000), b"")
    assert len(list(book.ledger.prepare(slow))) >= 10
    book.commit(slow)
    assert Counted.times == 30 + 1, "compared with each commit's keys, and put in order once"


@pytest.mark.parametrize("race", ["before", "after", "read later", "taken back"])
def test_no_race_is_missed_by_comparing_before_the_commit(book: Book, race: str) -> None:
    put(book, 1, 2, 101)
    book.durable()
    slow = book.begin_transaction()
    list(slow.scan(key(0), key(10)))
    slow.get(key(101))
    slow.pause()
    put(book, 1 if race == "before" else 20, 30)
    put(book, 21)
    slow.put(key(2_000), b"")
    if race == "before":
        with pytest.raises(Conflict):
            list(book.ledger.prepare(slow))
    else:
        list(book.ledger.prepare(slow))
    if race == "after":
        put(book, 101)
    elif race == "read later":
        slow.get(key(30))
    elif race == "taken back":
        book.ledger.roll_back()
        put(book, 1)
    with pytest.raises(Conflict):
        book.commit(slow)


def put_in_no_order(tx: Transaction) -> None:
    for number in range(1_000):
        tx.put(key(number * 7 % 1_000), b"")


@pytest.mark.parametrize("beside", ["nobody", "paused", "barrier"])
def test_keys_are_put_in_order_in_steps_for_who_is_compared_with_them(
    book: Book, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr(ledger, "PREPARE_KEYS", 40)
    paused = book.begin_transaction()
    if beside == "paused":
        paused.pause()
    elif beside == "barrier":
        book.ledger.barrier = PriorityLock(ReadSet(0, RollBacks()))
    tx = book.begin_transaction()
    put_in_no_order(tx)
    steps = len(list(book.ledger.prepare(tx)))
    assert tx.own._order.knows(tx.own.writes) == (beside != "nobody")
    assert steps >= (25 if beside == "nobody" else 75)
    assert tx.own.ordered() == [key(number) for number in range(1_000)]
    book.commit(tx)


def test_keys_that_are_followed_are_put_in_order_in_steps_for_who_has_paused(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "RECORDS_A_STEP", 40)
    tx = book.begin_transaction()
    put_in_no_order(tx)
    book.commit(tx)
    other = Book()
    paused = other.begin_transaction()
    paused.pause()
    known = []
    monkeypatch.setattr(
        other.ledger.state.conflicts,
        "remember",
        lambda layer: known.append(layer._order.knows(layer.writes)),
    )
    assert len(list(other.ledger.follow(book.frames[0]))) > 25
    assert known == [True]


@pytest.mark.parametrize("large", [False, True])
def test_whether_keys_are_untouched_costs_no_more_with_each_commit_beside(
    book: Book, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(validation, "LARGE", 0)

    class Wanted(list[bytes]):
        looks = 0

        def __iter__(self) -> Iterator[bytes]:
            self.looks += 1
            return super().__iter__()

    slow, book_races = book.begin_transaction(), book.ledger.state.conflicts
    put_first = Wanted([key(5), key(6)])
    slow.pause()
    for number in range(100, 130):
        put(book, number)
    assert book_races.is_untouched(slow.reads, put_first)
    assert large or put_first.looks == 1
    late = book.begin_transaction()
    late.pause()
    put(book, 5)
    assert not book_races.is_untouched(slow.reads, put_first)
    assert book_races.is_untouched(slow.reads, [key(6)])
    assert book_races.is_untouched(late.reads, [key(100)])
    book.ledger.roll_back()
    put(book, 100)
    assert book_races.is_untouched(book.begin_transaction().reads, [key(100)])
    slow.release()
    late.release()
    assert not len(book_races) and not book_races._newest and not book_races.keys


@pytest.mark.parametrize("large", [False, True])
def test_commits_that_are_forgotten_or_taken_back_leave_what_others_changed(
    book: Book, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(validation, "LARGE", 1)
    first = book.begin_transaction()
    first.pause()
    put(book, 1, 2)
    put(book, 2, 3)
    book.durable()
    second = book.begin_transaction()
    second.pause()
    put(book, 1, 3)
    put(book, 3, 4)
    asked = book.ledger.state.conflicts
    first.release()
    untouched = [
        number for number in range(1, 5) if asked.is_untouched(second.reads, [key(number)])
    ]
    assert (untouched, len(asked), asked.keys) == ([2], 2, 4)
    third = book.begin_transaction()
    third.pause()
    put(book, 2, 3)
    book.ledger.mark_durable(3, digests(book.frames, 3))
    book.ledger.roll_back()
    assert second.sequence == 2 and third.reads.rolled_back
    untouched = [
        number for number in range(1, 5) if asked.is_untouched(second.reads, [key(number)])
    ]
    assert (untouched, len(asked), asked.keys) == ([2, 4], 1, 2)


# --- to the engine ------------------------------------------------------------------------------


class Failing(MemoryEngine):
    failing = False
    writes = 0

    def write(self, batch: Batch, applied: int) -> None:
        if self.failing:
            raise EngineFailed("planted")
        self.writes += 1
        super().write(batch, applied)


@pytest.fixture
def failing(book: Book) -> Failing:
    engine = Failing()
    book.engine = engine
    book.ledger = book.ledger_on(engine, LogEnd())
    return engine


def test_what_the_engine_refused_stays_readable_and_is_tried_again(
    book: Book, failing: Failing
) -> None:
    put(book, 1)
    failing.failing = True
    with pytest.raises(EngineFailed):
        book.durable()
    assert book.begin_transaction().get(key(1)) == b"1"
    assert put(book, 2) == 2
    failing.failing = False
    book.durable()
    assert failing.applied == 2
    assert failing.get(key(1)) == b"1"


def test_a_large_commit_goes_in_parts(
    book: Book, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(book, *range(10))
    book.durable()
    monkeypatch.setattr(ledger, "APPLY_KEYS", 30)
    tx = book.begin_transaction()
    tx.delete_range(key(0), key(5))
    for number in range(100):
        tx.put(key(number + 3), b"new")
    book.commit(tx)
    put(book, 1_000)
    book.ledger.mark_durable(3, digests(book.frames))
    book.ledger.release(3)
    wanted = [pair for step in book.begin_transaction().scan(key(0), key(2_000)) for pair in step]
    parts = 0
    for _ in step_by_step(book.ledger):
        parts += 1
        assert failing.applied in (1, 2, 3)
        seen = [pair for step in book.begin_transaction().scan(key(0), key(2_000)) for pair in step]
        assert seen == wanted
        if parts == 2:
            failing.failing = True
            with pytest.raises(EngineFailed):
                book.ledger.apply_next()
            failing.failing = False
    assert parts > 4
    assert failing.applied == 3
    assert [pair for step in failing.scan(key(0), key(2_000)) for pair in step] == wanted


@pytest.mark.parametrize("paused", [False, True])
def test_what_a_large_commit_held_is_freed_in_parts_unless_somebody_reads_it(
    book: Book, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    monkeypatch.setattr(ledger, "APPLY_KEYS", 30)
    monkeypatch.setattr(write_set, "_MANY", 30)
    tx = book.begin_transaction()
    for number in range(100):
        tx.put(key(number), b"new")
    writes = tx.own.writes
    book.commit(tx)
    book.ledger.mark_durable(1, digests(book.frames))
    book.ledger.release(1)
    reading = book.begin_transaction()
    if paused:
        reading.pause()
    left = [len(writes) for _ in step_by_step(book.ledger)]
    assert left[-1] == (100 if paused else 0)
    assert not book.ledger.apply_next() and not book.ledger.state.flight.write_sets
    assert paused or max(before - after for before, after in pairwise(left)) == 30
    assert sum(len(step) for step in reading.scan(key(0), key(100))) == 100
    reading.release()


def test_what_a_large_commit_held_stays_while_the_next_one_is_followed(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index is built over its records as they are in flight, and beside it they settle."""
    with book.begin_transaction() as tx:
        table = some_table(tx)
        for number in range(60):
            words = [{"x": f"{number} {word}", "y": number} for word in range(8)]
            records.create(tx, table, number, {"words": words})
        book.commit(tx)
    with book.begin_transaction() as tx:
        index_builds.define_index(tx, some_table(tx), "built", (("words", EACH),))
        book.commit(tx)
    book.durable()
    monkeypatch.setattr(ledger, "APPLY_KEYS", 30)
    monkeypatch.setattr(write_set, "COPIED", 8)
    monkeypatch.setattr(write_set, "BATCH_PAIRS", 8)
    monkeypatch.setattr(write_set, "_MANY", 30)
    other = Book()
    assert list(other.ledger.follow(book.frames[0])) is not None
    other.ledger.mark_durable(1, digests(book.frames, 1))
    other.ledger.release(1)
    beside = 0
    for _ in other.ledger.follow(book.frames[1]):
        beside += other.ledger.apply_next()
    assert beside > 1
    other.ledger.durable(2, digests(book.frames, 2))
    assert state_hash(other.engine) == state_hash(book.engine)


@pytest.mark.parametrize("built", [False, True])
def test_what_a_large_commit_changed_is_remembered_when_it_is_freed(
    book: Book, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    """Also of one that builds an index, whose keys are put in order for both."""
    put(book, 1)
    book.durable()
    monkeypatch.setattr(ledger, "APPLY_KEYS", 30)
    slow = book.begin_transaction()
    assert [pair for step in slow.scan(key(0), key(5)) for pair in step] == [(key(1), b"1")]
    slow.pause()
    tx = book.begin_transaction()
    for number in range(1, 100):
        tx.put(key(number), b"new")
    if built:
        tx.derive(b"none", key(0), key(0))
    book.commit(tx)
    book.durable()
    assert not book.ledger.state.flight.write_sets
    slow.put(key(1), b"lost")
    with pytest.raises(Conflict):
        book.commit(slow)


def step_by_step(made: Ledger) -> Iterator[None]:
    while made.apply_next():
        yield
    yield


# --- replay -------------------------------------------------------------------------------------


def replayed(book: Book, engine: MemoryEngine, upto: int) -> Ledger:
    made = book.ledger_on(engine, LogEnd(upto))
    for frame in book.frames[engine.applied : upto]:
        made.replay(frame)
    return made


def test_replay_gives_the_same_state_from_any_point(book: Book) -> None:
    for number in range(20):
        put(book, number, number * 7)
    book.durable()
    wanted = state_hash(book.engine)
    for kept in range(0, 20, 3):
        engine = MemoryEngine()
        replayed(book, engine, kept)
        made = replayed(book, engine, 20)
        assert state_hash(engine) == wanted
        assert made.state.committed == made.synced_seq == engine.applied == 20


def test_state_beyond_the_log(book: Book) -> None:
    put(book, 1)
    book.durable()
    with pytest.raises(StateUnusable, match="beyond the end"):
        book.ledger_on(book.engine, LogEnd(0))


def test_log_that_begins_too_late(book: Book) -> None:
    put(book, 1)
    put(book, 2)
    made = book.ledger_on(MemoryEngine(), LogEnd(2))
    with pytest.raises(StateUnusable, match="continues at 2"):
        made.replay(book.frames[1])


def test_log_not_replayed_to_its_end(book: Book) -> None:
    put(book, 1)
    made = book.ledger_on(MemoryEngine(), LogEnd(1))
    with pytest.raises(AssertionError, match="not been replayed"):
        made.begin_transaction()


# --- declarations -------------------------------------------------------------------------------


def test_damaged_body(book: Book) -> None:
    put(book, 1)
    made = book.ledger_on(MemoryEngine(), LogEnd(1))
    with pytest.raises(EffectsDamaged):
        made.replay(book.frames[0]._replace(body=b"\x95"))
