"""What is declared of who leads: its row stays, and its lead ends with the role that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from actors.commits.committer import NODE
from protocol.errors import BadRequest, NotWritable, UnknownOutcome
from storage.catalog import replicas
from tests.actors.cluster.test_members import refused, shows, wrote
from tests.actors.cluster.whole import ROLES, ClusterMachine, Trio, cluster
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|was not renewed|stopped following")


def played(main: Callable[[Trio, ClusterMachine], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            if more.get("founded", True):
                await trio.led()
            await main(trio, trio.named("a"))

    stepped.run(whole(), 1)


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

    played(main, founded=founded)


@pytest.mark.parametrize("revoked", ["cd" * 32, "ab" * 32])
def test_whose_next_certificate_is_revoked_is_treated_as_of_the_one_that_it_shows(
    revoked: str,
) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        for machine, prints in ((leader, ("cd", "ab")), (trio.named("c"), ("12", "34"))):
            for one in prints:
                await shown(leader, one * 32, machine)
        refusal = await refused(leader, f"REVOKE CERTIFICATE {revoked}", BadRequest)
        assert "leads" in refusal.message
        theirs = revoked.replace("cd", "12").replace("ab", "34")
        await leader.value(f"REVOKE CERTIFICATE {theirs}")
        assert trio.etcd.insync is not None
        assert trio.etcd.insync.members == {leader.id, trio.named("b").id}
        about = await leader.value("INFO FOR CLUSTER")
        assert [one["certificate"] for one in about["trusted"]] == ["cd" * 32, "ab" * 32]

    played(main)


def test_whose_certificate_was_revoked_is_not_asked_back_as_long_as_its_link_is_there() -> None:
    """Its row names it still, and it acknowledges what it is sent until it is cut off."""

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        c, committer = trio.named("c"), leader.runs.committer
        await shown(leader, "12" * 32, c)
        await leader.value(f"REVOKE CERTIFICATE {'12' * 32}")

        def holds_all() -> bool:
            leadership = leader.runs.member.leadership
            assert leadership is not None
            return c.id in leadership.followers.holding(committer.committed)

        await trio.until(holds_all)
        await trio.named("d").kill()
        await trio.in_sync("a", "b")
        named = f"PEER 'c:1' NODE '{c.id}' ROLES {ROLES}"
        await leader.value(f"DEFINE REPLICA OVERWRITE c {named}")
        await trio.in_sync("a", "b", "c")

    played(main, count=4)


def test_its_row_is_the_last_to_go() -> None:
    async def main(_trio: Trio, leader: ClusterMachine) -> None:
        await leader.value("DROP REPLICA b; DROP REPLICA c")
        await leader.value("DEFINE REPLICA OVERWRITE a PEER 'a:1'; DROP REPLICA a")
        assert (await leader.value("INFO FOR CLUSTER"))["replicas"] == []
        await leader.value("CREATE t:1")

    played(main, founded=False)


def test_a_node_is_out_of_the_set_before_its_row_is_declared_anew() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value("DEFINE REPLICA OVERWRITE c PEER 'c:1'")
        assert trio.etcd.insync is not None
        assert trio.etcd.insync.members == {leader.id, trio.named("b").id}
        named = f"PEER 'c:1' NODE '{trio.named('c').id}' ROLES {ROLES}"
        await leader.value(f"DEFINE REPLICA OVERWRITE c {named}")
        await trio.in_sync("a", "b", "c")

    played(main)


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

    played(main, founded=founded)


def test_a_node_is_out_of_the_set_before_its_row_names_another_certificate() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await shown(leader, "cd" * 32, trio.named("c"))
        await leader.value(f"DEFINE REPLICA OVERWRITE c PEER 'c:1' CERTIFICATE '{'ab' * 32}'")
        assert trio.etcd.insync is not None
        assert trio.etcd.insync.members == {leader.id, trio.named("b").id}
        await wrote(leader, 1)

    played(main)


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
def test_who_is_declared_coordinating_no_more_gives_its_lead_up(statement: str) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, 1, 2)
        await leader.value(statement)
        new = await another(trio, leader)
        await trio.until_done(lambda: new.value("CREATE t:3"))
        await shows(trio, new, 3)
        await trio.until(lambda: leader.life == "following")

    played(main)


def test_what_was_on_its_way_is_answered_before_a_lead_is_given_up() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        answers: list[object] = []
        await leader.value("DEFINE NODE ROLES serving, writable")
        while not (answers and isinstance(answers[-1], NotWritable)):
            answers.append(await outcome(leader.value(f"CREATE t:{len(answers)}")))
            assert len(answers) < 300, "it takes them for ever"
        assert not any(isinstance(one, UnknownOutcome) for one in answers)
        new = await trio.led()
        await shows(trio, new, len(answers) - 1)

    played(main)


def test_who_gave_its_lead_up_takes_it_again_once_it_may() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value("ALTER REPLICA a ROLES NONE")
        new = await another(trio, leader)
        await trio.until_done(lambda: new.value(f"ALTER REPLICA a ROLES {ROLES}"))
        await new.value("DEFINE NODE ROLES serving, writable")
        await trio.named("c" if new.name == "b" else "b").value("DEFINE NODE ROLES NONE")
        await trio.until(lambda: trio.leader is leader)

    played(main)


def test_a_takeover_that_dies_puts_nothing_in_flight(logbook: Logbook) -> None:
    """Else the node shows, as a follower, what its next leader has not released."""
    logbook.allow("actor failed")

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await leader.value("ALTER REPLICA c ROLES NONE")
        await trio.in_sync("a", "b", "c")
        committer = trio.named("b").runs.committer
        following, undone = committer._following, list[int]()
        begin = following.load_all

        def dies() -> asyncio.Future[None]:
            begin()
            following.load_all = begin  # type: ignore[method-assign]
            committer.on_lead_lost.append(
                lambda: undone.append(committer.committed - committer.commit_index)
            )
            raise RuntimeError("what coordinates dies")

        following.load_all = dies  # type: ignore[method-assign]
        await leader.kill()
        await trio.until(lambda: trio.leader is trio.named("b"))
        assert undone == [0]

    played(main)
