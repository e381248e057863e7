"""Three real nodes with a real etcd."""

from __future__ import annotations

import asyncio
import shutil
from itertools import count
from pathlib import Path

import pytest

from actors.agreement import EtcdAgreement
from protocol.agreement import NotAnswered
from tests import ores
from tests.actors.agreement.etcds import needs_etcd
from tests.cluster.plan import ETCD
from tests.reliability.clusters import (
    BEHIND_SECONDS,
    LEASE_SECONDS,
    PLACE,
    Cluster,
    Member,
    cluster,
)

pytestmark = [needs_etcd, pytest.mark.timeout(300)]


def leaders_are_killed(found: Cluster, times: int) -> None:
    """Kill whoever leads in the middle of writes, and start it again, so many times."""
    numbers = count()
    with found.written():
        for _ in range(times):
            wanted = len(found.acknowledged) + 10
            found.until("some are taken", lambda: len(found.acknowledged) > wanted)  # noqa: B023
            leader = found.led()
            leader.kill()
            found.write_until_taken(next(numbers))
            leader.start()
            found.in_sync(3)
    found.check()


@pytest.mark.hard
@pytest.mark.timeout(1_800)
def test_many_leaders_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        leaders_are_killed(found, 20)


def all_answer(found: Cluster, text: str) -> list[object]:
    """Return the answer of a script, which is the same on every node."""
    found.check()
    each, *others = [member.script(text, **PLACE) for member in found.members]
    assert all(other == each for other in others)
    return each


def all_are_folded(found: Cluster) -> None:
    """Wait until no node has fresh records in its indexes, and check these."""
    for each in found.members:

        def is_folded(each: Member = each) -> bool:
            return ores.are_folded(each.script(ores.INFO, **PLACE))

        found.until(f"the indexes of {each.name} are folded", is_folded)
        assert ores.are_whole(each.script(ores.CHECK, **PLACE))


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_every_leader_finds_the_same(tmp_path: Path) -> None:
    """By indexes that each node folds for itself, while leaders are killed."""
    with cluster(tmp_path) as found:
        found.done(f"USE a.b; {ores.SEED}")
        for number in range(6):
            found.done(f"USE a.b; DELETE ore; {ores.rows(number * 50, number * 50 + 3_000)}")
            found.done(f"USE a.b; {ores.CHANGES}")
            before = all_answer(found, ores.QUESTIONS)
            leader = found.led()
            leader.kill()
            assert found.led(but=leader).script(ores.QUESTIONS, **PLACE) == before
            leader.start()
            if number % 2:
                all_are_folded(found)
            assert all_answer(found, ores.QUESTIONS) == before


def test_all_are_killed_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        found.done(f"USE a.b; {ores.SEED} {ores.rows(0, 40)}")
        for number in range(10):
            found.write(number)
        before = all_answer(found, ores.QUESTIONS)
        for each in found.members:
            each.kill()
        for each in found.members:
            each.start()
        found.write_until_taken(10)
        assert all_answer(found, ores.QUESTIONS) == before


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_each_is_restarted_in_turn(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        for number, each in enumerate(found.members * 3):
            found.write_until_taken(number)
            each.stop()
            found.write_until_taken(100 + number)
            each.start()
            found.in_sync(3)
        found.check()


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_an_older_copy_of_a_directory_is_put_back(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        leader, (older, away) = found.led(), found.followers()
        away.stop()
        found.until("it is out of the set", lambda: not found.in_set(away))
        for number in range(5):
            found.write_until_taken(number)
        directory, copy = found.plan.directory / older.name, tmp_path / "copy"
        older.stop()
        shutil.copytree(directory, copy)
        older.start()
        for number in range(5, 40):
            found.write_until_taken(number)
        upto = leader.script("INFO FOR NODE")[-1]["sequence"]
        older.kill()
        found.until("etcd was told of it", lambda: told(found) >= upto)
        leader.kill()
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)
        older.start()
        away.start()
        found.until("it says what it lacks", lambda: lacks(older))
        assert older.refusal("DEFINE NODE LEADS STORE") == "NotWritable"
        assert found.leader is None
        leader.start()
        found.check()


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_a_node_that_was_away_while_all_moved(tmp_path: Path) -> None:
    """Where its log says it finds neither etcd nor who leads."""
    with cluster(tmp_path) as found:
        leader, (away, _) = found.led(), found.followers()
        away.stop()
        found.until("it is out of the set", lambda: not found.in_set(away))
        found.done(
            f"DEFINE FAILOVER VIA 'http://127.0.0.1:{found.plan.etcd}' LEASE {LEASE_SECONDS}s"
            f" ACKS 1 BEHIND {BEHIND_SECONDS}s PROMOTE AUTO"
        )
        found.done(f"ALTER REPLICA {leader.name} SET PEER '127.0.0.1:{leader.at.peer}'")
        found.write_until_taken(1)
        ways = [(each.name, ETCD) for each in found.members] + [(away.name, leader.name)]
        found.cut(*ways, *((to, source) for source, to in ways))
        away.start()
        found.check()
        assert "using the etcd addresses reported by other nodes" in away.said
        if found.led() == leader:  # the other is where it was
            assert "a node was reached at an address reported by other nodes" in away.said


def told(found: Cluster) -> int:
    """The last frame that stands in etcd to be released; 0: none, or nobody says."""
    store = found.led().about.get("store")
    if store is None:
        return 0
    try:
        agreed = asyncio.run(EtcdAgreement([found.plan.etcd_endpoint], store).read())
    except NotAnswered:
        return 0
    return 0 if agreed.released is None else agreed.released.sequence


def lacks(member: Member) -> bool:
    return "lost frames that it had acknowledged" in (member.about.get("waits_for") or "")
