"""What an operator hears at a node of a cluster that does not do what it is told: at once, and with
what helps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from actors.cluster import coordinator
from protocol.errors import NotWritable, Refusal
from tests.actors.cluster.test_members import wrote
from tests.actors.cluster.test_policy import FORCED, emptied
from tests.actors.cluster.test_waits import now
from tests.actors.cluster.whole import POLICY, ClusterMachine, Trio, cluster
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate

SOON = 3.0
"""Seconds that an answer may take, where nothing has to be asked again and again."""
LEADS = "DEFINE NODE LEADS STORE"
REVOKED = "ab" * 32
CHANGES = (
    "CREATE t:9",
    "DEFINE REPLICA d PEER 'd:1' ROLES NONE",
    "ALTER REPLICA b SET PEER 'b:2'",
    "DROP REPLICA c",
    f"REVOKE CERTIFICATE '{REVOKED}'",
    "CREATE JOIN TOKEN FOR w",
)
"""That only a leader takes."""
ASKS = ("INFO FOR NODE", "INFO FOR CLUSTER")
Said = dict[str, tuple[str, ...]]
"""By statement, the code of its refusal and words of what helps; none: it is taken."""


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of."""
    logbook.allow("leads no more|releases nothing|nobody leads|was not renewed|stopped following")
    logbook.allow("were not kept|etcd does not answer|is stranded|held up|new lineage|not answered")
    logbook.allow("to take the lead|is behind that of|trusts etcd again|was copied|were cut off")
    logbook.allow("does not take the lead")


def played(main: Callable[[Trio, ClusterMachine], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            leader = await trio.led()
            await leader.value("DEFINE REPLICA w PEER 'w:1' ROLES NONE")
            await wrote(leader, 1)
            await main(trio, leader)

    stepped.run(whole(), 1)


# --- how a node comes to stand --------------------------------------------------------------------


async def follower(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    return trio.named("b")


async def lacking(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """A leader that lacks followers."""
    for name in "bc":
        trio.named(name).cut()
    await asyncio.sleep(4)
    return leader


async def unsettled(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """One that was started and has the lead alone."""
    new = trio.named("b")
    for each in trio.machines:
        await each.kill()
    await new.start()
    await trio.until(lambda: new.life == "leading")
    await asyncio.sleep(3)
    return new


async def unled(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """A follower, where nobody takes the lead by itself."""
    await leader.kill()
    await trio.until(lambda: trio.etcd.lead is None)
    await asyncio.sleep(3)
    return trio.named("b")


async def outside(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """One that is not in the set, the others of which are gone."""
    alone = trio.named("c")
    alone.cut()
    await trio.in_sync("a", "b")
    await wrote(leader, 2)
    await asyncio.sleep(2)  # what is released is in the log
    await trio.named("b").kill()
    await leader.kill()
    await trio.until(lambda: trio.etcd.lead is None)
    alone.mend()
    await asyncio.sleep(3)
    return alone


async def doubting(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """One whose etcd was emptied."""
    emptied(trio.etcd)
    await trio.until(lambda: leader.life == "waiting")
    await asyncio.sleep(3)
    return leader


async def without_etcd(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """A leader whose etcd is silent."""
    for each in trio.machines:
        each.etcd = Fate.LOST
    await asyncio.sleep(10)
    return leader


async def stranded(trio: Trio, leader: ClusterMachine) -> ClusterMachine:
    """One of a lineage that is over."""
    alone = await outside(trio, leader)
    await alone.value(FORCED)
    await trio.in_sync("c")
    await leader.start()
    await trio.until(lambda: leader.runs.member.is_stranded)
    await asyncio.sleep(2)
    return leader


def each_of(statements: tuple[str, ...], *words: str) -> Said:
    return dict.fromkeys(statements, words)


ACKS_0, ACKS_2 = POLICY.format(0, "AUTO"), POLICY.format(2, "AUTO")
STANDS: dict[str, tuple[Callable[[Trio, ClusterMachine], Awaitable[ClusterMachine]], str, Said]] = {
    "a follower": (
        follower,
        "AUTO",
        {
            **each_of(CHANGES, "NotWritable", "another node leads", "read-only"),
            ACKS_0: ("NotWritable", "only the leader", "another node leads"),
            LEADS: ("NotWritable", "a (", "stop it"),
            FORCED: ("NotWritable", "a (", "stop it"),
            "DROP FAILOVER": ("NotImplementedHere", "DEFINE FAILOVER"),
            **each_of(ASKS),
        },
    ),
    "a leader that lacks followers": (
        lacking,
        "AUTO",
        {
            **each_of(CHANGES, "NotEnoughReplicas", "ACKS is 1", "INFO FOR NODE"),
            ACKS_2: ("NotEnoughReplicas", "ACKS would be 2", "INFO FOR NODE"),
            LEADS: (),
            FORCED: ("NotWritable", "b (", "fewer ACKS"),
            **each_of(ASKS),
            ACKS_0: (),
        },
    ),
    "one that was started and has the lead": (
        unsettled,
        "AUTO",
        {
            **each_of(CHANGES, "Busy", "INFO FOR NODE"),
            LEADS: ("NotWritable", "a (", "fewer ACKS"),
            FORCED: ("NotWritable", "a (", "fewer ACKS"),
            **each_of(ASKS),
            ACKS_0: (),
        },
    ),
    "where the lead is taken by hand": (
        unled,
        "MANUAL",
        {
            **each_of(CHANGES, "NotWritable", "no node leads", LEADS),
            ACKS_0: ("NotWritable", "only the leader", "no node leads", LEADS),
            **each_of(ASKS),
            LEADS: (),
        },
    ),
    "one outside of the set": (
        outside,
        "AUTO",
        {
            **each_of(CHANGES, "NotWritable", "may lack commits", "FORCE", "a ("),
            ACKS_0: ("NotWritable", "only the leader", "FORCE"),
            LEADS: ("NotWritable", "may lack commits", "FORCE", "a ("),
            **each_of(ASKS),
            FORCED: (),
        },
    ),
    "one whose etcd was emptied": (
        doubting,
        "AUTO",
        {
            **each_of(CHANGES, "NotWritable", "set back", "log_ends", "FORCE"),
            ACKS_0: ("NotWritable", "set back", "log_ends", "FORCE"),
            LEADS: ("NotWritable", "set back", "log_ends", "FORCE"),
            **each_of(ASKS),
            FORCED: (),
        },
    ),
    "a leader whose etcd is silent": (
        without_etcd,
        "AUTO",
        {
            **each_of(CHANGES, "NotWritable", "etcd does not answer"),
            LEADS: (),
            FORCED: (),
            **each_of(ASKS),
        },
    ),
    "a stranded node": (
        stranded,
        "AUTO",
        {
            **each_of(CHANGES, "Busy", "stranded", "c (", "start this node again", "join"),
            ACKS_0: ("NotWritable", "stranded", "c (", "start this node again", "join"),
            LEADS: ("NotWritable", "c (", "stranded", "start this node again", "join"),
            FORCED: ("NotWritable", "c (", "stranded", "start this node again", "join"),
            **each_of(ASKS),
        },
    ),
}


@pytest.mark.parametrize("stands", STANDS)
def test_whatever_is_refused_is_so_at_once_and_says_what_helps(stands: str) -> None:
    reach, promote, said = STANDS[stands]
    found: list[str] = []

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        node = await reach(trio, leader)
        about, is_well = await node.value("INFO FOR NODE"), stands == "a follower"
        held_up = node.runs.status().held_up
        if (about["waits_for"] is None) != is_well or (held_up is None) != is_well:
            found.append(f"it waits for {about['waits_for']}, and is held up by {held_up}")
        for statement, words in said.items():
            began = now(node)
            answer = await outcome(node.value(statement))
            told = f"{answer.code}: {answer.message}" if isinstance(answer, Refusal) else ""
            missing = [word for word in words if word not in told]
            if missing or bool(told) != bool(words) or now(node) - began > SOON:
                found.append(f"{statement} ({now(node) - began:.1f} s): {told} lacks {missing}")
            if isinstance(answer, NotWritable) and "no node leads" in told and answer.leader:
                found.append(f"{statement}: {told} names {answer.leader} for who leads")
        for each in trio.machines:
            each.mend()

    played(main, promote=promote)
    assert not found, "\n".join(found)


def test_of_two_that_are_named_at_once_one_hears_that_the_other_leads() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        emptied(trio.etcd)
        await trio.until(lambda: leader.life == "waiting")
        await asyncio.sleep(3)
        began, named = now(leader), [trio.named("b"), trio.named("c")]
        answers = await asyncio.gather(*(outcome(each.value(FORCED)) for each in named))
        refused = [one for one in answers if isinstance(one, Refusal)]
        assert len(refused) == 1 and isinstance(refused[0], NotWritable), answers
        assert now(leader) - began < SOON
        (leads,) = (each for each in named if each.leads)
        assert f"{leads.name} ({leads.id}) leads since a later statement" in refused[0].message
        assert refused[0].leader == (f"{leads.name}.example:8001",)
        await trio.in_sync("a", "b", "c")

    played(main)


def test_a_planted_silence_about_who_was_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "leads_already", lambda *_: None)
    with pytest.raises(AssertionError):
        test_of_two_that_are_named_at_once_one_hears_that_the_other_leads()
