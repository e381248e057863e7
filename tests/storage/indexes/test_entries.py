"""Index entries after any history are those that follow from the records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

import storage.txn.ledger
import storage.txn.write_set
from protocol import limits, order
from protocol.binary import unpack_object
from protocol.errors import (
    AlreadyExists,
    AssertFailed,
    BadRequest,
    Conflict,
    Duplicate,
    Refusal,
    TooLarge,
)
from protocol.paths import EACH, Path, Step
from protocol.values import NONE, RecordId
from storage.catalog import places, tables
from storage.catalog.places import IfExists
from storage.catalog.tables import Table
from storage.engine.memory import MemoryEngine
from storage.formats import effects, keys
from storage.formats.effects import Effect
from storage.formats.keys import Pair
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.indexes import entries as indexes
from storage.indexes.entries import BUILDING, FAILED, READY, REBUILDING, Index
from storage.records import index_builds, records
from storage.records.records import RecordChanges
from storage.txn import steps as index_steps
from storage.txn.ledger import Ledger
from storage.txn.replay import FrameDecoder
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet
from tests.actors.scripts import questions
from tests.storage.books import Book, digests, put
from tests.storage.index_entries import differences, held, unfinished

STEPS = 60


class IndexBook(Book):
    engine: MemoryEngine

    def __init__(self) -> None:
        super().__init__()
        with self.begin_transaction() as tx:
            place = places.define_database(tx, places.define_namespace(tx, "n"), "d")
            tables.define_table(tx, place, "t")
            self.commit(tx)

    def table(self, tx: Transaction) -> Table:
        return tables.table(tx, places.database(tx, places.namespace(tx, "n"), "d"), "t")

    def define(self, name: str, *paths: Path, **told: Any) -> Index:
        with self.begin_transaction() as tx:
            made = index_builds.define_index(tx, self.table(tx), name, paths, **told)
            self.commit(tx)
        return made

    def build(self, slices: int = 1_000) -> None:
        for _ in range(slices):
            with self.begin_transaction() as tx:
                waiting = unfinished(tx)
                if not waiting:
                    return
                index_builds.build_slice(tx, waiting[0], lambda: True)
                self.commit(tx)

    def put(self, id: Any, **fields: Any) -> None:
        with self.begin_transaction() as tx:
            table = self.table(tx)
            put(tx, table, id, fields, records.stored(tx, table, id))
            self.commit(tx)

    def state(self, name: str) -> Index:
        with self.begin_transaction() as tx:
            return tables.index(self.table(tx), name)

    def wrong(self) -> list[str]:
        with self.begin_transaction() as tx:
            return differences(tx, self.table(tx))

    def content(self) -> list[Pair]:
        return [pair for pairs in self.engine.scan(*keys.EVERYTHING) for pair in pairs]

    def durable_in_part(self, rng: Random) -> None:
        """Let the log be durable, and some of it reach the engine: of a large commit a part."""
        committed = self.ledger.state.committed
        self.ledger.mark_durable(committed, digests(self.frames))
        self.ledger.release(committed)
        for _ in range(rng.randrange(4)):
            self.ledger.apply_next()

    def die(self, engine: MemoryEngine, frames: int | None = None) -> None:
        """Be killed, with what the log has and an engine that has not all of it.

        :param frames: how many of the log are left; None: those that are synced
        """
        del self.frames[self.ledger.synced_seq if frames is None else frames :]
        end = LogEnd()
        if self.frames:
            end = LogEnd(sequence=len(self.frames), epoch=1, time=self.frames[-1].time)
        self.engine = engine
        self.ledger = self.ledger_on(engine, end)
        for frame in self.frames[engine.applied :]:
            self.ledger.replay(frame)


@pytest.fixture
def store() -> IndexBook:
    return IndexBook()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few records are built in slices too."""
    monkeypatch.setattr(limits, "INDEX_AT_ONCE", 3)
    monkeypatch.setattr(index_steps, "TOGETHER_BYTES", 30)


# --- random histories -----------------------------------------------------------------------------


def create_together(rng: Random, store: IndexBook, tx: Transaction) -> None:
    """Records of few or many kinds of values, made in one go if nothing stands in the way."""
    ids = rng.sample(range(25, 60), rng.randrange(1, 6))
    rows = [questions.record(rng, rng.randrange(60)) for _ in ids]
    if rng.random() < 0.5:
        like = rng.choice(rows)
        rows = [{**row, "a": like.get("a", 1), "tags": like.get("tags", [])} for row in rows]
    records.create_together(tx, store.table(tx), list(map(order.encode, ids)), rows)


def change_together(rng: Random, store: IndexBook, tx: Transaction) -> None:
    """What one statement makes of several records; they may exchange their values."""
    table = store.table(tx)
    changes = RecordChanges(tx, table)
    ids = rng.sample(range(60), rng.randrange(1, 8))
    before = [records.stored(tx, table, id) for id in ids]
    known = [unpack_object(one.raw) if one else None for one in before]
    after = [questions.record(rng, 5) if one is None else one for one in known]
    if rng.random() < 0.7:
        rng.shuffle(after)
    for id, stored, was, fields in zip(ids, before, known, after, strict=True):
        fields = {name: value for name, value in fields.items() if value is not NONE}
        name = rng.choice(["b", "unindexed"])
        changes.put(id, {**fields, name: rng.randrange(9)}, stored, was)
    try:
        changes.write(lambda: None, lambda taken: rng.random() < 0.9)
    except Duplicate:
        tx.release()


def delete_together(rng: Random, store: IndexBook, tx: Transaction) -> None:
    """Several records that exist, perhaps since this transaction only."""
    table = store.table(tx)
    found = [keys.record(table.prefix, id) for id in rng.sample(range(60), rng.randrange(1, 6))]
    stored = [(key, one) for key in found if (one := records.stored_at(tx, key)) is not None]
    if stored:
        gone, before = zip(*stored, strict=True)
        records.delete_together(tx, table, gone, before, lambda: None)


def change(rng: Random, store: IndexBook, tx: Transaction) -> None:
    """Change a record, or several."""
    kind = rng.random()
    if kind < 0.08:
        delete_together(rng, store, tx)
        return
    if kind < 0.2:
        create_together(rng, store, tx)
        return
    if kind < 0.4:
        change_together(rng, store, tx)
        return
    table, id = store.table(tx), rng.randrange(60)
    fields = questions.record(rng, rng.randrange(25))
    fields = {name: value for name, value in fields.items() if value is not NONE}
    if rng.random() < 0.1:
        fields["link"] = rng.choice([{"a": 1}, RecordId("t", 1)])
    stored = records.stored(tx, table, id)
    try:
        if stored is None:
            records.create(tx, table, id, fields)
        elif rng.random() < 0.3:
            records.delete(tx, table, id, stored)
        else:
            put(tx, table, id, fields, stored)
    except Duplicate:
        if stored is not None:
            tx.release()


def declare(rng: Random, store: IndexBook, tx: Transaction) -> None:
    """An index more, less or anew."""
    table = store.table(tx)
    text = rng.choice(questions.INDEXES).replace(",", "").split()
    name, paths = text[0], [_path(one) for one in text[4:] if one != "UNIQUE"]
    present = next((one for one in table.indexes if one.name == name), None)
    try:
        if present is None:
            index_builds.define_index(tx, table, name, paths, unique="UNIQUE" in text)
        elif rng.random() < 0.5:
            index_builds.drop_index(tx, present)
        else:
            index_builds.rebuild_index(tx, table, present)
    except Duplicate:
        tx.release()


def _path(text: str) -> Path:
    steps: list[Step] = []
    for step in text.replace("[", ".[").split("."):
        inner = step.strip("[]")
        number = step.startswith("[")
        steps.append(EACH if number and inner == "*" else int(inner) if number else inner)
    return tuple(steps)


def step(rng: Random, store: IndexBook) -> None:
    """A transaction: committed, rolled back, or run beside another one."""
    kind = rng.random()
    if kind < 0.3:
        store.build(slices=rng.randrange(1, 4))
        return
    with store.begin_transaction() as tx:
        (declare if kind < 0.45 else change)(rng, store, tx)
        if tx.reads.ended:
            return
        if kind > 0.85:
            tx.pause()
            with store.begin_transaction() as beside:
                change(rng, store, beside)
                if not beside.reads.ended:
                    store.commit(beside)
        for _ in range(rng.randrange(3)):
            if not tx.reads.ended:
                change(rng, store, tx)
        if rng.random() < 0.15 or tx.reads.ended:
            return
        try:
            store.commit(tx)
        except Conflict:
            return
    if rng.random() < 0.5:
        store.durable()
    elif rng.random() < 0.3:
        if rng.random() < 0.3:
            store.engine.flush()
        store.durable_in_part(rng)
        if rng.random() < 0.5:
            store.engine.flush()
        if rng.random() < 0.5:
            store.engine.crash()
            store.die(store.engine)
    elif rng.random() < 0.1:
        taken_back = store.ledger.state.committed - store.ledger.synced_seq
        store.ledger.roll_back()
        del store.frames[len(store.frames) - taken_back :]


def run_history(seed: int) -> list[str]:
    """Return the faults at some step of a random history."""
    rng = Random(seed)
    with (
        patch.object(index_steps, "TOGETHER_BYTES", rng.choice([30, 1_000])),
        patch.object(storage.txn.ledger, "APPLY_KEYS", rng.choice([3, 4_096])),
        # Of every other history what builds have in flight is looked at by itself.
        patch.object(storage.txn.write_set, "_BUILT", seed % 2),
    ):
        return _history(rng, IndexBook())


def _history(rng: Random, store: IndexBook) -> list[str]:
    store.durable()
    for _ in range(STEPS):
        step(rng, store)
        wrong = store.wrong()
        if wrong:
            return wrong
    store.build()
    store.durable()
    wrong, live = store.wrong(), store.content()
    store.die(MemoryEngine())
    return wrong + store.wrong() + ["the log gives another state"] * (store.content() != live)


SAMPLE = (32, 26, 7, *range(5))
"""Histories that show every fault below: few show that of several, or of what is in flight."""


@pytest.mark.parametrize("seeds", [SAMPLE, pytest.param(range(60), marks=pytest.mark.hard)])
def test_entries_follow_from_records_after_any_history(
    seeds: Sequence[int], figure: Callable[[str, object], None]
) -> None:
    for seed in seeds:
        assert run_history(seed) == [], f"seed {seed}"
    figure("index entries recomputed", f"{len(seeds)} histories of {STEPS} steps")


def exchanged_and_killed() -> list[str]:
    """What is wrong when two records exchange their claims and the process dies on the way of that
    to the engine, at each step of it in turn."""
    wrong = []
    for steps in range(24):
        store = IndexBook()
        store.define("u", ("a",), unique=True)
        for id, a in ((1, "x"), (2, "y"), (3, "z")):
            store.put(id, a=a)
        store.durable()
        with store.begin_transaction() as tx:
            table = store.table(tx)
            changes = RecordChanges(tx, table)
            for id, a in ((1, "y"), (2, "x"), (3, "w"), (4, "z")):
                changes.put(id, {"a": a}, records.stored(tx, table, id))
            changes.write(lambda: None)
            store.commit(tx)
        store.ledger.mark_durable(store.ledger.state.committed, digests(store.frames))
        store.ledger.release(store.ledger.state.committed)
        with patch.object(storage.txn.ledger, "APPLY_KEYS", 1):
            for _ in range(steps):
                store.ledger.apply_next()
        store.engine.flush()
        store.die(store.engine)
        wrong += store.wrong()
    return wrong


def test_claims_that_are_exchanged_come_through_a_kill() -> None:
    assert exchanged_and_killed() == []


def test_a_log_that_tells_of_entries_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As logs of formats 2 and 3 do."""

    def told(tx: Transaction, writes: Any) -> list[Effect]:
        entries = [(key, value) for key, value in writes if key[keys.TAG_AT] == keys.INDEX_ENTRY]
        rest = [(key, value) for key, value in writes if key[keys.TAG_AT] != keys.INDEX_ENTRY]
        told: list[Effect] = [
            (effects.DELETE, key) if value is None else (effects.PUT, key, value)
            for key, value in entries
        ]
        tx.own.entries = tx.own.entries or bool(entries)
        return told + untold(tx, rest)

    untold = storage.txn.ledger._write_effects
    monkeypatch.setattr(storage.txn.ledger, "_write_effects", told)
    monkeypatch.setattr(Transaction, "derive", lambda self, entries, start, end: None)
    for seed in range(2):
        assert run_history(seed) == [], f"seed {seed}"


def nothing_in_steps(
    _kept: Any, _changed: Any, _get: Any
) -> Generator[None, None, dict[bytes, bytes | None]]:
    """No entries, for `derived.Kept.follow`."""
    yield
    return {}


def passes_one_over(pairs: Any) -> Any:
    """All but the first of what goes together."""
    return (some[-2:] for some in index_steps.together(pairs))


def backwards(self: Ledger, layer: Any) -> bool:
    """Records leave before their entries."""
    if self._part_at == 0:
        layer.writes = dict(reversed(layer.writes.items()))
    layer.entries = False
    return _apply_large(self, layer)


_apply_large = Ledger._apply_large
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "an update puts nothing": (indexes.IndexMaintainer, "enter", lambda *given: None),
    "claims of several not looked at": (indexes, "_check_moves", lambda *given: None),
    "claims of many not looked at": (Transaction, "none_of", lambda self, wanted: True),
    "stale claims": (indexes, "_may_delete", lambda tx, index, entry, value: len(value) == 1),
    "a build passes one over": (index_builds, "together", passes_one_over),
    "a replay derives nothing": (derived.MaintainedIndexes, "follow", nothing_in_steps),
    "records go before their entries": (Ledger, "_apply_large", backwards),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(run_history(seed) for seed in SAMPLE)


def test_a_replay_that_leaves_what_another_has_claimed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(derived, "_holds", lambda tx, entry, holder: True)
    assert exchanged_and_killed()


# --- one by one -----------------------------------------------------------------------------------


def test_unique_means_values_and_not_their_absence(store: IndexBook) -> None:
    store.define("u", ("a",), ("b",), unique=True)
    store.put(1, a=1, b="x")
    with pytest.raises(Duplicate) as caught:
        store.put(2, a=1.0, b="x")
    assert caught.value.detail["index"] == "u" and caught.value.detail["values"] == [1.0, "x"]
    assert caught.value.detail["record"] == RecordId("t", 1)
    for id in (3, 4):
        store.put(id, a=1)
        store.put(id + 10, a=1, b=None)
    store.put(1, a=1, b="x", c=1)
    assert store.wrong() == []


def test_a_build_that_meets_duplicates_says_so(store: IndexBook) -> None:
    for id in range(10):
        store.put(id, a=id % 9)
    assert store.define("u", ("a",), unique=True).state == BUILDING
    store.build()
    found = store.state("u")
    assert found.state == FAILED and not found.usable
    assert found.problem == (
        "Duplicate: index u of table t can't hold 0 of two records: t:0 and t:9"
    )
    with store.begin_transaction() as tx:
        assert held(tx, store.table(tx)) == {}
    store.put(9, a=99)
    store.put(10, a=99)
    rebuild(store, "u")
    store.build()
    assert store.state("u").state == FAILED
    store.put(10, a=100)
    rebuild(store, "u")
    store.build()
    assert store.state("u").state == READY and store.wrong() == []


@pytest.mark.parametrize("ids", [(0, 9), (9, 0), (0, 1, 9, 10), (10, 9, 1, 0)])
def test_whoever_replays_a_build_has_no_claim_that_nobody_makes(
    store: IndexBook, ids: tuple[int, ...]
) -> None:
    for id in range(11):
        store.put(id, a=id % 9)
    store.define("u", ("a",), unique=True)
    store.build(slices=1)  # what claims 0 a second time was not visited yet
    with store.begin_transaction() as tx:
        table = store.table(tx)
        for id in ids:
            stored = records.stored(tx, table, id)
            assert stored is not None
            records.delete(tx, table, id, stored)
        store.commit(tx)
    with store.begin_transaction() as tx:
        there = held(tx, store.table(tx))
    store.ledger.mark_durable(store.ledger.state.committed, digests(store.frames))
    store.die(MemoryEngine())
    with store.begin_transaction() as tx:
        assert held(tx, store.table(tx)) == there


def rebuild(store: IndexBook, name: str) -> None:
    with store.begin_transaction() as tx:
        index_builds.rebuild_index(tx, store.table(tx), store.state(name))
        store.commit(tx)


def test_a_unique_index_holds_what_it_promises_while_it_is_rebuilt(store: IndexBook) -> None:
    store.define("u", ("a",), unique=True)
    for id in range(10):
        store.put(id, a=id)
    before = store.state("u")
    rebuild(store, "u")
    assert store.state("u").state == REBUILDING and store.state("u").usable
    while store.state("u").state == REBUILDING:
        for taken in range(10):
            with pytest.raises(Duplicate):
                store.put(20, a=taken)
        assert store.wrong() == []
        store.put(9, a=99)  # and back: what one gives up another may take, visited or not
        store.put(20, a=9)
        store.put(20, a=100)
        store.put(9, a=9)
        store.build(slices=1)
    found = store.state("u")
    assert found.state == READY and found.id != before.id and store.wrong() == []


def test_a_rebuild_begun_again_dropped_or_overwritten_leaves_no_entry(store: IndexBook) -> None:
    store.define("u", ("a",), unique=True)
    for id in range(10):
        store.put(id, a=id)
    rebuild(store, "u")
    store.build(slices=2)
    rebuild(store, "u")
    with store.begin_transaction() as tx:
        assert index_builds.visited(tx, store.state("u")) == 0
    store.build(slices=2)
    store.define("u", ("a",), unique=True, taken=IfExists.OVERWRITE, comment="kept")
    assert store.state("u").state == REBUILDING and store.wrong() == []
    store.define("u", ("b",), taken=IfExists.OVERWRITE)
    assert store.state("u").state == BUILDING and store.wrong() == []
    store.build()
    rebuild(store, "u")
    store.build(slices=2)
    with store.begin_transaction() as tx:
        index_builds.drop_index(tx, store.state("u"))
        store.commit(tx)
    with store.begin_transaction() as tx:
        assert held(tx, store.table(tx)) == {} and unfinished(tx) == []
    store.durable()
    live = store.content()
    store.die(MemoryEngine())
    assert store.content() == live


def test_a_rebuild_that_finds_the_old_one_wrong_says_so(store: IndexBook) -> None:
    store.define("u", ("a",), unique=True)
    for id in range(10):
        store.put(id, a=id)
    with store.begin_transaction() as tx:  # what only a fault of the node could do
        kept = store.table(tx)
        put(tx, replace(kept, keeper=None), 9, {"a": 0}, records.stored(tx, kept, 9))
        store.commit(tx)
    rebuild(store, "u")
    store.build()
    found = store.state("u")
    assert found.state == FAILED and found.problem is not None and found.anew is None
    with store.begin_transaction() as tx:
        assert held(tx, store.table(tx)) == {}


@pytest.mark.parametrize("unique", [False, True])
def test_few_records_with_many_entries_are_built_in_slices(
    store: IndexBook, unique: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a statement would make of them is taken back, and an index in force stays so."""
    monkeypatch.setattr(limits, "INDEX_AT_ONCE", 100)
    monkeypatch.setattr(limits, "INDEX_AT_ONCE_BYTES", 2_000)
    for id in range(8):
        store.put(id, tags=[f"{id}-{n}" for n in range(10)])
    assert store.define("few", ("tags",)).state == BUILDING
    with store.begin_transaction() as tx:
        made = index_builds.define_index(tx, store.table(tx), "i", [("tags",)], unique=unique)
        assert made.state == BUILDING and tx.size < 1_000
        store.commit(tx)
    store.build()
    assert [store.state(name).state for name in ("few", "i")] == [READY] * 2
    with store.begin_transaction() as tx:
        begun = index_builds.rebuild_index(tx, store.table(tx), store.state("i"))
        assert begun.state == REBUILDING and tx.size < 1_000
        store.commit(tx)
    assert store.wrong() == []
    if unique:
        with pytest.raises(Duplicate):
            store.put(9, tags=["3-3"])
    store.build()
    store.durable()
    live = store.content()
    store.die(MemoryEngine())
    assert store.state("i").state == READY and store.wrong() == [] and store.content() == live


def test_who_follows_makes_entries_in_steps(
    store: IndexBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a build as the build does, of records index by index: others have their turns between."""
    monkeypatch.setattr(limits, "INDEX_AT_ONCE", 100)
    store.define("a", ("a",))
    store.define("b", ("b",))
    with store.begin_transaction() as tx:
        for id in range(20):
            put(tx, store.table(tx), id, {"tags": [id * 50 + n for n in range(50)]}, None)
        store.commit(tx)
    store.define("tags", ("tags",))
    follower = IndexBook()
    *before, many, build = store.frames[len(follower.frames) :]
    for frame in before:
        list(follower.ledger.follow(frame))
    assert len(list(follower.ledger.follow(many))) >= 20 * 2
    with follower.begin_transaction() as tx:
        tx.own = layer = WriteSet(build.sequence)
        grown = [0]
        for _ in FrameDecoder(derived.kept).follow(build.body, tx):
            grown.append(len(layer.writes))
    assert grown[-1] == 20 * 51 + 2, "with the index itself, and its number"
    assert max(after - before for before, after in pairwise(grown)) <= 51 + 2
    list(follower.ledger.follow(build))
    assert follower.wrong() == [] and follower.state("tags").state == READY


def test_dropping_a_table_leaves_no_entry(store: IndexBook) -> None:
    store.define("i", ("a",))
    store.put(1, a=1)
    with store.begin_transaction() as tx:
        tables.drop_table(tx, store.table(tx))
        store.commit(tx)
    store.durable()
    tags = {key[keys.TAG_AT] for pairs in store.engine.scan(*keys.EVERYTHING) for key, _ in pairs}
    assert not tags & set(keys.OF_INDEXES)


def test_defining_twice(store: IndexBook) -> None:
    first = store.define("i", ("a",))
    with pytest.raises(AlreadyExists):
        store.define("i", ("a",))
    assert store.define("i", ("b",), taken=IfExists.SKIP).paths == (("a",),)
    assert store.define("i", ("a",), taken=IfExists.OVERWRITE, comment="kept").id == first.id
    assert store.define("i", ("b",), taken=IfExists.OVERWRITE).id != first.id


@pytest.mark.parametrize(
    "paths, error",
    [
        ([("a",), ("a",)], BadRequest),
        ([("id",)], BadRequest),
        ([(f"f{n}",) for n in range(9)], TooLarge),
        ([], TooLarge),
    ],
)
def test_what_no_index_is_over(store: IndexBook, paths: Any, error: type[Refusal]) -> None:
    with pytest.raises(error):
        store.define("i", *paths)


def test_too_many_elements_are_refused_with_the_record(store: IndexBook) -> None:
    store.define("i", ("a",), ("b",))
    with pytest.raises(TooLarge, match="at most 10000 entries in index i"):
        store.put(1, a=list(range(200)), b=list(range(200)))
    with store.begin_transaction() as tx:
        assert held(tx, store.table(tx)) == {} and records.count(tx, store.table(tx)) == 0


MANY = limits.INDEX_ELEMENTS + 1


@pytest.mark.parametrize(
    "fields",
    [
        {"a": [1] * MANY}, {"a": {"x": [1] * MANY}}, {"a": [[[1] * MANY]]},
        {"a": {f"f{n}": n for n in range(MANY)}}, {"b": [{"c": 1}] * MANY},
    ],
    ids=["array", "object of an array", "nested", "object", "on the way"],
)  # fmt: skip
def test_a_value_with_too_many_parts_is_refused(store: IndexBook, fields: dict[str, Any]) -> None:
    store.define("i", ("a",), ("b", "c"))
    with pytest.raises(TooLarge, match="at most 10000 parts where a field is indexed") as caught:
        store.put(1, **fields)
    assert caught.value.detail["index"] == "i"
    with store.begin_transaction() as tx:
        assert held(tx, store.table(tx)) == {} and records.count(tx, store.table(tx)) == 0


@pytest.mark.parametrize(
    "way", ["create", "create_together", "delete", "delete_together", "changes", "refused"]
)
def test_what_a_record_makes_for_many_indexes_lets_others_go_on(store: IndexBook, way: str) -> None:
    """Behind each index that it makes many entries for."""
    for number in range(8):
        store.define(f"i{number}", ("tags",), (f"f{number}",), unique=way == "refused")
    fields = {"tags": list(range(300))}
    if way in ("delete", "delete_together", "changes"):
        store.put(1, **fields)
    turns = list[None]()
    with store.begin_transaction() as tx:
        table = store.table(tx)
        stored = records.stored(tx, table, 1)

        def tick() -> None:
            turns.append(None)

        if way == "create":
            records.create(tx, table, 1, fields, tick)
        elif way == "create_together":
            assert records.create_together(tx, table, [order.encode(1)], [fields], tick) == 1
        elif way == "delete":
            assert stored is not None
            records.delete(tx, table, 1, stored, tick)
        elif way == "delete_together":
            assert stored is not None
            records.delete_together(tx, table, [keys.record(table.prefix, 1)], [stored], tick)
        elif way == "refused":
            changes = RecordChanges(tx, table)
            changes.refuse(1, fields, AssertFailed("as its table says"))
            with pytest.raises(AssertFailed):
                changes.write(tick)
        else:
            changes = RecordChanges(tx, table)
            changes.put(1, {"tags": list(range(300, 600))}, stored)
            changes.write(tick)
        store.commit(tx)
    assert len(turns) >= 8
    assert store.wrong() == []
