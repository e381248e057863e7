"""The checker of the kill rigs knows what a log may lack: what it says it no longer holds."""

from __future__ import annotations

import pytest

from tests.reliability.workload import Broken, Promises, Script


def acknowledged(sequence: int) -> Promises:
    promises = Promises()
    script = Script(promises.next_mark(), "CREATE …", {})
    promises.send(script)
    assert promises.acknowledge(script, sequence)
    return promises


def test_a_log_that_gave_way_to_its_last_frame_lacks_nothing() -> None:
    acknowledged(7).compare_log(8, {})


@pytest.mark.parametrize("first, sequences", [(7, []), (1, []), (6, [6]), (7, [8])])
def test_an_acknowledged_frame_that_the_log_should_hold_is_missed(
    first: int, sequences: list[int]
) -> None:
    with pytest.raises(Broken):
        acknowledged(7).compare_log(first, dict.fromkeys(sequences, b""))


def test_a_log_that_begins_later_than_it_says_is_found() -> None:
    with pytest.raises(Broken, match="not dense"):
        acknowledged(7).compare_log(8, {9: b""})
