"""The cluster file of a node, and the policy in its state."""

from __future__ import annotations

from datetime import timedelta

import pytest

from protocol.failover import Policy
from storage.files.cluster_file import BootstrapState, ClusterState

FOUNDS = Policy(("http://etcd",), timedelta(seconds=5), 1, timedelta(seconds=1), "AUTO")
SHOWN = FOUNDS._replace(acks=0)
SET = frozenset("ab")


@pytest.mark.parametrize(
    ("cluster", "shown", "policy"),
    [
        (ClusterState(), None, None),
        (ClusterState(), SHOWN, SHOWN),
        (ClusterState(founding=BootstrapState(SET, FOUNDS, 9)), None, FOUNDS),
        (ClusterState(founding=BootstrapState(SET, FOUNDS, 9)), SHOWN, FOUNDS),
        (ClusterState(founding=BootstrapState(frozenset(), FOUNDS, 9)), None, FOUNDS),
        (ClusterState(founding=BootstrapState(frozenset(), FOUNDS, 9)), SHOWN, SHOWN),
    ],
)
def test_what_it_founds_with_counts_until_that_is_founded_and_shown(
    cluster: ClusterState, shown: Policy | None, policy: Policy | None
) -> None:
    assert cluster.policy(shown) == policy
