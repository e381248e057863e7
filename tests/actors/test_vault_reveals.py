"""Reveals that come together: one commit for all, an entry and a judgement for each, and others'
turns between what is opened."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask, tell
from actors.vaults.keyring import Proven
from protocol import limits
from protocol.errors import AuditRefused, Cancelled, NotAllowed, Refusal, Sealed, Unknown, WrongKey
from protocol.requests import Caller, CancelScript, RunScript, ScriptAnswer
from protocol.vaults import ChangePassphrase, Seal
from storage.vaults import rows
from tests.actors.nodes import ANA, run, value, yield_often
from tests.actors.parts import on_stepped
from tests.actors.scripts.test_stalled_disk import Stall
from tests.actors.vaulted import (
    CANARY,
    PASSPHRASE,
    Machine,
    called,
    define_users,
    log_is_full,
    node_with_vault,
    reveal,
    rotated,
    set_up,
    trail,
    unseal,
    vault_of,
    with_vault,
    write,
)
from tests.logbook import Logbook

MANY = 20


def asked(node: Node, ids: Any, caller: Caller = ANA, more: str = "") -> list[Any]:
    """Reveals that are on their way together."""
    script = f"REVEAL $id FROM VAULT v {more}"
    return [asyncio.ensure_future(run(node, script, {"id": str(id)}, caller=caller)) for id in ids]


async def told(asked: list[Any]) -> list[Any]:
    """Of each the value, or the refusal."""
    answers = [await one for one in asked]
    return [
        one.refusal if one.refusal is not None else one.results[-1].value["value"]
        for one in answers
    ]


async def held_back(node: Node, ids: Any, caller: Caller = ANA) -> tuple[Stall, list[Any]]:
    """Reveals that have begun, and wait for the log to be recorded; for 5 ms at most."""
    stall = Stall(node)
    writing = asyncio.ensure_future(run(node, "CREATE t:1"))
    await yield_often()
    assert not writing.done()
    assert node.committer.log_is_busy
    waiting = asked(node, ids, caller)
    before = node.committer.committed
    await yield_often()
    assert node.committer.committed == before
    return stall, waiting


async def fill(node: Node, count: int = MANY) -> None:
    for number in range(count):
        await write(node, str(number), f"{CANARY} {number}")


@with_vault
async def test_they_share_a_commit_and_each_has_its_entry(node: Node, /) -> None:
    await fill(node)
    before = node.committer.committed
    found = await told(asked(node, range(MANY), more="REASON 'because'"))
    assert found == [f"{CANARY} {number}" for number in range(MANY)]
    assert node.committer.committed == before + 1
    entries = [one for one in await trail(node) if one["action"] == "reveal"]
    assert Counter(one["id"] for one in entries) == Counter(map(str, range(MANY)))
    assert len({one["request"] for one in entries}) == MANY
    assert {one["reason"] for one in entries} == {"because"}
    assert all(one["intact"] and one["outcome"] == "granted" for one in entries)
    assert (await value(node, "INFO FOR AUDIT OF VAULT v CHECK"))["intact"]
    kept = await value(node, "INFO FOR STATEMENTS LIMIT 1")
    assert kept[0]["statement"] == "REVEAL $id FROM VAULT v REASON 'because'"
    assert (kept[0]["more"], kept[0]["seq"]) == (MANY - 1, before + 1)


@with_vault
async def test_one_of_many_waits_for_the_others_and_who_is_alone_for_nobody(node: Node, /) -> None:
    await fill(node)
    clock = node.environment.clock
    began_us = clock.monotonic_us()
    for number in range(5):
        await reveal(node, str(number))
    assert clock.monotonic_us() - began_us < limits.SLICE_US
    await told(asked(node, range(MANY)))
    before, began_us = node.committer.committed, clock.monotonic_us()
    waiting = []
    for number in range(3):
        waiting += asked(node, [number])
        await asyncio.sleep(0.0005)
    await told(waiting)
    assert node.committer.committed == before + 1
    assert clock.monotonic_us() - began_us < 2 * limits.SLICE_US
    for _ in range(MANY):
        await reveal(node, "0")
    began_us = clock.monotonic_us()
    await reveal(node, "0")
    assert clock.monotonic_us() - began_us < limits.SLICE_US, "they are forgotten"


@with_vault
async def test_one_that_is_refused_refuses_no_other(node: Node, /) -> None:
    await fill(node, 4)
    at = rows.value(vault_of(node).numbers, b"2", 1)
    with node.committer.begin_transaction() as tx:
        row = tx.get(at)
        assert row is not None
        tx.put(at, row[:-1] + bytes([row[-1] ^ 1]))
        ticket = node.committer.commit(tx, ANA)
    await node.committer.released(ticket)
    found = await told(asked(node, [0, "none", 1, 2, 3]))
    assert isinstance(found[1], Unknown) and isinstance(found[3], WrongKey)
    assert found[::2] == [f"{CANARY} 0", f"{CANARY} 1", f"{CANARY} 3"]
    entries = [one for one in await trail(node) if one["action"] == "reveal"]
    outcomes = {one["id"]: one["outcome"] for one in entries}
    assert (outcomes["none"], outcomes["2"]) == ("Unknown", "WrongKey")


@with_vault
async def test_each_is_judged_when_it_is_recorded(node: Node, /) -> None:
    await define_users(node)
    await value(node, "GRANT READ, INFO ON VAULT v TO mo")
    await fill(node, 2)
    stall, of_mo = await held_back(node, [0, 1], called("mo"))
    mine = asked(node, [0, 1])
    revoked = asyncio.ensure_future(run(node, "REVOKE READ ON VAULT v FROM mo"))
    await asyncio.sleep(0.1)
    stall.end()
    assert await told(mine) == [f"{CANARY} 0", f"{CANARY} 1"]
    refused = await told(of_mo)
    assert all(isinstance(one, NotAllowed) for one in refused)
    assert (await revoked).refusal is None
    entries = [one for one in await trail(node) if one["user"] == "mo"]
    assert {one["outcome"] for one in entries} == {"NotAllowed"} and len(entries) == 2


@with_vault
async def test_those_of_others_have_commits_of_their_own(node: Node, /) -> None:
    await define_users(node)
    await value(node, "GRANT READ ON VAULT v TO mo")
    await fill(node, 2)
    before = node.committer.committed
    over_http = replace(ANA, surface="http")
    together = asked(node, [0, 1]) + asked(node, [0, 1], called("mo"))
    await told(together + asked(node, [0, 1], over_http))
    assert node.committer.committed == before + 3
    entries = (await trail(node))[:6]
    users = Counter((one["user"], one["surface"]) for one in entries)
    assert users == {("ana", "wire"): 2, ("ana", "http"): 2, ("mo", "wire"): 2}


@pytest.mark.parametrize("known", [False, True])
@on_stepped
async def test_a_full_disk_refuses_all_of_them(known: bool, logbook: Logbook) -> None:
    """:param known: whether the node has noticed before that it is full"""
    logbook.allow("disk")
    logbook.allow("not kept")
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        await fill(node, 3)
        machine.disk.plan = log_is_full
        if known:
            await told(asked(node, [0]))
        found = await told(asked(node, [0, 1, 2, "none"]))
        assert all(isinstance(one, AuditRefused) for one in found[:3])
        assert isinstance(found[3], Unknown)
        assert len({id(one) for one in found}) == 4, "each says where it was refused"
        machine.disk.plan = None
        assert await told(asked(node, [2])) == [f"{CANARY} 2"]
        entries = [one for one in await trail(node) if one["action"] == "reveal"]
        assert [one["id"] for one in entries if one["outcome"] == "granted"] == ["2"]


# --- before the answer ----------------------------------------------------------------------------


@with_vault
async def test_nothing_is_shown_before_it_is_on_the_disk(node: Node, /) -> None:
    await fill(node, 3)
    stall = Stall(node)
    try:
        waiting = asked(node, [0, 1, 2])
        await asyncio.sleep(1)
        assert not any(one.done() for one in waiting), "shown before it was on the disk"
        seen = await value(node, "INFO FOR RUNNING")
        assert sum(one["text"] == "REVEAL $id FROM VAULT v" for one in seen) == 3
    finally:
        stall.end()
    assert await told(waiting) == [f"{CANARY} {number}" for number in range(3)]


@pytest.mark.parametrize("recorded", [False, True])
@with_vault
async def test_a_seal_in_between_refuses_them(node: Node, /, recorded: bool) -> None:
    await fill(node, 2)
    stall, waiting = await held_back(node, [0, 1])
    if recorded:
        await asyncio.sleep(0.1)
    sealed = asyncio.ensure_future(ask(node.vaults, Seal(ANA, None)))
    await asyncio.sleep(0.1)
    stall.end()
    await sealed
    assert all(isinstance(one, Sealed) for one in await told(waiting))
    outcomes = Counter(one["outcome"] for one in await trail(node) if one["action"] == "reveal")
    assert outcomes["Sealed"] == 2 and outcomes["granted"] == (2 if recorded else 0)
    assert not node._sealed._keyring._proven


@with_vault
async def test_keys_that_are_made_anew_in_between(node: Node, /) -> None:
    """Its entry is on its way when all is sealed again: it is asked again, and recorded again."""
    await fill(node, 4)
    rekeyed = ChangePassphrase(ANA, None, PASSPHRASE, PASSPHRASE, rekey=True)
    for change in (value(node, "ROTATE VAULT v"), ask(node.vaults, rekeyed)):
        changing = asyncio.ensure_future(change)
        found = []
        while not changing.done():
            found += await told(asked(node, range(4)))
        await changing
        await rotated(node)
        found += await told(asked(node, range(4)))
        assert set(found) == {f"{CANARY} {number}" for number in range(4)}
    assert (await value(node, "INFO FOR AUDIT OF VAULT v CHECK"))["intact"]


# --- who waits ------------------------------------------------------------------------------------


@with_vault
async def test_who_is_ended_while_the_disk_stalls_is_shown_nothing(node: Node, /) -> None:
    await fill(node, 2)
    stall = Stall(node)
    request = RunScript(
        ANA, "REVEAL $id FROM VAULT v", "r-killed", {"id": "0"}, namespace="a", database="b"
    )
    killed: asyncio.Future[ScriptAnswer] = ask(node.scripts, request)
    waits = asked(node, [1])
    await asyncio.sleep(0.5)
    tell(node.scripts, CancelScript("r-killed"))
    answer = await killed
    assert isinstance(answer.refusal, Cancelled) and answer.results == ()
    stall.end()
    assert await told(waits) == [f"{CANARY} 1"]
    entries = [one["outcome"] for one in await trail(node) if one["id"] == "0"]
    assert entries[:2] == ["Cancelled", "granted"]


@on_stepped
async def test_nothing_waits_for_a_node_that_stops() -> None:
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        await fill(node, 2)
        waiting = asked(node, [0, 1])
        await asyncio.sleep(0)
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        refused = answer if isinstance(answer, BaseException) else answer.refusal
        assert refused is None or isinstance(refused, Refusal)


# --- what is remembered ---------------------------------------------------------------------------


@with_vault
async def test_ids_are_listed_to_whom_may_see_them_when_they_are_read(node: Node, /) -> None:
    """Not to who could when the entry of it was on its way."""
    await define_users(node)
    await value(node, "GRANT READ ON VAULT a.b.v TO mo")
    stall = Stall(node)
    before = node.committer.committed
    listing = asyncio.ensure_future(run(node, "LIST FROM VAULT v", caller=called("mo")))
    while node.committer.committed == before:
        await asyncio.sleep(0)
    script = "REVOKE READ ON VAULT a.b.v FROM mo; WRITE 'later' IN VAULT v VALUE 1"
    revoking = asyncio.ensure_future(run(node, script))
    while node.committer.committed < before + 3:
        await asyncio.sleep(0)
    stall.end()
    assert (await revoking).refusal is None
    answer = await listing
    assert isinstance(answer.refusal, Unknown) and not answer.results


@on_stepped
async def test_no_more_than_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.vaults.keyring.PROVEN", 3)
    async with node_with_vault() as node:
        await fill(node, 6)
        for _ in range(2):
            await told(asked(node, range(6)))
        proven: dict[Any, Proven] = node._sealed._keyring._proven
        assert len(proven) == 3
