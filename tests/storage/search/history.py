"""Random histories of a table with a FULLTEXT index, and the plain search beside it.

A history has commits, own writes, transactions that read an old state, folds and merges in slices
between all of these, large commits that reach the engine in parts, kills, roll backs, other
definitions of the analyzer and rebuilds. After each step the index has to lead to what a look at
every record finds.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import actors.scripts.text_index
import storage.search.folding
import storage.txn.ledger
from actors.indexes.segment_folds import analysis_of, content_of
from actors.scripts import arrays, index_snapshot, text_search
from actors.scripts.text_index import TextIndex
from language import tree
from language.functions.search import text_matches
from language.parser import parse_expression
from language.search.analysis import Postings
from language.search.compiled import analyzer_of, pack_definition
from language.search.definitions import Definition, TokenFilter
from language.search.query import parse_query
from language.sizing import WorkingMemory
from protocol.binary import unpack_object
from protocol.errors import Conflict
from protocol.values import unpaced
from storage.catalog.tables import Table
from storage.engine.memory import MemoryEngine
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.entries import Index
from storage.indexes.text_options import TextOptions
from storage.records import index_builds, records
from storage.records.records import RecordChanges
from storage.search import segments
from storage.search.checking import check_text
from storage.search.folding import Fold
from storage.search.segments import Segment
from storage.txn import marked_records
from storage.txn.ledger import Ledger
from storage.txn.transaction import Transaction
from tests.storage.books import is_part_settled
from tests.storage.indexes.test_entries import IndexBook
from tests.storage.search import plain

Differing = Callable[[Transaction, Table, Random], list[str]]
"""Returns the faults of some queries."""
Settled = Callable[[Random, Any], list[str]]
"""Returns the faults once all is folded."""
STEPS = 40
IDS = 40
WORDS = ("tin", "copper", "zinc", "lead", "iron", "gold")
PATHS = (("a",), ("b", "c"))
FIELDS = parse_expression("[a, b.c]")
NODE = tree.Binary("@@", FIELDS, tree.Constant(""))
PLAIN = pack_definition(Definition(("class",), (TokenFilter("lowercase"),)))
EDGES = pack_definition(
    Definition(("class",), (TokenFilter("lowercase"), TokenFilter("edge", (1, 3))))
)
QUERIES: tuple[Any, ...] = (
    {"all": [{"boost": ["tin", 2]}, {"prefix": "c"}]}, {"phrase": ["tin gold", 3]},
    "tin", "tin copper", "zinc OR lead -iron", '"tin copper"', "go*", "irno~", "gold -tin",
    ["tin", "lead iron"], {"any": ["tin", {"phrase": ["zinc lead", 2]}]}, "co", "lead -\"tin tin\"",
)  # fmt: skip


def some_text(rng: Random) -> Any:
    """A value of a field: mostly text."""
    kind = rng.random()
    words = [rng.choice(WORDS) for _ in range(rng.randrange(5))]
    if kind < 0.6:
        return " ".join(words)
    if kind < 0.8:
        return words
    return rng.choice([None, 7, {"x": "tin"}])


def some_record(rng: Random) -> dict[str, Any]:
    """A record, which may have no text."""
    found: dict[str, Any] = {"n": rng.randrange(9)}
    if rng.random() < 0.8:
        found["a"] = some_text(rng)
    if rng.random() < 0.5:
        found["b"] = {"c": some_text(rng)}
    return found


def asked(tx: Transaction, table: Table, query: Any) -> text_search.TextAccess:
    run = run_of(tx)
    scope = text_search.TextScope(run, tx, run.fiber, lambda node: node, lambda name: table, ())
    found = scope.access(table, NODE, query)
    assert not isinstance(found, str)
    return found


def run_of(tx: Transaction) -> Any:
    """Part of a statement's execution that a search uses. It has no fiber to wait in."""
    arrays.load()
    return SimpleNamespace(
        transaction=tx, tick=lambda *_: None, memory=WorkingMemory(), texts=None,
        count_read=lambda rows: None, fiber=None,
    )  # fmt: skip


def differing(tx: Transaction, table: Table, rng: Random) -> list[str]:
    """Queries that find other records by the index than by a look at each."""
    index = next((one for one in table.indexes if one.text is not None), None)
    if index is None:
        return []
    assert index.text is not None
    definition = index.text.definition
    rows = {
        key[keys.RECORD_PREFIX_BYTES :]: unpack_object(value[SEQUENCE_BYTES:])
        for pairs in tx.scan(*keys.within(table.prefix))
        for key, value in pairs
    }
    wrong = []
    for query in rng.sample(QUERIES, 2):
        if not index.is_complete:
            continue
        search = asked(tx, table, query).search
        ids = list(search.ids())
        fresh = set(search.fresh)
        wanted = {
            id for id, row in rows.items() if _fits(definition, repr(_fields(row)), repr(query))
        }
        if ids != sorted(set(ids)) or len(ids) != search.entries:
            wrong.append(f"{query!r}: twice, or out of order")
        if not wanted <= set(ids):
            wrong.append(f"{query!r}: {len(wanted - set(ids))} missing")
        if not set(ids) - fresh <= wanted:
            wrong.append(f"{query!r}: some that do not match")
    if rng.random() < 0.3:
        wrong += _checked(tx, table, index)
    return wrong + _misjudged(tx, table, index, rows, rng)


@cache
def _fits(definition: bytes, fields: str, query: str) -> bool:
    """True if the values of some fields match. Both are written out: histories have few of them."""
    run: Any = SimpleNamespace(tick=lambda *_: None, memory=WorkingMemory())
    analyzer: Any = analyzer_of(definition)
    return text_matches(run, analyzer, literal_eval(fields), literal_eval(query))


@cache
def _postings(definition: bytes, fields: str) -> list[tuple[Postings, int]]:
    """The terms of some fields."""
    return list(map(analyzer_of(definition).postings, literal_eval(fields)))


def _checked(tx: Transaction, table: Table, index: Index) -> list[str]:
    """Differences that CHECK INDEX finds."""
    if not index.is_complete:
        return []
    analysis = analysis_of(index)
    assert index.text is not None
    postings = analyzer_of(index.text.definition).postings

    def quiet(*_: object) -> None:
        return

    found = check_text(tx, table.prefix, index, analysis.digest, postings, quiet, quiet)
    right = found.missing == found.surplus == 0
    return [] if right else [f"CHECK INDEX: {found}"]


def _misjudged(
    tx: Transaction, table: Table, index: Index, rows: dict[bytes, Any], rng: Random
) -> list[str]:
    """Queries with other scores, or another order by score, than those of a plain look."""
    assert index.text is not None
    analyzer, wrong = analyzer_of(index.text.definition), []
    definition = index.text.definition
    known = {id: _postings(definition, repr(_fields(row))) for id, row in rows.items()}
    for value in rng.sample(QUERIES, 1):
        query = parse_query(value, analyzer)
        search = TextIndex(tx, run_of(tx), table, index, query)
        wanted = {} if query is None else plain.scores(query, known, index.text)
        number, lists = search.ranked(rng.choice([1, 10]))
        ids = [id for some in lists for id in some]
        if set(ids) != set(wanted) or number != len(ids):
            wrong.append(f"{value!r}: {len(ids)} ranked, not {len(wanted)}")
            continue
        found = [search.score(id, None) for id in ids]
        if any(abs(wanted[id] - one) > 1e-5 for id, one in zip(ids, found, strict=True)):
            wrong.append(f"{value!r}: other scores")
        if ids != sorted(ids, key=lambda id: (-search.score(id, None), id)):
            wrong.append(f"{value!r}: another order")
        again = TextIndex(tx, run_of(tx), table, index, query)
        if ids and [again.score(id, None) for id in ids] != found:
            wrong.append(f"{value!r}: other scores by another way")
    return wrong


def _fields(row: dict[str, Any]) -> list[Any]:
    inner = row.get("b")
    return [row.get("a"), inner.get("c") if isinstance(inner, dict) else None]


def may_write(ledger: Ledger) -> bool:
    """True if a fold may write now."""
    return not ledger.applies_part


class TextBook(IndexBook):
    def __init__(self) -> None:
        super().__init__()
        self.work: Iterator[object] | None = None
        self.olds: list[Transaction] = []

    def define_text(self, definition: bytes = PLAIN) -> None:
        """Declare the index, or have it take another definition of its analyzer."""
        with self.begin_transaction() as tx:
            table = self.table(tx)
            options = TextOptions("en", definition, 1.5, 0.6, (2.0, 1.0))
            known = next((one for one in table.indexes if one.text is not None), None)
            if known is None:
                index_builds.define_index(tx, table, "text", PATHS, text=options)
            else:
                index_builds.analyzer_changed(tx, known, options)
            self.commit(tx)

    def fold(self, slices: int) -> bool:
        """Do some slices of folds. False: there is nothing to do."""
        for _ in range(slices):
            if self.work is None:
                ledger = self.ledger
                with self.begin_transaction() as tx:
                    found = self.table(tx).indexes
                fold = Fold(
                    self.engine, ledger.state.marked, content_of, partial(may_write, ledger)
                )
                works = (fold.work(index.key) for index in found)
                self.work = next((one for one in works if one is not None), None)
                if self.work is None:
                    return False
            if next(self.work, self) is self:
                self.work = None
        return True

    def stop_folds(self) -> None:
        """Stop folding, as the end of a process does: the work under way is lost."""
        if self.work is not None:
            self.work.close()  # type: ignore[attr-defined]
            self.work = None
        for old in self.olds:
            old.release()
        self.olds.clear()

    def settle(self) -> None:
        """Bring all commits to the engine, and fold all that is fresh."""
        self.build()
        self.durable()
        while self.fold(1_000):
            pass


def change(rng: Random, store: TextBook, tx: Transaction) -> None:
    table = store.table(tx)
    changes = RecordChanges(tx, table)
    if rng.random() < 0.05:
        delete_some(rng, tx, table)
    for id in rng.sample(range(IDS), rng.choice([1, 1, 1, 8])):
        stored = records.stored(tx, table, id)
        if stored is not None and rng.random() < 0.3:
            records.delete(tx, table, id, stored)
        else:
            changes.put(id, some_record(rng), stored)
    changes.write(unpaced)


def delete_some(rng: Random, tx: Transaction, table: Table) -> None:
    """Delete several records together, as DELETE does."""
    found = [
        (keys.record(table.prefix, id), stored)
        for id in rng.sample(range(IDS), 12)
        if (stored := records.stored(tx, table, id)) is not None
    ]
    if found:
        paths, before = zip(*found, strict=True)
        records.delete_together(tx, table, paths, before, unpaced)


def step(rng: Random, store: TextBook) -> list[str]:
    """A step of a history. Return what is wrong within it."""
    kind, wrong = rng.random(), []
    if kind < 0.35:
        store.fold(rng.randrange(1, 12))
        return []
    if kind < 0.4:
        store.define_text(rng.choice([PLAIN, EDGES]))
    elif kind < 0.43:
        with store.begin_transaction() as tx:
            index = next((one for one in store.table(tx).indexes), None)
            if index is not None:
                index_builds.rebuild_index(tx, store.table(tx), index)
                store.commit(tx)
    elif kind < 0.5:
        store.build(slices=rng.randrange(1, 4))
    elif kind < 0.56 and len(store.olds) < 3:
        old = store.begin_transaction()
        old.pause()
        store.olds.append(old)
    else:
        with store.begin_transaction() as tx:
            change(rng, store, tx)
            if rng.random() < 0.2:
                tx.pause()
                with store.begin_transaction() as beside:
                    change(rng, store, beside)
                    store.commit(beside)
                store.fold(rng.randrange(12))
                change(rng, store, tx)
            wrong = differing(tx, store.table(tx), rng)
            if rng.random() < 0.85:
                with suppress(Conflict):
                    store.commit(tx)
    return wrong or reach_disk(rng, store)


def reach_disk(rng: Random, store: TextBook) -> list[str]:
    kind = rng.random()
    if kind < 0.5:
        store.durable()
    elif kind < 0.75:
        if rng.random() < 0.3:
            store.engine.flush()
        store.durable_in_part(rng)
        if rng.random() < 0.3:
            store.engine.flush()
        if rng.random() < 0.4:
            store.stop_folds()
            store.engine.crash()
            store.die(store.engine)
    elif kind < 0.8 and not is_part_settled(store.ledger):
        store.stop_folds()
        taken_back = store.ledger.state.committed - store.ledger.synced_seq
        store.ledger.roll_back()
        del store.frames[len(store.frames) - taken_back :]
    return []


def run_history(seed: int) -> list[str]:
    """Return the faults at some step of a random history."""
    rng = Random(seed)
    with (
        patch.object(storage.txn.ledger, "APPLY_KEYS", rng.choice([3, 4_096])),
        patch.object(storage.search.folding, "FOLD_RECORDS", rng.choice([3, 1_000])),
        patch.object(storage.search.folding, "STEP_RECORDS", rng.choice([1, 4])),
        patch.object(storage.search.folding, "MERGED", rng.choice([2, 4])),
        patch.object(marked_records, "LATE", rng.choice([2, 1_000])),
        patch.object(marked_records, "KNOWN", rng.choice([6, 1_000])),
        patch.object(storage.search.folding, "BATCH_BYTES", rng.choice([64, 4_096])),
        patch.object(segments, "CHUNK", rng.choice([2, 256])),
        patch.object(actors.scripts.text_index, "_FIRST", rng.choice([1, 3])),
        patch.object(index_snapshot, "_FRESH_PART", 1),
    ):
        return _history(rng, TextBook())


def _history(rng: Random, store: TextBook) -> list[str]:
    store.define_text()
    store.durable()
    for _ in range(STEPS):
        wrong = step(rng, store)
        with store.begin_transaction() as tx:
            wrong += differing(tx, store.table(tx), rng)
        for old in store.olds if rng.random() < 0.3 else ():
            wrong += [f"an old state: {one}" for one in differing(old, store.table(old), rng)]
        if wrong:
            return wrong
    store.stop_folds()
    wrong = _settled(rng, store)
    wrong += followed(rng, store, TextBook(), differing, _settled)
    return wrong + replayed(rng, store, differing, _settled)


def live_ids(tx: Transaction, index: Index) -> list[bytes]:
    """Return the ids that the segments of an index hold, in their order."""
    known = segments.heads(tx.scan, index.entries)
    of = [Segment(tx.get, tx.scan, index.entries, head) for head in known]
    return [id for segment in of for id in segment.live_ids()]


def headless(tx: Transaction, index: Index) -> list[str]:
    """Segments that have keys and no head."""
    start, end = index.entries + segments.HEAD, keys.within(index.entries)[1]
    sides = len(index.entries) + 1
    held = {key[sides : sides + 4] for pairs in tx.scan(start, end) for key, _ in pairs}
    known = {segments.name(head.number) for head in segments.heads(tx.scan, index.entries)}
    return [f"segment {one.hex()} has no head" for one in held - known]


def _settled(rng: Random, store: TextBook) -> list[str]:
    """Return the faults once all is folded: each record is in one segment, with its own terms."""
    store.settle()
    with store.begin_transaction() as tx:
        wrong = differing(tx, store.table(tx), rng)
        for index in store.table(tx).indexes:
            fresh = [id for ids in segments.fresh_ids(tx.scan, index.entries) for id in ids]
            held = _held(tx, store.table(tx))
            if not all(key.startswith(index.entries) for key in held):
                wrong.append("an index that was rebuilt has left keys")
            if fresh:
                wrong.append(f"{len(fresh)} are fresh after all folds")
            wrong += headless(tx, index)
            live = live_ids(tx, index)
            wanted = [
                key[keys.RECORD_PREFIX_BYTES :]
                for pairs in tx.scan(*keys.within(store.table(tx).prefix))
                for key, value in pairs
                if any(_has_text(one) for one in _fields(unpack_object(value[SEQUENCE_BYTES:])))
            ]
            if sorted(live) != wanted:
                wrong.append(f"segments hold {len(live)} records, not {len(wanted)}")
    return wrong


def _held(tx: Transaction, table: Table) -> list[bytes]:
    """The keys of all indexes of a table, those that are no more among them."""
    numbers = (table.database.namespace.id, table.database.id, table.id)
    start = keys.of_index(keys.INDEX_ENTRY, *numbers, 0)[:-4]
    return [key for pairs in tx.scan(*keys.within(start)) for key, _ in pairs]


def _has_text(value: Any) -> bool:
    return type(value) is str or (type(value) is list and bool(value))


def followed(
    rng: Random, store: TextBook, follower: TextBook, differing: Differing, settled: Settled
) -> list[str]:
    """Return the faults of a follower, which folds by itself between the leader's commits."""
    follower.die(MemoryEngine(), frames=0)
    for frame in store.frames:
        for _ in follower.ledger.follow(frame):
            pass
        follower.frames.append(frame)
        if rng.random() < 0.3:
            follower.durable()
        if rng.random() < 0.3:
            follower.fold(rng.randrange(8))
    with follower.begin_transaction() as tx:
        wrong = differing(tx, follower.table(tx), rng)
    follower.stop_folds()
    return [f"a follower: {one}" for one in wrong + settled(rng, follower)]


def replayed(rng: Random, store: TextBook, differing: Differing, settled: Settled) -> list[str]:
    """Return the faults of a node that has the log alone, before and after its own folds."""
    store.die(MemoryEngine())
    with store.begin_transaction() as tx:
        wrong = differing(tx, store.table(tx), rng)
    return [f"a replay: {one}" for one in wrong + settled(rng, store)]
