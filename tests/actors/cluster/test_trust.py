"""Whom a node trusts, and when it is told that this has changed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.cluster.membership import Trust
from actors.commits.committer import NODE, released_at_once
from protocol.errors import NotWritable
from storage.catalog import replicas
from storage.engine.engine import EngineUnreadable
from tests.logbook import Logbook
from tests.nodes import Running, running

ONE, OTHER = "ab" * 32, "cd" * 32
ID = "6f3a0000-0000-4000-8000-000000000001"


class TrustObserver:
    """A node with its trust, and how often it was told of a change."""

    def __init__(self, here: Running) -> None:
        self.here = here
        self.trust = here.node.peering.trust
        self.times = 0
        self.trust.on_change.append(self._changed)

    def _changed(self) -> None:
        self.times += 1


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[TrustObserver]:
    async with running(tmp_path / "x") as here:
        await here.values(
            f"DEFINE REPLICA n1 PEER 'n1:1' CERTIFICATE '{ONE}'; DEFINE REPLICA n2 PEER 'n2:1'"
        )
        told = TrustObserver(here)
        told.trust.start_notifying()
        yield told


async def test_whom_rows_name_and_nobody_has_revoked(node: TrustObserver) -> None:
    pinned = node.trust.of(ONE)
    assert pinned is not None and (pinned.row, pinned.node) == ("n1", None)
    assert node.trust.of(OTHER) is None and not node.trust.is_revoked(ONE)
    await node.here.value(f"REVOKE CERTIFICATE '{ONE}'")
    assert node.trust.of(ONE) is None and node.trust.is_revoked(ONE)
    assert node.times == 1


async def test_the_certificates_of_a_node(node: TrustObserver) -> None:
    assert node.trust.pins_of(ID) == frozenset()
    with node.here.node.committer.begin_transaction() as tx:
        row = replicas.find(tx, "n1")
        assert row is not None
        row = replicas.renew(tx, row, OTHER, node.trust.now)
        replicas.shown(tx, row, ID, ONE, node.trust.now)
        ticket = node.here.node.committer.commit(tx, NODE)
    await node.here.node.committer.released(ticket)
    assert node.trust.pins_of(ID) == {ONE, OTHER}
    assert node.trust.row_of(ID) == "n1" and node.trust.row_of("another") is None
    await node.here.value(f"REVOKE CERTIFICATE '{ONE}'")
    assert node.trust.pins_of(ID) == frozenset() and not node.trust.is_revoked(OTHER)


async def test_strangers_are_awaited_while_a_token_opens_something(node: TrustObserver) -> None:
    assert not node.trust.admits_unknown()
    await node.here.value("CREATE JOIN TOKEN")
    assert node.trust.admits_unknown()
    await node.here.value("DROP REPLICA n2")
    assert not node.trust.admits_unknown()


async def test_what_is_declared_counts_once_it_is_released(node: TrustObserver) -> None:
    """Nobody is let in by what may be taken back, however much more is on its way behind it."""
    committer = node.here.node.committer
    released = committer.commit_index
    committer.releasable = lambda _durable: released
    waits = [
        asyncio.ensure_future(node.here.value(statement))
        for statement in (
            f"DEFINE REPLICA n3 PEER 'n3:1' CERTIFICATE '{OTHER}'",
            "DEFINE NAMESPACE later",
        )
    ]
    while committer.synced_seq < released + 2:
        await asyncio.sleep(0.005)
    assert node.trust.of(OTHER) is None and node.trust.of(ONE) is not None
    released += 1
    committer.release_more()
    assert node.trust.of(OTHER) is not None
    committer.releasable = released_at_once
    committer.release_more()
    await asyncio.gather(*waits)
    assert node.trust.of(OTHER) is not None


async def hides_nothing(node: TrustObserver) -> None:
    """Somebody asks while a revocation is on its way to the disk."""
    committer = node.here.node.committer
    with committer.begin_transaction() as tx:
        replicas.add_revocation(tx, ONE, None)
        ticket = committer.commit(tx, NODE)
    assert node.trust.of(ONE) is None
    await committer.released(ticket)
    await node.here.value("RETURN 1")
    assert node.times == 1


async def test_who_asks_in_between_hides_nothing(node: TrustObserver) -> None:
    await hides_nothing(node)


async def test_planted_one_that_does_is_caught(
    node: TrustObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Trust._refresh

    def hiding(trust: Trust) -> None:
        read(trust)
        trust._notified_version = trust._version[:2]

    monkeypatch.setattr(Trust, "_refresh", hiding)
    with pytest.raises(AssertionError):
        await hides_nothing(node)


async def test_what_could_not_be_read_is_told_again(
    node: TrustObserver, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links of who was just revoked are cut by who is told of it, also where nothing more is
    released."""
    logbook.allow("handler failed|a part of the state can't be read")
    monkeypatch.setattr("actors.cluster.membership.AGAIN_SECONDS", 0.001)
    tries = list[None]()

    def unreadable() -> None:
        tries.append(None)
        if len(tries) < 3:
            raise EngineUnreadable("bad block")

    node.trust.on_change.insert(0, unreadable)
    await node.here.value(f"REVOKE CERTIFICATE '{ONE}'")
    while len(tries) < 3:
        await asyncio.sleep(0.001)
    assert node.times == 3, "whoever can read it is told each time"


async def test_what_could_not_be_read_keeps_nothing_newer_from_being_told(
    node: TrustObserver, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("handler failed|a part of the state can't be read")
    monkeypatch.setattr("actors.cluster.membership.AGAIN_SECONDS", 3600)

    def unreadable() -> None:
        raise EngineUnreadable("bad block")

    await node.here.values("DEFINE TABLE t; CREATE t:1")
    before = node.times
    node.trust.on_change.insert(0, unreadable)
    for count, fingerprint in enumerate((ONE, OTHER), start=1):
        await node.here.value(f"REVOKE CERTIFICATE '{fingerprint}'")
        while node.times < before + count:
            await asyncio.sleep(0.001)
        await node.here.value("CREATE t")
        assert node.times == before + count


async def test_other_commits_are_told_of_no_change(node: TrustObserver) -> None:
    await node.here.values("DEFINE TABLE t; CREATE t:1")
    before = node.times
    await node.here.value("CREATE t:2")
    assert node.times == before
    node.trust.close()
    node.trust.close()
    await node.here.value(f"REVOKE CERTIFICATE '{ONE}'")
    assert node.times == before and node.trust.is_revoked(ONE)


async def test_a_follower_hears_of_it_with_what_its_leader_releases(tmp_path: Path) -> None:
    async with running(tmp_path / "leader") as here:
        await here.values(f"DEFINE REPLICA n1 PEER 'n1:1' CERTIFICATE '{ONE}'")
    shutil.copytree(tmp_path / "leader", tmp_path / "follower")
    async with running(tmp_path / "leader") as leader, running(tmp_path / "follower") as here:
        leads, follows = leader.node.committer, here.node.committer
        await follows.begin_following(NotWritable("this node follows another one"))
        before = follows.commit_index
        await follows.cut(before)
        node = TrustObserver(here)
        node.trust.start_notifying()
        ear = leads.tail.follow(before, lambda: None)
        await leader.value(f"REVOKE CERTIFICATE '{ONE}'")
        assert node.trust.of(ONE) is not None
        upto = leads.commit_index
        await follows.receive(ear.take(1 << 20), upto)
        follows.show(upto)
        while not node.times:
            await asyncio.sleep(0.005)
        assert node.trust.of(ONE) is None
        ear.leave()
