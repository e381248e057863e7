"""What operators do to a cluster: a policy is changed, etcd is lost, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from errno import ENOSPC
from itertools import product
from typing import Any

import pytest

from actors.cluster import coordinator, diagnostics, election
from actors.cluster.leader_state import RENEWED_IN, Leadership, LeaderState
from protocol.errors import (
    Busy,
    DiskFull,
    NotEnoughReplicas,
    NotImplementedHere,
    NotWritable,
    UnknownOutcome,
)
from tests.actors.cluster.test_current import asked
from tests.actors.cluster.test_members import refused, shows, wrote
from tests.actors.cluster.whole import LEASE_SECONDS, POLICY, ClusterMachine, Trio, cluster
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.agreement import AgreementModel, Fate
from tests.simulation.disk import Fault
from tests.sweeps import some_of

FORCED = "DEFINE NODE LEADS STORE FORCE REASON 'etcd is lost'"


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of."""
    logbook.allow("releases nothing")
    logbook.allow(
        "leads no more|nobody leads|etcd does not answer|was not renewed|is behind that of"
    )
    logbook.allow(
        "was not answered|request to take the lead|new lineage|stopped following|trusts etcd again"
    )
    logbook.allow("held up|is stranded|the new lease time")


def played(main: Callable[[Trio, ClusterMachine], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            await main(trio, await trio.led())

    stepped.run(whole(), 1)


# --- an order that changes nothing ----------------------------------------------------------------


def test_who_leads_and_lacks_followers_says_what_helps_instead_of_force() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value(FORCED)  # it leads, and lacks nothing
        for name in "bc":
            await trio.named(name).kill()
        await trio.until(lambda: leader.runs.member.leadership.lacks_followers)  # type: ignore[union-attr]
        refusal = await refused(leader, FORCED, NotWritable)
        assert "fewer ACKS" in refusal.message
        await leader.value("DEFINE NODE LEADS STORE")  # it does
        await leader.value(POLICY.format(0, "AUTO"))
        await trio.until_done(lambda: leader.value("CREATE t:1"))
        await leader.value(FORCED)

    played(main)


# --- another policy -------------------------------------------------------------------------------


def test_a_policy_is_changed_by_who_leads() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value(POLICY.format(2, "AUTO"))
        await refused(leader, POLICY.format(3, "AUTO"), NotEnoughReplicas)
        await refused(trio.named("b"), POLICY.format(1, "AUTO"), NotWritable)
        await refused(leader, "DROP FAILOVER", NotImplementedHere)
        found = (await leader.value("INFO FOR CLUSTER"))["failover"]
        assert (found["acks"], found["in_force"]) == (2, True)

    played(main)


def test_one_that_was_refused_leaves_the_one_before_as_it_was() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(leader.runs.committer, "check_writable", _busy)
            await refused(leader, POLICY.format(2, "AUTO"), Busy)
        for name in "bc":
            trio.named(name).cut()
        await trio.until(lambda: len(trio.etcd.agreed.insync.members) == 2)  # type: ignore[union-attr]
        await asyncio.sleep(10)
        assert len(trio.etcd.agreed.insync.members) == 2, "never smaller than one follower"  # type: ignore[union-attr]
        for name in "bc":
            trio.named(name).mend()
        await trio.until_done(lambda: leader.value("CREATE t:1"))

    played(main)


def test_a_set_that_may_have_shrunk_is_not_promised_to_be_larger() -> None:
    """Who was silent is asked out, and nobody answers that: it may be done. Then it is back."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        leader.etcd = Fate.UNHEARD
        trio.named("c").cut()
        await trio.until(lambda: len(members(trio)) == 2)
        leadership = leader.runs.member.leadership
        assert leadership is not None
        assert len(leadership.leading.members) == 3, "it does not know"
        trio.named("c").mend()
        await trio.until(
            lambda: leadership.has_enough_followers(leadership.policy._replace(acks=2))
        )
        refusal = await refused(leader, POLICY.format(2, "AUTO"), NotEnoughReplicas)
        assert refusal.detail["followers"] == 1
        leader.etcd = Fate.ANSWERED
        await trio.until(lambda: len(members(trio)) == 3)
        await trio.until_done(lambda: leader.value(POLICY.format(2, "AUTO")))

    played(main)


def test_a_policy_is_not_changed_for_a_lead_that_was_lost_and_taken_again_meanwhile() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        lost = leader.runs.member.leadership
        assert lost is not None
        for name in "bc":
            trio.named(name).etcd = Fate.LOST
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lost, "has_enough_followers", lambda policy: False)
            saying = asyncio.ensure_future(outcome(leader.value(POLICY.format(2, "AUTO"))))
            await asyncio.sleep(0.1)
            trio.etcd.end(lost.lease.id)
            await trio.until(lambda: leader.runs.member.leadership not in (None, lost))
            assert isinstance(await saying, NotWritable)
        for name in "bc":
            trio.named(name).etcd = Fate.ANSWERED
        await trio.until_done(lambda: leader.value("CREATE t:1"))
        assert leader.runs.member.leadership is not None
        assert leader.runs.member.leadership.policy.acks == 1
        assert (await leader.value("INFO FOR CLUSTER"))["failover"]["acks"] == 1

    played(main)


def test_one_that_can_not_be_released_holds_up_no_other() -> None:
    """A follower has just died, and is in the set: more are promised than are there, and less has
    it go on. Who said so is told in time, and not that nothing was done."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        leadership, more = leader.runs.member.leadership, POLICY.format(2, "AUTO")
        assert leadership is not None
        trio.named("c").cut()
        patient = asyncio.ensure_future(outcome(leader.value(more)))
        hurried = asyncio.ensure_future(outcome(asked(leader, more, timeout_us=5_000_000)))
        await trio.until(hurried.done)
        late = hurried.result()
        assert isinstance(late, UnknownOutcome), late
        assert not patient.done()
        await trio.until(patient.done)
        assert isinstance(patient.result(), UnknownOutcome), patient.result()
        await refused(leader, "CREATE t:1", NotEnoughReplicas)
        await leader.value(POLICY.format(1, "AUTO"))
        upto = late.detail["sequence"]
        assert isinstance(upto, int) and leader.runs.committer.commit_index >= upto
        await trio.in_sync("a", "b")
        await wrote(leader, 1)
        assert (await leader.value("INFO FOR CLUSTER"))["failover"]["acks"] == 1

    played(main)


def test_those_that_find_no_room_leave_the_one_before_as_it_was() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        leadership = leader.runs.member.leadership
        assert leadership is not None
        before, standing = leadership.policy, leadership.leading
        leader.disk.plan = lambda kind, path: (
            Fault(ENOSPC) if kind == "append" and path.endswith(".storelog") else None
        )
        said = [leader.value(POLICY.format(acks, "AUTO")) for acks in (2, 0, 2)]
        found = await asyncio.gather(*map(outcome, said))
        assert all(isinstance(one, DiskFull) for one in found), found
        leader.disk.plan = None
        now = leadership.leading
        assert leadership.policy == before
        assert (now.acks, now.acks_before, now.amended) == (
            standing.acks, standing.acks_before, standing.amended,
        )  # fmt: skip
        await trio.until_done(lambda: wrote(leader, 1))

    played(main)


def test_what_a_leader_remembers_of_its_policies_ends_with_their_release() -> None:
    """A program may define the same policy every minute, for as long as one node leads."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        leadership = leader.runs.member.leadership
        assert leadership is not None
        for acks in (1, 0, 2, 1) * 3:
            await trio.until_done(lambda acks=acks: leader.value(POLICY.format(acks, "AUTO")))  # type: ignore[misc]
        assert leadership._replaced == []
        said = [leader.value(POLICY.format(acks, "AUTO")) for acks in (0, 1, 0)]
        await asyncio.gather(*map(outcome, said))
        assert leadership._replaced == [] and leadership.policy.acks == 0

    played(main)


def _busy() -> None:
    raise Busy("a bad moment")


@pytest.mark.parametrize("milliseconds", [5, 40, 100, 400, 1_000])
def test_fewer_are_promised_when_one_is_gone_whenever_who_leads_dies(milliseconds: int) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, *range(5))
        gone = next(each for each in trio.machines if each is not leader)
        await gone.kill()
        await trio.until(lambda: leader.runs.member.leadership is not None)
        await asyncio.sleep(3)
        await refused(leader, "CREATE t:x", NotEnoughReplicas)
        saying = asyncio.ensure_future(outcome(leader.value(POLICY.format(1, "AUTO"))))
        await asyncio.sleep(milliseconds / 1_000)
        assert trio.etcd.insync is not None
        was_shrunk = len(trio.etcd.insync.members) == 2
        await leader.kill()
        saying.cancel()
        await leader.start()
        if not was_shrunk:
            await asyncio.sleep(30)
            await gone.start()  # all three are needed still, or it came to that nevertheless
        new = await trio.led()
        assert len(await new.value("SELECT * FROM t")) == 5
        await trio.until_done(lambda: new.value("CREATE t:after"))

    played(main, acks=2)


def test_the_set_is_not_small_before_those_who_stay_know_that_it_may_be() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        other = trio.named("b")
        await wrote(leader, 1)
        await trio.named("c").kill()
        await asyncio.sleep(3)
        trio.network.cut(leader.address, other.address)
        saying = asyncio.ensure_future(outcome(leader.value(POLICY.format(1, "AUTO"))))
        await asyncio.sleep(0.5)
        assert len(members(trio)) == 3, "nobody knows of the policy but who leads"
        trio.network.mend(leader.address, other.address)
        await trio.until(lambda: len(members(trio)) == 2)
        await saying
        await trio.until_done(lambda: leader.value("CREATE t:2"))

    played(main, acks=2)


def test_whoever_leads_next_goes_by_the_policy_in_its_log() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, 1)
        await trio.named("c").kill()
        await asyncio.sleep(3)
        saying = asyncio.ensure_future(outcome(leader.value(POLICY.format(1, "AUTO"))))
        while len(members(trio)) > 2:
            await asyncio.sleep(0.001)
        # Nobody has heard yet that the set is smaller: nothing was released by that.
        assert trio.named("b").runs.member.policy == leader.runs.member.policy._replace(acks=2)  # type: ignore[union-attr]
        await leader.kill()
        saying.cancel()
        await trio.until(lambda: trio.named("b").life == "leading")
        await leader.start()
        new = await trio.led()
        assert new.name == "b"
        await trio.until_done(lambda: new.value("CREATE t:2"))

    played(main, acks=2)


def members(trio: Trio) -> frozenset[str]:
    assert trio.etcd.insync is not None
    return trio.etcd.insync.members


def test_one_policy_that_promises_less_lets_a_cluster_go_on() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await trio.named("b").kill()
        await asyncio.sleep(3)
        await refused(leader, "CREATE t:x", NotEnoughReplicas)
        await leader.value(POLICY.format(1, "AUTO"))
        await trio.in_sync("a", "c")
        await trio.until_done(lambda: leader.value("CREATE t:1"))
        await leader.kill()
        await leader.start()
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:2"))
        await trio.named("b").start()
        await trio.in_sync("a", "b", "c")

    played(main, acks=2)


def test_etcd_moves_to_other_addresses_under_who_leads() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value(POLICY.replace("http://etcd", "http://moved").format(1, "AUTO"))
        await wrote(leader, 1)
        for each in trio.machines:
            await shows(trio, each, 1)
            each.gone = {"http://etcd"}
        epoch = leader.runs.committer.ledger.epoch
        await asyncio.sleep(30)
        assert leader.leads and leader.runs.committer.ledger.epoch == epoch
        await wrote(leader, 2)
        await leader.kill()
        new = await trio.led()
        assert new is not leader
        await trio.until_done(lambda: new.value("CREATE t:3"))

    played(main)


def test_who_was_away_while_etcd_moved_asks_others_where_it_is(logbook: Logbook) -> None:
    logbook.allow("using the etcd addresses reported by other nodes")

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        away = trio.named("c")
        await away.stop()
        await trio.in_sync("a", "b")
        await leader.value(POLICY.replace("http://etcd", "http://moved").format(1, "AUTO"))
        await wrote(leader, 1)
        for each in trio.machines:
            each.gone = {"http://etcd"}
        await away.start()
        await trio.in_sync("a", "b", "c")
        await shows(trio, away, 1)
        await trio.until(lambda: away.runs.member.policy == leader.runs.member.policy)
        await leader.kill()
        await trio.until_done(lambda: away.value("SELECT * FROM t CURRENT"))

    played(main)


# --- etcd is not what it was ----------------------------------------------------------------------


def emptied(etcd: AgreementModel) -> None:
    """It knows nothing, as on its first day."""
    etcd.end(etcd._lead_lease)
    etcd.insync, etcd.lineage, etcd.revision = None, 0, 1
    etcd._write()


def of_another_id(etcd: AgreementModel) -> None:
    """It was made anew by another name."""
    emptied(etcd)
    etcd.cluster = "another"


def without_keys(etcd: AgreementModel) -> None:
    """Somebody has removed what nodes had written."""
    etcd.end(etcd._lead_lease)
    etcd.insync = None
    etcd._write()


@pytest.mark.parametrize("lost", [emptied, of_another_id, without_keys])
def test_an_etcd_that_was_lost_lets_nobody_lead_until_one_is_named_and_all_go_on(
    lost: Callable[[AgreementModel], None],
) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, *range(5))
        for each in trio.machines:
            await shows(trio, each, 5)
        before = leader.runs.committer.ledger.epoch
        lost(trio.etcd)
        await trio.until(lambda: leader.life == "waiting")
        await asyncio.sleep(30)
        assert trio.etcd.lead is None
        for each in trio.machines:
            refusal = await refused(each, "DEFINE NODE LEADS STORE", NotWritable)
            assert (
                "etcd was" in refusal.message
                or "set back" in refusal.message
                or ("emptied" in refusal.message)
            )
        await leader.value(FORCED)
        assert leader.runs.committer.ledger.epoch > before
        await trio.in_sync("a", "b", "c")
        await leader.value(POLICY.format(1, "AUTO"))
        await wrote(leader, 5)
        await leader.kill()
        new = await trio.led()
        assert len(await new.value("SELECT * FROM t")) == 6
        await trio.until_done(lambda: new.value("CREATE t:6"))
        await leader.start()
        await trio.in_sync("a", "b", "c")

    played(main)


def test_an_order_that_can_not_be_carried_out_leaves_the_lead() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        emptied(trio.etcd)
        await trio.until(lambda: leader.life == "waiting")
        leader.once = {"grow": Fate.REFUSED}
        began = asyncio.get_running_loop().time()
        await trio.until_done(lambda: leader.value(FORCED))
        took = asyncio.get_running_loop().time() - began
        assert not leader.once and took < LEASE_SECONDS, "it waited for its own lease"
        await trio.in_sync("a", "b", "c")

    played(main)


@pytest.mark.parametrize("lost", [emptied, of_another_id, without_keys])
def test_who_has_followed_who_was_named_before_it_heard_of_that_goes_on(
    lost: Callable[[AgreementModel], None],
) -> None:
    """It does not reach etcd when the order is given, and is linked with who leads again."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        lost(trio.etcd)
        await trio.until(lambda: leader.life == "waiting")
        other = trio.named("b")
        other.etcd = Fate.REFUSED
        await leader.value(FORCED)
        epoch = leader.runs.committer.ledger.epoch
        await trio.until(lambda: other.runs.member.memory.promised == epoch)
        other.etcd = Fate.ANSWERED
        await trio.in_sync("a", "b", "c")
        await other.kill()
        await other.start()
        await trio.until(lambda: other.life == "following")

    played(main)


def test_an_etcd_that_was_restored_lets_nobody_lead_until_one_is_named() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        etcd = trio.etcd
        other = trio.named("c")
        backup = etcd.revision, etcd.insync
        other.cut()
        await trio.in_sync("a", "b")
        await wrote(leader, 1)
        other.mend()
        await trio.in_sync("a", "b", "c")
        await asyncio.sleep(10)  # who has heard nothing since would not notice
        etcd.end(etcd._lead_lease)
        etcd.revision, etcd.insync = backup
        await trio.until(lambda: leader.life == "waiting")
        await asyncio.sleep(10)
        etcd.grow(100)  # others write into it too
        await asyncio.sleep(30)
        for each in trio.machines:
            await each.kill()
            await each.start()
        await asyncio.sleep(30)
        assert etcd.lead is None
        etcd.revision = backup[0] + 1
        await leader.value(FORCED)
        await trio.in_sync("a", "b", "c")
        for each in trio.machines:
            await shows(trio, each, 1)

    played(main)


@pytest.mark.parametrize("has_grown", [False, True])
def test_who_leads_hears_with_its_next_renewal_that_etcd_was_set_back(has_grown: bool) -> None:
    """To a moment of the same lead, when another was in the set: that one would lead next."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        etcd, loop = trio.etcd, asyncio.get_running_loop()
        trio.named("b").cut()
        await trio.in_sync("a", "c")
        backup = etcd.agreed
        trio.named("b").mend()
        await trio.in_sync("a", "b", "c")
        trio.named("c").cut()
        await trio.in_sync("a", "b")
        await wrote(leader, 1)
        etcd.revision, etcd.insync, etcd.told = backup.revision, backup.insync, backup.told
        if has_grown:
            etcd.revision += 1_000  # others write into it too
        began = loop.time()
        await trio.until(lambda: leader.life != "leading")
        assert loop.time() - began < LEASE_SECONDS / RENEWED_IN + 0.1
        await asyncio.sleep(30)
        assert trio.leader is None, "until an operator names one"
        await leader.value(FORCED)
        trio.named("c").mend()  # which has heard of nothing, and would have led
        await trio.in_sync("a", "b", "c")
        for each in trio.machines:
            await shows(trio, each, 1)

    played(main)


@pytest.mark.parametrize(
    ("request_", "fate"),
    some_of(
        product(
            ["grow", "take_lead", "begin_lineage"],
            [Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE],
        ),
        every=3,
    ),
)
def test_who_was_named_is_killed_in_the_middle_of_that(request_: str, fate: Fate) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, *range(3))
        for each in trio.machines:
            await shows(trio, each, 3)
        emptied(trio.etcd)
        await trio.until(lambda: leader.life == "waiting")
        leader.once = {request_: fate}
        saying = asyncio.ensure_future(outcome(leader.value(FORCED)))
        await trio.until(lambda: not leader.once)
        await leader.kill()
        saying.cancel()
        await leader.start()
        await trio.until_done(lambda: leader.value(FORCED))
        await trio.in_sync("a", "b", "c")
        for each in trio.machines:
            await shows(trio, each, 3)

    played(main)


def test_what_is_wrong_with_etcd_is_named(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnostics, "LOOK_SECONDS", 5.0)
    logbook.allow("etcd has a known fault fault='it is planted'")

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        assert (await leader.value("INFO FOR NODE"))["etcd_faults"] == []
        trio.etcd.known_faults = ("it is planted",)
        await asyncio.sleep(6)
        for each in trio.machines:
            assert (await each.value("INFO FOR NODE"))["etcd_faults"] == ["it is planted"]
        assert logbook.names().count("etcd has a known fault") == 3
        trio.etcd.known_faults = ()
        await asyncio.sleep(6)
        assert (await leader.value("INFO FOR NODE"))["etcd_faults"] == []

    played(main)


def test_a_lease_that_is_renewed_by_who_asks_nobody_is_worth_nothing() -> None:
    """A leader of etcd that hangs answers renewals (etcd's issue 15247): the rest of it has another
    leader, and lets the lease lapse."""

    async def main(trio: Trio, old: ClusterMachine) -> None:
        await wrote(old, 1)
        old.etcd, old.renews_by_itself = Fate.LOST, True
        leadership = old.runs.member.leadership
        assert leadership is not None
        epoch = leadership.epoch
        await trio.until(lambda: trio.etcd.lead is not None and trio.etcd.lead.epoch != epoch)
        assert leadership.may_be_over, "another leads, and it does not doubt"
        refusal = await refused(old, "CREATE t:x", NotWritable)
        assert "etcd does not answer" in refusal.message
        new = await trio.led()
        await trio.until_done(lambda: new.value("CREATE t:2"))

    played(main)


# --- each of these is needed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "name", "planted", "test"),
    [
        (
            LeaderState, "_all_know", lambda self, nodes: True,
            test_the_set_is_not_small_before_those_who_stay_know_that_it_may_be,
        ),
        (
            Leadership, "adopt", lambda self, policy: None,
            test_whoever_leads_next_goes_by_the_policy_in_its_log,
        ),
        (
            election, "was_ordered_since", lambda known, agreed: False,
            lambda: test_an_etcd_that_was_lost_lets_nobody_lead_until_one_is_named_and_all_go_on(
                emptied
            ),
        ),
        (
            coordinator, "was_set_back", lambda known, agreed: False,
            test_an_etcd_that_was_restored_lets_nobody_lead_until_one_is_named,
        ),
    ],
)  # fmt: skip
def test_a_planted_fault_is_caught(
    place: Any, name: str, planted: Any, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, planted)
    with pytest.raises(AssertionError):
        test()
