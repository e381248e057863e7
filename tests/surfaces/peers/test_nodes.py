"""Whole nodes that come to know each other: tokens, rows, revocations, renewals."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster.membership import Trust, refuse_link
from actors.commits.committer import released_at_once
from actors.environment import Environment, SystemClock, system_environment
from protocol.errors import BadRequest, NotWritable, SignInRefused, UnknownOutcome, WrongKey
from protocol.links import (
    PREFIX_BYTES,
    VERSION,
    AskWay,
    Attach,
    Leads,
    Link,
    LinkClosed,
    NotKnown,
    Redeem,
    Redeemed,
    Way,
    decode,
    encode,
)
from storage.catalog import join_tokens, replicas
from storage.catalog.join_tokens import JoinToken
from storage.catalog.replicas import Replica
from storage.files import peer_file
from storage.files.peer_file import Identity
from storage.formats.sealing import KEY_BYTES, key_of, name_of
from storage.txn.transaction import Transaction
from surfaces.peers.surface import PeerSettings, PeerSurface
from tests.logbook import Logbook
from tests.nodes import Running, running
from tests.surfaces.peers.parts import Bare, FakePeering, abandon, at, identity, listening
from tests.surfaces.test_secrets_on_disk import held

ATTACH = Attach([], 0, 0, 0)
ID = "6f3a0000-0000-4000-8000-00000000000{}"
TOLD_SECONDS = 30
"""How long it may take until a peer hears of its end; shorter where nobody tells it."""


@dataclass
class Linked:
    here: Running
    surface: PeerSurface

    async def token(self, row: str = "n2", more: str = "") -> JoinToken:
        """A row that waits, if there is none, and a token for it."""
        await self.here.value(f"DEFINE REPLICA IF NOT EXISTS {row} PEER '{row}:1'")
        answer = await self.here.value(f"CREATE JOIN TOKEN FOR {row} {more}")
        return join_tokens.read(answer["token"])

    async def cluster(self) -> dict[str, Any]:
        found = await self.here.value("INFO FOR CLUSTER")
        assert isinstance(found, dict)
        return found

    async def row(self, name: str) -> dict[str, Any]:
        return next(row for row in (await self.cluster())["replicas"] if row["name"] == name)

    @property
    def shown(self) -> str:
        return self.here.node.peering.shown.fingerprint


@asynccontextmanager
async def linked(
    path: Path,
    given: Identity | None = None,
    environment: Environment | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Linked]:
    async with running(path, environment, settings) as here:
        peering = here.node.peering
        await here.node.begin_peering("127.0.0.1:1", given)
        surface = PeerSurface(peering, PeerSettings("127.0.0.1", 0))
        await surface.start()
        peering.listens_at = at(surface)
        try:
            yield Linked(here, surface)
        finally:
            await abandon()
            await surface.close()


@pytest.fixture
async def leader(tmp_path: Path, logbook: Logbook) -> AsyncIterator[Linked]:
    logbook.allow("another node|no followers")
    async with linked(tmp_path / "leader") as found:
        yield found


def joiner(name: str = "a") -> FakePeering:
    number = "abcdef".index(name) + 1
    return FakePeering(ID.format(number), identity(name), store="")


def asked(who: FakePeering, invitation: JoinToken, **more: Any) -> Redeem:
    return Redeem(VERSION, invitation.secret, who.name, **more)


async def redeem(who: FakePeering, invitation: JoinToken, **more: Any) -> Redeemed:
    """Bring a token from a process that has nothing but that."""
    async with listening(who) as surface:
        (address,), fingerprint = invitation.where
        return await surface.redeem(address, fingerprint, asked(who, invitation, **more))


@asynccontextmanager
async def link(leader: Linked, who: FakePeering) -> AsyncIterator[tuple[Link, Link]]:
    came: asyncio.Queue[Link] = asyncio.Queue()
    over = asyncio.Event()

    async def keep(one: Link) -> None:
        came.put_nowait(one)
        await over.wait()

    leader.here.node.peering.accept = keep
    async with listening(who) as surface:
        try:
            mine = await surface.connect(at(leader.surface), [leader.shown])
            mine.send(ATTACH)
            theirs = await came.get()
            assert await theirs.receive() == ATTACH
            yield mine, theirs
        finally:
            over.set()


# --- tokens ---------------------------------------------------------------------------------------


async def test_a_token_says_where_it_is_to_be_brought(leader: Linked) -> None:
    found = await leader.token()
    assert found.where.fingerprint == leader.shown
    assert list(found.where.addresses) == [at(leader.surface)]
    own = (await leader.here.value("INFO FOR NODE"))["id"]
    await leader.here.value(f"DEFINE REPLICA n1 PEER 'n1.example:8002' NODE '{own}'")
    assert list((await leader.token()).where.addresses) == ["n1.example:8002"]


async def test_who_brings_one_is_in_its_row_and_linked_from_then_on(leader: Linked) -> None:
    who = joiner()
    found = await redeem(who, await leader.token())
    assert found == Redeemed(leader.here.node.store.id, "n2", leader.here.node.peering.node)
    row = await leader.row("n2")
    assert (row["node"], row["certificate"]) == (who.name, who.shown.fingerprint)
    assert row["peer"] == "n2:1", "as it was declared"
    assert not row["waits"] and row["token_expires"] is None
    (trusted,) = (await leader.cluster())["trusted"]
    assert trusted["expires"] == who.shown.expires and trusted["days_left"] == 29
    async with link(leader, who) as (mine, theirs):
        assert (theirs.peer.node, theirs.peer.row) == (who.name, "n2")
        assert mine.peer.store == leader.here.node.store.id


async def test_it_is_in_the_audit_trail_and_one_commit(leader: Linked) -> None:
    invitation = await leader.token()
    before = leader.here.node.committer.committed
    await redeem(joiner(), invitation)
    assert leader.here.node.committer.committed == before + 1
    entries = await leader.here.value("INFO FOR AUDIT")
    assert any(one["action"] == "redeem join token" for one in entries)


async def test_of_two_that_bring_it_at_once_one_wins(leader: Linked) -> None:
    invitation = await leader.token()
    told = await asyncio.gather(
        *(redeem(joiner(name), invitation) for name in "abcd"), return_exceptions=True
    )
    won = [one for one in told if isinstance(one, Redeemed)]
    assert len(won) == 1 and sum(isinstance(one, SignInRefused) for one in told) == 3


async def test_who_did_not_hear_the_answer_asks_again(leader: Linked) -> None:
    who, invitation = joiner(), await leader.token()
    first = await redeem(who, invitation)
    assert await redeem(who, invitation) == first


async def test_who_asks_again_is_answered_and_linked_once_it_is_released(leader: Linked) -> None:
    """A joiner that was answered never brings its token again, and what is not released may be
    taken back."""
    who, invitation = joiner(), await leader.token()
    committer = leader.here.node.committer
    upto = committer.commit_index
    committer.releasable = lambda _durable: upto  # a follower is silent
    first, again = (asyncio.ensure_future(redeem(who, invitation)) for _ in range(2))
    while committer.committed == upto:
        await asyncio.sleep(0.005)
    third = asyncio.ensure_future(redeem(who, invitation))
    async with listening(who) as surface:
        with pytest.raises(LinkClosed):
            await surface.connect(at(leader.surface), [leader.shown])
    assert not (first.done() or again.done() or third.done())
    committer.releasable = released_at_once
    committer.release_more()
    answers = await asyncio.gather(first, again, third)
    assert [one.row for one in answers] == ["n2"] * 3 and committer.committed == upto + 1
    async with link(leader, who) as (_, theirs):
        assert theirs.peer.row == "n2"


async def test_who_asks_again_hears_that_it_was_taken_back(leader: Linked) -> None:
    who, invitation = joiner(), await leader.token()
    committer = leader.here.node.committer
    upto = committer.commit_index
    committer.releasable = lambda _durable: upto
    first = asyncio.ensure_future(redeem(who, invitation))
    while committer.committed == upto:
        await asyncio.sleep(0.005)
    again = asyncio.ensure_future(leader.here.node.peering.redeem(
        asked(who, invitation), who.shown.fingerprint, who.shown.expires, "127.0.0.1"
    ))  # fmt: skip
    await asyncio.sleep(0)
    assert not again.done()
    await committer.begin_following(NotWritable("another leads", leader=[]))
    for one in (first, again):
        with pytest.raises(UnknownOutcome):
            await one
    row = await leader.row("n2")
    assert row["waits"] and row["token_expires"] is not None


async def test_what_was_dropped_or_replaced_opens_nothing(leader: Linked) -> None:
    dropped = await leader.token()
    await leader.here.value("DROP REPLICA n2")
    other = await leader.token("n3")
    with pytest.raises(SignInRefused):
        await redeem(joiner(), dropped)
    await leader.token("n3")
    with pytest.raises(SignInRefused):
        await redeem(joiner(), other)


async def test_where_none_is_out_nobody_is_heard(leader: Linked) -> None:
    invitation = await leader.token()
    await leader.here.value("DROP REPLICA n2")
    with pytest.raises(SignInRefused):
        await redeem(joiner(), invitation)
    with pytest.raises(LinkClosed):
        bare = await Bare.connect(leader.surface, identity("x"))
        await bare.say(Redeem(VERSION, invitation.secret, ID.format(9)))
        if await bare.hear() is None:
            raise LinkClosed("it was not heard")


async def test_one_that_has_expired_opens_nothing(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("another node")
    clock = Ahead()
    async with linked(
        tmp_path / "x", environment=replace(system_environment(), clock=clock)
    ) as leader:
        invitation = await leader.token(more="EXPIRES 1m")
        await leader.token("n3")
        clock.ahead_us = 61_000_000
        with pytest.raises(SignInRefused):
            await redeem(joiner(), invitation)


async def test_what_it_says_wrongly_uses_nothing_up(leader: Linked) -> None:
    invitation, nameless = await leader.token(), joiner()
    nameless.name = "no id"
    with pytest.raises(BadRequest):
        await redeem(nameless, invitation)
    await redeem(joiner(), invitation)


def test_a_token_is_brought_as_earlier_versions_did() -> None:
    said = Redeem(VERSION, "n2.secret", "node-a", key="k")
    body = encode(said)[PREFIX_BYTES:]
    assert decode(body) == said
    earlier = ["Redeem", VERSION, "n2.secret", "node-a", None, [], "k"]
    assert msgspec.msgpack.decode(body) == earlier


async def test_who_has_another_key_uses_nothing_up(tmp_path: Path, logbook: Logbook) -> None:
    """Whoever could make nothing of its copy. Who guesses is told of no key."""
    logbook.allow("another node")
    key, other = key_of(bytes(range(KEY_BYTES))), key_of(bytes(KEY_BYTES))
    async with linked(tmp_path / "x", settings={"key": key}) as leader:
        invitation = await leader.token()
        for wrong in (name_of(None), name_of(other)):
            with pytest.raises(WrongKey) as refused:
                await redeem(joiner(), invitation, key=wrong)
            assert refused.value.detail["key"] == name_of(key)
            guess = invitation._replace(secret="n2." + "A" * 43)
            with pytest.raises(SignInRefused):
                await redeem(joiner(), guess, key=wrong)
        assert (await leader.row("n2"))["waits"]
        await redeem(joiner(), invitation, key=name_of(key))
        await redeem(joiner("b"), await leader.token("n3"))  # one of an earlier version


async def test_guesses_are_answered_later_and_later(leader: Linked, logbook: Logbook) -> None:
    invitation = await leader.token()
    wrong = invitation._replace(secret="n2." + "A" * 43)
    throttle = leader.here.node.peering._throttle
    for _ in range(3):
        with pytest.raises(SignInRefused):
            await redeem(joiner(), wrong)
    # By the address, whatever row was guessed: the next one comes behind three.
    attempt = await throttle.enter("join token", "127.0.0.1:1")
    assert attempt.counter.in_a_row == 3
    attempt.end()
    entries = await leader.here.value("INFO FOR AUDIT")
    assert any(one["refused"] == "SignInRefused" for one in entries)


async def test_a_node_that_takes_no_writes_redeems_none(leader: Linked) -> None:
    invitation = await leader.token()
    await leader.here.value("DEFINE NODE ROLES serving")
    with pytest.raises(NotWritable):
        await redeem(joiner(), invitation)


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "REVOKE CERTIFICATE '{}'",
        "DROP REPLICA n2",
        "DEFINE REPLICA OVERWRITE n2 PEER 'n2:1'",
        "DEFINE REPLICA OVERWRITE n2 PEER 'n2:1' CERTIFICATE '" + "ab" * 32 + "'",
    ],
)
async def test_a_link_ends_with_what_it_stands_on(leader: Linked, statement: str) -> None:
    who = joiner()
    await redeem(who, await leader.token())
    async with link(leader, who) as (mine, theirs):
        await leader.here.value(statement.format(who.shown.fingerprint))
        with pytest.raises(LinkClosed):
            await theirs.receive()
        with pytest.raises(LinkClosed):
            await mine.receive()
    async with listening(who) as surface:
        with pytest.raises(NotKnown):
            await surface.connect(at(leader.surface), [leader.shown])


async def test_a_row_declared_by_its_certificate_learns_its_node(leader: Linked) -> None:
    who = joiner()
    await leader.here.value(f"DEFINE REPLICA n2 PEER 'n2:1' CERTIFICATE '{who.shown.fingerprint}'")
    async with link(leader, who):
        while (await leader.row("n2"))["node"] is None:
            await asyncio.sleep(0.005)
    (trusted,) = (await leader.cluster())["trusted"]
    assert trusted["expires"] == who.shown.expires
    assert (await leader.row("n2"))["node"] == who.name
    other = replace(who, name=ID.format(9))
    async with listening(other) as surface:
        with pytest.raises(LinkClosed, match="another node"):
            await surface.connect(at(leader.surface), [leader.shown])


async def test_who_is_linked_hears_where_to_turn_to(leader: Linked) -> None:
    who, own, here = joiner(), leader.here.node.peering.node, at(leader.surface)
    await leader.here.value(f"DEFINE REPLICA n1 PEER '{here}' NODE '{own}'")
    while (await leader.row("n1"))["certificate"] != leader.shown:
        await asyncio.sleep(0.005)
    await redeem(who, await leader.token())
    async with listening(who) as surface:
        mine = await surface.connect(here, [leader.shown])
        mine.send(AskWay())
        assert await mine.receive() == Way([], None, own, here, [leader.shown])
        with pytest.raises(LinkClosed):
            await mine.receive()


async def test_where_nothing_takes_followers_they_are_told(leader: Linked) -> None:
    leader.here.node.peering.accept = refuse_link
    who = joiner()
    await redeem(who, await leader.token())
    async with listening(who) as surface:
        mine = await surface.connect(at(leader.surface), [leader.shown])
        mine.send(ATTACH)
        assert getattr(await mine.receive(), "code", None) == "NotImplementedHere"
        with pytest.raises(LinkClosed):
            await mine.receive()


async def test_nothing_of_the_store_is_sent_to_a_stranger(leader: Linked) -> None:
    await leader.token()
    bare = await Bare.connect(leader.surface, identity("x"))
    await bare.say(Redeem(VERSION, "n2.guess", ID.format(9)))
    heard = repr(await bare.hear())
    assert await bare.hear() is None
    for secret in (leader.here.node.store.id, leader.here.node.peering.node, "n2"):
        assert secret not in heard


# --- this node's own certificate ------------------------------------------------------------------


class Ahead(SystemClock):
    """A wall clock that a test sets forward."""

    ahead_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_us

    def monotonic_us(self) -> int:
        return super().monotonic_us() + self.ahead_us

    def pass_days(self, days: int) -> None:
        self.ahead_us += days * 86_400_000_000


async def test_it_is_the_same_after_a_restart_and_in_no_backup(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    told = {"backup_dir": str(tmp_path / "backups")}
    async with linked(tmp_path / "x", settings=told) as one:
        before = one.shown
        key = one.here.node.peering.shown.key
        await one.here.value("BACKUP TO 'a'")
    async with linked(tmp_path / "x") as one:
        assert one.shown == before
    assert key.splitlines()[1].encode() not in held(tmp_path / "backups")
    assert key.splitlines()[1].encode() in held(tmp_path / "x")


async def test_a_sealed_store_keeps_its_key_sealed(tmp_path: Path) -> None:
    told = {"key": key_of(b"\7" * KEY_BYTES)}
    async with linked(tmp_path / "x", settings=told) as one:
        before, key = one.shown, one.here.node.peering.shown.key
    assert key.splitlines()[1].encode() not in held(tmp_path / "x")
    async with linked(tmp_path / "x", settings=told) as one:
        assert one.shown == before


async def in_its_row(one: Linked) -> None:
    """Declare a node that leads by its id, and wait until it has put into its row what it shows."""
    own = one.here.node.peering.node
    await one.here.value(f"DEFINE REPLICA n1 PEER 'n1:1' NODE '{own}'")
    while (await one.row("n1"))["certificate"] != one.shown:
        await asyncio.sleep(0.005)


async def test_a_leader_puts_its_own_into_its_row(leader: Linked) -> None:
    await in_its_row(leader)


async def test_a_row_of_who_leads_declared_by_its_certificate_learns_its_node(
    leader: Linked,
) -> None:
    """Nobody links with itself, and others look for who leads by its id."""
    await leader.here.value(f"DEFINE REPLICA n1 PEER 'n1:1' CERTIFICATE '{leader.shown}'")
    while (await leader.row("n1"))["node"] is None:
        await asyncio.sleep(0.005)
    found = await leader.cluster()
    assert found["member"] == "n1" and found["trusted"][0]["days_left"] >= 364


async def test_it_is_renewed_a_month_ahead_and_shown_half_a_month_later(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("another node")
    clock = Ahead()
    async with linked(
        tmp_path / "x", environment=replace(system_environment(), clock=clock)
    ) as one:
        peering, first = one.here.node.peering, one.shown
        await one.here.value(f"DEFINE REPLICA n1 PEER 'n1:1' NODE '{peering.node}'")

        async def trusted() -> list[str]:
            return [each["certificate"] for each in (await one.cluster())["trusted"]]

        async def until(count: int) -> list[str]:
            while len(found := await trusted()) != count:
                await asyncio.sleep(0.005)
            return found

        assert await until(1) == [first]
        clock.pass_days(334)
        peering.renew_soon()
        await asyncio.sleep(0)
        assert await until(1) == [first] and peering.identities.next is None  # type: ignore[union-attr]
        clock.pass_days(2)
        peering.renew_soon()
        both = await until(2)
        assert both[0] == first == one.shown, "the next one is known before it is shown"
        clock.pass_days(15)
        peering.renew_soon()
        assert await until(1) == both[1:] == [one.shown]
    async with linked(
        tmp_path / "x", environment=replace(system_environment(), clock=clock)
    ) as one:
        assert [one.shown] == both[1:]


DAY_US = 86_400_000_000


async def test_a_start_whose_clock_is_ahead_takes_nothing_that_others_know(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("another node|clock")
    clock = Ahead()
    environment = replace(system_environment(), clock=clock)
    async with linked(tmp_path / "x", environment=environment) as one:
        first = one.shown
        await in_its_row(one)
    clock.ahead_us = 365 * DAY_US
    async with linked(tmp_path / "x", environment=environment) as one:
        late = one.here.node.peering.shown
        assert late.fingerprint != first
        while len((await one.cluster())["trusted"]) < 2:
            await asyncio.sleep(0.005)
    async with linked(tmp_path / "x", environment=environment) as one:
        assert one.shown == late.fingerprint, "each start shows the same"
    clock.ahead_us = 0
    async with linked(tmp_path / "x", environment=environment) as one:
        assert one.shown == first
        assert late.parsed.not_valid_before_utc < datetime.now(UTC), "it may have been declared"
        assert first in {each["certificate"] for each in (await one.cluster())["trusted"]}


async def test_a_clock_that_runs_ahead_takes_nothing_that_others_know(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("another node|clock")
    clock = Ahead()
    environment = replace(system_environment(), clock=clock)
    async with linked(tmp_path / "x", environment=environment) as one:
        first, peering = one.shown, one.here.node.peering
        await in_its_row(one)
        clock.ahead_us = 366 * DAY_US
        peering.renew_soon()
        while one.shown == first:
            await asyncio.sleep(0.005)
    clock.ahead_us = 0
    async with linked(tmp_path / "x", environment=environment) as one:
        assert one.shown == first
        assert first in {each["certificate"] for each in (await one.cluster())["trusted"]}


async def test_one_that_was_made_late_is_trusted_until_the_next_is_shown(
    tmp_path: Path, logbook: Logbook
) -> None:
    """The row of a leader has the one that has run out too: nobody has seen the other one."""
    logbook.allow("another node|clock")
    clock = Ahead()
    environment = replace(system_environment(), clock=clock)
    async with linked(tmp_path / "x", environment=environment) as one:
        await in_its_row(one)
    clock.ahead_us = 365 * DAY_US
    async with linked(tmp_path / "x", environment=environment) as one:
        late, peering = one.shown, one.here.node.peering
        while peering.trust.of(late) is None:
            await asyncio.sleep(0.005)
        clock.pass_days(340)
        peering.renew_soon()
        while peering.identities is None or peering.identities.next is None:
            await asyncio.sleep(0.005)
        following = peering.identities.next.fingerprint
        while peering.trust.of(following) is None:
            await asyncio.sleep(0.005)
        assert one.shown == late and peering.trust.of(late) is not None


async def test_what_others_have_seen_is_what_a_start_finds(
    tmp_path: Path, logbook: Logbook
) -> None:
    """A clock that is right again shows nothing that they know no more."""
    logbook.allow("another node|clock")
    clock = Ahead()
    environment = replace(system_environment(), clock=clock)
    async with linked(tmp_path / "x", environment=environment) as one:
        first = one.shown
    clock.ahead_us = 365 * DAY_US
    async with linked(tmp_path / "x", environment=environment) as one:
        late = one.shown
        await one.here.value(f"DEFINE REPLICA n1 PEER 'n1:1' CERTIFICATE '{late}'")
        directory = one.here.node.store.parts.directory
        while (kept := peer_file.load(directory)) is None or kept.late is not None:
            await asyncio.sleep(0.005)
        assert kept.shown.fingerprint == late != first
    clock.ahead_us = 0
    async with linked(tmp_path / "x", environment=environment) as one:
        assert one.shown == late


async def test_a_file_that_is_damaged_ends_no_node_that_serves(
    tmp_path: Path, logbook: Logbook
) -> None:
    """What is shown is in memory. A start says what is wrong with the file."""
    logbook.allow("another node|handler failed|certificate failed")
    told = "the check of this node's certificate failed"
    async with linked(tmp_path / "x") as one:
        await in_its_row(one)
        shown, file = one.shown, tmp_path / "x" / "PEER"
        damaged = b"nonsense" + file.read_bytes()[8:]
        file.write_bytes(damaged)
        for _ in range(3):
            before = logbook.names().count(told)
            one.here.node.peering.renew_soon()
            while logbook.names().count(told) == before:
                assert one.here.node.failure is None
                await asyncio.sleep(0.005)
        assert "PEER is damaged" in next(
            one["why"] for one in logbook.events if one["event"] == told
        )
        assert one.shown == shown and file.read_bytes() == damaged


async def test_a_follower_has_its_leader_put_the_next_one_into_its_row(
    leader: Linked, tmp_path: Path
) -> None:
    """The follower of this test has rows of its own, as if it had copied them."""
    first, second = identity("a"), identity("b")
    async with linked(tmp_path / "follower", first) as follower:
        node = follower.here.node.peering.node
        leads = leader.here.node.peering
        follower.here.node.peering._store = leader.here.node.store.id
        rows = (
            f"DEFINE REPLICA n1 PEER 'n1:1' CERTIFICATE '{leader.shown}';"
            f"DEFINE REPLICA n2 PEER 'n2:1' CERTIFICATE '{first.fingerprint}'"
        )
        await leader.here.values(rows)
        await follower.here.values(f"DEFINE REPLICA n2 PEER 'n2:1' NODE '{node}'")
        while (await follower.row("n2"))["certificate"] != first.fingerprint:
            await asyncio.sleep(0.005)
        await follower.here.value("DEFINE NODE ROLES serving")
        follower.here.node.peering.leader = lambda: Leads("", at(leader.surface), (leader.shown,))
        follower.here.node.peering.accept_certificate(second)
        while len((await leader.cluster())["trusted"]) < 3:
            await asyncio.sleep(0.005)
        assert leads.trust.of(second.fingerprint) is not None
        assert follower.shown == first.fingerprint, "its own rows don't have it yet"
        # What it hears of its leader's commit.
        await follower.here.value("DEFINE NODE ROLES serving, writable")
        follower.here.node.peering.renew_soon()
        while follower.shown != second.fingerprint:
            await asyncio.sleep(0.005)
        mine = await follower.surface.connect(at(leader.surface), [leader.shown])
        while leads.trust.of(first.fingerprint) is not None:
            await asyncio.sleep(0.005)
        assert leads.trust.of(second.fingerprint) is not None
        mine.close()


async def test_one_that_is_given_has_to_fit(tmp_path: Path) -> None:
    one, other = identity("a"), identity("b")
    now = one.expires - timedelta(days=1)
    with pytest.raises(BadRequest, match="does not belong"):
        peer_file.given(one.certificate.encode(), other.key.encode(), now)
    with pytest.raises(BadRequest, match="expired"):
        peer_file.given(one.certificate.encode(), one.key.encode(), one.expires)
    for what in (b"", b"\xff", one.key.encode()):
        with pytest.raises(BadRequest, match="PEM"):
            peer_file.given(what, one.key.encode(), now)
    assert peer_file.given(one.certificate.encode(), one.key.encode(), now) == one


# --- planted --------------------------------------------------------------------------------------


async def one_wins(leader: Linked) -> None:
    invitation = await leader.token()
    await redeem(joiner("a"), invitation)
    with pytest.raises(SignInRefused):
        await redeem(joiner("b"), invitation)


async def a_guess(leader: Linked) -> None:
    invitation = await leader.token()
    with pytest.raises(SignInRefused):
        await redeem(joiner("a"), invitation._replace(secret="n2." + "A" * 43))


async def one_that_is_claimed(leader: Linked) -> None:
    """The id of a node that another row names is not had for a certificate."""
    await redeem(joiner("a"), await leader.token())
    who = replace(joiner("b"), name=ID.format(1))
    await leader.here.value(f"DEFINE REPLICA n3 PEER 'n3:1' CERTIFICATE '{who.shown.fingerprint}'")
    async with listening(who) as surface:
        with pytest.raises(LinkClosed, match="declared with another"):
            await surface.connect(at(leader.surface), [leader.shown])


async def the_end_of_trust(leader: Linked) -> None:
    who = joiner()
    await redeem(who, await leader.token())
    async with link(leader, who) as (_, theirs):
        await leader.here.value("DROP REPLICA n2")
        with pytest.raises(LinkClosed):
            async with asyncio.timeout(TOLD_SECONDS):
                await theirs.receive()


def _keeps_the_token(tx: Transaction, row: Replica, *_: Any, **__: Any) -> Replica:
    return row


Scenario = Callable[[Linked], Awaitable[None]]
SCENARIOS: dict[str, tuple[Scenario, Any, str, Any]] = {
    "a token stays": (one_wins, replicas, "assign_node", _keeps_the_token),
    "any secret opens": (a_guess, hmac, "compare_digest", lambda *_: True),
    "any id is believed": (one_that_is_claimed, Trust, "row_of", lambda *_: None),
    "nobody is told": (the_end_of_trust, Trust, "_on_checked", lambda *_: None),
}


@pytest.mark.parametrize("fault", SCENARIOS)
async def test_held(leader: Linked, fault: str) -> None:
    await SCENARIOS[fault][0](leader)


@pytest.mark.parametrize("fault", SCENARIOS)
async def test_planted(leader: Linked, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, owner, name, planted = SCENARIOS[fault]
    monkeypatch.setattr(owner, name, planted)
    monkeypatch.setattr(f"{__name__}.TOLD_SECONDS", 1)
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        await scenario(leader)
