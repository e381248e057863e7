"""Fresh markers that are followed in memory stay within their bounds."""

from __future__ import annotations

import pytest

from storage.formats import keys
from storage.txn import marked_records
from storage.txn.marked_records import IndexMarks, MarkedRecords

ONE = keys.of_index(keys.INDEX_ENTRY, 1, 1, 1, 1) + b"\4"
TWO = keys.of_index(keys.INDEX_ENTRY, 1, 1, 1, 2) + b"\4"


def marks(prefix: bytes, *ids: int) -> list[bytes]:
    return [prefix + bytes((id,)) for id in ids]


def known(index: IndexMarks) -> list[bytes] | None:
    rows = index.rows()
    return None if rows is None else [key for some in rows for key, _ in some]


def test_markers_are_known_once_a_fold_has_taken_all() -> None:
    followed = MarkedRecords()
    one, two = followed.of(ONE), followed.of(TWO)
    followed.note(marks(ONE, 5))
    assert known(one) is known(two) is None
    one.begin_fold()
    followed.note([*marks(ONE, 9, 3), *marks(TWO, 7), keys.count(1, 1, 1)])
    one.remove()
    one.end_fold()
    followed.note(marks(ONE, 4, 9))
    assert known(one) == marks(ONE, 3, 4, 9)
    assert known(two) is None
    # A fold that has taken some of them leaves the others.
    one.begin_fold()
    one.limit_fold(ONE + b"\4")
    followed.note(marks(ONE, 1, 6))
    assert list(one.late or ()) == marks(ONE, 1)
    one.remove()
    assert known(one) == marks(ONE, 1, 4, 6, 9)


def test_an_index_is_forgotten_with_its_range() -> None:
    followed = MarkedRecords()
    one = followed.of(ONE)
    two = followed.of(TWO)
    followed.note_ranges([keys.within(TWO[:-1])])
    assert followed.of(ONE) is one
    assert followed.of(TWO) is not two


def test_too_many_markers_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marked_records, "KNOWN", 5)
    monkeypatch.setattr(marked_records, "ALL_KNOWN", 7)
    followed = MarkedRecords()
    one, two = followed.of(ONE), followed.of(TWO)
    one.know(())
    two.know(())
    followed.note(marks(ONE, 1, 2, 3, 4, 5) + marks(TWO, 1, 2))
    assert known(one) == marks(ONE, 1, 2, 3, 4, 5)
    followed.note(marks(TWO, 3))
    assert known(one) is None and known(two) == marks(TWO, 1, 2, 3)
    followed.note(marks(TWO, 4, 5, 6))
    assert known(two) is None


def test_a_fold_removes_fewer_markers_if_many_come_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marked_records, "LATE", 3)
    followed = MarkedRecords()
    one = followed.of(ONE)
    one.begin_fold()
    followed.note(marks(ONE, 8, 2, 6, 4))
    assert one.end == ONE + b"\6" and list(one.late or ()) == marks(ONE, 2, 4)
    followed.note(marks(ONE, 7, 3))
    one.remove()
    # What is behind the end is in the engine alone.
    assert known(one) is None
