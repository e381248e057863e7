"""What a node of a cluster goes by, as its own file and its state say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from protocol.failover import Policy
from storage.files.cluster_file import Cluster, Founding

FOUNDS = Policy(("http://etcd",), timedelta(seconds=5), 1, timedelta(seconds=1), "AUTO")
SHOWN = FOUNDS._replace(acks=0)
SET = frozenset("ab")


@pytest.mark.parametrize(
    ("cluster", "shown", "policy"),
    [
        (Cluster(), None, None),
        (Cluster(), SHOWN, SHOWN),
        (Cluster(founding=Founding(SET, FOUNDS, 9)), None, FOUNDS),
        (Cluster(founding=Founding(SET, FOUNDS, 9)), SHOWN, FOUNDS),
        (Cluster(founding=Founding(frozenset(), FOUNDS, 9)), None, FOUNDS),
        (Cluster(founding=Founding(frozenset(), FOUNDS, 9)), SHOWN, SHOWN),
    ],
)
def test_what_it_founds_with_counts_until_that_is_founded_and_shown(
    cluster: Cluster, shown: Policy | None, policy: Policy | None
) -> None:
    assert cluster.policy(shown) == policy
