"""What is refused at a follower, and who signs in there, stands in the trail of the store: whole
nodes, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from actors import entry_retention
from actors.backlog import MISSED, Backlog, PendingEntry
from actors.cluster.replica_senders import ReplicaSender, message_of
from actors.rate_limited_log import RateLimitedLog
from actors.runtime import ask
from actors.vaults.trail import VaultAct
from protocol import limits, links
from protocol.errors import Busy, NotAllowed, SignInRefused
from protocol.links import PREFIX_BYTES, Entries, decode, encode
from protocol.requests import AuthenticatePassword, Caller, SignIn
from protocol.values import instant
from storage.audit import forwarded
from storage.formats.entries import AUDIT, Entry
from tests.actors.cluster.whole import ClusterMachine, Trio, cluster
from tests.actors.nodes import ANA, run
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.environment import ManualClock, SeededRng
from tests.simulation.links import Weather

pytestmark = pytest.mark.usefixtures("quiet")

PASSWORD = "correct horse battery"
MEMBER = replace(ANA, user="mem", role="member", space="a.b")


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes die and links are cut."""
    logbook.allow("releases nothing")
    logbook.allow(
        "leads no more|nobody leads|etcd does not answer|was not renewed|was not answered"
    )
    logbook.allow(
        "request to take the lead|new lineage|is stranded|stopped following|held up|no room"
    )


def played(main: Callable[[Trio], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            leader = trio.named("a")
            made = f"DEFINE USER mem ROLE member ON DATABASE a.b PASSWORD '{PASSWORD}'"
            await trio.until_done(lambda: leader.value(made))
            await shows_user(trio)
            await main(trio)

    stepped.run(whole(), 1)


VAULTS = "an entry of a vault's trail was not kept"


async def probes(machine: ClusterMachine, script: str = "INFO FOR CLUSTER") -> None:
    """Somebody asks for what it has no right to."""
    found = await outcome(value_of(machine, script, MEMBER))
    assert isinstance(found, NotAllowed), found


async def value_of(machine: ClusterMachine, script: str, caller: Caller) -> Any:
    answer = await run(machine.runs, script, caller=caller)
    if answer.refusal is not None:
        raise answer.refusal
    return answer.results[-1].value


async def signs_in(
    machine: ClusterMachine,
    user: str = "mem",
    password: str = PASSWORD,
    address: str = "192.0.2.7:1",
) -> Any:
    return await outcome(ask(machine.runs.sessions, SignIn(user, password, "http", address)))


async def trail(machine: ClusterMachine) -> list[dict[str, Any]]:
    """The audit trail behind the beginning of a test, oldest first."""
    found = await machine.value("INFO FOR AUDIT LIMIT 1000")
    assert isinstance(found, list)
    return [one for one in reversed(found) if one["node"] is not None]


async def holds(trio: Trio, machine: ClusterMachine, count: int) -> list[dict[str, Any]]:
    """Wait until the trail has so many entries of other nodes, as one node shows it."""

    async def look() -> list[dict[str, Any]]:
        found = await trail(machine)
        if len(found) != count:
            raise Busy(f"{len(found)} are there: {found}")
        return found

    found = await trio.until_done(look)
    assert isinstance(found, list)
    return found


def test_what_is_refused_at_a_follower_and_who_signs_in_there_is_in_the_trail_of_all() -> None:
    async def main(trio: Trio) -> None:
        follower = trio.named("b")
        before_us = follower.runs.environment.clock.wall_us()
        await probes(follower)
        assert not isinstance(await signs_in(follower), Exception)
        assert isinstance(await signs_in(follower, password="wrong"), SignInRefused)
        assert isinstance(await signs_in(follower, "nobody", "wrong"), SignInRefused)
        for each in trio.machines:
            found = await holds(trio, each, 4)
            told = [(one["action"], one["user"], one["refused"]) for one in found]
            assert told == [
                ("statement", "mem", "NotAllowed"), ("sign in", "mem", None),
                ("sign in", "mem", "SignInRefused"), ("sign in", None, "SignInRefused"),
            ]  # fmt: skip
            assert {one["node"] for one in found} == {follower.id}
            assert found[0]["statement"] == "INFO FOR CLUSTER"
            assert found[0]["surface"] == MEMBER.surface
            for one in found:
                assert instant(before_us) <= one["happened"] <= one["at"]
        refused = await machine_log(trio.named("c"), "INFO FOR STATEMENTS LIMIT 1")
        assert refused["statement"] == "INFO FOR CLUSTER" and refused["node"] == follower.id
        hashes = [await each.value("INFO FOR STATE") for each in trio.machines]
        assert hashes[0] == hashes[1] == hashes[2]
        assert not trio.named("b").runs.statements.backlog

    played(main)


async def machine_log(machine: ClusterMachine, script: str) -> dict[str, Any]:
    (found,) = await machine.value(script)
    assert isinstance(found, dict)
    return found


async def shows_user(trio: Trio) -> None:
    """Wait until all nodes know the member."""

    async def look(machine: ClusterMachine) -> None:
        if not any(one["name"] == "mem" for one in await machine.value("INFO FOR USERS")):
            raise Busy("it is not there yet")

    for each in trio.machines:
        await trio.until_done(partial(look, each))


def test_who_comes_to_lead_forgets_nothing_that_is_to_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What who led before has forgotten meanwhile it does not count among what there is."""
    monkeypatch.setattr(entry_retention, "LOOK_SECONDS", 0.5)

    async def main(trio: Trio) -> None:
        for each in trio.machines:
            await each.stop()
            await trio.led()
            await each.start(keep_statements=20)
            await trio.in_sync("a", "b", "c")
        leader = await trio.led()
        for number in range(90):
            await trio.until_done(partial(leader.value, f"USE a.b; CREATE t:{number}"))
            await asyncio.sleep(0.1)
        assert len(await leader.value("INFO FOR STATEMENTS")) < 40, "it has forgotten some"
        await leader.kill()
        leader = await trio.led()
        await asyncio.sleep(5)
        kept = await leader.value("INFO FOR STATEMENTS")
        assert len(kept) >= 20
        assert "CREATE t:89" in [one["statement"] for one in kept]

    played(main)


# --- who leads is away, or another ----------------------------------------------------------------


def test_what_was_refused_while_nobody_led_is_carried_to_who_leads_next() -> None:
    async def main(trio: Trio) -> None:
        await trio.named("a").kill()
        for name in "bc":
            await probes(trio.named(name))
            assert len(trio.named(name).runs.statements.backlog) == 1
        leader = await trio.led()
        found = await holds(trio, leader, 2)
        # What the new leader could not commit before it led is its own to commit.
        assert {one["node"] for one in found} == {trio.named(name).id for name in "bc"}

    played(main)


def test_a_node_that_was_started_and_has_no_leader_yet_holds_what_it_refuses() -> None:
    async def main(trio: Trio) -> None:
        for each in trio.machines:
            await each.kill()
        one = trio.named("b")
        await one.start()
        assert isinstance(await signs_in(one, password="wrong"), SignInRefused)
        assert len(one.runs.statements.backlog) == 1
        for name in "ac":
            await trio.named(name).start()
        (found,) = await holds(trio, await trio.led(), 1)
        assert found["node"] == one.id and found["refused"] == "SignInRefused"

    played(main)


def test_a_follower_that_is_stopped_carries_what_it_has_first() -> None:
    async def main(trio: Trio) -> None:
        follower = trio.named("b")
        await probes(follower)
        await follower.stop()
        (found,) = await holds(trio, trio.named("a"), 1)
        assert found["node"] == follower.id

    played(main)


def test_what_a_node_that_stops_could_not_carry_is_said(logbook: Logbook) -> None:

    async def main(trio: Trio) -> None:
        await trio.named("a").kill()
        await probes(trio.named("b"))
        await trio.named("b").stop()

    played(main, count=2)
    (line,) = [one for one in logbook.events if "were not kept" in one["event"]]
    assert line["count"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_over_links_that_break_each_is_there_once(seed: int) -> None:
    async def main(trio: Trio) -> None:
        trio.network.chance.seed(seed)
        followers = [trio.named("b"), trio.named("c")]
        trio.network.weather = Weather((0.001, 0.2), 0.05)
        for number in range(15):
            for machine in followers:
                await probes(machine, f"INFO FOR CLUSTER; RETURN '{number}{machine.name}'")
            await asyncio.sleep(trio.network.chance.uniform(0, 0.5))
        trio.network.weather = Weather()
        await trio.until(lambda: not any(one.runs.statements.backlog for one in followers))
        assert once(await trail(await trio.led()), followers, 15) == []

    played(main)


def once(found: list[dict[str, Any]], at: Sequence[ClusterMachine], rounds: int) -> list[str]:
    """What is wrong with how often what was refused is kept."""
    texts = Counter((one["node"], one["statement"]) for one in found)
    wanted = Counter(
        (each.id, "INFO FOR CLUSTER") for each in at for _ in range(rounds)
    )  # the rest of the script was never reached, and is not kept
    return [f"{key}: {texts[key]} of {wanted[key]}" for key in wanted if texts[key] != wanted[key]]


def test_a_leader_that_dies_before_it_says_what_is_kept_is_told_again_and_it_is_there_once() -> (
    None
):
    played(dies_in_between, count=3)


def test_numbers_that_nobody_notes_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded, "note", lambda *_: True)
    with pytest.raises(AssertionError, match="2 of 1"):
        played(dies_in_between, count=3)


async def dies_in_between(trio: Trio) -> None:
    """A leader commits and releases what a follower has brought, and is not heard any more."""
    old, follower = trio.named("a"), trio.named("b")
    trio.network.cut("a:1", "b:1")
    await probes(follower)
    await holds(trio, trio.named("c"), 1)
    assert len(follower.runs.statements.backlog) == 1
    await old.kill()
    trio.network.mend("a:1", "b:1")
    leader = await trio.led()
    await trio.until(lambda: not follower.runs.statements.backlog)
    assert once(await trail(leader), [follower], 1) == []


# --- how much a follower holds --------------------------------------------------------------------


def noted(number: int, user: str = "mem", **more: Any) -> PendingEntry:
    entry = Entry(AUDIT, f"r-{number}", "192.0.2.7:1", None, None, ((),), "tried")
    return PendingEntry(user, "http", more.pop("statement", None), None, entry, number, **more)


def test_one_name_leaves_room_for_the_others_and_what_has_none_is_counted() -> None:
    held = Backlog(ManualClock(), SeededRng(1))
    took = [held.add(noted(number)) for number in range(limits.ENTRIES_WAITING)]
    assert sum(took) == limits.ENTRIES_WAITING_EACH and not took[-1]
    assert held.add(noted(0, "ana"))
    missed = limits.ENTRIES_WAITING - limits.ENTRIES_WAITING_EACH
    assert held.missed == missed
    batch = held.oldest()
    assert batch is not None and len(batch.noted) == limits.ENTRIES_CARRIED
    held.done(batch.last)
    every = list(held._noted)
    assert [one.user for one in every[-2:]] == ["ana", ""]
    assert every[-1].entry.action == MISSED and every[-1].entry.more == missed
    while batch := held.oldest():
        held.done(batch.last)
    assert held.kept == limits.ENTRIES_WAITING_EACH + 2 and not held._of


def test_all_together_have_no_more_room_than_there_is() -> None:
    held = Backlog(ManualClock(), SeededRng(1))
    took = [held.add(noted(number, f"u{number}")) for number in range(2 * limits.ENTRIES_WAITING)]
    assert sum(took) == len(held) == limits.ENTRIES_WAITING
    held.done(0)
    assert len(held) == limits.ENTRIES_WAITING, "what nobody has kept is held"


def test_what_is_longer_than_it_may_be_is_cut_and_still_a_message() -> None:
    held = Backlog(ManualClock(), SeededRng(1))
    places = tuple((1, number) for number in range(limits.ENTRY_PLACES + 1))
    one = noted(1, statement="x" * 100_000)
    held.add(replace(one, entry=structs.replace(one.entry, places=places, needs="n" * 9_999)))
    batch = held.oldest()
    assert batch is not None
    said = Entries(1, batch.life, batch.first, [message_of(each) for each in batch.noted])
    assert decode(encode(said)[PREFIX_BYTES:]) == said
    assert said.entries[0].places == ((),)


def test_of_what_was_taken_back_places_are_not_believed() -> None:
    """An id that a deposed leader gave is another's by and by."""
    held = Backlog(ManualClock(), SeededRng(1))
    one = noted(1)
    held.add(replace(one, entry=structs.replace(one.entry, places=((1, 7),))))
    held.distrust_places()
    batch = held.oldest()
    assert batch is not None and batch.noted[0].entry.places == ((),)


def test_a_flood_at_a_follower_whose_leader_is_away_is_a_line_a_second_and_counted(
    logbook: Logbook,
) -> None:
    logbook.allow("were not kept|not logged one by one")

    async def main(trio: Trio) -> None:
        await trio.named("a").kill()
        follower = trio.named("b")
        before_us = follower.runs.environment.clock.monotonic_us()
        for number in range(600):  # from as many networks: of each are some kept
            follower.runs.statements.record_access(
                "sign in", "nobody", "http", f"192.0.{number}.2:1", "SignInRefused"
            )
            await asyncio.sleep(0.005)
        lines = [one for one in logbook.events if "kept" in one["event"] or "times" in one]
        spent = (follower.runs.environment.clock.monotonic_us() - before_us) / 1_000_000
        assert 1 <= len(lines) <= spent + 1
        assert follower.runs.statements.backlog.missed == 600 - limits.ENTRIES_WAITING_EACH
        await trio.named("a").start()
        leader = await trio.led()
        await trio.until(lambda: not follower.runs.statements.backlog)
        found = await trail(leader)
        (missed,) = [one for one in found if one["action"] == MISSED]
        assert missed["more"] == 600 - limits.ENTRIES_WAITING_EACH
        assert missed["node"] == follower.id and missed["surface"] == "node"

    played(main, count=2)


def test_a_line_that_is_not_sparing_is_seen(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RateLimitedLog, "_start_interval", lambda _: None)
    with pytest.raises(AssertionError, match="Counter"):
        does_everything(logbook, monkeypatch)


def test_whatever_anybody_does_at_a_follower_is_a_line_a_second(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    does_everything(logbook, monkeypatch)


def does_everything(logbook: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody who leads, and no room any more: the worst of all."""
    monkeypatch.setattr(limits, "ENTRIES_WAITING", 8)
    logbook.allow("not kept|not logged one by one")

    async def everything(follower: ClusterMachine, number: int) -> None:
        address = f"192.0.{number % 250}.{number // 250}:1"
        sessions = follower.runs.sessions
        for user in ("mem", "nobody"):
            await outcome(ask(sessions, AuthenticatePassword(user, "wrong", "http", address)))
        await signs_in(follower, address=address)
        for script in (
            "INFO FOR CLUSTER", "CREATE t:1", "REVEAL 'k' FROM VAULT pay", "SELECT * FROM nowhere",
            "DEFINE NODE ROLES NONE", "DEFINE NODE LEADS STORE", "BACKUP",
            "CREATE JOIN TOKEN", "RETURN 1/0", "SELEC",
        ):  # fmt: skip
            await outcome(value_of(follower, script, MEMBER))
        # What is asked of a vault is refused before it comes to a trail; should it come there:
        trail = follower.runs._sealed.trail
        trail.refused(VaultAct(f"reveal {number}", None, None), NotAllowed("it may not"))
        asked = links.Redeem(links.VERSION, "b.guess", str(number))
        redeeming = follower.runs.peering.redeem(asked, "ab" * 32, instant(0), address)
        await outcome(asyncio.wait_for(redeeming, 0.001))

    async def main(trio: Trio) -> None:
        follower = trio.named("b")
        await trio.named("a").kill()
        await asyncio.sleep(10)
        logbook.events.clear()
        began_us = follower.runs.environment.clock.monotonic_us()
        await asyncio.gather(*(everything(follower, number) for number in range(60)))
        spent = (follower.runs.environment.clock.monotonic_us() - began_us) / 1_000_000
        said = Counter(one["event"] for one in logbook.events)
        del said["no link to the leader"]  # which goes on by itself
        assert {"entries of the statement log were not kept", VAULTS} <= said.keys(), said
        # Those of statements and those of vaults count for themselves.
        assert said.total() <= 2 * (spent + 1), said

    played(main, count=2, promote="MANUAL")


# --- another version ------------------------------------------------------------------------------


def test_a_leader_that_does_not_know_of_it_is_told_nothing_and_the_next_one_all() -> None:
    with pytest.MonkeyPatch.context() as patch:
        played(partial(under_an_older_one, patch))


def test_a_follower_that_tells_it_nevertheless_is_seen() -> None:
    """Its link ends, again and again."""

    def attached(epoch: int, agree: int, released: int, _: bool, time: int) -> links.Attached:
        return links.Attached(epoch, agree, released, True, time)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actors.cluster.replica_senders.Attached", attached)
        with pytest.raises(AssertionError, match="links have ended"):
            played(partial(under_an_older_one, patch))


async def under_an_older_one(patch: pytest.MonkeyPatch, trio: Trio) -> None:
    old, follower = trio.named("a"), trio.named("b")
    before = old.runs.committer

    def ship(*made_with: Any) -> ReplicaSender:
        shipping = ReplicaSender(*made_with)
        if before in made_with:
            shipping._keep = None
        return shipping

    patch.setattr("actors.cluster.service.ReplicaSender", ship)
    replica_senders = old.runs.cluster._replica_senders
    made = set(replica_senders)
    for one, _ in list(trio.network._links):
        one.break_off("all are made anew")
    await trio.until(lambda: len(list(replica_senders)) == 2 and not made & set(replica_senders))
    await trio.in_sync("a", "b", "c")
    made = set(replica_senders)
    await probes(follower)
    await asyncio.sleep(5)
    assert made == set(replica_senders), "links have ended"
    assert len(follower.runs.statements.backlog) == 1
    assert await trail(old) == []
    await old.kill()
    (found,) = await holds(trio, await trio.led(), 1)
    assert found["node"] == follower.id
