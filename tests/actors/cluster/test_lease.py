"""Who leads gives up before anybody else can have the lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.leader_state import LeadLease

SECOND = 1_000_000


@given(st.integers(2, 300), st.integers(0, 10**12), st.integers(0, 10**7))
def test_it_is_over_here_before_it_is_anywhere_else(seconds: int, sent: int, way: int) -> None:
    """Whoever granted it counts from when the request arrived."""
    lease = LeadLease(1, seconds, sent)
    arrived = sent + way
    assert lease.is_over(arrived + seconds * SECOND)
    assert lease.is_over(sent + seconds * SECOND * 9 // 10)
    assert not lease.is_over(sent + seconds * SECOND * 9 // 10 - 1)


def test_it_is_renewed_so_early_that_two_requests_may_be_lost() -> None:
    lease = LeadLease(1, 6, 100 * SECOND)
    assert lease.renew_us == 102 * SECOND
    assert lease.renewed(102 * SECOND).renew_us == 104 * SECOND
    assert lease.renewed(102 * SECOND).ends_us == 102 * SECOND + 5_400_000


def test_what_is_answered_late_makes_it_no_shorter() -> None:
    lease = LeadLease(1, 6, 100 * SECOND)
    assert lease.renewed(99 * SECOND) == lease


@pytest.mark.parametrize("seconds", [2, 5, 300])
def test_a_renewal_counts_from_when_it_was_sent(seconds: int) -> None:
    """Planted: from when its answer came, a slow answer would have two lead at once."""
    sent, answered = 1000 * SECOND, 1000 * SECOND + seconds * SECOND
    assert LeadLease(1, seconds, 0).renewed(sent).is_over(answered)
