"""A policy comes into force, whatever stops in the middle of that, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import product
from typing import Any

import pytest

from actors.cluster.coordinator import CoordinationActor
from actors.cluster.durable_state import DurableState
from protocol.errors import Busy, DiskFull, NotImplementedHere, NotWritable
from protocol.limits import CLUSTER_SILENT_SECONDS
from storage.files.cluster_file import ClusterState
from tests.actors.cluster.whole import POLICY, ClusterMachine, Trio, cluster
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate
from tests.sweeps import some_of

UNANSWERED = [Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE]
SAID = POLICY.format(1, "AUTO")


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes die."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|etcd does not answer|was not renewed|was not answered")
    logbook.allow("request to take the lead|stopped following|held up|is behind that of")


def played(main: Callable[[Trio, ClusterMachine], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with cluster(founded=False) as trio:
            first = trio.named("a")
            await first.value("CREATE t:1; CREATE t:2")
            await copied(trio)
            await main(trio, first)

    stepped.run(whole(), 1)


async def copied(trio: Trio) -> None:
    """Wait until all show what the first one has."""
    upto = trio.named("a").runs.committer.commit_index
    for each in trio.machines:
        await trio.until(lambda each=each: each.runs.committer.commit_index >= upto)  # type: ignore[misc]
    await trio.until(lambda: len(trio.named("a").runs.member.followers.linked) == 2)


async def goes_on(trio: Trio, count: int = 2) -> None:
    """What was there is, and changes are taken by who leads."""
    new = await trio.led()
    assert len(await new.value("SELECT * FROM t")) == count
    await trio.until_done(lambda: new.value("UPSERT t:after CONTENT {}"))
    await trio.in_sync("a", "b", "c")
    found = (await new.value("INFO FOR CLUSTER"))["failover"]
    assert (found["acks"], found["in_force"]) == (1, True)


async def killed_in(machine: ClusterMachine, said: str, when: Callable[[], bool]) -> None:
    """Kill a node in the middle of a statement."""
    saying = asyncio.ensure_future(outcome(machine.value(said)))
    await machine.trio.until(when)
    assert not saying.done()
    await machine.kill()
    saying.cancel()


@pytest.mark.parametrize(
    ("request_", "fate"),
    some_of(product(["grant", "take_lead", "found"], UNANSWERED), every=3),
)
def test_what_etcd_does_not_answer_is_asked_again(request_: str, fate: Fate) -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        first.once = {request_: fate}
        saying = asyncio.ensure_future(outcome(first.value(SAID)))
        await trio.led()  # once the set is there, it may be another of it
        await saying
        assert not first.once
        await goes_on(trio)

    played(main)


@pytest.mark.parametrize(
    ("request_", "fate", "others"),
    some_of(
        product(
            ["grant", "take_lead", "found", "revoke"],
            [Fate.LOST, Fate.UNHEARD, Fate.LATE],
            [False, True],
        ),
        every=5,
    ),
)
def test_who_was_to_found_goes_on_when_it_is_started_again(
    request_: str, fate: Fate, others: bool
) -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        first.once = {request_: fate}
        if request_ == "revoke":
            first.once["take_lead"] = Fate.REFUSED
        await killed_in(first, SAID, lambda: not first.once)
        if others:
            for name in "bc":
                await trio.named(name).kill()
                await trio.named(name).start()
        await asyncio.sleep(10)
        assert trio.leader is None or request_ == "found", "nobody else may found"
        await first.start()
        await trio.led()
        await goes_on(trio)

    played(main)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("again", ["DROP FAILOVER", SAID])
def test_a_stop_before_it_was_noted_is_for_the_statement_to_be_said_again(
    again: str, others: bool
) -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        memory = first.runs.member.memory
        assert isinstance(memory, DurableState)
        saved: list[ClusterState] = []

        async def never(cluster: ClusterState) -> None:
            saved.append(cluster)
            await asyncio.get_running_loop().create_future()

        memory._save = never
        await killed_in(first, SAID, lambda: bool(saved))
        if others:
            for name in "bc":
                await trio.named(name).kill()
                await trio.named(name).start()
        await first.start()
        refusal = await outcome(first.value("CREATE t:3"))
        assert isinstance(refusal, NotWritable) and "DROP FAILOVER" in refusal.message
        assert (await first.value("INFO FOR NODE"))["waits_for"] == refusal.message
        await trio.until_done(lambda: first.value(again))
        if again == SAID:
            await goes_on(trio)
        else:
            await first.value("CREATE t:3")
            await copied(trio)
            assert trio.etcd.insync is None
            await trio.until_done(lambda: first.value(SAID))
            await goes_on(trio, 3)

    played(main)


def test_a_founding_that_is_cut_off_while_it_is_noted_stands() -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        member = first.runs.member
        memory = member.memory
        assert isinstance(memory, DurableState)
        saves, begun, may_save = memory._save, asyncio.Event(), asyncio.Event()

        async def late(cluster: ClusterState) -> None:
            begun.set()
            await may_save.wait()
            await saves(cluster)

        memory._save = late
        saying = asyncio.ensure_future(outcome(first.value(SAID)))
        await begun.wait()
        (handler,) = [
            task
            for task in asyncio.all_tasks()
            if CoordinationActor.found.__qualname__ in repr(task.get_coro())
        ]
        handler.cancel()  # as the end of its actor does
        await asyncio.sleep(1)
        may_save.set()
        await asyncio.wait([handler])
        assert first.life == "founding" and member.kept is not None
        await saying
        assert isinstance(await outcome(first.value("CREATE t:x")), Busy), "it is released at once"
        await first.value(SAID)
        await goes_on(trio)

    played(main)


def test_what_can_not_be_noted_is_taken_back() -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        memory = first.runs.member.memory
        assert isinstance(memory, DurableState)
        saves, memory._save = memory._save, _full
        assert isinstance(await outcome(first.value(SAID)), DiskFull)
        assert first.life == "alone"
        await first.value("CREATE t:3")
        memory._save = saves
        await copied(trio)
        await trio.until_done(lambda: first.value(SAID))
        await goes_on(trio, 3)

    played(main)


async def _full(_cluster: ClusterState) -> None:
    raise DiskFull("no room on the disk for the cluster file of the node")


def test_who_has_it_come_into_force_waits_for_followers_that_are_slow_to_come() -> None:
    """A refusal would say that nothing was done: it is in force by then."""

    async def main(trio: Trio, first: ClusterMachine) -> None:
        saying = asyncio.ensure_future(outcome(first.value(SAID)))
        await trio.until(lambda: trio.etcd.insync is not None, step_seconds=0.001)
        for name in "bc":
            trio.named(name).cut()
        await trio.until(lambda: first.runs.member.held_up == "followers")
        await asyncio.sleep(2)
        assert not saying.done()
        for name in "bc":
            trio.named(name).mend()
        found = await saying
        assert not isinstance(found, Exception), found
        assert first.leads
        await goes_on(trio)

    played(main)


def test_while_it_comes_into_force_it_is_neither_replaced_nor_dropped() -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        first.once = {"grant": Fate.LOST}
        saying = asyncio.ensure_future(outcome(first.value(SAID)))
        await trio.until(lambda: not first.once)
        first.etcd = Fate.REFUSED
        refusal = await saying
        assert isinstance(refusal, Busy) and "etcd does not answer" in refusal.message
        assert "etcd does not answer" in (await first.value("INFO FOR NODE"))["waits_for"]
        for said, kind in (
            ("CREATE t:x", Busy),
            (POLICY.format(0, "AUTO"), Busy),
            ("DROP FAILOVER", NotImplementedHere),
        ):
            assert isinstance(await outcome(first.value(said)), kind)
        assert not (await first.value("INFO FOR CLUSTER"))["failover"]["in_force"]
        first.etcd = Fate.ANSWERED
        await first.value(SAID)  # the same once more is no other
        await goes_on(trio)

    played(main)


def test_an_etcd_that_knows_less_than_the_store_is_brought_beyond_it() -> None:
    async def main(trio: Trio, first: ClusterMachine) -> None:
        first.runs.member.memory  # noqa: B018
        trio.etcd.revision = 1
        await trio.until_done(lambda: first.value(SAID))
        await goes_on(trio)

    played(main)


def test_who_may_have_founded_without_hearing_of_it_takes_nothing_of_its_own_for_current() -> None:
    """Etcd has been asked to found the set: another of it may lead by now."""

    async def main(trio: Trio, first: ClusterMachine) -> None:
        present, member = first.runs.cluster.present, first.runs.member
        first.once = {"found": Fate.UNHEARD}
        saying = asyncio.ensure_future(outcome(first.value(SAID)))
        await trio.until(lambda: trio.etcd.insync is not None)
        first.cut()
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:new"))
        assert first.life == "founding"
        with pytest.raises(Busy, match="coming into force"):
            present()
        assert len(await first.value("SELECT * FROM t")) == 2, "else it reads on"
        member.check_answering(None)
        await asyncio.sleep(CLUSTER_SILENT_SECONDS)
        with pytest.raises(Busy, match="only owners of the store"):
            member.check_answering(None)
        assert isinstance(await saying, Busy)
        first.mend()
        await goes_on(trio, 3)

    played(main)
