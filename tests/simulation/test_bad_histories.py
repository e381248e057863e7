"""Shortest counterexamples from the model of the rules, one for each rule, as scenarios for whole
members.

With the rule nothing is lost. Without it (ablation) its invariant is violated, and the simulation
detects that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import pytest

from actors.cluster.leader import TOLD_SECONDS
from protocol.agreement import AgreedState
from protocol.links import Frames, Message
from storage.catalog.join_tokens import JoinToken, TokenLocation
from tests import leaks
from tests.actors.cluster import whole
from tests.actors.cluster.test_founding import copied
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.ablation import LEFT_OUT
from tests.simulation.agreement import Fate
from tests.simulation.links import ModelLink
from tests.simulation.members import Members, SimulatedMember
from tests.simulation.processes import ProcessLoop
from tests.simulation.promises import ClusterGuaranteeViolated
from tests.simulation.shape import ClusterShape
from tests.simulation.watchers import Watchers

TABLES: Final = "DEFINE TABLE t"
BEHIND_SECONDS: Final = 0.5
PATIENT: Final = frozenset({"2-add-new", "3-lead", "5-epoch", "5-seen-memory"})
"""Scenarios in which a silent member stays in the ISR for three seconds."""
LATE_SECONDS: Final = 6.0
"""Time by which a late request is done, seconds."""


class Play(Members):
    """Three in-sync members a, b and c, led by a; and the faults for scenarios."""

    def __init__(self, behind: str) -> None:
        super().__init__(1, ClusterShape(lease_s=2, behind=behind, acks=0))
        self.writing: list[asyncio.Task[Any]] = []
        self.watchers = Watchers(self)

    async def begin(self) -> tuple[SimulatedMember, SimulatedMember, SimulatedMember]:
        await whole.begin(self, "abc", TABLES, self.shape.policy())
        a, b, c = self.machines
        return a, b, c

    def write(self, machine: SimulatedMember) -> asyncio.Task[Any]:
        """Send a write without waiting for its answer."""
        task = asyncio.ensure_future(machine.ask(f"CREATE t:{len(self.writing)}"))
        self.writing.append(task)
        return task

    async def wrote(self, machine: SimulatedMember) -> None:
        answer = await self.write(machine)
        assert answer is not None and answer.refusal is None, answer

    def deaf(self, source: SimulatedMember, target: SimulatedMember) -> None:
        """Cut the messages from one member to another."""
        self.network.cut(source.address, target.address)

    async def released_unheard(self, leader: SimulatedMember, member: SimulatedMember) -> None:
        """Let the next write be released, while a member that holds it does not learn of the
        release."""
        had = len(self.promises.truth)
        await self.until(lambda: len(member.medium.frames) > had, step_seconds=0.0002)
        self.deaf(leader, member)
        await self.until(lambda: len(self.promises.truth) > had)
        heard = member.runs.committer.commit_index
        assert heard <= had, f"it has heard of {heard}:\n{self.shown()}"

    async def leads(self, machine: SimulatedMember) -> None:
        await self.until(lambda: machine.node is not None and machine.leads)

    def watch(self) -> None:
        """Check CURRENT reads of all nodes from here on."""
        self.watchers.begin()

    def founds(self, machine: SimulatedMember) -> None:
        """Define a policy without waiting for the answer."""
        self.writing.append(asyncio.ensure_future(machine.ask(self.shape.policy())))

    def go_on(self) -> None:
        """Resume all paused processes."""
        for one in self.machines:
            if one.process is not None:
                self.network.walk(one.address)
                one.process.resume()

    async def lost(self, found: AgreedState) -> None:
        """Lose etcd's data. No node leads until an operator names one: the first."""
        first, *others = self.machines
        self.etcd_lies, self.promises.members = True, frozenset()
        self.etcd.set_back(found)
        await self.until(lambda: not any(each.life == "leading" for each in self.machines))
        await asyncio.sleep(10)
        assert self.leader is None and self.etcd.lead is None
        for each in others:
            each.die(power=False)
        await first.value("DEFINE NODE LEADS STORE FORCE REASON 'etcd was lost'")
        self.etcd_lies = False

    async def brought(self, machine: SimulatedMember, leader: SimulatedMember) -> None:
        """Join a member with an empty disk again, under its old name."""
        name = machine.name
        row = (
            f"DEFINE REPLICA OVERWRITE {name} PEER '{name}:1' ENDPOINTS '{name}.example:8001'"
            f" ROLES {whole.ROLES}"
        )
        await self.until_done(lambda: leader.value(row))
        token = (await leader.value(f"CREATE JOIN TOKEN FOR {name}"))["token"]
        machine.invited = JoinToken(token, TokenLocation([leader.address], leader.name))
        await machine.start()

    async def mended(self) -> None:
        """Heal all faults, wait for convergence, and check it."""
        for one in self.machines:
            self.network.resume(one.address)
            for other in self.machines:
                self.network.mend(one.address, other.address)
            if one.process is None:
                await one.start()
        self.go_on()
        await self.in_sync("a", "b", "c")
        leader = await self.led()
        await self.until_done(lambda: leader.value("CREATE t:last"))
        at = leader.runs.committer.commit_index
        await self.until(lambda: all(one.engine.applied >= at for one in self.machines))
        for one in self.machines:
            one.look()
        for task in self.writing:
            await task


Story = Callable[[Play], Awaitable[None]]


async def released_alone(play: Play) -> None:
    """The leader releases a frame that no other member has; its lease expires, and another
    leads."""
    a, b, c = await play.begin()
    play.deaf(a, b)
    play.deaf(a, c)
    play.write(a)
    await asyncio.sleep(0.1)
    a.die(power=False)
    await play.until(lambda: b.leads or c.leads)


async def released_before_the_answer(play: Play) -> None:
    """The removal of a member from the ISR is sent to etcd and not answered yet."""
    a, b, _ = await play.begin()
    a.once["change"] = Fate.LATE
    play.deaf(a, b)
    play.write(a)
    await asyncio.sleep(BEHIND_SECONDS + 1)


async def released_without_who_may_be_in(play: Play) -> None:
    """A member is added to the ISR; etcd has written that, and the answer is lost."""
    a, _, c = await play.begin()
    play.network.pause(c.address)
    await play.in_sync("a", "b")
    a.once["change"] = Fate.UNHEARD
    play.network.resume(c.address)
    await play.in_sync("a", "b", "c")
    play.deaf(a, c)
    play.write(a)
    await asyncio.sleep(1)


async def added_before_it_holds_all(play: Play) -> None:
    """A lagging member with a slow disk comes back."""
    a, _, c = await play.begin()
    c.die(power=False)
    await play.in_sync("a", "b")
    await play.wrote(a)
    await c.start()
    await asyncio.sleep(3)


async def added_before_it_knows_what_is_released(play: Play) -> None:
    """A new leader has the newest released frame but does not know of the release. A member outside
    of the ISR lacks that frame and attaches, with a slow disk."""
    a, b, c = await play.begin()
    play.network.pause(c.address)
    await play.in_sync("a", "b")
    play.write(a)
    await play.released_unheard(a, b)
    a.die(power=False)
    play.network.resume(c.address)
    await play.until(lambda: b.life == "leading")
    await asyncio.sleep(1)


async def taken_with_an_old_set(play: Play) -> None:
    """A member sees itself in the ISR, and takes the lead after the ISR has changed."""
    a, b, c = await play.begin()
    b.slow |= {"grant": 2.4, "take_lead": 1.2}
    a.pause(suspended=False)
    await play.leads(c)
    await play.in_sync("c")
    await play.wrote(c)
    c.die(power=False)
    await asyncio.sleep(LATE_SECONDS)


async def a_set_of_who_is_deposed(play: Play) -> None:
    """A change of the ISR arrives after another leader was elected."""
    a, b, c = await play.begin()
    play.network.pause(c.address)
    await play.in_sync("a", "b")
    a.once["change"] = Fate.LATE
    play.network.resume(c.address)
    await play.until(lambda: "change" not in a.once)
    play.network.pause(c.address)
    a.die(power=False)
    a.etcd = Fate.REFUSED
    await a.start()
    await play.until(lambda: play.etcd.lead is not None and play.etcd.lead.node == b.id)
    a.etcd = Fate.ANSWERED
    await play.leads(b)
    play.write(b)
    await asyncio.sleep(LATE_SECONDS)


async def a_set_that_was_asked_for_before(play: Play) -> None:
    """A change of the ISR arrives after a later one was answered."""
    a, _, c = await play.begin()
    play.network.pause(c.address)
    await play.in_sync("a", "b")
    a.once["change"], a.slow["change"] = Fate.LATE, 3.0
    play.network.resume(c.address)
    await play.until(lambda: "change" not in a.once)
    play.network.pause(c.address)
    await asyncio.sleep(6)  # it has given up waiting, and asked for the set that it had
    play.write(a)
    await asyncio.sleep(LATE_SECONDS)


async def a_set_that_is_too_small(play: Play) -> None:
    """A leader is cut off, and then its disk is lost: the rest must hold everything and be in the
    ISR."""
    a, b, c = await play.begin()
    await a.value(play.shape.policy(acks=1))
    play.promises.acks = frozenset({1})
    play.network.pause(a.address)
    await asyncio.sleep(4 * BEHIND_SECONDS)
    a.die(power=True)
    a.wipe()
    await play.until(lambda: b.leads or c.leads)
    play.network.resume(a.address)
    await play.led()
    await play.brought(a, b if b.leads else c)


# --- two rules of which one is enough -------------------------------------------------------------


async def an_answer_of_before(play: Play, restarts: bool) -> None:
    """A member holds a released frame without knowing of the release. Then etcd answers with an
    older leader, which still believes to lead."""
    a, b, c = await play.begin()
    await asyncio.sleep(1)
    before = play.etcd.agreed
    c.slow["grant"] = 1.0
    a.etcd = Fate.LOST
    play.network.pause(a.address)
    await play.released_unheard(b, c)
    b.die(power=False)
    c.hears_old = before
    if restarts:
        c.die(power=False)
        await c.start()
    play.network.resume(a.address)
    await asyncio.sleep(LATE_SECONDS)


# --- faults beyond those that the rules bear ------------------------------------------------------


async def a_member_without_its_disk(play: Play) -> None:
    """A member comes back empty, under its old name: it does not count until it has joined."""
    a, _, c = await play.begin()
    await play.wrote(a)
    c.die(power=True)
    c.wipe()
    await play.brought(c, a)


async def an_etcd_that_was_emptied(play: Play) -> None:
    """Etcd is emptied: no node leads until an operator has named one that holds everything."""
    a, *_ = await play.begin()
    await play.wrote(a)
    await play.lost(AgreedState("model", 1, None, None))


async def an_etcd_that_was_restored(play: Play) -> None:
    """Etcd is restored with an older ISR, of which a member lacks newer released frames."""
    a, _, c = await play.begin()
    before = play.etcd.agreed
    play.network.pause(c.address)
    await play.in_sync("a", "b")
    await play.wrote(a)
    await asyncio.sleep(3)  # c learns of the ISR: else it could not notice
    await play.lost(before)


async def a_member_of_which_an_older_copy_is_put_back(play: Play) -> None:
    """An older copy is put back for the only running member of the ISR: no node leads until another
    runs."""
    a, b, c = await play.begin()
    copy = b.copied()
    await play.wrote(a)
    await asyncio.sleep(TOLD_SECONDS + 2)
    for one in (a, b, c):
        one.die(power=False)
    b.put_back(copy)
    await b.start()
    await asyncio.sleep(10)


async def a_member_whose_coordinator_fails(play: Play) -> None:
    """A member's coordinator fails while it is cut off: it follows no leader and can't serve
    CURRENT."""
    a, _, c = await play.begin()
    play.watch()
    c.once["look"], c.etcd = Fate.FAULTY, Fate.LOST
    await play.until(lambda: "look" not in c.once)
    c.cut()
    await play.in_sync("a", "b")
    await play.wrote(a)
    await asyncio.sleep(1)
    c.mend()


async def a_founder_that_is_cut_off(play: Play) -> None:
    """Etcd has created the ISR, its founder misses the answer, and another node takes the lead."""
    await whole.begin(play, "abc", TABLES, None)
    play.watch()
    a = play.machines[0]
    await copied(play)
    a.once["found"] = Fate.UNHEARD
    play.founds(a)
    await play.until(lambda: play.etcd.insync is not None)
    a.cut()
    leader = await play.led()
    assert leader is not a
    await play.until_done(lambda: leader.value("CREATE t:new"))
    await asyncio.sleep(1)
    a.mend()


async def a_member_that_was_told_of_another_lineage(play: Play) -> None:
    """A member learns of a commit index beyond its log; a lineage begun by force has fewer
    frames."""
    a, b, c = await play.begin()
    await play.wrote(a)
    c.die(power=False)
    b.cut()
    await play.in_sync("a")
    for _ in range(20):
        await play.wrote(a)
    sends = ModelLink.send

    def send(link: ModelLink, message: Message) -> None:
        if not (isinstance(message, Frames) and message.frames):
            sends(link, message)

    with patch.object(ModelLink, "send", send):
        await c.start()
        await asyncio.sleep(1)  # it hears of what is released, and lacks it
        c.cut()
        a.die(power=False)
    assert c.runs.committer.log_upto < len(play.promises.truth) - 10
    b.mend()
    await play.until(lambda: play.etcd.lead is None)
    play.promises.forced = b.id
    await play.until_done(lambda: b.value("DEFINE NODE LEADS STORE FORCE REASON 'burnt'"))
    c.mend()
    await play.in_sync("b", "c")
    play.deaf(c, b)
    play.write(b)
    await asyncio.sleep(0.2)


async def an_etcd_that_was_restored_within_a_leadership(play: Play) -> None:
    """Etcd is restored with an older ISR during a leadership; a member of it lacks newer frames."""
    a, b, c = await play.begin()
    play.network.pause(b.address)
    await play.in_sync("a", "c")
    before = play.etcd.agreed
    play.network.resume(b.address)
    await play.in_sync("a", "b", "c")
    play.network.pause(c.address)
    await play.in_sync("a", "b")
    await play.wrote(a)
    play.etcd_lies, play.promises.members = True, frozenset()
    play.etcd.revision, play.etcd.insync = before.revision, before.insync
    play.etcd.told = before.told
    await asyncio.sleep(2 * play.shape.lease_s)
    if a.leads:
        raise ClusterGuaranteeViolated(
            "a leads on, and the agreement was set back within its leadership"
        )
    play.network.resume(c.address)
    await asyncio.sleep(10)
    if any(each.leads for each in play.machines):
        raise ClusterGuaranteeViolated("somebody leads by an agreement that was set back")
    for each in (b, c):
        each.die(power=False)
    play.promises.forced = a.id
    await a.value("DEFINE NODE LEADS STORE FORCE REASON 'etcd was restored'")
    play.etcd_lies = False


BEYOND: Final[dict[str, Story]] = {
    "x-coordinator": a_member_whose_coordinator_fails,
    "x-founder": a_founder_that_is_cut_off,
    "x-told": a_member_that_was_told_of_another_lineage,
    "x-etcd-within": an_etcd_that_was_restored_within_a_leadership,
    "x-wiped": a_member_without_its_disk,
    "x-etcd-empty": an_etcd_that_was_emptied,
    "x-etcd-old": an_etcd_that_was_restored,
}
"""Faults that the rules do not tolerate, by their names in the model."""


STORIES: Final[dict[str, Story]] = {
    "1-members": released_alone,
    "2-before": released_before_the_answer,
    "2-add-early": added_before_it_holds_all,
    "2-add-new": added_before_it_knows_what_is_released,
    "2-union": released_without_who_may_be_in,
    "2-read-ends": a_set_that_was_asked_for_before,
    "3-set": taken_with_an_old_set,
    "3-lead": a_set_of_who_is_deposed,
    "3-mod": a_set_that_was_asked_for_before,
    "m-shrink": a_set_that_is_too_small,
    "9-holds": a_member_of_which_an_older_copy_is_put_back,
}

LOST: Final = frozenset({"x-told", "x-etcd-within"})
"""Scenarios after which some members have to be copied, because a forced lineage lacks their
frames."""

SLOW_DISKS: Final = frozenset({"2-add-early", "2-add-new"})
"""Scenarios in which writes are synced late."""


def played(rule: str, *left_out: str, story: Story | None = None, mends: bool = True) -> None:
    """Play a scenario, with its rule or without it.

    :param story: the scenario; None: that of the rule
    :param mends: True if all members converge afterwards
    """

    async def main() -> None:
        play = Play("3s" if rule in PATIENT else "500ms")

        async def told() -> None:
            await (story or (STORIES | BEYOND)[rule])(play)
            if mends:
                await play.mended()

        with play.looked_on(), ExitStack() as without:
            for each in left_out:
                without.enter_context(LEFT_OUT[each]())
            telling = asyncio.ensure_future(told())
            await asyncio.wait((telling, play.broken), return_when=asyncio.FIRST_COMPLETED)
            if play.broken.done():
                telling.cancel()
                play.go_on()
                play.broken.result()
            telling.result()
            for machine in play.machines:
                if machine.process is not None:
                    await machine.stop()
                await asyncio.gather(*machine.burials)
            play.watchers.end()

    try:
        latency = (lambda: 0.05) if rule in SLOW_DISKS else None
        stepped.run(main(), loop=ProcessLoop(1, latency))
    except BaseException:
        leaks.end_greenlets()
        leaks.leaked_actors()  # what broke is left as it is
        raise


@pytest.fixture(autouse=True)
def any_line(logbook: Logbook) -> None:
    """Allow any log line: operators hear of most faults."""
    logbook.allow("")


@pytest.mark.parametrize("rule", STORIES | BEYOND)
def test_what_would_go_wrong_does_not(rule: str) -> None:
    played(rule, mends=rule not in LOST)


@pytest.mark.parametrize("rule", [*STORIES, *sorted(LOST)])
def test_without_the_rule_it_goes_wrong(rule: str) -> None:
    with pytest.raises(ClusterGuaranteeViolated):
        played(rule, rule)


@pytest.mark.parametrize(("rule", "restarts"), [("5-epoch", False), ("5-seen-memory", True)])
def test_of_two_rules_one_is_enough(rule: str, restarts: bool) -> None:
    """No etcd answers with an older state than before, and no node would accept it."""

    def tell(*left_out: str) -> None:
        played(rule, *left_out, story=partial(an_answer_of_before, restarts=restarts), mends=False)

    tell(rule)
    tell("revision")
    with pytest.raises(ClusterGuaranteeViolated):
        tell(rule, "revision")
