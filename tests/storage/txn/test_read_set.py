"""The read set of a transaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import limits
from storage.formats import keys
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks

byte = st.integers(0, 30).map(lambda n: bytes((n + 1,)))
ranges = st.tuples(byte, byte).filter(lambda pair: pair[0] < pair[1])


@given(
    looks=st.lists(byte | ranges, max_size=24),
    changed=st.sets(byte, max_size=6),
    deleted=ranges,
    small=st.booleans(),
    sorts=st.sets(st.integers(0, 24)),
)
def test_never_misses_a_change(
    looks: list[bytes | tuple[bytes, bytes]],
    changed: set[bytes],
    deleted: tuple[bytes, bytes],
    small: bool,
    sorts: set[int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(limits, "READ_KEYS", 3)
            patch.setattr(limits, "READ_RANGES", 3)
        reads = ReadSet(0, RollBacks())
        for at, look in enumerate([*looks, None]):
            if at in sorts:
                list(reads.put_in_order(2))
            if look is None:
                break
            if isinstance(look, bytes):
                reads.add_key(look)
            else:
                reads.add_range(*look)
    singles = [look for look in looks if isinstance(look, bytes)]
    spans = [look for look in looks if isinstance(look, tuple)]
    read = set(singles) | {
        bytes((n,)) for n in range(32) for low, high in spans if low <= bytes((n,)) < high
    }
    touched = bool(read & changed)
    found = reads.touch(frozenset(changed), sorted(changed))
    low, high = deleted
    overlap = any(low <= key < high for key in singles) or any(
        start < high and low < end for start, end in spans
    )
    found_range = reads.touch_range(low, high)
    if small:
        assert found >= touched
        assert found_range >= overlap
        assert len(reads._keys) <= 3
        assert len(reads._ranges) <= 5
    else:
        assert found == touched
        assert found_range == overlap


def test_too_many_keys_become_a_range_for_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_KEYS", 4)
    reads = ReadSet(0, RollBacks())
    tables = [keys.record_prefix(1, 1, table) for table in (1, 2, 3)]
    for id in b"abc":
        for table in (tables[0], tables[2]):
            reads.add_key(table + bytes((id,)))
    between = tables[1] + b"b"
    assert not reads.touch(frozenset({between}), [between])
    assert reads.touch_range(tables[0] + b"b", tables[0] + b"bb")
    assert reads.touch_range(tables[2] + b"c", tables[2] + b"d")
