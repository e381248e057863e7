"""What a cluster agrees on behaves as its door says: etcd itself, and the model that stands for it
in simulation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.agreement import EtcdAgreement, EtcdCredentials
from protocol.agreement import (
    Agreement,
    InSyncReplicas,
    LeaderEntry,
    LeaseLapsed,
    NotAnswered,
    ReleasedFrame,
    ReleaseReport,
)
from tests.actors.agreement.etcds import ETCD, LOGIN, EtcdProcess, etcd_process, guarded_etcd
from tests.simulation import loop as stepped
from tests.simulation.agreement import AgreementModel, Fate

A, B, C = "node-a", "node-b", "node-c"
NOBODY = "https://127.0.0.1:1"
Doors = tuple[Agreement, Agreement]
_stores = (f"store-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def etcd(shared_path: Path) -> Iterator[EtcdProcess]:
    with etcd_process(shared_path / "conforming") as found:
        yield found


@pytest.fixture(scope="module")
def guarded(shared_path: Path) -> Iterator[EtcdProcess]:
    """One that is reached by TLS, wants a certificate, and asks for a user."""
    (shared_path / "guarded").mkdir()
    with guarded_etcd(shared_path / "guarded") as found:
        yield found


@pytest.fixture(params=["etcd", "guarded"])
async def environment(request: pytest.FixtureRequest) -> AsyncIterator[Doors]:
    """Two nodes' doors to the same etcd, where nothing was agreed yet."""
    if ETCD is None:
        pytest.skip("not installed: etcd-server")
    store = next(_stores)
    asked: EtcdProcess = request.getfixturevalue(request.param)
    access = EtcdCredentials() if asked.shows is None else EtcdCredentials(LOGIN, asked.shows)
    # The first endpoint of one of them is dead.
    found = (
        EtcdAgreement([asked.endpoint], store, access),
        EtcdAgreement([NOBODY, asked.endpoint], store, access),
    )
    yield found
    for each in found:
        await each.close()


async def founded(door: Agreement, *members: str) -> int:
    """Write the first set; its revision."""
    answer = await door.found(frozenset(members))
    assert answer.done and answer.agreed.insync is not None
    return answer.agreed.insync.revision


async def led(door: Agreement, node: str, insync: int, seconds: int = 60) -> tuple[int, int]:
    """Take the lead; the lease and the epoch."""
    lease = await door.grant(seconds)
    answer = await door.take_lead(node, lease, insync)
    assert answer.done and answer.agreed.lead is not None
    assert answer.agreed.lead.node == node
    return lease, answer.agreed.lead.epoch


async def test_at_first_nothing_is_agreed(environment: Doors) -> None:
    one, other = environment
    found = await one.read()
    assert found.cluster and found.revision >= 1
    assert (found.lead, found.insync) == (None, None)
    assert (await other.read()).cluster == found.cluster


async def test_the_first_set_is_written_once(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    again = await other.found(frozenset({C}))
    assert not again.done
    insync = again.agreed.insync
    assert insync is not None and insync.members == {A, B}
    assert (insync.epoch, insync.revision) == (0, revision)
    assert again.agreed.revision == (await one.read()).revision, "a condition that fails writes"


async def test_a_vacant_lead_is_taken_from_the_set_that_was_read(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    lease = await one.grant(60)
    assert not (await one.take_lead(A, lease, revision - 1)).done
    assert not (await one.take_lead(A, lease, 0)).done
    assert (await one.read()).lead is None
    _, epoch = await led(one, A, revision)
    assert epoch > revision
    late = await other.take_lead(B, await other.grant(60), revision)
    assert not late.done
    assert late.agreed.lead is not None and late.agreed.lead.node == A
    assert late.agreed.lead.epoch == epoch


async def test_of_many_who_race_one_leads(environment: Doors) -> None:
    revision = await founded(environment[0], A, B)
    leases = [await environment[number % 2].grant(60) for number in range(8)]
    answers = await asyncio.gather(
        *(
            environment[number % 2].take_lead(f"n{number}", leases[number], revision)
            for number in range(8)
        )
    )
    assert sum(answer.done for answer in answers) == 1
    leads = {answer.agreed.lead for answer in answers if answer.done}
    assert (await environment[0].read()).lead in leads


async def test_a_lead_lasts_while_its_lease_is_renewed_and_the_next_epoch_is_greater(
    environment: Doors,
) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    lease, epoch = await led(one, A, revision, seconds=2)
    for _ in range(3):
        assert await one.renew(lease) == 2
        found = await other.changed((await other.read()).revision, 0.8)
        assert found.lead is not None, "it lapsed beside its renewals"
    while found.lead is not None:
        found = await other.changed(found.revision, 20)
    assert found.revision > epoch
    with pytest.raises(LeaseLapsed):
        await one.renew(lease)
    with pytest.raises(LeaseLapsed):
        await one.take_lead(A, lease, revision)
    assert (await one.read()).lead is None
    _, later = await led(other, B, revision)
    assert later > epoch


async def test_a_lease_that_is_given_up_frees_the_lead_at_once(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A)
    lease, epoch = await led(one, A, revision)
    await one.revoke(lease)
    assert (await other.read()).lead is None
    await one.revoke(lease)
    assert not (await one.change(epoch, revision, frozenset({A, B}))).done


async def test_the_set_is_changed_by_who_leads_and_knows_it(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    _, epoch = await led(one, A, revision)
    assert not (await one.change(epoch + 1, revision, frozenset({A}))).done
    assert not (await one.change(epoch, revision + 1, frozenset({A}))).done
    changed = await one.change(epoch, revision, frozenset({A}))
    assert changed.done
    insync = changed.agreed.insync
    assert insync == InSyncReplicas(epoch, frozenset({A}), changed.agreed.revision)
    assert (await other.read()).insync == insync
    assert not (await one.change(epoch, revision, frozenset({A, B}))).done
    assert (await one.change(epoch, insync.revision, frozenset({A, B}))).done


async def test_who_led_before_changes_nothing(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    lease, before = await led(one, A, revision)
    await one.revoke(lease)
    _, epoch = await led(other, B, revision)
    late = await one.change(before, revision, frozenset({A}))
    assert not late.done
    assert late.agreed.lead == LeaderEntry(B, epoch)
    assert late.agreed.insync is not None and late.agreed.insync.members == {A, B}


async def test_a_lineage_is_begun_by_who_leads_and_leaves_one_member(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    assert (await one.read()).lineage == 0
    lease, epoch = await led(one, A, revision)
    assert not (await one.begin_lineage(epoch + 1, revision, A)).done
    assert not (await one.begin_lineage(epoch, revision + 1, A)).done
    assert (await other.read()).lineage == 0
    begun = await one.begin_lineage(epoch, revision, A)
    assert begun.done and begun.agreed.lineage == epoch
    insync = begun.agreed.insync
    assert insync is not None and insync.epoch == epoch and insync.members == {A}
    changed = await one.change(epoch, insync.revision, frozenset({A, B}))
    assert changed.done and changed.agreed.lineage == epoch
    await one.revoke(lease)
    assert (await other.read()).lineage == epoch


async def test_a_lineage_begins_where_there_was_no_set(environment: Doors) -> None:
    one, other = environment
    _, epoch = await led(one, A, 0)
    assert (await one.begin_lineage(epoch, 0, A)).done
    found = await other.read()
    assert found.insync is not None and found.insync.members == {A} and found.lineage == epoch


async def test_what_is_released_is_told_by_who_leads(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    assert (await other.read()).told is None
    lease, epoch = await led(one, A, revision)
    assert not (await one.report_released(epoch + 1, ReleasedFrame(1, 7))).done
    assert (await other.read()).told is None
    told = await one.report_released(epoch, ReleasedFrame(1, 7))
    assert told.done and told.agreed.told == ReleaseReport(
        ReleasedFrame(1, 7), told.agreed.revision
    )
    assert (await other.read()).told == told.agreed.told
    again = await one.report_released(epoch, ReleasedFrame(epoch, 9))
    assert again.agreed.released == ReleasedFrame(epoch, 9)
    await one.revoke(lease)
    assert not (await one.report_released(epoch, ReleasedFrame(epoch, 10))).done
    taken = await other.take_lead(B, await other.grant(60), revision)
    assert taken.done, "the set is as it was read"
    assert taken.agreed.told == again.agreed.told
    changed = await other.change(taken.agreed.lead.epoch, revision, frozenset({B}))  # type: ignore[union-attr]
    assert changed.agreed.told == again.agreed.told


async def test_a_new_lineage_ends_what_was_told(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    lease, epoch = await led(one, A, revision)
    await one.report_released(epoch, ReleasedFrame(epoch, 9))
    await one.revoke(lease)
    _, epoch = await led(other, B, revision)
    assert (await other.read()).released is not None
    begun = await other.begin_lineage(epoch, revision, B)
    assert begun.done and begun.agreed.released is None
    await other.report_released(epoch, ReleasedFrame(epoch, 3))
    assert (await one.read()).released == ReleasedFrame(epoch, 3)


async def test_who_waits_hears_nothing_of_what_is_told(environment: Doors) -> None:
    one, other = environment
    revision = await founded(one, A, B)
    _, epoch = await led(one, A, revision)
    waiting = asyncio.create_task(other.changed((await one.read()).revision, 60))
    for number in range(1, 6):
        await one.report_released(epoch, ReleasedFrame(epoch, number))
    await one.change(epoch, revision, frozenset({A}))
    async with asyncio.timeout(20):
        found = await waiting
    assert found.insync is not None and found.insync.members == {A}
    assert found.released == ReleasedFrame(epoch, 5)


async def test_who_waits_hears_of_what_is_written(environment: Doors) -> None:
    one, other = environment
    before = (await one.read()).revision
    waiting = asyncio.create_task(other.changed(before, 60))
    await asyncio.sleep(0)
    revision = await founded(one, A)
    async with asyncio.timeout(20):
        found = await waiting
    assert found.insync is not None and found.insync.revision == revision


async def test_what_was_written_before_it_was_waited_for_is_heard_too(environment: Doors) -> None:
    one, other = environment
    before = (await one.read()).revision
    await founded(one, A)
    async with asyncio.timeout(20):
        found = await other.changed(before, 60)
    assert found.insync is not None


async def test_a_wait_that_is_given_up_leaves_the_door_as_it_was(environment: Doors) -> None:
    one, other = environment
    waiting = asyncio.create_task(other.changed((await other.read()).revision, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await founded(one, A)
    assert (await other.read()).insync is not None


# --- the model does the same; the suite catches who does otherwise ----------------------------

CONFORMANCE = [test for name, test in list(globals().items()) if name.startswith("test_")]


def asked_of(model: AgreementModel, test: Callable[[Doors], Coroutine[Any, Any, None]]) -> None:
    stepped.run(test((model.door(), model.door())))


@pytest.mark.parametrize("test", CONFORMANCE)
def test_the_model_conforms(test: Callable[[Doors], Coroutine[Any, Any, None]]) -> None:
    asked_of(AgreementModel(), test)


@pytest.mark.parametrize(
    "fate, perhaps, done",
    [
        (Fate.REFUSED, False, False),
        (Fate.LOST, True, False),
        (Fate.UNHEARD, True, True),
        (Fate.LATE, True, True),
    ],
)
def test_what_a_link_of_the_model_does(fate: Fate, perhaps: bool, done: bool) -> None:
    async def work() -> None:
        model = AgreementModel()
        with pytest.raises(NotAnswered) as told:
            await model.door(lambda: (fate, 0.5)).found(frozenset({A}))
        assert told.value.perhaps is perhaps
        await asyncio.sleep(10)
        assert ((await model.door().read()).insync is not None) is done

    stepped.run(work())
