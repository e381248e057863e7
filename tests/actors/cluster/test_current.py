"""Reads of the present: CURRENT, on who leads, who follows, and who leads no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest

from actors.cluster import read_index
from actors.cluster.read_index import ReadIndexRounds
from actors.cluster.replica_receiver import FollowTask, ReplicaReceiver
from actors.cluster.service import ClusterService
from actors.environment import Environment
from actors.execution.blocking import FutureWait
from actors.runtime import ask
from protocol import limits
from protocol.errors import (
    BadRequest,
    Busy,
    Cancelled,
    Draining,
    Refusal,
    StatementTimeout,
)
from protocol.requests import RunScript, ScriptAnswer
from protocol.values import NONE
from tests.actors.cluster.whole import ClusterMachine, Trio, cluster
from tests.actors.nodes import ANA, simulated_environment
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate
from tests.simulation.environment import START_US, LoopClock
from tests.simulation.links import ModelLink

pytestmark = pytest.mark.usefixtures("quiet")
SECONDS = 1_000_000
_requests = iter(range(1, 1 << 60))


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes are cut off."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|does not answer|was not renewed|was not answered")
    logbook.allow("stopped following|were not kept|were cut off|request to take the lead")


def played(main: Callable[[Trio], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            await main(trio)

    stepped.run(whole(), 1)


async def asked(machine: ClusterMachine, script: str, **more: Any) -> Any:
    """What the last statement answers; a refusal is raised."""
    request = RunScript(ANA, script, f"c-{next(_requests)}", namespace="a", database="b", **more)
    answer: ScriptAnswer = await ask(machine.runs.scripts, request)
    if answer.refusal is not None:
        raise answer.refusal
    return answer.results[-1].value


async def ids(machine: ClusterMachine, **more: Any) -> set[Any]:
    """The records that a node shows."""
    found = await asked(machine, "SELECT VALUE id FROM t", **more)
    return {one.id for one in found}


def follow_task(machine: ClusterMachine) -> FollowTask:
    found = machine.runs.member.follow_task
    assert found is not None
    return found


async def usurped(trio: Trio) -> tuple[ClusterMachine, ClusterMachine]:
    """One that led, holds itself for the leader, and is cut off from everybody; and one that leads
    by now, and has committed t:new."""
    old = await trio.led()
    await old.value("CREATE t:old")
    old.cut()
    await trio.until(lambda: trio.leader not in (None, old))
    new = trio.leader
    assert new is not None
    await trio.until_done(lambda: new.value("CREATE t:new"))
    assert old.life == "leading", "nobody has told it"
    return old, new


def test_who_was_deposed_and_does_not_know_answers_nothing_as_current() -> None:
    async def main(trio: Trio) -> None:
        old, new = await usurped(trio)
        assert await ids(old) == {"old"}, "what it shows is old: this is why CURRENT is there"
        for script, more in (
            ("SELECT VALUE id FROM t", {"current": True}),
            ("SELECT VALUE id FROM t CURRENT", {}),
            ("BEGIN; SELECT * FROM t WHERE id IN (SELECT VALUE id FROM t CURRENT); COMMIT", {}),
        ):
            began = asyncio.get_running_loop().time()
            late = await outcome(asked(old, script, timeout_us=2 * SECONDS, **more))
            assert isinstance(late, StatementTimeout), late
            assert late.detail["seq"] == old.runs.committer.commit_index
            assert asyncio.get_running_loop().time() - began < 3
        assert await ids(new, current=True) == {"old", "new"}

    played(main)


def test_who_was_deposed_says_of_no_write_that_its_value_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It found it in what it has, and so had nothing to commit."""

    async def main(trio: Trio) -> None:
        leader = await trio.led()
        before = leader.runs.committer.committed
        await leader.value("CREATE t:1 SET n = 1")
        (same,) = await leader.value("UPDATE t:1 SET n = 1")
        assert same["n"] == 1
        assert leader.runs.committer.committed == before + 1
        old, new = await usurped(trio)
        await new.value("UPDATE t:1 SET n = 2")
        # By its clock, which stood still, its lease lasts, and all were heard of just now.
        for check in ("check_writable", "check_replicated"):
            monkeypatch.setattr(old.runs.committer, check, lambda: None)
        for script in ("UPDATE t:1 SET n = 1", "BEGIN; UPSERT t:1 SET n = 1; COMMIT; RETURN 1"):
            late = await outcome(asked(old, script, timeout_us=2 * SECONDS))
            assert isinstance(late, StatementTimeout), late
        assert await asked(new, "SELECT VALUE n FROM t:1", current=True) == [2]

    played(main)


@pytest.mark.parametrize("planted", ["asks nobody", "believes who promised", "an earlier round"])
def test_a_planted_leader_that_confirms_itself_is_caught(
    monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    if planted == "asks nobody":
        monkeypatch.setattr(ReadIndexRounds, "complete_rounds", _all_of_them)
    elif planted == "believes who promised":
        monkeypatch.setattr(read_index, "_leader_read_index", _by_the_lease)
    else:
        monkeypatch.setattr(ReadIndexRounds, "start_round", _of_before)

    async def main(trio: Trio) -> None:
        await ids(await trio.led(), current=True)
        old, _ = await usurped(trio)
        found = await ids(old, current=True, timeout_us=2 * SECONDS)
        assert found != {"old", "new"}, "it has answered with what is old"

    played(main)


def _all_of_them(self: ReadIndexRounds) -> None:
    self._waiting.unblock_upto(self.number)


async def _by_the_lease(leadership: Any, committer: Any) -> int:
    return int(committer.commit_index)


def _of_before(self: ReadIndexRounds) -> asyncio.Future[None]:
    done = asyncio.get_running_loop().create_future()
    self.number = max(self.number, 1)
    self._waiting.block(FutureWait(done), self.number)
    asyncio.get_running_loop().call_soon(self._go)
    return done


def test_every_node_reads_the_present() -> None:
    """What was answered anywhere is read everywhere, at once, however far a follower is behind."""

    async def main(trio: Trio) -> None:
        leader, rng = await trio.led(), Random(3)
        for number in range(40):
            await leader.value(f"CREATE t:{number}")
            machine = rng.choice(trio.machines)
            script = rng.choice(["SELECT VALUE id FROM t CURRENT", "SELECT VALUE id FROM t"])
            found = await asked(machine, script, current="CURRENT" not in script)
            assert len(found) == number + 1, machine.name

    played(main)


def test_a_planted_follower_that_takes_its_own_for_current_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        ClusterService, "present", lambda desk: desk._present._committer.commit_index
    )
    with pytest.raises(AssertionError, match=r"assert .* == "):
        test_every_node_reads_the_present()


def test_who_follows_one_that_may_be_deposed_reads_nothing_as_current() -> None:
    """It asks who it follows, and that one asks it and the others."""

    async def main(trio: Trio) -> None:
        old, follower = await trio.led(), trio.named("b")
        await old.value("CREATE t:1")
        assert await ids(follower, current=True) == {1}
        # The third is in the set, and out of reach: it may have promised anything, and as long as
        # etcd can't be reached either nobody can take it out.
        trio.named("c").cut()
        old.etcd = follower.etcd = Fate.LOST
        refused = await outcome(ids(follower, current=True, timeout_us=100_000))
        assert isinstance(refused, StatementTimeout)
        assert await ids(follower) == {1}

    played(main)


def test_a_link_that_was_just_lost_is_waited_for() -> None:
    """Whoever asked could do nothing but to ask again."""

    async def main(trio: Trio) -> None:
        leader, follower = await trio.led(), trio.named("b")
        for number in range(20):
            await leader.value(f"CREATE t:{number}")
            receiving = follow_task(follower)._follows.receiving
            assert isinstance(receiving, ReplicaReceiver)
            receiving._link.close("lost")
            if number % 2:  # before the link is known to be gone, and behind it
                await trio.until(lambda: not follow_task(follower).is_attached)
            found = await asyncio.gather(*(ids(follower, current=True) for _ in range(3)))
            assert [len(each) for each in found] == [number + 1] * 3

    played(main)


def test_who_follows_and_hears_nothing_for_long_says_so() -> None:
    async def main(trio: Trio) -> None:
        leader, follower = await trio.led(), trio.named("b")
        await leader.value("CREATE t:1")
        follower.cut()
        await trio.until(lambda: not follow_task(follower).is_attached)
        now = asyncio.get_running_loop().time
        began = now()
        assert isinstance(await outcome(ids(follower, current=True)), Busy)
        assert now() - began <= read_index.SILENT_SECONDS
        again = now()
        assert isinstance(await outcome(ids(follower, current=True)), Busy)
        assert now() - again < 0.1, "by then it is refused at once"

    played(main)


def test_who_waited_for_a_link_and_leads_by_then_answers() -> None:
    async def main(trio: Trio) -> None:
        old, others = await trio.led(), trio.machines[1:]
        await old.value("CREATE t:1")
        await old.stop()
        found = await asyncio.gather(*(ids(each, current=True) for each in others))
        assert found == [{1}, {1}]

    played(main)


def test_a_member_that_left_the_set_is_waited_for_no_more() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await leader.value("CREATE t:1")
        trio.named("c").cut()
        began = asyncio.get_running_loop().time()
        assert await ids(leader, current=True) == {1}
        assert asyncio.get_running_loop().time() - began > 0.5, "until etcd had it out"
        await trio.in_sync("a", "b")
        assert await ids(trio.named("b"), current=True) == {1}

    played(main)


def test_reads_that_come_together_share_a_round() -> None:
    async def main(trio: Trio) -> None:
        leader, follower = await trio.led(), trio.named("c")
        leadership = leader.runs.member.leadership
        assert leadership is not None
        before = leadership.rounds.number
        await asyncio.gather(*(ids(leader, current=True) for _ in range(200)))
        assert leadership.rounds.number - before <= 9
        before = leadership.rounds.number
        await asyncio.gather(*(ids(follower, current=True) for _ in range(200)))
        assert leadership.rounds.number - before <= 9
        assert not leadership.rounds._waiting

    played(main)


def test_who_waits_hears_when_the_lead_is_lost() -> None:
    async def main(trio: Trio) -> None:
        old = await trio.led()
        await old.value("CREATE t:old")
        trio.network.pause(old.address)  # from the other nodes alone
        reading = asyncio.ensure_future(ids(old, current=True, timeout_us=3_600 * SECONDS))
        await asyncio.sleep(0.1)
        assert not reading.done()
        await old.stop()
        assert isinstance(await outcome(reading), Refusal)

    played(main)


def test_a_node_that_waits_for_a_leader_says_so_at_once() -> None:
    async def main(trio: Trio) -> None:
        for each in trio.machines[1:]:
            await each.kill()
        old = await trio.led()
        with_nobody = await outcome(ids(old, current=True, timeout_us=SECONDS))
        assert isinstance(with_nobody, StatementTimeout | Busy)
        await old.kill()
        await old.start()
        assert isinstance(await outcome(ids(old, current=True)), Busy)

    played(main)


def test_between_two_leaders_a_node_takes_nothing_of_its_own_for_current(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the moment in which it lets go of the one that was deposed."""
    found: list[int | asyncio.Future[int]] = []

    async def main(trio: Trio) -> None:
        old, other, late = await trio.led(), trio.named("b"), trio.named("c")
        await old.value("CREATE t:old")
        closes, member = ModelLink.close, late.runs.member

        def close(link: ModelLink, why: str = "") -> None:
            closes(link, why)
            if link.home.address == late.address and member.follow_task is None and not found:
                found.append(late.runs.cluster.present())

        monkeypatch.setattr(ModelLink, "close", close)
        old.etcd = Fate.LOST  # its lease lapses, and nobody tells it: it goes on sending
        late.once = {"take_lead": Fate.REFUSED}
        await trio.until(lambda: trio.leader is other)
        await trio.until_done(lambda: other.value("CREATE t:new"))
        (answer,) = found
        assert isinstance(answer, asyncio.Future), "the next leader is asked"
        assert await answer >= other.runs.member.leadership.own  # type: ignore[union-attr,operator]
        assert await ids(late, current=True) == {"old", "new"}

    played(main)


def test_a_node_that_lost_its_leader_with_what_coordinates_it_answers_nothing_as_current(
    logbook: Logbook,
) -> None:
    logbook.allow("actor failed")

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("c")
        await leader.value("CREATE t:old")
        member = other.runs.member

        with pytest.MonkeyPatch.context() as patch:

            def fails() -> None:
                patch.undo()
                other.etcd = Fate.LOST
                raise ValueError("a bug")

            patch.setattr(member, "read_rows", fails)
            await trio.until(lambda: member.follow_task is None)
        await trio.in_sync("a", "b")
        await leader.value("CREATE t:new")
        assert isinstance(await outcome(ids(other, current=True)), Busy)
        await asyncio.sleep(limits.CLUSTER_SILENT_SECONDS)
        assert isinstance(await outcome(ids(other, current=True)), Busy)
        with pytest.raises(Busy, match="only owners of the store"):
            member.check_answering(None)
        other.etcd = Fate.ANSWERED
        await trio.in_sync("a", "b", "c")
        assert await ids(other, current=True) == {"old", "new"}
        member.check_answering(None)

    played(main)


def test_a_moment_is_never_current() -> None:
    async def main(trio: Trio) -> None:
        leader = await trio.led()
        request = RunScript(ANA, "RETURN 1", "m-1", namespace="a", database="b", moment="new")
        made = await ask(leader.runs.scripts, request)
        for more in ({"current": True}, {}):
            script = "RETURN 1" if more else "SELECT * FROM t CURRENT"
            no = await outcome(asked(leader, script, moment=made.moment, **more))
            assert isinstance(no, BadRequest)
        await asked(leader, "RETURN 1", moment="new", current=True)

    played(main)


def test_without_a_time_of_its_own_it_waits_as_after_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "AFTER_SECONDS", 1)

    async def main(trio: Trio) -> None:
        old, _ = await usurped(trio)
        began = asyncio.get_running_loop().time()
        assert isinstance(await outcome(ids(old, current=True)), StatementTimeout)
        assert asyncio.get_running_loop().time() - began < 2

    played(main)


def test_what_waits_can_be_killed() -> None:
    async def main(trio: Trio) -> None:
        old, _ = await usurped(trio)
        reading = asyncio.ensure_future(ids(old, current=True, timeout_us=3_600 * SECONDS))
        leadership = old.runs.member.leadership
        assert leadership is not None
        await trio.until(lambda: bool(leadership.rounds._waiting))
        (one,) = [one for one in await old.value("INFO FOR RUNNING") if one["id"].startswith("c-")]
        assert one["waiting"]
        await old.value(f"KILL '{one['id']}'")
        assert isinstance(await outcome(reading), Cancelled)
        await asyncio.sleep(0.1)
        again = asyncio.ensure_future(ids(old, current=True, timeout_us=3_600 * SECONDS))
        await trio.until(lambda: bool(leadership.rounds._waiting))
        assert len(leadership.rounds._waiting) == 1, "who has given up is forgotten"
        old.runs.registry.end_all(Draining("the node is stopping"))
        leadership.rounds.end(Busy("it leads no more"))
        assert isinstance(await outcome(again), Draining)

    played(main)


# --- clocks ---------------------------------------------------------------------------------------

CURRENT = "SELECT * FROM t CURRENT; "
AHEAD_US = {"b": 3_600 * SECONDS, "c": -3_600 * SECONDS}


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clocks of those who follow are an hour ahead, and an hour behind."""

    def environment(machine: ClusterMachine) -> Environment:
        wall_us = START_US + AHEAD_US.get(machine.name, 0)
        clock = LoopClock(asyncio.get_running_loop(), wall_us)
        return simulated_environment(
            "stepped", machine.disk, machine.engine, seed=len(machine.name), clock=clock
        )

    monkeypatch.setattr(ClusterMachine, "environment", environment)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("begins_anew", [False, True])
def test_what_expires_goes_by_the_clock_of_who_leads(begins_anew: bool) -> None:
    """A follower tells nothing to be gone that is there, and has nothing longer than who leads."""

    async def main(trio: Trio) -> None:
        leader = await trio.led()
        await leader.value(
            "DEFINE SPACE s; SET 'k' IN s VALUE 1 EXPIRE 30s; LOCK 'l' IN s HOLDER 'w' EXPIRE 30s"
        )
        for name in AHEAD_US:
            one = trio.named(name)
            if begins_anew:
                await one.kill()
                await one.start()
            await trio.in_sync("a", "b", "c")
            await trio.until_done(partial(asked, one, "RETURN 1"))  # it is attached
            seq = leader.runs.committer.commit_index
            for key, current in product("kl", ("", CURRENT)):
                found = await asked(one, f"{current}GET '{key}' FROM s", after=seq)
                there = await asked(leader, f"GET '{key}' FROM s")
                late = found["ttl"] - there["ttl"]
                assert timedelta(0) <= late < timedelta(seconds=1)
                assert found == {**there, "ttl": found["ttl"]}
        await asyncio.sleep(30)
        for one in trio.machines:
            for key, current in product("kl", ("", CURRENT)):
                assert await asked(one, f"{current}GET '{key}' FROM s") is NONE

    played(main)
