"""Kept segments and markers never stand for another state, and folds keep them few."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from protocol import order
from storage.formats import keys
from storage.indexes.fresh_markers import FRESH
from storage.records import records
from storage.search import segments
from storage.search.segments import Head, SegmentBuilder
from tests.storage.search.history import TextBook, asked


def _replaced() -> tuple[list[Head], list[str]]:
    """Heads of a segment and of the one that later takes its number; and what is wrong then."""
    store = TextBook()
    store.define_text()
    heads: list[Head] = []
    wrong: list[str] = []
    for ids, text in ((range(3), "tin tin tin"), (range(5, 8), "tin")):
        for id in ids:
            store.put(id, a=text)
        store.settle()
        with store.begin_transaction() as tx:
            table = store.table(tx)
            heads += segments.heads(tx.scan, table.indexes[0].entries)
            search = asked(tx, table, "tin").search
            ranked = [id for some in search.ranked(10)[1] for id in some]
            assert not search.fresh
            if not list(search.ids()) == ranked == [order.encode(id) for id in ids]:
                wrong.append("other ids")
            if search._segments[0].arrays.lengths(0).tolist() != [len(text.split())] * 3:
                wrong.append("other lengths")
        with store.begin_transaction() as tx:
            table = store.table(tx)
            for id in ids:
                stored = records.stored(tx, table, id)
                assert stored is not None
                records.delete(tx, table, id, stored)
            store.commit(tx)
        store.settle()
    return heads, wrong


def test_a_segment_does_not_get_parts_of_an_older_one_with_its_number() -> None:
    (first, second), wrong = _replaced()
    assert first.number == second.number and first.content != second.content
    assert wrong == []


def test_equal_digests_of_other_contents_are_seen() -> None:
    head = SegmentBuilder.head

    def same(self: SegmentBuilder, number: int, digest: bytes) -> Head:
        found = head(self, number, digest)
        return Head(found.number, found.records, found.words, found.digest, b"same", 0, 0)

    with patch.object(SegmentBuilder, "head", same):
        assert _replaced()[1] == ["other ids", "other lengths"]


def test_folds_remove_markers_by_the_same_range_each_time() -> None:
    store = TextBook()
    store.define_text()
    store.settle()
    batches: list[Any] = []

    def recorded() -> Any:
        batches.append(batch())
        return batches[-1]

    batch = store.engine.batch
    with store.begin_transaction() as tx:
        start = store.table(tx).indexes[0].entries + FRESH
    whole = keys.within(start)
    with patch.object(store.engine, "batch", recorded):
        for round in range(3):
            for id in (round, 30 - round):
                store.put(id, a="tin")
            store.settle()
    changes = [one for batch in batches for one in batch.changes if one[0].startswith(start)]
    # RocksDB seeks once for all of them. Single deletions it would step over one by one.
    assert [(key, end) for key, end, _ in changes if end is not None] == [whole] * 3
    assert all(value is not None for _, end, value in changes if end is None)


def test_statements_scan_no_markers_and_decode_no_heads_again() -> None:
    store = TextBook()
    store.define_text()
    for id in range(3):
        store.put(id, a="tin")
    store.settle()

    def ids(query: str) -> tuple[list[bytes], int]:
        with store.begin_transaction() as tx:
            table = store.table(tx)
            start, end = keys.within(table.indexes[0].entries)
            scan, scans = store.engine.scan, 0

            def counted(low: bytes, high: bytes, reverse: bool = False) -> Any:
                nonlocal scans
                scans += start <= low < end
                return scan(low, high, reverse)

            with patch.object(store.engine, "scan", counted):
                return list(asked(tx, table, query).search.ids()), scans

    every = [order.encode(id) for id in range(4)]
    assert ids("tin") == (every[:3], 1)
    assert ids("tin") == (every[:3], 0)
    store.put(3, a="tin")
    assert ids("tin") == (every, 0)
    store.durable()
    assert ids("tin") == (every, 0)
    store.settle()
    assert ids("tin") == (every, 1)
