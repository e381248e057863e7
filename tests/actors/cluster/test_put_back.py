"""An older copy of a member's directory is put in its place: a snapshot of its machine, or files of
last week. It has the member's id, is in the set in etcd, and lacks what was released since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from actors.cluster.election import JUST_STARTED
from actors.cluster.leader import TOLD_SECONDS
from protocol.agreement import CompareAndSetResult, ReleasedFrame, ReleaseReport
from protocol.errors import NotWritable
from storage.engine.memory import MemoryEngine
from tests.actors.cluster.test_members import played, quiet, refused, shows, wrote
from tests.actors.cluster.whole import ClusterMachine, Trio
from tests.logbook import Logbook
from tests.simulation.ablation import LEFT_OUT
from tests.simulation.agreement import Fate
from tests.simulation.disk import SimulatedDisk

__all__ = ["quiet"]
pytestmark = pytest.mark.usefixtures("quiet", "put_back_lines")

RENEWED_SECONDS = 2.0
"""Behind it a lease of five seconds was renewed."""
NEWS_SECONDS = TOLD_SECONDS + RENEWED_SECONDS
"""Behind it what was released was told."""


@pytest.fixture
def put_back_lines(logbook: Logbook) -> None:
    logbook.allow("does not take the lead|lacks what was released|unreleased frames were cut off")


def put_back(machine: ClusterMachine, copy: SimulatedDisk) -> None:
    """What it starts with next is what it had when that was copied."""
    assert machine.node is None, "a copy is put back while nothing runs there"
    machine.disk, machine.engine = copy.killed(), MemoryEngine()


async def with_an_older_copy(
    trio: Trio, *, leader_first: bool = True
) -> tuple[ClusterMachine, ClusterMachine, ClusterMachine]:
    """Two of three are in the set. Both die, and one of them comes back as it was thirty records
    before; the third was away before any of them.

    :param leader_first: whether who leads dies first, and is heard of no more; else it sees the
        other go
    """
    leader, older, away = await trio.led(), trio.named("b"), trio.named("c")
    await away.stop()
    await trio.in_sync("a", "b")
    await wrote(leader, *range(5))
    await older.stop()
    copy = older.disk.killed()
    await older.start()
    await trio.until_done(lambda: leader.value("CREATE t:5"))
    await wrote(leader, *range(6, 35))
    if leader_first:
        await asyncio.sleep(NEWS_SECONDS)
        await leader.kill()
        await older.kill()
    else:
        await older.kill()
        await asyncio.sleep(0.1)
        await leader.kill()
    put_back(older, copy)
    await older.start()
    await away.start()
    return leader, older, away


def test_a_copy_that_is_younger_than_what_was_told_leaves_the_lead_to_those_who_are_there() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await trio.in_sync("a", "b", "c")
        await wrote(leader, *range(5))
        await asyncio.sleep(NEWS_SECONDS)
        copy = leader.disk.killed()
        await wrote(leader, *range(5, 20))
        await leader.kill()
        put_back(leader, copy)
        for name in "bc":
            trio.named(name).etcd = Fate.REFUSED  # they hear of it a moment later than the copy
        await leader.start()
        await trio.until(lambda: trio.etcd.lead is None)
        await asyncio.sleep(0.3)
        for name in "bc":
            trio.named(name).etcd = Fate.ANSWERED
        await trio.until(lambda: trio.etcd.lead is not None)
        assert trio.etcd.lead is not None and trio.etcd.lead.node != leader.id
        await trio.in_sync("a", "b", "c")
        await shows(trio, leader, 20)

    played(main)


@pytest.mark.parametrize("between", ["it led", "etcd was silent"])
def test_who_was_just_started_leaves_each_vacant_lead_to_others(between: str) -> None:
    """Its two seconds count for the vacancy at hand, not from an earlier one on."""

    async def main(trio: Trio) -> None:
        old, started, other = await trio.led(), trio.named("b"), trio.named("c")
        await trio.in_sync("a", "b", "c")
        other.etcd = Fate.REFUSED
        trio.network.pause(other.address)
        await old.kill()
        await started.kill()
        await started.start()
        if between == "it led":
            await trio.until(lambda: started.life == "leading")
            trio.etcd.end(trio.etcd._lead_lease)
            await trio.until(lambda: started.life == "waiting", step_seconds=0.001)
        else:
            await trio.until(lambda: started.runs.member.why == JUST_STARTED)
            started.etcd = Fate.REFUSED
            await asyncio.sleep(10)
            started.etcd = Fate.ANSWERED
            await trio.until(
                lambda: trio.etcd.lead is not None or started.runs.member.why == JUST_STARTED
            )
        assert not started.runs.member.has_caught_up
        other.etcd = Fate.ANSWERED
        await trio.until(lambda: trio.etcd.lead is not None)
        assert trio.etcd.lead is not None and trio.etcd.lead.node == other.id
        trio.network.resume(other.address)
        await trio.led()

    played(main)


def test_a_leader_tells_what_was_released_before_it_serves() -> None:
    """Two nodes lead in turn and die. Neither sees the third go, whose older copy is put back."""

    async def main(trio: Trio) -> None:
        leader, next_, older = await trio.led(), trio.named("b"), trio.named("c")
        await trio.in_sync("a", "b", "c")
        await wrote(leader, *range(5))
        await older.stop()
        copy = older.disk.killed()
        await older.start()
        await trio.in_sync("a", "b", "c")
        await wrote(leader, *range(5, 20))
        await shows(trio, next_, 20)
        older.etcd = Fate.REFUSED
        await leader.kill()
        await trio.until(lambda: trio.etcd.lead is None)
        await older.kill()
        await trio.until(lambda: next_.life == "leading")
        assert trio.leader is None, "nothing is released without the third"
        await asyncio.sleep(0.5)
        await next_.kill()
        put_back(older, copy)
        await older.start()
        await trio.until(lambda: trio.etcd.lead is None)
        await asyncio.sleep(10)
        assert trio.etcd.lead is None, "it lacks what was released"
        await leader.start()
        await next_.start()
        await shows(trio, await trio.led(), 20)
        await trio.in_sync("a", "b", "c")

    played(main)


async def a_young_copy_leads(trio: Trio) -> tuple[ClusterMachine, ClusterMachine]:
    """Who led is put back as it was fifteen records before, and leads: the other who is in the set
    hears of the vacant lead later. The third is away. Answers both."""
    leader, held, away = await trio.led(), trio.named("b"), trio.named("c")
    await away.stop()
    await trio.in_sync("a", "b")
    await wrote(leader, *range(5))
    await asyncio.sleep(NEWS_SECONDS)
    copy = leader.disk.killed()
    await wrote(leader, *range(5, 20))
    await leader.kill()
    put_back(leader, copy)
    held.etcd = Fate.LOST
    await leader.start()
    await trio.until(lambda: leader.life == "leading")
    held.etcd = Fate.ANSWERED
    await trio.until(lambda: held.runs.member.is_stranded)
    return leader, held


def test_a_young_copy_that_leads_is_stopped_and_who_is_stranded_started_again() -> None:
    """The page for operators: nothing was written since, and nothing is lost."""

    async def main(trio: Trio) -> None:
        copied, held = await a_young_copy_leads(trio)
        await copied.stop()
        order = "DEFINE NODE LEADS STORE FORCE REASON 'it holds all'"
        refusal = await refused(held, order, NotWritable)
        assert "stop it and start this node again" in refusal.message
        await held.stop()
        await held.start()
        await trio.until(lambda: held.life == "leading")
        await copied.start()
        await trio.named("c").start()
        await trio.in_sync("a", "b", "c")
        for each in trio.machines:
            await shows(trio, each, 20)

    played(main)


def test_a_young_copy_that_others_follow_is_stopped_with_them_and_force_said() -> None:
    """The page for operators: what was written since is the price."""

    async def main(trio: Trio) -> None:
        copied, held = await a_young_copy_leads(trio)
        away = trio.named("c")
        await away.start()
        await trio.in_sync("a", "c")
        await trio.until_done(lambda: copied.value("CREATE t:99"))
        for each in (copied, away, held):
            await each.stop()
        await held.start()
        force = "DEFINE NODE LEADS STORE FORCE REASON 'the others followed an older copy'"
        await trio.until_done(lambda: held.value(force))
        await shows(trio, held, 20)
        await copied.start()
        await away.start()
        await trio.until(lambda: copied.runs.member.is_stranded and away.runs.member.is_stranded)

    played(main)


@pytest.mark.parametrize("leader_first", [True, False])
def test_an_older_copy_does_not_take_the_lead(leader_first: bool) -> None:
    async def main(trio: Trio) -> None:
        leader, older, away = await with_an_older_copy(trio, leader_first=leader_first)
        await trio.until(lambda: "lost frames that it had acknowledged" in older.runs.member.why)
        await asyncio.sleep(30)
        assert trio.etcd.lead is None
        about = await older.value("INFO FOR NODE")
        assert "An older copy of its directory was put back" in about["waits_for"]
        refusal = await refused(older, "DEFINE NODE LEADS STORE", NotWritable)
        assert "lost frames that it had acknowledged" in refusal.message
        await leader.start()
        assert await trio.led() is leader
        await trio.in_sync("a", "b", "c")
        for each in (leader, older, away):
            await shows(trio, each, 35)

    played(main)


def test_without_that_rule_it_leads_and_what_it_lacks_is_lost() -> None:
    async def main(trio: Trio) -> None:
        with LEFT_OUT["9-holds"]():
            leader, older, _ = await with_an_older_copy(trio)
            assert await trio.led() is older
            await trio.until_done(lambda: older.value("CREATE t:new"))
            assert len(await older.value("SELECT * FROM t")) < 10
            await leader.start()
            await trio.until(lambda: leader.runs.member.is_stranded)

    played(main)


def test_by_order_it_leads_and_the_price_is_what_it_lacks() -> None:
    async def main(trio: Trio) -> None:
        leader, older, _ = await with_an_older_copy(trio)
        await trio.until(lambda: "lost frames that it had acknowledged" in older.runs.member.why)
        before = trio.etcd.told
        await older.value("DEFINE NODE LEADS STORE FORCE REASON 'the others are burnt'")
        await trio.until_done(lambda: older.value("CREATE t:new"))
        await trio.until(lambda: trio.etcd.told != before)
        await older.kill()
        await older.start()
        assert await trio.led() is older
        await leader.start()
        await trio.until(lambda: leader.runs.member.is_stranded)

    played(main)


async def comes_back_older(
    trio: Trio,
) -> tuple[ClusterMachine, ClusterMachine, list[frozenset[str]]]:
    """A member of three dies, and comes back as it was fifteen records before: who leads, that one,
    and the sets that are written from now on."""
    leader, older = await trio.led(), trio.named("c")
    sets = written_sets(trio)
    await wrote(leader, *range(5))
    copy = older.disk.killed()
    await wrote(leader, *range(5, 20))
    await older.kill()
    put_back(older, copy)
    await older.start()
    return leader, older, sets


def test_a_member_that_has_gone_back_leaves_the_set_until_it_holds_all_again(
    logbook: Logbook,
) -> None:
    async def main(trio: Trio) -> None:
        leader, older, sets = await comes_back_older(trio)
        await trio.until(lambda: len(sets) >= 2)
        a, b, c = (trio.named(name).id for name in "abc")
        assert sets[:2] == [{a, b}, {a, b, c}]
        assert any("lacks what was released" in line for line in logbook.names())
        released = leader.runs.committer.commit_index
        await trio.until(lambda: told(trio).sequence >= released)
        await shows(trio, older, 20)

    played(main)


def test_without_that_rule_it_stays() -> None:
    async def main(trio: Trio) -> None:
        leader, older = await trio.led(), trio.named("c")
        sets = written_sets(trio)
        copy = older.disk.killed()
        await wrote(leader, *range(20))
        await older.kill()
        put_back(older, copy)
        await older.start()
        await shows(trio, older, 20)
        await asyncio.sleep(RENEWED_SECONDS)
        assert sets == []

    with LEFT_OUT["9-back"]():
        played(main)


def test_where_the_set_would_be_too_small_nothing_is_released_until_it_holds_all() -> None:
    async def main(trio: Trio) -> None:
        leader, older, sets = await comes_back_older(trio)
        await trio.until_done(lambda: leader.value("CREATE t:new"))
        assert sets == []
        await shows(trio, older, 21)

    played(main, acks=2)


def test_what_is_released_is_told_once_a_minute_and_at_the_end() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await trio.until(lambda: trio.etcd.told is not None)
        await asyncio.sleep(NEWS_SECONDS)
        before = trio.etcd.told
        await asyncio.sleep(2 * NEWS_SECONDS)
        assert trio.etcd.told == before, "nothing was released, and yet something was told"
        for number in range(20):
            await wrote(leader, number)
            await asyncio.sleep(RENEWED_SECONDS)
        assert before is not None and told(trio).sequence > before.released.sequence
        assert trio.etcd.revision == before.revision + 1, "each time is a revision of etcd"
        await asyncio.sleep(NEWS_SECONDS)
        epoch, sequence = told(trio)
        assert epoch == leader.runs.committer.ledger.epoch
        assert sequence == leader.runs.committer.commit_index
        await wrote(leader, "last")
        upto = leader.runs.committer.commit_index
        await leader.stop()
        assert told(trio).sequence >= upto

    played(main)


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE])
def test_what_etcd_does_not_answer_is_told_again(fate: Fate) -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await trio.until(lambda: trio.etcd.told is not None)
        leader.once = {"tell": fate}
        await wrote(leader, 1)
        upto = leader.runs.committer.commit_index
        await trio.until(lambda: not leader.once, 2 * TOLD_SECONDS)
        await trio.until(lambda: told(trio).sequence >= upto)
        assert await trio.led() is leader
        await wrote(leader, 2)

    played(main)


def test_who_hears_when_it_has_taken_the_lead_that_it_lacks_something_gives_it_back() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await wrote(old, 1)
        take, taken = trio.etcd.take_lead, []

        def takes(node: str, lease: int, insync: int) -> CompareAndSetResult:
            """Another has led in between, and told of what nobody has who is there."""
            taken.append(node)
            trio.etcd.told = ReleaseReport(ReleasedFrame(1, 1_000_000), trio.etcd.revision)
            return take(node, lease, insync)

        trio.etcd.take_lead = takes  # type: ignore[method-assign]
        await old.kill()
        await trio.until(lambda: bool(taken))
        await asyncio.sleep(30)
        assert trio.etcd.lead is None
        asked = len(taken)
        assert asked == len(set(taken)), "who knows that it lacks something asks for the lead again"
        trio.etcd.told = None  # which frees them
        await trio.until(lambda: len(taken) > asked)

    played(main)


def told(trio: Trio) -> ReleasedFrame:
    assert trio.etcd.told is not None
    return trio.etcd.told.released


def written_sets(trio: Trio) -> list[frozenset[str]]:
    """The sets that are written from now on."""
    sets: list[frozenset[str]] = []
    change: Callable[[int, int, frozenset[str]], CompareAndSetResult] = trio.etcd.change

    def changes(epoch: int, insync: int, members: frozenset[str]) -> CompareAndSetResult:
        answer = change(epoch, insync, members)
        if answer.done:
            sets.append(members)
        return answer

    trio.etcd.change = changes  # type: ignore[method-assign]
    return sets
