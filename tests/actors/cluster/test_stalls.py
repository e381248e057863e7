"""What is said, and what is answered still, at a leader that can release nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors.cluster.diagnostics import cluster_figures
from actors.cluster.leader import LeadHolder
from actors.runtime import ask
from protocol.errors import NotEnoughReplicas, Refusal, SessionEnded, UnknownOutcome
from protocol.requests import AuthenticatePassword, NodeStatus, SignIn
from protocol.spaces import GetKey
from protocol.values import NONE
from tests.actors.cluster.test_members import wrote
from tests.actors.cluster.test_waits import within
from tests.actors.cluster.whole import POLICY, ClusterMachine, Trio, cluster
from tests.actors.nodes import ANA, OWNER
from tests.actors.parts import outcome
from tests.actors.test_feeds import Reader, follow
from tests.keys import ask_keys
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate

AT_ONCE = 0.5
"""Seconds: nothing was waited for."""
SOON = 6.0
"""Seconds: what was not to be had was waited for, for a moment."""
LATE = "DEFINE USER late ROLE viewer PASSWORD 'correct horse battery'"
THINGS = "DEFINE SPACE keys; DEFINE TOPIC queue; CREATE t:1; SET 'k' IN keys VALUE 1"


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of."""
    logbook.allow("leads no more|nobody leads|was not renewed|stopped following|was not answered")
    logbook.allow("were not kept|etcd does not answer|is stranded|held up|new lineage")
    logbook.allow("to take the lead")
    logbook.allow("releases nothing")


def played(main: Callable[[Trio, ClusterMachine], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            leader = await trio.led()
            await leader.value(THINGS)
            await main(trio, leader)

    stepped.run(whole(), 1)


async def stalled(trio: Trio, leader: ClusterMachine, *written: str) -> list[asyncio.Future[Any]]:
    """Lose c, which is needed, in the middle of some writes; the writes, which are on their way."""
    trio.named("c").cut()
    ways: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(outcome(leader.value(one))) for one in written
    ]
    await asyncio.sleep(5)
    assert not any(way.done() for way in ways)
    return ways


async def answered(machine: ClusterMachine, script: str, seconds: float = AT_ONCE) -> Any:
    """What a script answers, in that time."""
    async with asyncio.timeout(seconds):
        return await machine.value(script)


def status(machine: ClusterMachine) -> NodeStatus:
    return machine.runs.status()


# --- reads ----------------------------------------------------------------------------------------


def test_who_reads_is_shown_what_is_released_and_who_writes_is_refused() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        late, changed = await stalled(trio, leader, "CREATE t:late", "UPDATE t:1 SET x = 1")
        assert await answered(leader, "SELECT VALUE id FROM t") == await answered(
            trio.named("b"), "SELECT VALUE id FROM t"
        )
        assert await answered(leader, "SELECT VALUE x FROM t:1") == [NONE]
        for write in ("CREATE t:late", "UPDATE t:1 SET x = 2", "BEGIN; CREATE t:5; COMMIT"):
            assert isinstance(await within(leader, write, AT_ONCE), NotEnoughReplicas)
        assert isinstance(await late, UnknownOutcome)
        assert isinstance(await changed, UnknownOutcome)
        trio.named("c").mend()
        await trio.until_done(lambda: leader.value("CREATE t:after"))
        found = await answered(leader, "SELECT VALUE id FROM t")
        assert len(found) == 3, "what was on its way is there"

    played(main, acks=2)


def test_a_wait_for_messages_is_told_of_those_that_are_released_later() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await stalled(trio, leader, "PUBLISH INTO queue VALUE 1")
        reading = asyncio.ensure_future(
            trio.until_done(lambda: leader.value("READ FROM queue AFTER 0 WAIT 50s"))
        )
        await asyncio.sleep(5)
        trio.named("c").mend()
        async with asyncio.timeout(20):
            assert [one["value"] for one in await reading] == [1]

    played(main, acks=2)


def test_keys_that_are_on_their_way_are_not_waited_for() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await stalled(trio, leader, "SET 'k' IN keys VALUE 2")
        async with asyncio.timeout(SOON):
            found = await outcome(ask_keys(leader.runs, ANA, ("a", "b", "keys"), GetKey("k")))
        assert isinstance(found, NotEnoughReplicas), found

    played(main, acks=2)


def test_who_has_waited_before_hears_what_is_missing() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        trio.named("c").cut()
        late = asyncio.ensure_future(outcome(leader.value("CREATE t:late")))
        await asyncio.sleep(0.1)  # nobody knows yet that c is lost
        refusal = await within(leader, "SELECT * FROM t", SOON)
        assert isinstance(refusal, NotEnoughReplicas) and refusal.retry
        assert (refusal.detail["followers"], refusal.detail["acks"]) == (1, 2)
        late.cancel()

    played(main, acks=2)


def test_an_operator_signs_in_while_users_are_on_their_way() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await stalled(trio, leader, LATE)
        asked = AuthenticatePassword(OWNER.name, OWNER.password, "http", "192.0.2.1:1")
        async with asyncio.timeout(SOON):
            caller = await ask(leader.runs.sessions, asked)
        assert caller.user == OWNER.name
        asked = AuthenticatePassword("late", "correct horse battery", "http", "192.0.2.1:1")
        async with asyncio.timeout(SOON):
            found = await outcome(ask(leader.runs.sessions, asked))
        assert isinstance(found, Refusal) and found.code == "SignInRefused"

    played(main, acks=2)


@pytest.mark.parametrize("basic", [False, True])
def test_what_is_let_in_while_its_user_changes_ends_when_that_is_released(basic: bool) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value(LATE)
        (change,) = await stalled(trio, leader, "ALTER USER late SET PASSWORD 'another battery'")
        sessions, reader = leader.runs.sessions, Reader()
        password, address = "correct horse battery", "192.0.2.1:1"
        if basic:
            asked = AuthenticatePassword("late", password, "http", address)
            caller = await ask(sessions, asked)
        else:
            caller = (await ask(sessions, SignIn("late", password, "http", address))).caller
        await follow(leader.runs, reader, caller)
        trio.named("c").mend()
        await change
        async with asyncio.timeout(60):
            assert isinstance(await reader.over(), SessionEnded)

    played(main, acks=2)


# --- what is said ---------------------------------------------------------------------------------

ASKED = ("INFO FOR NODE", "INFO FOR CLUSTER")


def test_a_leader_that_lacks_followers_says_so_at_once_and_what_helps() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        assert (await answered(leader, "INFO FOR NODE"))["waits_for"] is None
        assert status(leader).held_up is None
        row = f"ALTER REPLICA b SET ENDPOINTS 'b.example:9'; {LATE}"
        await stalled(trio, leader, row)
        about = await answered(leader, "INFO FOR NODE")
        for word in ("c (6f3a", "ACKS is 2", "1 follower", "DEFINE FAILOVER", "BEHIND"):
            assert word in about["waits_for"], (word, about["waits_for"])
        assert " b " not in about["waits_for"]
        rows = (await answered(leader, "INFO FOR CLUSTER"))["replicas"]
        assert [one["endpoints"] for one in rows][1] == ["b.example:8001"]
        assert status(leader).held_up == "followers"
        figures = cluster_figures(leader.runs.member)
        assert figures is not None and figures.held_up
        assert status(leader).reason is None, "it is one to read from"
        assert status(trio.named("b")).held_up is None
        await leader.value(POLICY.format(1, "AUTO"))
        await trio.until_done(lambda: leader.value("CREATE t:2"))
        await asyncio.sleep(0.5)
        assert (await answered(leader, "INFO FOR NODE"))["waits_for"] is None
        assert status(leader).held_up is None

    played(main, acks=2)


def test_so_does_one_that_has_taken_the_lead_and_does_not_know_what_was_released() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, 5)
        new = trio.named("b")
        for each in trio.machines:
            await each.kill()
        await new.start()
        await trio.until(lambda: new.life == "leading")
        await asyncio.sleep(3)
        about = await answered(new, "INFO FOR NODE")
        for word in ("a (", "ACKS is 1", "DEFINE FAILOVER"):
            assert word in about["waits_for"], (word, about["waits_for"])
        assert (status(new).reason, status(new).held_up) == ("opening", "followers")
        await answered(new, "INFO FOR CLUSTER")
        await new.value(POLICY.format(0, "AUTO"))
        await trio.until_done(lambda: new.value("CREATE t:2"))
        assert (status(new).reason, status(new).held_up) == (None, None)

    played(main)


def test_a_leader_that_was_a_follower_before_does_not_show_what_may_be_old() -> None:
    """What the leader before had released may be in flight here."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        new = trio.named("b")
        trio.named("c").cut()
        await trio.in_sync("a", "b")
        await leader.value("CREATE t:2")
        trio.network.cut(leader.address, new.address)
        found = asyncio.ensure_future(outcome(leader.value("CREATE t:3")))
        await asyncio.sleep(0.2)
        await leader.kill()
        await trio.until(lambda: new.life == "leading")
        await asyncio.sleep(3)
        refusal = await outcome(asyncio.wait_for(new.value("SELECT * FROM t"), SOON))
        if isinstance(refusal, list):
            assert len(refusal) == 2, "all of it was shown here before"
        else:
            assert isinstance(refusal, NotEnoughReplicas), refusal
        assert "a (" in (await answered(new, "INFO FOR NODE"))["waits_for"]
        found.cancel()

    played(main)


def test_a_member_that_etcd_does_not_let_go_is_named() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        trio.named("c").cut()
        for each in trio.machines:
            each.etcd = Fate.LOST
        written = asyncio.ensure_future(outcome(leader.value("CREATE t:late")))
        await asyncio.sleep(6)
        about = await answered(leader, "INFO FOR NODE")
        assert "c (6f3a" in about["waits_for"] and "etcd" in about["waits_for"]
        assert status(leader).held_up == "etcd"
        assert len(await answered(leader, "SELECT * FROM t")) == 1
        for each in trio.machines:
            each.etcd = Fate.ANSWERED
        trio.named("c").mend()
        await written

    played(main)


def test_a_node_that_nobody_leads_says_so_to_probes() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        for each in trio.machines:
            each.etcd = Fate.LOST
        await trio.until(lambda: status(leader).held_up == "etcd")
        for each in trio.machines:
            each.etcd = Fate.ANSWERED
        await trio.until(lambda: all(status(each).held_up is None for each in trio.machines))

    played(main)


# --- each of these is needed ----------------------------------------------------------------------


def test_a_planted_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_holding: LeadHolder) -> str:
        over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await over

    monkeypatch.setattr(LeadHolder, "_report_stalls", never)
    with pytest.raises((AssertionError, TimeoutError)):
        test_who_reads_is_shown_what_is_released_and_who_writes_is_refused()
