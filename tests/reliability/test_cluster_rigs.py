"""Three real nodes with a real etcd, and what lasts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.cluster import processes
from tests.cluster.chaos import written_again
from tests.cluster.histories.clients import Clients
from tests.cluster.plan import ETCD
from tests.reliability import disks
from tests.reliability.clusters import PLACE, Cluster, Member, asked, cluster
from tests.reliability.disks import MIB, FailingDisk, Filler

Figure = Callable[[str, object], None]
DISK_BYTES = 256 * MIB
PADDING = "x" * 2_000
QUIET = "DEFINE TABLE IF NOT EXISTS quiet; UPSERT quiet:1 SET n = 1"
"""What is read while nothing can be written: who would see what is on its way waits for it."""
pytestmark = [needs_etcd, pytest.mark.hard, pytest.mark.timeout(600)]


def changes_are_taken(found: Cluster, clients: Clients, count: int = 30) -> None:
    """Wait until so many more were acknowledged."""
    wanted = clients.asking.told.acknowledged + count
    found.until("some are taken", lambda: clients.asking.told.acknowledged > wanted)


def healed(found: Cluster, clients: Clients) -> float:
    """Nothing is cut any more: how long it takes until somebody takes a write, and all are in sync
    behind that."""
    found.cut()
    began = time.monotonic()
    gap = written_again(clients, began, "healing")
    found.in_sync(3)
    return gap


# --- one-way cuts that last -----------------------------------------------------------------------


def others(found: Cluster, member: Member) -> list[str]:
    return [each.name for each in found.members if each != member]


def from_it(found: Cluster, member: Member) -> list[tuple[str, str]]:
    return [(member.name, end) for end in (*others(found, member), ETCD)]


def to_it(found: Cluster, member: Member) -> list[tuple[str, str]]:
    return [(end, member.name) for end in (*others(found, member), ETCD)]


def test_another_leads_while_nobody_hears_the_leader(tmp_path: Path, figure: Figure) -> None:
    """It hears everybody, which keeps it from nothing: its lease lapses, and another's begins."""
    with cluster(tmp_path) as found, asked(found) as clients:
        for _ in range(2):
            changes_are_taken(found, clients)
            before, began = found.led(), time.monotonic()
            found.cut(*from_it(found, before))
            after = found.led(but=before)
            changes_are_taken(found, clients)
            found.until("it knows that it leads no more", lambda: not before.leads)  # noqa: B023
            gap = clients.probe.longest(began)
            again = healed(found, clients)
            print(f"{before.name} not heard: {after.name} leads; {gap:.1f} and {again:.1f} s")
    figure("a leader that is not heard", clients.figures)


def test_another_leads_while_the_leader_does_not_hear_etcd(tmp_path: Path, figure: Figure) -> None:
    """What it says arrives, its renewals too: it stops renewing what it is not told of."""
    with cluster(tmp_path) as found, asked(found) as clients:
        for _ in range(2):
            changes_are_taken(found, clients)
            before, began = found.led(), time.monotonic()
            found.cut((ETCD, before.name))
            after = found.led(but=before)
            changes_are_taken(found, clients)
            gap = clients.probe.longest(began)
            again = healed(found, clients)
            print(f"{before.name} hears no etcd: {after.name} leads; {gap:.1f} and {again:.1f} s")
    figure("a leader that does not hear etcd", clients.figures)


def test_another_leads_while_the_leader_hears_nobody(tmp_path: Path, figure: Figure) -> None:
    """It asks followers out of the set that are silent to it, and is heard: so the next one may
    lead with a set in which it is alone with the one that is cut off, until another holds all."""
    with cluster(tmp_path) as found, asked(found) as clients:
        for _ in range(2):
            changes_are_taken(found, clients)
            before, began = found.led(), time.monotonic()
            found.cut(*to_it(found, before))
            after = found.led(but=before)
            changes_are_taken(found, clients)
            gap = clients.probe.longest(began)
            again = healed(found, clients)
            print(f"{before.name} hears nobody: {after.name} leads; {gap:.1f} and {again:.1f} s")
    figure("a leader that hears nobody", clients.figures)


def test_writes_go_on_without_a_follower_that_is_not_heard_or_does_not_hear(
    tmp_path: Path, figure: Figure
) -> None:
    """It leaves the set, and comes back by itself."""
    with cluster(tmp_path) as found, asked(found) as clients:
        for way in (from_it, to_it):
            changes_are_taken(found, clients)
            leader = found.led()
            member, began = found.followers()[0], time.monotonic()
            found.cut(*(pair for pair in way(found, member) if leader.name in pair))
            found.until("it is out of the set", lambda: not found.in_set(member))  # noqa: B023
            changes_are_taken(found, clients)
            assert found.led() == leader
            gap = clients.probe.longest(began)
            again = healed(found, clients)
            print(f"{way.__name__} {member.name}: {gap:.1f} s, {again:.1f} s when healed")
    figure("a follower that is cut off one way", clients.figures)


def test_writes_are_refused_while_no_follower_is_heard_and_etcd_is(
    tmp_path: Path, figure: Figure
) -> None:
    """The leader keeps its lease, and says why it takes nothing; nobody else may lead."""
    with cluster(tmp_path) as found, asked(found) as clients:
        found.done(QUIET, **PLACE)
        for way in (from_it, to_it):
            changes_are_taken(found, clients)
            leader = found.led()
            found.cut(*(pair for pair in way(found, leader) if ETCD not in pair))
            refused = "NotEnoughReplicas"
            found.until(
                "it says what it lacks",
                lambda: leader.refusal("CREATE t SET n = 0", **PLACE) == refused,  # noqa: B023
            )
            assert leader.value("SELECT VALUE n FROM quiet", **PLACE) == [1]
            again = healed(found, clients)
            print(f"{way.__name__} {leader.name}, to nodes alone: {again:.1f} s when healed")
            assert found.led() == leader
    figure("a leader without followers", clients.figures)


# --- who stands still -----------------------------------------------------------------------------


def test_reads_go_on_while_etcd_stands_still_for_longer_than_the_lease(
    tmp_path: Path, figure: Figure
) -> None:
    """Its connections are there, and nothing is answered: not even that it is away."""
    with cluster(tmp_path) as found, asked(found) as clients:
        found.done(QUIET, **PLACE)
        for _ in range(2):
            changes_are_taken(found, clients)
            leader = found.led()
            found.pause_etcd()
            try:
                found.until(
                    "it says that it may take nothing",
                    lambda: leader.refusal("CREATE t SET n = 0", **PLACE) == "NotWritable",  # noqa: B023
                )
                assert leader.value("SELECT VALUE n FROM quiet", **PLACE) == [1]
            finally:
                found.resume_etcd()
            again = healed(found, clients)
            print(f"etcd stood still: {again:.1f} s without a write once it went on")
    figure("an etcd that stands still", clients.figures)


def test_reads_go_on_while_a_follower_that_is_needed_stands_still(tmp_path: Path) -> None:
    """With a write on its way for as long: who leads says whom it misses, to probes too."""
    with cluster(tmp_path, acks=2) as found:
        leader = found.led()
        found.done(f"{QUIET}; UPSERT t:1 SET n = 1", **PLACE)
        still = found.followers()[0]
        still.pause()
        try:
            assert leader.value("CREATE t:2 SET n = 2", **PLACE) is None, "nobody knows"
            found.until("it says so to probes", lambda: ready(leader)["held_up"] == "followers")
            assert ready(leader)["ready"]
            assert still.name in (leader.about.get("waits_for") or "")
            assert leader.value("INFO FOR CLUSTER")["failover"]["acks"] == 2
            assert leader.value("SELECT VALUE n FROM t ORDER BY n", **PLACE) == [1]
            for write in ("CREATE t:1 SET n = 1", "CREATE t:3 SET n = 3"):
                assert leader.refusal(write, **PLACE) == "NotEnoughReplicas"
        finally:
            still.go_on()
        found.in_sync(3)
        there = "SELECT VALUE n FROM t ORDER BY n"
        found.until("what was on its way counts", lambda: leader.value(there, **PLACE) == [1, 2])
        found.until("so does a probe", lambda: ready(leader)["held_up"] is None)


def ready(member: Member) -> dict[str, Any]:
    """What it says to a probe."""
    try:
        with urlopen(f"http://127.0.0.1:{member.at.http}/ready", timeout=60) as answer:
            said: dict[str, Any] = json.load(answer)
    except HTTPError as refused:  # it says why it is not ready
        with refused:
            said = json.load(refused)
    return said


# --- full disks -----------------------------------------------------------------------------------


@contextmanager
def small_disk(root: Path, name: str) -> Iterator[Filler]:
    """A small disk for one node of the cluster that is made there, and somebody else's file on it,
    which takes its room."""
    disks.require("mkfs.ext4", "mount")
    with disks.image_disk(root, "ext4", DISK_BYTES) as disk:
        put(root, name, disk.store)
        yield Filler(disk)


def put(root: Path, name: str, store: Path) -> None:
    """Have a node of the cluster that is made there keep its store somewhere."""
    store.mkdir()
    (root / "cluster").mkdir()
    (root / "cluster" / name).symlink_to(store)


def full_until(found: Cluster, filler: Filler, what: str, holds: Callable[[], bool]) -> None:
    """Fill a disk, and keep it full until something is so."""

    def is_so() -> bool:
        filler.take(leave=0)
        return holds()

    found.until(what, is_so)


def by_name(found: Cluster, name: str) -> Member:
    return next(each for each in found.members if each.name == name)


def amend(found: Cluster, acks: int) -> None:
    """Another policy on who leads."""
    plan = found.plan
    text = replace(plan.failover, acks=acks).defined_via(plan.etcd_endpoint)
    found.until("the policy is amended", lambda: found.led().value(text + "; RETURN 1"))


def test_a_follower_whose_disk_is_full(tmp_path: Path, figure: Figure) -> None:
    """It leaves the set, and the others go on without it; where the policy wants both followers,
    writes are refused with NotEnoughReplicas. With room it comes back, both times."""
    with (
        small_disk(tmp_path, "n2") as filler,
        cluster(tmp_path) as found,
        asked(found) as clients,
    ):
        leader, full = found.led(), by_name(found, "n2")
        found.done(QUIET, **PLACE)
        assert leader.name == "n1"
        changes_are_taken(found, clients)
        began = time.monotonic()
        full_until(found, filler, "it is out of the set", lambda: not found.in_set(full))
        changes_are_taken(found, clients, 100)
        assert full.about["id"]  # it runs, and answers
        gap = clients.probe.longest(began)
        filler.give_back()
        found.in_sync(3)
        print(f"full: {gap:.1f} s without a write")
        amend(found, 2)
        changes_are_taken(found, clients)
        refused = "NotEnoughReplicas"
        full_until(
            found, filler, "writes are refused",
            lambda: leader.refusal("CREATE t SET n = 0", **PLACE) == refused,
        )  # fmt: skip
        assert leader.value("SELECT VALUE n FROM quiet", **PLACE) == [1]
        filler.give_back()
        changes_are_taken(found, clients)
        assert found.led() == leader
    figure("a follower whose disk is full", clients.figures)


def test_a_leader_whose_disk_is_full(tmp_path: Path, figure: Figure) -> None:
    """It refuses by name, and its reads go on; with room it goes on, and so it does when it leads
    again after a start on the full disk."""
    with (
        small_disk(tmp_path, "n1") as filler,
        cluster(tmp_path) as found,
        asked(found) as clients,
    ):
        leader = found.led()
        found.done(QUIET, **PLACE)
        assert leader.name == "n1"
        changes_are_taken(found, clients)
        full_until(
            found, filler, "writes are refused",
            lambda: leader.refusal(f"CREATE t SET n = '{PADDING}'", **PLACE) == "DiskFull",
        )  # fmt: skip
        assert leader.value("SELECT VALUE n FROM quiet", **PLACE) == [1]
        filler.give_back()
        changes_are_taken(found, clients)
        found.in_sync(3)
        # Full, killed, started: it takes no part until there is room, and another leads.
        full_until(
            found, filler, "writes are refused again",
            lambda: leader.refusal(f"CREATE t SET n = '{PADDING}'", **PLACE) == "DiskFull",
        )  # fmt: skip
        leader.kill()
        changes_are_taken(found, clients)
        leader.start()
        filler.give_back()
        found.in_sync(3)
    figure("a leader whose disk is full", clients.figures)


# --- a disk that fails ----------------------------------------------------------------------------


def test_a_disk_that_fails_ends_its_node_and_nothing_else(tmp_path: Path, figure: Figure) -> None:
    """That of who leads, and then the same node's as a follower."""
    disks.require("mkfs.ext4", "mount", "umount")
    with closing(FailingDisk(tmp_path / "disk", DISK_BYTES)) as disk:
        put(tmp_path, "n1", disk.store)
        with cluster(tmp_path) as found, asked(found) as clients:
            member = by_name(found, "n1")
            assert found.led() == member
            for role in ("leader", "follower"):
                changes_are_taken(found, clients)
                began = time.monotonic()
                disk.fail()
                found.until("it has ended", lambda: processes.pid_of(found.plan, "n1") is None)
                assert found.led() != member
                changes_are_taken(found, clients)
                gap = clients.probe.longest(began)
                assert "node failed" in member.said
                disk.replace()
                member.start()
                found.in_sync(3)
                print(f"the disk of a {role} has failed: {gap:.1f} s without a write")
        figure("a disk that fails", clients.figures)
