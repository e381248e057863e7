"""Decoded parts of segments are kept in bounded memory, and never stand for another segment."""

from __future__ import annotations

from unittest.mock import patch

from protocol import order
from storage.records import records
from storage.search import segments
from storage.search.kept import Kept
from storage.search.segments import Head, SegmentBuilder
from tests.storage.search.history import TextBook, asked


def test_what_was_used_longest_ago_makes_room() -> None:
    kept: Kept[str] = Kept(800)
    for number in range(50):
        kept.keep(number, str(number), 100)
        kept.get(0)
        assert kept.bytes == 100 * min(number + 1, 8)
    assert [number for number in range(50) if kept.get(number)] == [0, *range(43, 50)]


def test_a_value_is_counted_once_and_a_large_one_is_not_kept() -> None:
    kept: Kept[str] = Kept(800)
    for size in (10, 100, 60):
        kept.keep("a", "a", size)
    kept.keep("b", "b", 101)
    assert (kept.bytes, kept.get("a"), kept.get("b")) == (60, "a", None)


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
        return Head(found.number, found.records, found.words, found.digest, content=b"same")

    with patch.object(SegmentBuilder, "head", same):
        assert _replaced()[1] == ["other ids", "other lengths"]
