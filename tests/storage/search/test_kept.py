"""Decoded parts of segments that are kept never stand for another segment."""

from __future__ import annotations

from unittest.mock import patch

from protocol import order
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
