"""What operators do to a cluster: a policy is changed, etcd is lost, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import pytest

from actors.cluster import diagnostics
from actors.cluster.leader_state import RENEWED_IN
from protocol.errors import (
    Busy,
    NotEnoughReplicas,
    NotImplementedHere,
    NotWritable,
)
from tests.actors.cluster.test_members import refused, shows, wrote
from tests.actors.cluster.whole import LEASE_SECONDS, POLICY, ClusterMachine, Trio, cluster
from tests.actors.parts import Played, outcome
from tests.logbook import Logbook
from tests.simulation.agreement import AgreementModel, Fate
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


@asynccontextmanager
async def whole(_kind: str, **more: Any) -> AsyncIterator[tuple[Trio, ClusterMachine]]:
    async with cluster(**more) as trio:
        leader = await trio.led()
        yield trio, leader


played = Played(whole).stepped


# --- an order that changes nothing ----------------------------------------------------------------


@played
async def test_who_leads_and_lacks_followers_says_what_helps_instead_of_force(
    trio: Trio, leader: ClusterMachine, /
) -> None:
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


# --- another policy -------------------------------------------------------------------------------


@played
async def test_a_policy_is_changed_by_who_leads(trio: Trio, leader: ClusterMachine, /) -> None:
    await leader.value(POLICY.format(2, "AUTO"))
    await refused(leader, POLICY.format(3, "AUTO"), NotEnoughReplicas)
    await refused(trio.named("b"), POLICY.format(1, "AUTO"), NotWritable)
    await refused(leader, "DROP FAILOVER", NotImplementedHere)
    found = (await leader.value("INFO FOR CLUSTER"))["failover"]
    assert (found["acks"], found["in_force"]) == (2, True)


@played
async def test_one_that_was_refused_leaves_the_one_before_as_it_was(
    trio: Trio, leader: ClusterMachine, /
) -> None:
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


def _busy() -> None:
    raise Busy("a bad moment")


@pytest.mark.parametrize("milliseconds", [5, 40, 100, 400, 1_000])
@played.using(acks=2)
async def test_fewer_are_promised_when_one_is_gone_whenever_who_leads_dies(
    trio: Trio, leader: ClusterMachine, /, milliseconds: int
) -> None:
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


def members(trio: Trio) -> frozenset[str]:
    assert trio.etcd.insync is not None
    return trio.etcd.insync.members


@played.using(acks=2)
async def test_one_policy_that_promises_less_lets_a_cluster_go_on(
    trio: Trio, leader: ClusterMachine, /
) -> None:
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


@played
async def test_etcd_moves_to_other_addresses_under_who_leads(
    trio: Trio, leader: ClusterMachine, /
) -> None:
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


@played
async def test_who_was_away_while_etcd_moved_asks_others_where_it_is(
    trio: Trio, leader: ClusterMachine, /, logbook: Logbook
) -> None:
    logbook.allow("using the etcd addresses reported by other nodes")
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
@played
async def test_an_etcd_that_was_lost_lets_nobody_lead_until_one_is_named_and_all_go_on(
    trio: Trio, leader: ClusterMachine, /, lost: Callable[[AgreementModel], None]
) -> None:
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


@played
async def test_an_order_that_can_not_be_carried_out_leaves_the_lead(
    trio: Trio, leader: ClusterMachine, /
) -> None:
    emptied(trio.etcd)
    await trio.until(lambda: leader.life == "waiting")
    leader.once = {"grow": Fate.REFUSED}
    began = asyncio.get_running_loop().time()
    await trio.until_done(lambda: leader.value(FORCED))
    took = asyncio.get_running_loop().time() - began
    assert not leader.once and took < LEASE_SECONDS, "it waited for its own lease"
    await trio.in_sync("a", "b", "c")


@played
async def test_an_etcd_that_was_restored_lets_nobody_lead_until_one_is_named(
    trio: Trio, leader: ClusterMachine, /
) -> None:
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


@pytest.mark.parametrize("has_grown", [False, True])
@played
async def test_who_leads_hears_with_its_next_renewal_that_etcd_was_set_back(
    trio: Trio, leader: ClusterMachine, /, has_grown: bool
) -> None:
    """To a moment of the same lead, when another was in the set: that one would lead next."""
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
@played
async def test_who_was_named_is_killed_in_the_middle_of_that(
    trio: Trio, leader: ClusterMachine, /, request_: str, fate: Fate
) -> None:
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

    played.run(main)
