"""What is declared of who leads: its row stays, and its lead ends with the role that it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from actors.commits import NODE
from protocol.errors import BadRequest, NotWritable, UnknownOutcome
from storage.catalog import replicas
from tests.actors.cluster.test_members import refused, shows, wrote
from tests.actors.cluster.whole import ROLES, ClusterMachine, Trio, cluster
from tests.actors.parts import Played, outcome
from tests.logbook import Logbook


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|was not renewed|stopped following")


@asynccontextmanager
async def whole(_kind: str, **more: Any) -> AsyncIterator[tuple[Trio, ClusterMachine]]:
    async with cluster(**more) as trio:
        if more.get("founded", True):
            await trio.led()
        yield trio, trio.named("a")


played = Played(whole).stepped


async def shown(leader: ClusterMachine, certificate: str, of: ClusterMachine | None = None) -> None:
    """What a node with peers does by itself: its certificate is in its row.

    :param of: whose; None: of who leads
    """
    committer, node = leader.runs.committer, (of or leader).id
    with committer.begin_transaction() as tx:
        row = next(each for each in replicas.every(tx) if each.node == node)
        replicas.renew(tx, row, certificate, tx.now + timedelta(days=365))
        await committer.released(committer.commit(tx, NODE))


async def another(trio: Trio, than: ClusterMachine) -> ClusterMachine:
    """Another leads before the lease of the one that did would be over."""
    await trio.until(lambda: trio.leader not in (None, than), seconds=3)
    return await trio.led()


# --- its row --------------------------------------------------------------------------------------


@pytest.mark.parametrize("founded", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP REPLICA a",
        "DEFINE REPLICA OVERWRITE a PEER 'a:1'",
        "DEFINE REPLICA OVERWRITE a PEER 'a:1' NODE '6f3a0000-0000-4000-8000-0000000000ff'",
        "DEFINE REPLICA OVERWRITE a PEER 'a:1' CERTIFICATE '" + "ab" * 32 + "'",
        "REVOKE CERTIFICATE " + "cd" * 32,
        "BEGIN; DROP REPLICA c; DROP REPLICA a; COMMIT",
    ],
)
def test_the_row_of_who_leads_stays(founded: bool, statement: str) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await shown(leader, "cd" * 32)
        refusal = await refused(leader, statement, BadRequest)
        assert "leads" in refusal.message
        about = await leader.value("INFO FOR CLUSTER")
        assert about["member"] == "a" and len(about["replicas"]) == 3
        assert [one["replica"] for one in about["trusted"]] == ["a"]

    played.run(main, founded=founded)


@played.using(founded=False)
async def test_its_row_is_the_last_to_go(trio: Trio, leader: ClusterMachine, /) -> None:
    await leader.value("DROP REPLICA b; DROP REPLICA c")
    await leader.value("DEFINE REPLICA OVERWRITE a PEER 'a:1'; DROP REPLICA a")
    assert (await leader.value("INFO FOR CLUSTER"))["replicas"] == []
    await leader.value("CREATE t:1")


@played
async def test_a_node_is_out_of_the_set_before_its_row_is_declared_anew(
    trio: Trio, leader: ClusterMachine, /
) -> None:
    await leader.value("DEFINE REPLICA OVERWRITE c PEER 'c:1'")
    assert trio.etcd.insync is not None
    assert trio.etcd.insync.members == {leader.id, trio.named("b").id}
    named = f"PEER 'c:1' NODE '{trio.named('c').id}' ROLES {ROLES}"
    await leader.value(f"DEFINE REPLICA OVERWRITE c {named}")
    await trio.in_sync("a", "b", "c")


@pytest.mark.parametrize("founded", [True, False])
@pytest.mark.parametrize("name", ["a", "c"])
def test_a_row_of_the_same_node_keeps_its_certificates(founded: bool, name: str) -> None:
    """Who leads could put its own back only by a commit that nobody would hear of."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        machine = trio.named(name)
        await shown(leader, "cd" * 32, machine)
        await shown(leader, "ab" * 32, machine)
        trusted = (await leader.value("INFO FOR CLUSTER"))["trusted"]
        assert [one["certificate"] for one in trusted] == ["cd" * 32, "ab" * 32]
        named = f"PEER '{name}:2' NODE '{machine.id.upper()}' ROLES {ROLES}"
        await leader.value(f"DEFINE REPLICA OVERWRITE {name} {named}")
        about = await leader.value("INFO FOR CLUSTER")
        assert about["trusted"] == trusted
        (row,) = (each for each in about["replicas"] if each["name"] == name)
        assert (row["peer"], row["node"]) == (f"{name}:2", machine.id)
        if founded:
            assert trio.etcd.insync is not None
            assert trio.etcd.insync.members == {each.id for each in trio.machines}

    played.run(main, founded=founded)


# --- its roles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER REPLICA a ROLES NONE",
        "ALTER REPLICA a ROLES serving, writable",
        "DEFINE NODE ROLES serving, writable",
        "DEFINE NODE ROLES NONE",
    ],
)
@played
async def test_who_is_declared_coordinating_no_more_gives_its_lead_up(
    trio: Trio, leader: ClusterMachine, /, statement: str
) -> None:
    await wrote(leader, 1, 2)
    await leader.value(statement)
    new = await another(trio, leader)
    await trio.until_done(lambda: new.value("CREATE t:3"))
    await shows(trio, new, 3)
    await trio.until(lambda: leader.life == "following")


@played
async def test_what_was_on_its_way_is_answered_before_a_lead_is_given_up(
    trio: Trio, leader: ClusterMachine, /
) -> None:
    answers: list[object] = []
    await leader.value("DEFINE NODE ROLES serving, writable")
    while not (answers and isinstance(answers[-1], NotWritable)):
        answers.append(await outcome(leader.value(f"CREATE t:{len(answers)}")))
        assert len(answers) < 300, "it takes them for ever"
    assert not any(isinstance(one, UnknownOutcome) for one in answers)
    new = await trio.led()
    await shows(trio, new, len(answers) - 1)
