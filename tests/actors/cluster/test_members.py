"""Whole nodes found a cluster, lead, follow and take over, in virtual time and one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from errno import ENOSPC
from itertools import product
from typing import Any

import pytest

from actors.cluster.diagnostics import cluster_figures
from actors.cluster.durable_state import DurableState
from actors.cluster.leader_state import ATTACHES_US
from actors.cluster.replica_receiver import (
    CopyMissing,
    LeaderConnector,
    ReceiverState,
    ReplicaReceiver,
)
from actors.cluster.replica_senders import BEAT_SECONDS
from actors.cluster.role import RoleName
from actors.cluster.service import ClusterService
from protocol.agreement import AgreedState
from protocol.errors import (
    BadRequest,
    Busy,
    DiskFull,
    NotEnoughReplicas,
    NotWritable,
    Refusal,
    Unknown,
    UnknownOutcome,
)
from protocol.limits import CLUSTER_SILENT_SECONDS
from protocol.links import Acknowledge, Attach, Attached, Copy, Frames, Link, Message
from storage.engine.memory import MemoryEngine
from storage.files.cluster_file import ClusterState
from tests.actors.cluster.whole import (
    BEHIND_SECONDS,
    LEASE_SECONDS,
    POLICY,
    ROLES,
    ClusterMachine,
    Trio,
    cluster,
)
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.links import ModelLink, Weather
from tests.sweeps import some_of

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes die and links are cut; each test says what comes of it."""
    logbook.allow("releases nothing")
    logbook.allow(
        "leads no more|nobody leads|etcd does not answer|was not renewed|was not answered"
    )
    logbook.allow(
        "request to take the lead|new lineage|is stranded|stopped following|were not kept"
    )
    logbook.allow("held up|no room")


def played(main: Callable[[Trio], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            await main(trio)

    stepped.run(whole(), 1)


async def wrote(machine: ClusterMachine, *ids: int | str) -> None:
    for one in ids:
        await machine.value(f"CREATE t:{one}")


async def another_takes_changes(trio: Trio, old: ClusterMachine) -> None:
    """Wait until another than who led before has taken one."""
    await trio.until(lambda: trio.leader not in (None, old))
    new = await trio.led()
    await trio.until_done(lambda: new.value("CREATE t:2"))


async def shows(trio: Trio, machine: ClusterMachine, count: int) -> None:
    """Wait until a node shows so many records."""

    async def look() -> None:
        found = await machine.value("SELECT * FROM t")
        if len(found) != count:
            raise Busy(f"{len(found)} are there")

    await trio.until_done(look)


class Given:
    """Copies that are on their way to some nodes."""

    def __init__(self, *nodes: str) -> None:
        self.given = nodes

    async def serve(self, link: Link, asked: Copy) -> None:
        """Nobody asks."""

    def attached(self, node: str) -> None:
        """They go on."""


async def refused(machine: ClusterMachine, script: str, kind: type[Refusal]) -> Refusal:
    found = await outcome(machine.value(script))
    assert isinstance(found, kind), found
    return found


# --- leading and following ------------------------------------------------------------------------


def test_a_leader_is_followed_and_what_it_answers_is_everywhere() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        assert leader.name == "a"
        await wrote(leader, *range(20))
        for each in trio.machines:
            await shows(trio, each, 20)
        refusal = await refused(trio.named("b"), "CREATE t:x", NotWritable)
        assert refusal.detail["leader"] == ["a.example:8001"]
        about = [await each.value("INFO FOR NODE") for each in trio.machines]
        assert [one["life"] for one in about] == ["leading", "following", "following"]
        assert [one["upstream"] for one in about] == [None, "in sync", "in sync"]
        assert [one["followers"] for one in about] == [2, 0, 0]
        assert {one["leader"] for one in about} == {leader.id}
        assert len({one["epoch"] for one in about}) == 1
        assert about[0]["furthest_lag"] == 0 and about[1]["furthest_lag"] is None
        assert about[0]["lease"] is not None and about[1]["lease"] is None
        assert [one["coordinates"] for one in about] == [True, True, True]
        (one, two), *none = (each["downstream"] for each in about)
        assert {one["node"], two["node"]} == {trio.named("b").id, trio.named("c").id}
        for each in (one, two):
            assert (each["standing"], each["lag"], each["in_set"]) == ("in sync", 0, True)
            assert each["silent"] < timedelta(seconds=2)
        assert none == [[], []]
        assert about[0]["upstream_silent"] is None and about[0]["upstream_why"] is None
        assert about[1]["upstream_silent"] < timedelta(seconds=2)
        assert about[1]["upstream_why"] is None
        hashes = [await each.value("INFO FOR STATE") for each in trio.machines]
        assert hashes[0] == hashes[1] == hashes[2]

    played(main)


def test_who_is_given_a_copy_is_copying() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        leader.runs.cluster.copy_with(Given("new"))
        told = (await leader.value("INFO FOR NODE"))["downstream"]
        assert {
            "node": "new", "standing": "copying", "lag": None, "silent": None, "in_set": False
        } in told  # fmt: skip
        assert len(told) == 3

    played(main)


def test_when_the_leader_dies_another_leads_and_nothing_is_lost() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, *range(20))
        await old.kill()
        new = await trio.led()
        assert new is not old
        assert len(await new.value("SELECT * FROM t")) == 20
        await trio.until_done(lambda: new.value("CREATE t:after"))
        await old.start()
        await trio.in_sync("a", "b", "c")
        await shows(trio, old, 21)

    played(main)


@pytest.mark.parametrize("killed", [True, False])
def test_writes_go_on_as_soon_as_the_lease_of_who_is_gone_has_lapsed(killed: bool) -> None:
    """Who led before has been silent since then, and is not waited for another time."""

    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        time = asyncio.get_running_loop().time  # which is virtual
        began = time()
        if killed:
            await old.kill()
        else:
            old.cut()
        await another_takes_changes(trio, old)
        assert time() - began < LEASE_SECONDS + ATTACHES_US / 1_000_000 + 0.2
        await trio.in_sync(*(each.name for each in trio.machines if each is not old))

    played(main)


@pytest.mark.parametrize("by_hand", [False, True])
def test_who_led_before_and_is_there_stays_in_the_set(by_hand: bool) -> None:
    """Also where nobody has led for long, and so nobody was heard."""

    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        insync = trio.etcd.insync
        if not by_hand:
            old.once["grant"] = Fate.REFUSED  # another is the first to take it
        leadership = old.runs.member.leadership
        assert leadership is not None
        trio.etcd.end(leadership.lease.id)  # somebody has revoked it
        if by_hand:
            await asyncio.sleep(5 * BEHIND_SECONDS)
            await trio.named("b").value("DEFINE NODE LEADS STORE")
        await another_takes_changes(trio, old)
        await asyncio.sleep(2 * BEHIND_SECONDS)
        assert trio.etcd.insync == insync  # nothing was ever asked
        await shows(trio, old, 2)

    # By hand, so that nothing could be written without it either.
    played(main, acks=1 + by_hand, promote="MANUAL" if by_hand else "AUTO")


def test_a_leader_that_is_stopped_gives_its_lead_up() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        await old.stop()
        assert trio.etcd.lead is None or trio.etcd.lead.node != old.id  # no lease has lapsed
        new = await trio.led()
        assert len(await new.value("SELECT * FROM t")) == 1

    played(main)


def test_a_leader_that_stops_and_releases_nothing_any_more_is_followed_by_nobody() -> None:
    """What it has not released it has taken back, and who comes holds some of that."""

    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        node, others = old.runs, [each for each in trio.machines if each is not old]
        for each in others:  # they hear it, and are not heard
            trio.network.cut(each.address, old.address)
        writes = asyncio.ensure_future(outcome(old.value("CREATE t:unheard")))
        await trio.until(lambda: node.committer.synced_seq > node.committer.commit_index)
        written = node.committer.synced_seq
        await trio.until(lambda: all(each.runs.committer.log_upto >= written for each in others))
        old.once["revoke"] = Fate.LOST  # it waits for that
        stops = asyncio.ensure_future(old.stop())
        await trio.until(lambda: node.committer.follows)
        for each in others:
            trio.network.mend(each.address, old.address)
            await each.kill()
            await each.start()
        assert not stops.done()
        await stops
        assert isinstance(await writes, UnknownOutcome)
        await shows(trio, await trio.led(), 2)

    played(main)


def test_all_of_them_are_killed_at_once() -> None:
    async def main(trio: Trio) -> None:
        await wrote(await trio.led(), *range(10))
        for each in trio.machines:
            await each.kill()
        for each in trio.machines:
            await each.start()
            assert isinstance(await outcome(each.value("SELECT * FROM t")), Busy)
        new = await trio.led()
        await shows(trio, new, 10)
        await trio.in_sync("a", "b", "c")
        for each in trio.machines:
            await shows(trio, each, 10)

    played(main)


@pytest.mark.parametrize("with_leader", [False, True])
def test_who_was_killed_shows_no_less_than_it_had_shown(
    with_leader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log says how much was released when it was written, which is less; and who has just taken
    the lead knows no better."""

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")

        async def write() -> None:
            for _ in range(400):
                await outcome(leader.value("CREATE t"))

        writers = [asyncio.ensure_future(write()) for _ in range(3)]
        committer = other.runs.committer
        await trio.until(
            lambda: committer.commit_index > max(60, committer._reader.state.released),
            step_seconds=0.0001,
        )
        await other.kill()
        shown = committer.commit_index
        for writer in writers:
            writer.cancel()
        if with_leader:
            await leader.kill()
        sends, shows = ModelLink.send, list[int]()

        def send(link: ModelLink, message: Message) -> None:
            sends(link, message)
            node = other.node if link.home.address == other.address else None
            if isinstance(message, Acknowledge) and node is not None and node.member.has_caught_up:
                shows.append(node.committer.commit_index)

        monkeypatch.setattr(ModelLink, "send", send)
        await other.start()
        assert other.runs.committer.commit_index < shown, "this is why it asks"
        await trio.until(lambda: len(shows) > 5)
        assert min(shows) >= shown

    played(main)


def test_the_one_that_comes_back_alone_goes_on_once_less_is_promised() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await wrote(leader, *range(10))
        survivor = next(each for each in trio.machines if each is not leader)
        for each in trio.machines:
            await each.kill()
        await survivor.start()
        fewer = POLICY.format(0, "AUTO")
        assert isinstance(await outcome(survivor.value(fewer)), NotWritable)  # it leads nothing yet
        await trio.until(lambda: survivor.life == "leading")
        await asyncio.sleep(30)  # its first frame is never released: the others would hold it
        assert trio.leader is None
        await refused(survivor, "SELECT * FROM t", Busy)
        refusal = await refused(survivor, "DEFINE NODE LEADS STORE", NotWritable)
        assert "fewer ACKS" in refusal.message
        await refused(survivor, f"SELECT * FROM t; {fewer}", Busy)
        async with asyncio.timeout(5):
            await survivor.value(fewer)
        assert await trio.led() is survivor
        assert len(await survivor.value("SELECT * FROM t")) == 10
        await survivor.value("CREATE t:after")
        for each in trio.machines:
            if each is not survivor:
                await each.start()
        await trio.in_sync("a", "b", "c")
        await survivor.value(POLICY.format(1, "AUTO"))
        for each in trio.machines:
            await shows(trio, each, 11)

    played(main)


@pytest.mark.parametrize("starts_again", [False, True])
def test_where_all_others_are_lost_at_once_it_goes_on_once_nothing_is_promised(
    starts_again: bool,
) -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await wrote(leader, 1)
        for each in trio.machines:
            if each is not leader or starts_again:
                await each.kill()
        if starts_again:
            await leader.start()
        await asyncio.sleep(20)
        async with asyncio.timeout(10):
            await leader.value(POLICY.format(0, "AUTO"))
        await trio.in_sync(leader.name)
        assert len(await leader.value("SELECT * FROM t")) == 1
        await leader.value("CREATE t:2")

    played(main, acks=2)


def test_a_command_that_looks_at_a_store_leads_nothing() -> None:
    async def main(trio: Trio) -> None:
        await wrote(await trio.led(), *range(5))
        for each in trio.machines:
            await each.kill()
        await trio.until(lambda: trio.etcd.lead is None)
        looked = trio.named("b")
        await looked.start(serves=False, writes=False)
        assert len(await looked.value("SELECT * FROM t")) >= 4
        await asyncio.sleep(30)
        assert trio.etcd.lead is None

    played(main)


def test_a_leader_that_is_cut_off_takes_nothing_and_another_leads() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        old.cut()
        await trio.until(lambda: trio.leader is not None and trio.leader is not old)
        await refused(old, "CREATE t:lost", NotEnoughReplicas | NotWritable)  # type: ignore[arg-type]
        assert len(await old.value("SELECT * FROM t")) == 1  # reads go on
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:2"))
        old.mend()
        await shows(trio, old, 2)
        await trio.in_sync("a", "b", "c")

    played(main)


def test_without_etcd_a_leader_reads_and_then_leads_on() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await wrote(leader, 1)
        for each in trio.machines:
            each.etcd = Fate.REFUSED
        await trio.until(lambda: leader.runs.member.leadership.may_be_over)  # type: ignore[union-attr]
        refusal = await refused(leader, "CREATE t:2", NotWritable)
        assert "etcd" in refusal.message
        assert len(await leader.value("SELECT * FROM t")) == 1
        for each in trio.machines:
            each.etcd = Fate.ANSWERED
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:2"))

    played(main)


def test_who_hears_no_answer_renews_no_lease_that_it_does_not_believe_in() -> None:
    """Requests arrive at etcd, and no answer comes back: the lease would be held for ever by a node
    that takes no writes by it."""

    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await wrote(leader, 1)
        leader.etcd = Fate.UNHEARD
        await trio.until(lambda: trio.etcd.lead is not None and trio.etcd.lead.node != leader.id)
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:2"))
        leader.etcd = Fate.ANSWERED
        await trio.until(lambda: leader.runs.member.life is RoleName.FOLLOWING)

    played(main)


def test_a_node_follows_on_when_what_coordinates_there_has_failed(logbook: Logbook) -> None:
    logbook.allow("actor failed")

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("c")
        await wrote(leader, 1)
        await shows(trio, other, 1)
        member = other.runs.member

        with pytest.MonkeyPatch.context() as patch:

            def fails() -> None:
                patch.undo()
                raise ValueError("a bug")

            patch.setattr(member, "read_rows", fails)
            await trio.until(lambda: member.follow_task is None)
        await wrote(leader, 2)
        await shows(trio, other, 2)

    played(main)


# --- the set --------------------------------------------------------------------------------------


def test_who_is_silent_leaves_the_set_and_comes_back() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("c")
        other.cut()
        await trio.until_done(lambda: leader.value("CREATE t:1"))
        await trio.in_sync("a", "b")
        told = {one["node"]: one for one in (await leader.value("INFO FOR NODE"))["downstream"]}
        assert told[other.id]["in_set"] is False and told[other.id]["lag"] >= 1
        assert told[other.id]["silent"] >= timedelta(seconds=1)
        assert told[trio.named("b").id]["in_set"] is True
        await asyncio.sleep(0.2)  # what it lacks is released since just now, and late for longer
        told = {one["node"]: one for one in (await leader.value("INFO FOR NODE"))["downstream"]}
        assert told[other.id]["lag"] >= 1 and told[other.id]["standing"] == "catching up"
        other.mend()
        await trio.in_sync("a", "b", "c")
        await shows(trio, other, 1)

    played(main)


def test_followers_speak_as_often_as_the_policy_of_the_moment_has_them(logbook: Logbook) -> None:
    """One that attached under a patient policy is not silent by an impatient one."""

    async def main(trio: Trio) -> None:
        old = await trio.led()
        await old.value(POLICY.format(1, "AUTO").replace("1s", "4s"))
        await old.kill()
        await trio.until(lambda: trio.leader is not None)
        leader = await trio.led()
        await old.start()
        await trio.in_sync("a", "b", "c")
        await leader.value(POLICY.format(1, "AUTO").replace("1s", "400ms"))
        await asyncio.sleep(BEAT_SECONDS)  # by the one before they may have been silent as long
        await trio.in_sync("a", "b", "c")
        insync = trio.etcd.insync
        for _ in range(50):
            await asyncio.sleep(0.1)
            for one in (await leader.value("INFO FOR NODE"))["downstream"]:
                assert one["silent"] < timedelta(milliseconds=400)
        assert trio.etcd.insync == insync, "nobody has left, and come back"

    logbook.allow("were cut off")
    played(main)


def test_who_is_to_copy_the_store_anew_attaches_to_nobody(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cluster rule 2: another leader, who has the log that it lacks, would have it in the set, and
    count on what it drops once it begins again."""

    async def main(trio: Trio) -> None:
        old, other = await trio.led(), trio.named("c")
        node = other.node
        assert node is not None
        other.cut()
        await trio.until_done(lambda: old.value("CREATE t:1"))
        await trio.in_sync("a", "b")
        assert node.member.follow_task is not None
        follows = node.member.follow_task._follows
        assert isinstance(follows, LeaderConnector)

        async def gone() -> None:
            follows._enter(ReceiverState.ATTACHING)
            raise CopyMissing(1)

        monkeypatch.setattr(follows, "_follow", gone)
        if follows.receiving is not None:
            follows.receiving._link.close("it is there no more")
        other.mend()
        await trio.until(node.member.begins_anew.is_set)
        await old.kill()
        new = trio.named("b")
        await trio.until(lambda: trio.etcd.lead is not None and trio.etcd.lead.node == new.id)
        for _ in range(20):
            await asyncio.sleep(0.5)
            assert new.node is not None
            assert other.id not in new.node.member.all_followers.linked

    logbook.allow("copied anew|stopped following")
    played(main)


def test_who_stays_in_the_set_of_a_new_leader_knows_its_policy() -> None:
    """Else, should that one be lost too, it would go by an older one, and could release nothing."""

    async def main(trio: Trio) -> None:
        old, new, away = await trio.led(), trio.named("b"), trio.named("c")
        await wrote(old, 1)
        away.cut()  # else it might lead
        amends = asyncio.ensure_future(outcome(old.value(POLICY.format(1, "AUTO"))))
        ends = new.runs.committer.log_upto
        await trio.until(lambda: new.runs.committer.log_upto > ends, step_seconds=0.001)
        assert trio.etcd.insync is not None
        assert len(trio.etcd.insync.members) == 3
        await old.kill()
        await amends
        await trio.until(lambda: new.life == "leading")
        await asyncio.sleep(5 * BEHIND_SECONDS)
        assert len(trio.etcd.insync.members) == 3
        await old.start()
        await trio.in_sync("a", "b")
        await trio.until_done(lambda: new.value("CREATE t:2"))
        away.mend()
        await trio.in_sync("a", "b", "c")
        await shows(trio, away, 2)

    played(main, acks=2)


def test_who_comes_back_takes_the_place_of_a_leader_that_does_not() -> None:
    """One is away while the leader dies: the new one is alone in the set with the dead one, until
    the one that was away holds all that it has."""

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("c")
        other.cut()
        await trio.until_done(lambda: leader.value("CREATE t:1"))
        await trio.in_sync("a", "b")
        await leader.kill()
        new = trio.named("b")
        await trio.until(lambda: trio.etcd.lead is not None and trio.etcd.lead.node == new.id)
        other.mend()
        await trio.in_sync("b", "c")
        await trio.until_done(lambda: new.value("CREATE t:2"))
        await shows(trio, other, 2)

    played(main)


def link_of(machine: ClusterMachine) -> ReplicaReceiver | None:
    """By which it is attached to who leads; None: it is not."""
    follow_task = machine.runs.member.follow_task
    follows = None if follow_task is None else follow_task._follows
    assert follows is None or isinstance(follows, LeaderConnector)
    receiving = None if follows is None else follows.receiving
    return receiving if receiving is not None and receiving.epoch else None


def test_a_link_that_another_has_replaced_says_nothing_any_more() -> None:
    """Its last acknowledgement comes in the moment in which the next one begins."""

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("c")
        await wrote(leader, 1)
        trio.network.weather = Weather((0.001, 0.001))
        committer, links = other.runs.committer, other.runs.peering.links
        assert links is not None
        for _ in range(20):  # what comes at one time comes in any order
            await trio.until(lambda: link_of(other) is not None)
            receiving = link_of(other)
            assert receiving is not None
            link, upto = await links.connect(leader.address, []), committer.log_upto
            applied = committer.commit_index
            link.send(Attach([*committer.history()], upto, applied, receiving.epoch))
            receiving._link.send(Acknowledge(receiving.epoch, upto, applied, 0, 0))
            assert isinstance(await link.receive(), Attached)
            link.close()
            await trio.until(lambda: link_of(other) is not receiving)  # noqa: B023
        await wrote(leader, 2)
        await shows(trio, other, 2)
        await trio.in_sync("a", "b", "c")

    played(main)


def test_whose_disk_is_full_leaves_the_set_though_it_attaches_again_and_again() -> None:
    """It comes back with nothing more than it had: that is no word from it."""

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("c")
        await wrote(leader, 1)
        await shows(trio, other, 1)
        before = other.disk.capacity
        other.disk.capacity = 0
        await trio.until_done(lambda: leader.value("CREATE t:2"))
        await trio.in_sync("a", "b")
        await trio.until_done(lambda: leader.value("CREATE t:3"))
        other.disk.capacity = before
        await trio.in_sync("a", "b", "c")
        await shows(trio, other, 3)
        # Nothing is remembered of who lagged, once it has what it lacked.
        desk = leader.runs.cluster
        assert isinstance(desk, ClusterService)
        await trio.until(lambda: not desk._replica_senders._unsynced)

    played(main)


def test_a_follower_that_hears_nothing_for_a_minute_answers_owners_alone() -> None:
    async def main(trio: Trio) -> None:
        await wrote(await trio.led(), 1)
        other = trio.named("c")
        await shows(trio, other, 1)
        other.cut()
        member = other.runs.member
        await asyncio.sleep(CLUSTER_SILENT_SECONDS / 2)
        member.check_answering(None)
        await asyncio.sleep(CLUSTER_SILENT_SECONDS)
        with pytest.raises(Busy, match="only owners of the store"):
            member.check_answering(None)
        assert len(await other.value("SELECT * FROM t")) == 1  # an owner asks

    played(main)


def test_a_follower_that_nobody_asked_for_long_has_heard_its_leader_meanwhile() -> None:
    async def main(trio: Trio) -> None:
        await wrote(await trio.led(), 1)
        other = trio.named("c")
        await shows(trio, other, 1)
        await asyncio.sleep(2 * CLUSTER_SILENT_SECONDS)
        other.cut()
        member = other.runs.member
        await trio.until(
            lambda: member.follow_task is not None and not member.follow_task.is_attached
        )
        member.check_answering(None)
        silent = (await other.value("INFO FOR NODE"))["upstream_silent"]
        assert silent < timedelta(seconds=CLUSTER_SILENT_SECONDS)

    played(main)


def test_with_too_few_followers_nothing_is_written() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        for name in "bc":
            trio.named(name).cut()
        member = leader.runs.member
        await trio.until(lambda: outcome_of(member.check_replicated) is not None)
        before = leader.runs.committer.committed
        refusal = await refused(leader, "CREATE t:1", NotEnoughReplicas)
        assert refusal.detail == {"followers": 0, "acks": 1} | {
            name: refusal.detail[name] for name in ("statement", "line", "column")
        }
        assert leader.runs.committer.committed == before
        trio.named("b").mend()
        await trio.until_done(lambda: leader.value("CREATE t:1"))

    played(main)


def lags(machine: ClusterMachine) -> tuple[tuple[str, int], ...]:
    """What /metrics shows of those who follow."""
    figures = cluster_figures(machine.runs.member)
    assert figures is not None
    return figures.lags


def outcome_of(check: Callable[[], None]) -> Refusal | None:
    try:
        check()
    except Refusal as refusal:
        return refusal
    return None


def test_a_node_is_out_of_the_set_before_it_is_dropped() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        named = {trio.named("b").id, trio.named("c").id}
        assert {node for node, _ in lags(leader)} == named
        await leader.value("DROP REPLICA c")
        await trio.in_sync("a", "b")
        await trio.until(lambda: {node for node, _ in lags(leader)} == {trio.named("b").id})
        await refused(leader, "DROP REPLICA b", NotEnoughReplicas)
        await refused(leader, "DROP REPLICA a", BadRequest)

    played(main)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_node_whose_row_comes_again_is_taken_in_again(at_once: bool) -> None:
    """Also by who leads already, and where row and row stand in one transaction."""

    async def main(trio: Trio) -> None:
        leader = await trio.led()
        drop = "DROP REPLICA c"
        declare = f"DEFINE REPLICA c PEER 'c:1' NODE '{trio.named('c').id}' ROLES {ROLES}"
        if at_once:
            await leader.value(f"BEGIN; {drop}; {declare}; COMMIT")
        else:
            await leader.value(drop)
            await trio.in_sync("a", "b")
            await asyncio.sleep(2)
            await leader.value(declare)
        await trio.in_sync("a", "b", "c")

    played(main)


def waits_for(leader: ClusterMachine, follower: ClusterMachine) -> bool:
    """Whether nothing is released without it."""
    leadership = leader.runs.member.leadership
    return leadership is not None and follower.id in leadership.leading.waited_for


def test_a_node_whose_drop_is_cancelled_is_taken_in_again() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        sets = list[frozenset[str]]()

        async def watch() -> None:
            while True:
                assert trio.etcd.insync is not None
                sets.append(trio.etcd.insync.members)
                await asyncio.sleep(0.01)

        watching = asyncio.ensure_future(watch())
        await leader.value("BEGIN; DROP REPLICA c; CANCEL")
        await trio.in_sync("a", "b", "c")
        watching.cancel()
        assert {trio.named("a").id, trio.named("b").id} in sets, "it was out"
        assert await leader.value("RETURN 1") == 1

    played(main)


@pytest.mark.parametrize("away", [False, True])
def test_a_node_that_is_about_to_be_dropped_stays_out_however_long_that_takes(away: bool) -> None:
    """Also one that comes back meanwhile. What drops it is committed with nobody in the set whom it
    shuts out."""

    async def main(trio: Trio) -> None:
        leader, going = await trio.led(), trio.named("c")
        if away:
            going.cut()
            await trio.until(lambda: not waits_for(leader, going))
        ended = asyncio.Event()
        waited = leader.runs.cluster.take_out([going.id], ended.is_set)
        assert (waited is None) == away
        if waited is not None:
            await waited
        going.mend()
        await trio.until(lambda: any(node == going.id for node, _ in lags(leader)))
        for _ in range(600):
            assert trio.etcd.insync is not None and going.id not in trio.etcd.insync.members
            await asyncio.sleep(0.1)
        ended.set()
        await trio.in_sync("a", "b", "c")

    played(main)


def test_what_holds_a_node_in_the_set_is_named() -> None:
    """Members that would stay lack the policy that lets it go; etcd answers all the time."""

    async def main(trio: Trio) -> None:
        leader = await trio.led()
        for name in "bc":
            trio.named(name).disk.capacity = 0
        said = asyncio.ensure_future(outcome(leader.value(POLICY.format(1, "AUTO"))))
        leadership = leader.runs.member.leadership
        assert leadership is not None
        await trio.until(lambda: leadership.policy.acks == 1)
        waited = leader.runs.cluster.take_out([trio.named("c").id], lambda: False)
        assert waited is not None
        with pytest.raises(NotEnoughReplicas, match="newest failover policy") as refusal:
            await waited
        assert "etcd" not in refusal.value.message
        await said

    played(main, acks=2)


def test_an_etcd_that_keeps_a_node_in_the_set_is_named() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        leader.etcd = Fate.REFUSED
        waited = leader.runs.cluster.take_out([trio.named("c").id], lambda: False)
        assert waited is not None
        with pytest.raises(NotEnoughReplicas, match="once it does"):
            await waited
        leader.etcd = Fate.ANSWERED

    played(main, promote="MANUAL")


def test_who_loses_its_lead_while_a_node_goes_says_so_at_once() -> None:
    """It would wait for a set that is another's to ask for by now."""

    async def main(trio: Trio) -> None:
        old = await trio.led()
        old.etcd = Fate.LOST
        dropping = asyncio.ensure_future(outcome(old.value("DROP REPLICA c")))
        await trio.until(lambda: trio.leader not in (None, old), seconds=15)
        assert not dropping.done()
        old.etcd = Fate.ANSWERED
        await trio.until(lambda: old.life == "following", seconds=3)
        await trio.until(dropping.done, seconds=1)
        assert isinstance(dropping.result(), NotWritable)
        rows = (await (await trio.led()).value("INFO FOR CLUSTER"))["replicas"]
        assert [row["name"] for row in rows] == ["a", "b", "c"]

    played(main)


def test_what_was_taken_out_of_a_set_of_before_is_taken_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lead was lost, and taken again, between that and the commit that drops it."""

    async def main(trio: Trio) -> None:
        leader = await trio.led()
        for name in "bc":
            await leader.value(f"ALTER REPLICA {name} ROLES serving")
        desk, out = leader.runs.cluster, list[bool]()
        take_out = desk.take_out

        async def and_lose(waited: asyncio.Future[None]) -> None:
            await waited
            leader.etcd = Fate.LOST
            await trio.until(lambda: trio.leader is None, seconds=60)
            leader.etcd = Fate.ANSWERED
            await trio.until(lambda: trio.leader is leader, seconds=60)
            await trio.in_sync("a", "b", "c")

        def once(nodes: Any, is_over: Any) -> Any:
            waited = take_out(nodes, is_over)
            out.append(waited is not None)
            if len(out) > 1 or waited is None:
                return waited
            return asyncio.ensure_future(and_lose(waited))

        monkeypatch.setattr(desk, "take_out", once)
        await leader.value("DROP REPLICA c")
        assert out == [True, True], "of each set"
        assert not waits_for(leader, trio.named("c"))
        rows = (await leader.value("INFO FOR CLUSTER"))["replicas"]
        assert [row["name"] for row in rows] == ["a", "b"]

    played(main)


# --- who takes over -------------------------------------------------------------------------------


def test_a_policy_that_was_heard_of_counts_before_the_next_look_at_etcd() -> None:
    """A node that waits for news of etcd goes by what its store says once these come."""

    async def main(trio: Trio) -> None:
        old = await trio.led()
        await old.value(POLICY.format(1, "MANUAL"))

        for each in trio.machines:
            async with asyncio.timeout(60):
                while (await each.value("INFO FOR CLUSTER"))["failover"]["promote"] == "AUTO":
                    await asyncio.sleep(0.01)
        await old.stop()
        await trio.until(lambda: trio.etcd.lead is None)
        await asyncio.sleep(10)
        assert trio.leader is None

    played(main)


def test_with_promote_manual_a_node_waits_to_be_told() -> None:
    async def main(trio: Trio) -> None:
        old, other = await trio.led(), trio.named("b")
        refusal = await refused(other, "DEFINE NODE LEADS STORE", NotWritable)
        assert refusal.detail["leader"] == ["a.example:8001"]
        await wrote(old, 1)
        await old.kill()
        await trio.until(lambda: trio.etcd.lead is None)
        await trio.until(lambda: other.life == "following" or other.life == "waiting")
        assert trio.leader is None
        await other.value("DEFINE NODE LEADS STORE")
        assert other.leads
        await other.value("DEFINE NODE LEADS STORE")  # it does
        await trio.until_done(lambda: other.value("CREATE t:2"))
        assert len(await other.value("SELECT * FROM t")) == 2

    played(main, promote="MANUAL")


def test_who_asks_for_the_lead_again_is_not_forgotten_with_who_asked_before() -> None:
    async def main(trio: Trio) -> None:
        old, new = await trio.led(), trio.named("b")
        await old.kill()
        await trio.until(lambda: trio.etcd.lead is None)

        async def no_lease() -> None:
            while True:
                new.once["grant"] = Fate.LOST
                await asyncio.sleep(0.01)

        losing = asyncio.ensure_future(no_lease())
        first = asyncio.ensure_future(outcome(new.value("DEFINE NODE LEADS STORE")))
        await asyncio.sleep(15)
        again = asyncio.ensure_future(outcome(new.value("DEFINE NODE LEADS STORE")))
        assert isinstance(await first, Busy)
        await asyncio.sleep(6)  # and if it had waited for all of its time
        losing.cancel()
        new.once.clear()
        assert not isinstance(await again, Refusal)
        assert trio.leader is new

    played(main, promote="MANUAL")


def test_who_was_never_declared_coordinating_never_leads() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await old.value("ALTER REPLICA b ROLES serving, writable")
        await old.value("ALTER REPLICA c ROLES NONE")
        at = old.runs.committer.commit_index
        for name in "bc":
            committer = trio.named(name).runs.committer
            await trio.until(lambda committer=committer: committer.commit_index >= at)  # type: ignore[misc]
        await old.kill()
        await trio.until(lambda: trio.etcd.lead is None)
        refusal = await refused(trio.named("b"), "DEFINE NODE LEADS STORE", NotWritable)
        assert "coordinating" in refusal.message
        assert trio.leader is None
        await trio.named("c").value("DEFINE NODE ROLES serving, writable, coordinating")
        assert (await trio.led()).name == "c"

    played(main)


def test_a_new_lineage_is_begun_by_order_alone() -> None:
    async def main(trio: Trio) -> None:
        old, alone = await trio.led(), trio.named("c")
        alone.cut()
        await trio.in_sync("a", "b")
        await wrote(old, 1)
        await asyncio.sleep(2)  # that it is released is in the log: it shows that when it is back
        await old.kill()
        await trio.named("b").kill()
        alone.mend()
        await trio.until(lambda: trio.etcd.lead is None)
        refusal = await refused(alone, "DEFINE NODE LEADS STORE", NotWritable)
        assert "may lack commits" in refusal.message
        await alone.value("DEFINE NODE LEADS STORE FORCE REASON 'both burnt'")
        await trio.in_sync("c")
        await alone.value("CREATE t:2")
        found = (await alone.value("INFO FOR CLUSTER"))["failover"]
        assert found["acks"] == 0 and found["in_force"]
        await old.start()
        await trio.until(lambda: old.runs.member.is_stranded)
        assert old.runs.status().reason == "stranded"

    played(main)


def test_what_was_released_of_an_older_lineage_says_nothing_of_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node has heard how much was released, and lacks the frames: where others stand in their
    place by then, these are not shown before they are released."""

    async def main(trio: Trio) -> None:
        old, new, late = trio.machines
        await wrote(old, 0)
        await shows(trio, late, 1)
        for each in (new, late):
            each.cut()
        await trio.in_sync("a")
        await wrote(old, *range(1, 40))
        upto = old.runs.committer.commit_index
        committer, sends = late.runs.committer, ModelLink.send

        def send(link: ModelLink, message: Message) -> None:
            if not (isinstance(message, Frames) and message.frames):
                sends(link, message)

        await trio.until(lambda: link_of(late) is None)
        with monkeypatch.context() as patch:
            patch.setattr(ModelLink, "send", send)
            late.mend()
            await trio.until(lambda: link_of(late) is not None)
            late.cut()  # it was told, and the frames have not come
            await old.kill()
        assert committer.log_upto < upto - 20
        new.mend()
        await trio.until_done(lambda: new.value("DEFINE NODE LEADS STORE FORCE REASON 'burnt'"))
        late.mend()
        await trio.in_sync("b", "c")
        trio.network.cut(late.address, new.address)  # it holds what comes, and can't say so
        writing = asyncio.ensure_future(outcome(new.value("CREATE t:dirty")))
        await trio.until(lambda: committer.log_upto == new.runs.committer.committed)
        await asyncio.sleep(0.1)
        assert not writing.done()
        assert committer.commit_index <= new.runs.committer.commit_index
        trio.network.mend(late.address, new.address)
        await writing
        await shows(trio, late, 2)

    played(main, acks=0)


def test_the_log_that_ends_last_holds_all_that_was_released(logbook: Logbook) -> None:
    """Behind a start a node may show less than it holds: what it shows does not say whom to name
    where the agreement is lost."""

    async def main(trio: Trio) -> None:
        old, away = await trio.led(), trio.named("c")
        await wrote(old, 1)
        away.cut()
        await trio.in_sync("a", "b")
        await wrote(old, 2)
        for each in trio.machines:
            await each.kill()
        trio.etcd.set_back(AgreedState("another", 1, None, None), "another")
        away.mend()
        left = [trio.named("b"), away]
        for each in left:
            await each.start()
        told = {each.name: await each.value("INFO FOR NODE") for each in left}
        shown = {name: one["sequence"] for name, one in told.items()}
        ends = {name: one["log_ends"] for name, one in told.items()}
        assert ends["b"]["sequence"] > shown["b"] and ends["c"]["sequence"] >= shown["c"]
        chosen = max(left, key=lambda each: tuple(ends[each.name].values()))
        await chosen.value("DEFINE NODE LEADS STORE FORCE REASON 'etcd was emptied'")
        assert len(await chosen.value("SELECT * FROM t")) == 2

    logbook.allow("is behind that of this node|trusts etcd again")
    played(main)


UNANSWERED = [Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE]


@pytest.mark.parametrize(
    ("request_", "fate"),
    some_of(product(["grant", "take_lead", "begin_lineage"], UNANSWERED), every=3),
)
def test_what_etcd_does_not_answer_to_a_new_lineage_is_asked_again(
    request_: str, fate: Fate
) -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        for name in "bc":
            await trio.named(name).kill()
        trio.etcd.insync = None
        trio.etcd.end(trio.etcd._lead_lease)
        await trio.until(lambda: leader.life == "waiting")
        leader.once = {request_: fate}
        await trio.until_done(
            lambda: leader.value("DEFINE NODE LEADS STORE FORCE REASON 'etcd was emptied'")
        )
        assert not leader.once
        await trio.until_done(lambda: leader.value("CREATE t:1"))

    played(main)


def test_a_leader_whose_disk_is_full_lets_another_lead() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        await trio.named("b").kill()
        await trio.named("c").kill()
        trio.etcd.end(trio.etcd._lead_lease)
        assert isinstance(old.runs.member.memory, DurableState)
        old.runs.member.memory._save = _full  # of which every promise is refused
        await trio.until(lambda: old.life == "waiting")
        await trio.named("b").start()
        await trio.named("c").start()
        new = await trio.led()
        assert new is not old
        await trio.until_done(lambda: new.value("CREATE t:2"))

    played(main)


def test_a_leader_that_can_not_write_its_first_frame_gives_the_lead_back() -> None:
    """Others need not wait for the end of its lease."""

    async def main(trio: Trio) -> None:
        old, full, other = await trio.led(), trio.named("b"), trio.named("c")
        await wrote(old, 1)
        await trio.in_sync("a", "b", "c")
        full.disk.plan = lambda kind, path: (
            Fault(ENOSPC) if kind == "append" and path.endswith(".storelog") else None
        )
        other.etcd = Fate.REFUSED
        await old.kill()
        await trio.until(lambda: trio.etcd.lead is not None and trio.etcd.lead.node == full.id)
        began, loop = trio.etcd.lead, asyncio.get_running_loop()
        until = loop.time() + LEASE_SECONDS / 2
        await trio.until(lambda: trio.etcd.lead != began)
        assert loop.time() < until
        other.etcd = Fate.ANSWERED
        full.disk.plan = None
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:2"))

    played(main)


async def _full(_cluster: ClusterState) -> None:
    raise DiskFull("no room on the disk for the cluster file of the node")


# --- the policy -----------------------------------------------------------------------------------


def test_where_all_have_to_hold_it_one_that_is_away_stops_all() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await wrote(leader, *range(5))
        await leader.kill()
        await trio.until(lambda: trio.etcd.lead is not None and trio.etcd.lead.node != leader.id)
        assert trio.leader is None  # nothing is released, its own first frame neither
        await leader.start()
        new = await trio.led()
        assert len(await new.value("SELECT * FROM t")) == 5

    played(main, acks=2)


def test_without_followers_a_leader_promises_no_more_than_its_disk() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        for name in "bc":
            await trio.named(name).kill()
        await trio.in_sync("a")
        await wrote(leader, *range(5))
        await leader.kill()
        await leader.start()
        await shows(trio, await trio.led(), 5)

    played(main, acks=0)


def test_a_policy_needs_its_followers() -> None:
    async def whole() -> None:
        trio = Trio()
        one = ClusterMachine("a", trio, SimulatedDisk(), MemoryEngine())
        trio.machines.append(one)
        await one.start()
        try:
            refusal = await refused(one, POLICY.format(0, "AUTO"), BadRequest)
            assert "coordinating" in refusal.message
            await one.value("DEFINE NODE ROLES serving, writable, coordinating")
            await refused(one, POLICY.format(1, "AUTO"), NotEnoughReplicas)
            await refused(one, "DROP FAILOVER", Unknown)
            await refused(one, "DEFINE NODE LEADS STORE", Unknown)
            one.etcd = Fate.REFUSED
            await refused(one, POLICY.format(0, "AUTO"), Busy)
            assert one.life == "alone"
            await one.value("DEFINE NAMESPACE a; DEFINE DATABASE a.b; DEFINE TABLE t")
            one.etcd = Fate.ANSWERED
            await one.value(POLICY.format(0, "AUTO"))
            assert one.leads
            await one.value("CREATE t:1")
        finally:
            await one.stop()

    stepped.run(whole(), 1)
