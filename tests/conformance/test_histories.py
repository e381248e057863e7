"""No client loses what was acknowledged, or repeats what it must not, while nodes are killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.architecture.sources import ROOT
from tests.conformance.languages import LANGUAGES, marks, started
from tests.conformance.rigs import LedCluster, checked, killed_node
from tests.conformance.testee import Testee
from tests.reliability.clusters import Cluster, cluster

pytestmark = [pytest.mark.hard, pytest.mark.timeout(600)]


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=marks(one), id=one) for one in LANGUAGES]
)
def testee(request: pytest.FixtureRequest) -> Iterator[Testee]:
    found = started(request.param)
    yield found
    found.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_a_node_is_killed(testee: Testee, tmp_path: Path) -> None:
    with killed_node(tmp_path) as rig:
        history = checked(testee, rig)
    assert not history.refused
    assert history.open_outcomes, "one was done, and not answered"


@needs_etcd
def test_a_leader_is_killed(testee: Testee, three: Cluster) -> None:
    history = checked(testee, LedCluster(three))
    assert history.open_outcomes, "the leader was killed while workers waited for it"


@pytest.mark.parametrize(
    ("fault", "shows"),
    [("repeats", r"counter \d is"), ("forgets", "messages were acknowledged and are lost")],
)
def test_a_wrong_client_is_caught(fault: str, shows: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.conformance.planted", fault]
    testee = Testee(words, {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients' / 'python'}"})
    try:
        with killed_node(tmp_path) as rig, pytest.raises(AssertionError, match=shows):
            checked(testee, rig)
    finally:
        testee.close()
