"""Reads of a node that follows: what waits there is woken by what its leader commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from argon2 import PasswordHasher

from actors.commits.committer import NODE
from actors.feeds.actor import FeedsActor
from actors.runtime import ask
from actors.topics.waiting import TopicWaits
from protocol import limits
from protocol.errors import (
    Busy,
    Cancelled,
    Diverged,
    NotWritable,
    SessionEnded,
    StatementTimeout,
    Unknown,
)
from protocol.requests import (
    AuthenticatePassword,
    Caller,
    RunScript,
    ScriptAnswer,
    SignIn,
    SignOut,
)
from storage.catalog import users
from tests.actors.cluster.whole import ClusterMachine, Trio, cluster
from tests.actors.nodes import ANA, run
from tests.actors.parts import outcome
from tests.actors.test_feeds import Reader, follow
from tests.logbook import Logbook
from tests.simulation import loop as stepped

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes die."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|was not renewed|stopped following|were not kept")
    logbook.allow("unreleased frames were cut off")


def played(main: Callable[[Trio], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            await main(trio)

    stepped.run(whole(), 1)


async def begun(
    machine: ClusterMachine, script: str, caller: Caller = ANA
) -> asyncio.Task[ScriptAnswer]:
    """A script that waits for messages on a node by now."""
    node = machine.runs
    before = len(node.topics.waits)
    waiting = asyncio.ensure_future(run(node, script, caller=caller))
    await machine.trio.until(lambda: len(node.topics.waits) > before)
    return waiting


def values(answer: ScriptAnswer) -> list[Any]:
    """Of the messages that a script has read."""
    found: Any = answer.results[-1].value
    return [message["value"] for message in found]


async def shown(trio: Trio, machine: ClusterMachine) -> None:
    """Wait until a node shows all that its leader does."""
    leader = await trio.led()
    await trio.until(
        lambda: (
            machine.runs.committer.commit_index >= leader.runs.committer.commit_index
            and not leader.runs.committer.ledger.state.flight.write_sets
        )
    )


def test_a_read_that_waits_on_a_follower_hears_of_messages_when_they_are_shown() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE TOPIC of_others; PUBLISH INTO q VALUE 1")
        await shown(trio, other)
        waiting = await begun(other, "READ FROM q AFTER 1 WAIT 1m")
        later = await begun(other, "READ FROM q AFTER 2 WAIT 1m")
        await leader.value("PUBLISH INTO of_others VALUE 0; CREATE t:1")
        await shown(trio, other)
        assert not waiting.done()
        began = asyncio.get_running_loop().time()
        await leader.value("PUBLISH INTO q VALUE 2")
        assert values(await waiting) == [2] and not later.done()
        await leader.value("BEGIN; PUBLISH INTO q VALUES [3, 4]; CREATE t:2; COMMIT")
        assert values(await later) == [3, 4]
        assert asyncio.get_running_loop().time() - began < 10, "long before its own time was over"
        assert other.runs.committer.ledger.heard is None

    played(main)


def test_a_planted_follower_that_wakes_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would wait for its minute."""
    monkeypatch.setattr(TopicWaits, "on_pending_commit", lambda _self, _layer: None)

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q")
        await shown(trio, other)
        waiting = await begun(other, "READ FROM q AFTER 0 WAIT 1m")
        await leader.value("PUBLISH INTO q VALUE 1")
        await shown(trio, other)
        await asyncio.sleep(30)
        assert not waiting.done()
        assert values(await waiting) == [1], "it looks when its time is over"

    played(main)


def test_who_waits_for_what_is_dropped_elsewhere_is_told() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE TOPIC r")
        await shown(trio, other)
        dropped = await begun(other, "READ FROM q AFTER 0 WAIT 1m")
        stays = await begun(other, "READ FROM r AFTER 0 WAIT 1m")
        await leader.value("DROP TOPIC q")
        assert isinstance((await dropped).refusal, Unknown)
        assert not stays.done()
        await leader.value("DROP DATABASE a.b")
        assert isinstance((await stays).refusal, Unknown)

    played(main)


def test_a_reader_that_is_dropped_elsewhere_is_waited_for_by_nobody() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE READER r ON q; DEFINE READER s ON q")
        await shown(trio, other)
        dropped = await begun(other, "READ FROM q AS r WAIT 1m")
        stays = await begun(other, "READ FROM q AS s WAIT 1m")
        await leader.value("DROP READER r ON q")
        async with asyncio.timeout(5):
            assert isinstance((await dropped).refusal, Unknown)
        assert not stays.done()
        await leader.value("PUBLISH INTO q VALUE 1")
        assert values(await stays) == [1]

    played(main)


def test_taking_is_the_leaders() -> None:
    """It hands out, which is a change; and who waits for it where the lead is lost is told so."""

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1m")
        await shown(trio, other)
        refused = await outcome(other.value("TAKE FROM q AS g WAIT 1m"))
        assert isinstance(refused, NotWritable)
        assert refused.detail["leader"] == ["a.example:8001"]
        waiting = await begun(leader, "TAKE FROM q AS g WAIT 1m")
        reading = await begun(leader, "READ FROM q AFTER 0 WAIT 1m")
        leader.cut()
        await trio.until(lambda: trio.leader not in (None, leader))
        new = trio.leader
        assert new is not None
        leader.mend()
        assert isinstance((await waiting).refusal, NotWritable)
        await new.value("PUBLISH INTO q VALUE 1")
        assert values(await reading) == [1], "it goes on waiting where it was asked"

    played(main)


def test_a_wait_ends_with_its_user_whichever_node_has_dropped_it() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value(
            "DEFINE TOPIC q; DEFINE USER eve ROLE viewer PASSWORD 'correct horse';"
            "DEFINE USER ben ROLE viewer PASSWORD 'correct horse'"
        )
        await shown(trio, other)
        eve, ben = await signed_in(other, "eve"), await signed_in(other, "ben")
        assert len(other.runs._open_sessions) == 2
        script = "READ FROM q AFTER 0 WAIT 1m"
        hers, his = await begun(other, script, eve), await begun(other, script, ben)
        await leader.value("ALTER USER eve SET PASSWORD 'battery staple'")
        assert isinstance((await hers).refusal, SessionEnded)
        assert not his.done() and len(other.runs._open_sessions) == 1
        await leader.value("DROP USER ben")
        assert isinstance((await his).refusal, SessionEnded)

    played(main)


async def signed_in(machine: ClusterMachine, user: str) -> Caller:
    signed = await ask(machine.runs.sessions, SignIn(user, "correct horse", "wire", "192.0.2.7:1"))
    caller: Caller = signed.caller
    return caller


# --- feeds ----------------------------------------------------------------------------------------


async def behind(trio: Trio) -> tuple[ClusterMachine, ClusterMachine, int]:
    """The leader, a node that lacks what it has released since, and how far that has come."""
    leader, other = await trio.led(), trio.named("b")
    await leader.value("CREATE t:0")
    await shown(trio, other)
    other.cut()
    await trio.until_done(lambda: leader.value("CREATE t:1"))
    return leader, other, leader.runs.committer.commit_index


async def waits(trio: Trio, machine: ClusterMachine) -> None:
    """Until a feed waits there for what the node is to show."""
    await trio.until(lambda: len(machine.runs.committer.sequence_waiters) == 1)


def test_a_feed_waits_for_the_position_that_it_goes_on_from() -> None:
    async def main(trio: Trio) -> None:
        leader, other, seq = await behind(trio)
        epoch, store = leader.runs.committer.ledger.epoch, leader.runs.store.id
        reader = Reader()
        asking = asyncio.ensure_future(
            follow(other.runs, reader, start=seq, store=store, epoch=epoch)
        )
        await waits(trio, other)
        running = await other.value("INFO FOR RUNNING")
        assert ("WATCH t", True) in [(one["text"], one["waiting"]) for one in running]
        other.mend()
        await asking
        assert reader.opening is not None and reader.opening.start == seq
        await leader.value("CREATE t:2")
        await trio.until(lambda: any(one["type"] == "commit" for one in reader.said))
        (change,) = next(one for one in reader.said if one["type"] == "commit")["changes"]
        assert change["id"] == "t:2", "nothing twice, and nothing skipped"
        assert not len(other.runs.committer.sequence_waiters)

    played(main)


def test_a_planted_node_takes_a_position_that_it_lacks_for_one_of_another_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FeedsActor, "_may_come", lambda _self, _asked, _start: False)

    async def main(trio: Trio) -> None:
        _, other, seq = await behind(trio)
        assert isinstance(await outcome(follow(other.runs, Reader(), start=seq)), Diverged)

    played(main)


def test_a_feed_from_now_on_may_come_after_what_its_reader_has_seen() -> None:
    async def main(trio: Trio) -> None:
        _, other, seq = await behind(trio)
        reader = Reader()
        asking = asyncio.ensure_future(follow(other.runs, reader, after=seq))
        await waits(trio, other)
        other.mend()
        await asking
        assert reader.opening is not None and reader.opening.start >= seq

    played(main)


def test_what_does_not_come_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AFTER_SECONDS", 2)

    async def main(trio: Trio) -> None:
        leader, other, seq = await behind(trio)
        shows = other.runs.committer.commit_index
        late = await outcome(follow(other.runs, Reader(), start=seq))
        assert isinstance(late, StatementTimeout)
        assert late.detail == {"after": seq, "seq": shows}
        assert not len(other.runs.committer.sequence_waiters) and not other.runs.registry.resting
        # Who leads has all there is: what is ahead of it is nobody's.
        began = asyncio.get_running_loop().time()
        assert isinstance(await outcome(follow(leader.runs, Reader(), start=seq + 9)), Diverged)
        late = await outcome(follow(leader.runs, Reader(), after=seq + 9))
        assert isinstance(late, StatementTimeout)
        assert asyncio.get_running_loop().time() - began < 3

    played(main)


def test_a_position_of_another_history_is_not_waited_for() -> None:
    async def main(trio: Trio) -> None:
        _, other, seq = await behind(trio)
        committer = other.runs.committer
        epoch = committer.ledger.epoch_at(committer.commit_index)
        for asked in ({"start": seq, "epoch": epoch - 1}, {"start": seq, "store": "0" * 32}):
            began = asyncio.get_running_loop().time()
            assert isinstance(await outcome(follow(other.runs, Reader(), **asked)), Diverged)
            assert asyncio.get_running_loop().time() == began

    played(main)


def test_what_waits_can_be_killed_and_ends_with_its_session() -> None:
    async def main(trio: Trio) -> None:
        _, other, seq = await behind(trio)
        asking = asyncio.ensure_future(follow(other.runs, Reader(), start=seq))
        await waits(trio, other)
        (one,) = [one for one in await other.value("INFO FOR RUNNING") if one["text"] == "WATCH t"]
        await other.value(f"KILL '{one['id']}'")
        assert isinstance(await outcome(asking), Cancelled)
        signed = await ask(
            other.runs.sessions, SignIn("ana", "correct horse", "wire", "192.0.2.7:1")
        )
        asking = asyncio.ensure_future(follow(other.runs, Reader(), signed.caller, start=seq))
        await waits(trio, other)
        await ask(other.runs.sessions, SignOut(signed.token))
        assert isinstance(await outcome(asking), SessionEnded)
        assert not len(other.runs.committer.sequence_waiters)

    played(main)


def test_a_node_that_was_not_told_what_is_released_opens_no_feed() -> None:
    async def main(trio: Trio) -> None:
        for each in trio.machines:
            await each.kill()
        for each in trio.machines:
            await each.start()
            assert isinstance(await outcome(follow(each.runs, Reader(), start=0)), Busy)
        new = await trio.led()
        await follow(new.runs, Reader(), start=0)

    played(main)


# --- moments --------------------------------------------------------------------------------------


def test_a_moment_is_its_nodes_and_goes_on_when_the_lead_moves() -> None:
    async def main(trio: Trio) -> None:
        old, other = await trio.led(), trio.named("b")
        await old.value("CREATE t:1")
        await shown(trio, other)
        names = {}
        for machine in (old, other):
            made = await read(machine, "SELECT * FROM t", "new")
            names[machine.name] = made.moment
        await old.value("CREATE t:2")
        old.cut()
        await trio.until(lambda: trio.leader not in (None, old))
        new = trio.leader
        assert new is not None
        await new.value("CREATE t:3")
        old.mend()
        await trio.until(lambda: old.life == "following")
        await shown(trio, old)
        assert len(await old.value("SELECT * FROM t")) == 3
        for machine in (old, other):
            again = await read(machine, "SELECT * FROM t", names[machine.name])
            found: Any = again.results[-1].value
            assert len(found) == 1, f"{machine.name} shows it as it was"
        elsewhere = await read(trio.named("c"), "SELECT * FROM t", names[other.name])
        assert isinstance(elsewhere.refusal, Unknown)
        await new.value("DEFINE USER eve ROLE viewer PASSWORD 'correct horse'")
        await shown(trio, old)
        over = await read(old, "SELECT * FROM t", names[old.name])
        assert isinstance(over.refusal, Unknown), "rights have changed, on whichever node"

    played(main)


async def read(machine: ClusterMachine, script: str, moment: str | None) -> ScriptAnswer:
    request = RunScript(ANA, script, "m-1", namespace="a", database="b", moment=moment)
    answer: ScriptAnswer = await ask(machine.runs.scripts, request)
    return answer


def test_what_runs_by_a_password_at_a_follower_ends_with_that_and_not_with_its_hash() -> None:
    """The password itself, or that of a session. It has been out of memory for a while."""
    password, address = "bob-bob-bob", "192.0.2.2:1"
    sign_in = SignIn("bob", password, "http", address)

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        weak = PasswordHasher(1, 32, 1).hash(password)
        with leader.runs.committer.begin_transaction() as tx:  # as an earlier version did
            for name in ("bob", "eve"):
                users.define(tx, name, users.OWNER, weak)
            leader.runs.committer.commit(tx, NODE)
        await shown(trio, other)
        session = await ask(other.runs.sessions, sign_in)
        given = AuthenticatePassword("bob", password, "http", address)
        callers = session.caller, await ask(other.runs.sessions, given)
        readers = [Reader() for _ in callers]
        for reader, caller in zip(readers, callers, strict=True):
            await follow(other.runs, reader, caller)
        await asyncio.sleep(limits.CREDENTIAL_MEMO_SECONDS)
        given = AuthenticatePassword("eve", password, "http", address)
        await ask(other.runs.sessions, given)  # what was remembered until now is forgotten
        await ask(leader.runs.sessions, sign_in)
        with leader.runs.committer.begin_transaction() as tx:
            assert users.get(tx, "bob").passhash != weak, "it is as strong as the node's own"
        await leader.value("GRANT READ ON TABLE t TO bob; CREATE t:1")
        for reader in readers:
            await reader.reached(leader.runs.committer.commit_index)
        await leader.value("ALTER USER bob SET PASSWORD 'another-bob'")
        for reader in readers:
            assert isinstance(await reader.over(), SessionEnded)

    played(main)
