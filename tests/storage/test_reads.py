"""What a transaction remembers having read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import limits
from storage.reads import Reads

byte = st.integers(0, 30).map(lambda n: bytes((n + 1,)))
ranges = st.tuples(byte, byte).filter(lambda pair: pair[0] < pair[1])


@given(
    singles=st.lists(byte, max_size=12),
    spans=st.lists(ranges, max_size=12),
    changed=st.sets(byte, max_size=6),
    deleted=ranges,
    small=st.booleans(),
)
def test_never_misses_a_change(
    singles: list[bytes],
    spans: list[tuple[bytes, bytes]],
    changed: set[bytes],
    deleted: tuple[bytes, bytes],
    small: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(limits, "READ_KEYS", 3)
            patch.setattr(limits, "READ_RANGES", 3)
        reads = Reads()
        for key in singles:
            reads.add_key(key)
        for span in spans:
            reads.add_range(*span)
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
