"""A node has two certificates for a month of each year: whoever is shut out by one is by both."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from actors.commits.committer import released_at_once
from actors.environment import system_environment
from protocol.links import LinkClosed, NotKnown, Refused, Renew, Renewed
from storage.files.peer_file import Identity
from tests.logbook import Logbook
from tests.surfaces.peers.parts import FakePeering, at, identity, listening
from tests.surfaces.peers.test_nodes import (
    Ahead,
    Linked,
    in_its_row,
    joiner,
    leader,
    link,
    linked,
    redeem,
)

__all__ = ["leader"]

WITHHELD = (
    "this node's certificate was revoked: no certificate of the same file is put into its row"
)


async def next_known(leader: Linked, who: FakePeering) -> Identity:
    """The next certificate of a node, which has had it put into its row."""
    following = identity("next")
    async with listening(who) as surface:
        mine = await surface.connect(at(leader.surface), [leader.shown])
        mine.send(Renew(following.fingerprint, following.expires))
        assert isinstance(await mine.receive(), Renewed)
    assert [one["replica"] for one in (await leader.cluster())["trusted"]] == ["n2", "n2"]
    return following


@pytest.mark.parametrize("shows", ["the first", "the next"])
@pytest.mark.parametrize("revoked", ["the first", "the next"])
async def test_either_certificate_of_a_node_ends_both(
    leader: Linked, shows: str, revoked: str
) -> None:
    """Whoever has the key of one may have that of the other, which stands in the same file."""
    who = joiner()
    await redeem(who, await leader.token())
    both = {"the first": who.shown, "the next": await next_known(leader, who)}
    # A follower can't write down that it shows the next one: until it is linked by it both stand.
    leader.here.node.peering.note_certificate = lambda *_: None  # type: ignore[method-assign]
    now = replace(who, shown=both[shows])
    async with link(leader, now) as (mine, theirs):
        await leader.here.value(f"REVOKE CERTIFICATE '{both[revoked].fingerprint}'")
        for end in (mine, theirs):
            with pytest.raises(LinkClosed):
                async with asyncio.timeout(5):
                    await end.receive()
    for one in both.values():
        async with listening(replace(who, shown=one)) as surface:
            with pytest.raises(NotKnown):
                await surface.connect(at(leader.surface), [leader.shown])
    found = await leader.cluster()
    assert found["trusted"] == []
    assert [one["certificate"] for one in found["revoked"]] == [both[revoked].fingerprint]


async def test_whoever_is_revoked_has_no_other_put_into_its_row(leader: Linked) -> None:
    """Between the commit that says so and its release its link is there still."""
    who, committer = joiner(), leader.here.node.committer
    await redeem(who, await leader.token())
    later = identity("later")
    async with listening(who) as surface:
        mine = await surface.connect(at(leader.surface), [leader.shown])
        committer.releasable = lambda _durable: committer.commit_index
        said = asyncio.ensure_future(
            leader.here.value(f"REVOKE CERTIFICATE '{who.shown.fingerprint}'")
        )
        trust = leader.here.node.peering.trust
        while trust.of(who.shown.fingerprint) is not None:
            await asyncio.sleep(0.005)
        mine.send(Renew(later.fingerprint, later.expires))
        async with asyncio.timeout(5):  # a commit would wait for longer
            refused = await mine.receive()
        assert isinstance(refused, Refused) and refused.code == "SignInRefused"
        committer.releasable = released_at_once
        committer.release_more()
        await said
    assert trust.of(later.fingerprint) is None
    assert (await leader.cluster())["trusted"] == []


# --- of who leads ---------------------------------------------------------------------------------


async def test_who_leads_behind_a_revoked_certificate_shows_another_that_it_is_given(
    tmp_path: Path, logbook: Logbook
) -> None:
    """Its row is the only one, so that it may revoke what itself shows."""
    logbook.allow("another node")
    first, second = identity("a"), identity("b")
    async with linked(tmp_path / "x", first) as one:
        peering = one.here.node.peering
        await in_its_row(one)
        await one.here.value(f"REVOKE CERTIFICATE '{first.fingerprint}'")
        peering.accept_certificate(second)
        while one.shown != second.fingerprint:
            assert one.here.node.failure is None
            await asyncio.sleep(0.005)
        assert (await one.row("n1"))["certificate"] == second.fingerprint
        assert [each["certificate"] for each in (await one.cluster())["trusted"]] == [one.shown]


@pytest.mark.parametrize("revoked", ["the first", "the next"])
async def test_what_a_revoked_node_has_made_beside_it_it_puts_into_no_row(
    tmp_path: Path, logbook: Logbook, revoked: str
) -> None:
    """Its key stands in the same file. With another file the node is in its row again."""
    logbook.allow("another node|was revoked: no certificate of the same file")
    clock = Ahead()
    environment = replace(system_environment(), clock=clock)
    async with linked(tmp_path / "x", environment=environment) as one:
        peering, first = one.here.node.peering, one.shown
        await in_its_row(one)
        clock.pass_days(340)
        peering.renew_soon()
        while len((await one.cluster())["trusted"]) < 2:
            await asyncio.sleep(0.005)
        assert peering.identities is not None and peering.identities.next is not None
        following = peering.identities.next.fingerprint
        gone = first if revoked == "the first" else following
        await one.here.value(f"REVOKE CERTIFICATE '{gone}'")
        while not logbook.names().count(WITHHELD):
            assert one.here.node.failure is None
            await asyncio.sleep(0.005)
        assert (await one.cluster())["trusted"] == [] and one.shown == first
    async with linked(tmp_path / "x", environment=environment) as one:
        told = logbook.names().count(WITHHELD)
        one.here.node.peering.renew_soon()
        while logbook.names().count(WITHHELD) == told:
            await asyncio.sleep(0.005)
        assert (await one.cluster())["trusted"] == []
    # Of a stopped node: a check that is under way writes the file again.
    (tmp_path / "x" / "PEER").unlink()
    async with linked(tmp_path / "x", environment=environment) as one:
        while [each["certificate"] for each in (await one.cluster())["trusted"]] != [one.shown]:
            await asyncio.sleep(0.005)
