"""What clients of three real nodes with a real etcd were told while these were killed, stood still
and did not hear each other can be true, all of it: see `tests.cluster.histories`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.cluster.chaos import every_history, written_again
from tests.cluster.faults import Faults
from tests.cluster.histories.clients import Clients
from tests.cluster.histories.locks import Locks
from tests.reliability.clusters import LEASE_SECONDS, Cluster, Member, asked, cluster
from tests.reliability.wallclocks import Clock, needs_faketime

Figure = Callable[[str, object], None]
HOURS = 3600
pytestmark = [needs_etcd, pytest.mark.hard, pytest.mark.timeout(600)]


def some_are_taken(found: Cluster, clients: Clients, count: int = 30) -> None:
    """Wait until so many more changes were acknowledged."""
    wanted = clients.asking.told.acknowledged + count
    found.until("some are taken", lambda: clients.asking.told.acknowledged > wanted)


def suffered(found: Cluster, clients: Clients, name: str, fault: Callable[[], str]) -> str:
    """A fault, when some changes were taken before it, and until one is taken behind it; for how
    long none was."""
    some_are_taken(found, clients)
    began = time.monotonic()
    done = fault()
    gap = written_again(clients, began, name)
    print(f"{name}: {done}; {gap:.1f} s without a write")
    return f"{name} {gap:.1f}"


def test_leaders_are_killed_stand_still_and_are_not_heard(tmp_path: Path, figure: Figure) -> None:
    with cluster(tmp_path) as found, asked(found) as clients:
        faults = Faults(found.plan, random.Random(1))
        for fault in (faults.leader_killed, faults.leader_paused, faults.leader_is_not_heard):
            suffered(found, clients, fault.__name__, fault)
            found.in_sync(3)
    figure("histories of a cluster", clients.asking.told)


def test_every_fault_beside_every_history(tmp_path: Path, figure: Figure) -> None:
    """Each kind once, and each link that is there cut once each way by itself."""
    with cluster(tmp_path) as found, asked(found, seed=2) as clients:
        faults = Faults(found.plan, random.Random(2))
        gaps = []
        for name in sorted(one for one in vars(Faults) if not one.startswith("_")):
            if name not in ("one", "one_way"):
                gaps.append(suffered(found, clients, name, getattr(faults, name)))
        nodes = found.plan.nodes
        links = [(one.name, two.name) for one in nodes for two in nodes if one != two]
        links += [pair for one in nodes for pair in ((one.name, "etcd"), ("etcd", one.name))]
        for link in links:
            cut = partial(faults.one_way, link)
            gaps.append(suffered(found, clients, " to ".join(link), cut))
    figure("histories of a cluster beside every fault", f"seconds without a write: {gaps}")
    figure("histories of a cluster beside every fault, asked", clients.figures)


def test_any_two_of_five_are_away(tmp_path: Path, figure: Figure) -> None:
    """ACKS 2: whoever they are, killed or standing still, the others go on and lose nothing."""
    chance, gaps = random.Random(6), []
    with cluster(tmp_path, count=5, acks=2) as found, asked(found, seed=6) as clients:
        for turn in range(6):
            some_are_taken(found, clients)
            leader, others = found.led(), chance.sample(found.followers(), 2)
            away = others if turn % 3 == 0 else [leader, others[0]]
            began = time.monotonic()
            for each in away:
                (each.pause if turn % 2 else each.kill)()
            time.sleep(LEASE_SECONDS * 2)
            gap = written_again(clients, began, "two were away")
            for each in away:
                (each.go_on if turn % 2 else each.start)()
            print(f"{', '.join(each.name for each in away)} away; {gap:.1f} s without a write")
            gaps.append(f"{gap:.1f}")
            found.in_sync(5)
    figure("histories of five nodes, two of them away", f"seconds without a write: {gaps}")
    figure("histories of five nodes, asked", clients.figures)


def test_a_lead_that_is_taken_by_order(tmp_path: Path, figure: Figure) -> None:
    """PROMOTE MANUAL: nobody leads until one is told to, and who led before follows it, whether it
    was killed or stood still."""

    def orders(member: Member) -> bool:
        refusal = member.refusal("DEFINE NODE LEADS STORE")
        assert refusal in ("", "NotWritable", "Busy"), refusal
        return member.leads

    with cluster(tmp_path, promote="MANUAL") as found, asked(found, seed=3) as clients:
        for turn in range(6):
            some_are_taken(found, clients)
            before = found.led()
            began = time.monotonic()
            (before.pause if turn % 2 else before.kill)()
            after = next(one for one in found.members if one != before)
            found.until(f"{after.name} leads by order", lambda: orders(after))  # noqa: B023
            gap = written_again(clients, began, f"{after.name} was told to lead")
            print(f"{after.name} leads by order; {gap:.1f} s without a write")
            (before.go_on if turn % 2 else before.start)()
            found.in_sync(3)
            assert found.led() == after
    figure("histories of a cluster led by order", clients.figures)


@needs_faketime
def test_clocks_are_hours_apart_and_step(tmp_path: Path, figure: Figure) -> None:
    """The wall clock of each node is set forward and back by hours beside all clients, and leaders
    are killed meanwhile, so that each leads whatever its clock says."""
    clocks = {}
    for name in ("n1", "n2", "n3"):
        (tmp_path / name).mkdir()
        clocks[name] = Clock(tmp_path / name)
    environments = {name: clock.environment() for name, clock in clocks.items()}
    histories = [one for one in every_history() if not isinstance(one, Locks)]
    histories.append(Locks(clocks_agree=False))
    led = set()
    steps = {"n1": (5, -3, 0), "n2": (-5, 2, 9), "n3": (1, 6, -4)}
    with (
        cluster(tmp_path, environments=environments) as found,
        asked(found, *histories, seed=4) as clients,
    ):
        for turn in range(3):
            for name, clock in clocks.items():
                clock.move(steps[name][turn] * HOURS)
                some_are_taken(found, clients)
            led.add(found.led().name)
            suffered(found, clients, "killed", lambda: killed(found))
            found.in_sync(3)
    assert len(led) > 1
    figure("histories of a cluster whose clocks step", clients.figures)


def killed(found: Cluster) -> str:
    leader = found.led()
    leader.kill()
    time.sleep(LEASE_SECONDS)
    leader.start()
    return leader.name
