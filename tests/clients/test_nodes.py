"""Clients of several nodes: whom they ask, whom they follow, what they ask again and what not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from protocol.errors import Busy, Draining, UnknownOutcome
from storeclient import (
    AsyncClient,
    Client,
    Closed,
    OutcomeUnknown,
    ProtocolBroken,
    Unreachable,
    errors,
)
from storeclient.seen import seems_to_read
from storeclient.settings import make_settings
from tests.clients.members import FakeCluster, cluster
from tests.surfaces.wire.peers import PASSWORD, USER, until


@pytest.fixture
async def three() -> AsyncIterator[FakeCluster]:
    async with cluster(3) as found:
        yield found


@contextlib.asynccontextmanager
async def client_of(found: FakeCluster, **more: Any) -> AsyncIterator[AsyncClient]:
    given = {"address": found.addresses, "user": USER, "password": PASSWORD, "ns": "a", "db": "b"}
    async with AsyncClient(**(given | more)) as client:
        yield client


def home(client: AsyncClient) -> str:
    """The node that is asked."""
    connection = client._nodes.connection
    assert connection is not None and connection.welcome is not None
    return connection.welcome.node


# --- what a client is given -----------------------------------------------------------------------


def test_addresses() -> None:
    def told(address: Any) -> list[tuple[str, int]]:
        found = make_settings(address, "ana", "a long password", None, False, 1.0)
        return [(one.host, one.port) for one in found]

    assert told("a") == [("a", 8001)]
    assert told("a:1,b:2") == told(["a:1", "b:2"]) == told("a:1, b:2") == [("a", 1), ("b", 2)]
    assert told(("a:1", "a:1", ":7")) == [("a", 1), ("127.0.0.1", 7)]
    assert told("[::1]:7,b") == [("::1", 7), ("b", 8001)]
    for wrong in ([], "a:0", "a:1,b:x", ["a", "::1"]):
        with pytest.raises(ValueError):
            told(wrong)


def test_arguments_that_contradict() -> None:
    with pytest.raises(ValueError, match="a token is valid at one node"):
        AsyncClient("a,b", token="t0k")
    with pytest.raises(ValueError, match="leader, any"):
        Client("a,b", reads="all")  # type: ignore[arg-type]
    assert repr(AsyncClient("a,b:7")) == "<AsyncClient a:8001,b:7>"


@pytest.mark.parametrize(
    "script, reads",
    [
        ("SELECT * FROM t", True),
        ("  -- a word\n/* CREATE */ // x\n# y\n select 1", True),
        ("RETURN 1", True), ("READ FROM t AFTER 0", True), ("SELECTED", False), ("", False),
        ("CREATE t", False), ("LET $a = 1; SELECT 1", False), ("'SELECT'", False),
        ("/* SELECT", False),
    ],
)  # fmt: skip
def test_what_looks_like_a_read(script: str, reads: bool) -> None:
    assert seems_to_read(script) is reads


# --- who leads ------------------------------------------------------------------------------------


async def test_the_node_that_takes_changes_is_found_before_anything_is_asked(
    three: FakeCluster,
) -> None:
    for leader in three.members:
        three.leader = leader
        async with client_of(three) as client:
            assert home(client) == leader.name
            assert (await client.connect()).writable is True
    assert not any(member.requests for member in three.members)


async def test_a_leader_that_was_not_given_is_followed(three: FakeCluster) -> None:
    three.leader = three.members[2]
    async with client_of(three, address=three.addresses[:2]) as client:
        assert home(client) == "n2"
        await client.run("CREATE t:1")
        three.leader = three.members[1]
        await client.run("CREATE t:2")
    assert [one.done for one in three.members] == [[], ["CREATE t:2"], ["CREATE t:1"]]


async def test_a_client_of_one_address_asks_that_node_alone(three: FakeCluster) -> None:
    """Who tells a node its roles, or asks how it stands, does not want another's answer."""
    three.leader = three.members[1]
    async with client_of(three, address=three.addresses[0], reads="any") as client:
        assert await client.query("SELECT 1") == "n0"
        with pytest.raises(errors.NotWritable) as refused:
            await client.run("CREATE t:1")
        assert refused.value.detail == {"leader": [three.addresses[1]]}
        assert await client.query("SELECT 1") == "n0"
    assert not three.done and not three.members[1].requests


async def test_a_node_that_is_away_is_passed_over(three: FakeCluster) -> None:
    async with client_of(three, address=["127.0.0.1:1", *three.addresses]) as client:
        assert await client.query("SELECT 1") == "n0"


async def test_a_write_goes_to_the_new_leader_and_is_done_once(three: FakeCluster) -> None:
    async with client_of(three) as client:
        for number, leader in enumerate([0, 1, 0, 2, 1, 1]):
            three.leader = three.members[leader]
            answer = await client.run(f"CREATE t:{number}")
            assert answer.value == f"n{leader}" == home(client)
    assert sorted(three.done) == [f"CREATE t:{number}" for number in range(6)]


async def test_while_nobody_leads_it_is_waited_for(three: FakeCluster) -> None:
    async with client_of(three) as client:
        three.leader = None
        writing = asyncio.create_task(client.run("CREATE t:1"))
        await until(lambda: sum(len(one.requests) for one in three.members) > 4)
        assert not writing.done()
        three.leader = three.members[2]
        assert (await writing).value == "n2"
    assert three.done == ["CREATE t:1"]


async def test_where_nobody_comes_to_lead_the_refusal_is_told(three: FakeCluster) -> None:
    async with client_of(three, connect_timeout=0.3) as client:
        three.leader = None
        with pytest.raises(errors.NotWritable):
            await client.run("CREATE t:1")
        assert await client.query("RETURN 1"), "reads go on"
    async with client_of(three, connect_timeout=0.3) as client:
        assert await client.query("SELECT 1") == "n0", "and can begin"


async def test_a_leader_that_is_named_and_away(three: FakeCluster) -> None:
    """It may have died a moment ago: the others are asked until they know of another."""
    async with client_of(three) as client:
        three.named, three.leader = three.members[0], None
        await three.members[0].surface.close()
        writing = asyncio.create_task(client.query("CREATE t:1"))
        await until(lambda: sum(len(one.requests) for one in three.members) > 4)
        assert not writing.done()
        three.named, three.leader = None, three.members[2]
        assert await writing == "n2"
    assert three.done == ["CREATE t:1"]


async def test_nodes_that_are_alone_are_asked_once_each() -> None:
    async with cluster(2, says=False) as found, client_of(found) as client:
        found.leader = found.members[1]
        assert await client.query("CREATE t:1") == "n1"
        found.leader = None
        before = sum(len(one.requests) for one in found.members)
        with pytest.raises(errors.NotWritable):
            await client.run("CREATE t:2")
        assert 2 <= sum(len(one.requests) for one in found.members) - before <= 3
        assert found.done == ["CREATE t:1"]


async def test_a_node_without_a_role_sends_elsewhere() -> None:
    async with cluster(2, says=False) as found, client_of(found) as client:
        found.members[0].refuses = Draining("the node has no role")
        assert await client.query("SELECT 1") == "n1"
    async with cluster(1, says=False) as found, client_of(found) as client:
        found.members[0].refuses = Draining("the node has no role")
        with pytest.raises(errors.Draining):
            await client.query("SELECT 1")


async def test_what_a_node_names_that_is_no_address_is_passed_over(three: FakeCluster) -> None:
    three.leader = three.members[1]
    for member in three.members:
        member.cluster.detail = lambda: {"leader": ["::1", "x:y", three.addresses[1]]}  # type: ignore[method-assign]
    async with client_of(three, address=[three.addresses[0], three.addresses[2]]) as client:
        assert await client.query("CREATE t:1") == "n1"


async def test_one_who_stops_does_not_search_on(three: FakeCluster) -> None:
    async with client_of(three) as client:
        three.leader = None
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writing = asyncio.create_task(client.run("CREATE t:1", stop=stop))
        await until(lambda: sum(len(one.requests) for one in three.members) > 4)
        stop.set_result(None)
        with pytest.raises((errors.NotWritable, errors.Cancelled)):
            await writing


async def test_closing_ends_the_search(three: FakeCluster) -> None:
    async with client_of(three) as client:
        three.leader = None
        writing = asyncio.create_task(client.run("CREATE t:1"))
        await until(lambda: sum(len(one.requests) for one in three.members) > 4)
    with pytest.raises(Closed):
        await writing


@pytest.mark.parametrize("turned_away", [12, 13, 14, 20, 25])
async def test_a_publisher_keeps_the_order_while_nobody_leads(
    three: FakeCluster, turned_away: int
) -> None:
    async with client_of(three) as client, client.topic("a", "b", "q").publisher() as publisher:
        await publisher.publish(-1)
        three.leader, three.turns_away = None, turned_away
        asked = [publisher.publish(n, key="k") for n in range(12)]
        outcomes = await asyncio.gather(*asked)
    assert three.published == [*range(-1, 12)]
    assert [one.position for one in outcomes] == [*range(2, 14)]


async def test_what_was_overtaken_is_refused_and_not_published_behind(three: FakeCluster) -> None:
    async with client_of(three) as client, client.topic("a", "b", "q").publisher() as publisher:
        await publisher.publish(-1)
        three.leader, three.turns_away = None, 5
        asked = [publisher.publish(n, key="k") for n in range(12)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert three.published == [-1, *range(5, 12)]
    assert [isinstance(one, errors.NotWritable) for one in outcomes] == [True] * 5 + [False] * 7


async def test_a_publisher_sends_nothing_again_that_may_have_been_appended(
    three: FakeCluster,
) -> None:
    async with client_of(three) as client, client.topic("a", "b", "q").publisher() as publisher:
        three.members[0].loses = UnknownOutcome("the node leads no more", sequence=11)
        asked = [publisher.publish(n) for n in range(20)]
        asked.append(publisher.publish(20, key="k"))  # stands behind them
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert three.published == [*range(20)], "what may have been appended was appended twice"
    assert [type(one) for one in outcomes] == [errors.UnknownOutcome] * 21


# --- what is asked again --------------------------------------------------------------------------


async def test_what_has_committed_something_is_not_asked_again(three: FakeCluster) -> None:
    async with client_of(three) as client:
        refusal = three.members[0].refusal().also(committed=11)
        three.leader, three.members[0].refuses = three.members[1], refusal
        with pytest.raises(errors.NotWritable) as refused:
            await client.run("CREATE t:1; CREATE t:2")
        assert refused.value.committed == 11
    assert not three.done


async def test_what_broke_off_is_asked_elsewhere_only_if_it_may_be_twice(
    three: FakeCluster,
) -> None:
    async with client_of(three) as client:
        for repeatable in (False, True):
            leader = three.leader
            assert leader is not None
            asking = asyncio.create_task(client.run("HOLD $v", {"v": 1}, repeatable=repeatable))
            await until(lambda leader=leader: leader.held)
            three.leader = three.members[(three.members.index(leader) + 1) % 3]
            await leader.surface.close()
            if repeatable:
                then = three.leader
                await until(lambda then=then: then.held)
                then.release_all()
                assert (await asking).value == 1
            else:
                with pytest.raises(OutcomeUnknown):
                    await asking
                assert not any(one.held for one in three.members if one is not leader)
                assert await client.query("CREATE t:1") == "n1", "what comes next goes there"


async def test_what_a_leader_can_not_say_the_end_of(three: FakeCluster) -> None:
    """It leads no more, and what it had in flight is the next one's to keep or not."""
    lost = UnknownOutcome("the node leads no more", sequence=11)
    async with client_of(three) as client:
        three.members[0].refuses = lost
        with pytest.raises(errors.UnknownOutcome):
            await client.run("CREATE t:1")
        assert not three.done
        three.members[0].refuses, three.leader = lost, three.members[1]
        assert (await client.run("UPSERT t:1", repeatable=True)).value == "n1"
    assert three.done == ["UPSERT t:1"]


async def test_what_a_busy_leader_refuses_is_for_the_caller(three: FakeCluster) -> None:
    async with client_of(three) as client:
        three.members[0].refuses = Busy("the node is doing as much as it will")
        with pytest.raises(errors.Busy):
            await client.run("CREATE t:1")
    assert not three.done


# --- handles --------------------------------------------------------------------------------------


async def _cache(client: AsyncClient) -> None:
    await client.cache("a", "b", "c")._write("set", key="k", value=1)


async def _publish(client: AsyncClient) -> None:
    await client.topic("a", "b", "q")._ask("publish", {"value": 1})


async def _ack(client: AsyncClient) -> None:
    await client.topic("a", "b", "q")._ask("ack", {"group": "g", "receipts": ["r"]})


async def _unseal(client: AsyncClient) -> None:
    with pytest.raises(errors.Sealed):
        await client.vault("a", "b", "v").unseal("open sesame, please")


@pytest.mark.parametrize("use", [_publish, _ack, _unseal])
async def test_handles_follow_the_leader(
    three: FakeCluster, use: Callable[[AsyncClient], Awaitable[None]]
) -> None:
    async with client_of(three) as client:
        for leader in (0, 2, 1):
            three.leader = three.members[leader]
            await use(client)
            assert len(three.members[leader].done) == 1
    assert len(three.done) == 3


async def test_keys_follow_the_leader(three: FakeCluster) -> None:
    async with client_of(three) as client:
        keys = client.cache("a", "b", "c")
        for leader in (0, 2, 1):
            three.leader = three.members[leader]
            with contextlib.suppress(KeyError):  # these nodes answer with something else
                await keys.set("k", 1)
            assert await keys.get("k") is None
            assert three.members[leader].done == ["SetKey", "GetKey"]


# --- reads anywhere -------------------------------------------------------------------------------


async def test_reads_are_the_leaders_unless_it_is_asked_for(three: FakeCluster) -> None:
    async with client_of(three) as client:
        assert {await client.query("SELECT 1") for _ in range(9)} == {"n0"}
    assert all(one.after is None for one in three.members[0].requests)


@contextlib.asynccontextmanager
async def reading(found: FakeCluster, **more: Any) -> AsyncIterator[AsyncClient]:
    """A client that reads anywhere, connected to all of them."""
    async with client_of(found, reads="any", **more) as client:
        await client.query("SELECT 1")
        await until(lambda: all(one.is_usable for one in client._nodes._nodes))
        await until(lambda: all(one.rests_until == 0 for one in client._nodes._nodes))
        yield client


async def test_reads_are_spread(three: FakeCluster) -> None:
    async with reading(three) as client:
        found = [await client.query("SELECT 1") for _ in range(9)]
        assert sorted(found) == ["n0"] * 3 + ["n1"] * 3 + ["n2"] * 3
        db = client.database("a", "b")
        assert {await db.query("RETURN 1") for _ in range(9)} == {"n0", "n1", "n2"}


async def test_a_read_is_behind_what_the_client_has_done(three: FakeCluster) -> None:
    async with reading(three) as client:
        seq = (await client.run("CREATE t:1")).seq
        three.catch_up()
        for member in three.members:
            member.requests.clear()
        await asyncio.gather(*(client.query("SELECT 1") for _ in range(9)))
        for member in three.members:
            assert {one.after for one in member.requests} == {seq}


async def test_a_node_that_is_behind_is_left_alone_for_a_while(three: FakeCluster) -> None:
    async with reading(three) as client:
        await client.run("CREATE t:1")
        three.members[2].shows = three.seq
        three.members[1].requests.clear()
        found = [await client.query("SELECT 1") for _ in range(12)]
        assert set(found) == {"n0", "n2"}, "what it does not show is asked of the leader"
        assert len(three.members[1].requests) == 1


async def _own_write(three: FakeCluster) -> None:
    async with reading(three) as client:
        for number in range(6):
            await client.run(f"CREATE t:{number}")
            answer = await client.run("SELECT 1")
            assert answer.seq >= three.seq, "it did not read its own write"


async def test_own_writes_are_read(three: FakeCluster) -> None:
    await _own_write(three)


@pytest.mark.parametrize("change", [_cache, _publish, _ack])
async def test_a_read_is_behind_what_was_done_to_keys_and_messages(
    three: FakeCluster, change: Callable[[AsyncClient], Awaitable[None]]
) -> None:
    async with reading(three) as client:
        await change(client)
        three.catch_up()
        for member in three.members:
            member.requests.clear()
        found = {await client.query("SELECT 1") for _ in range(9)}
        assert found == {"n0", "n1", "n2"}, "the leader need not be asked first"
        for member in three.members:
            assert {one.after for one in member.requests} == {three.seq}


async def test_what_is_cancelled_may_have_been_done(three: FakeCluster) -> None:
    """Reads stay with the leader until it has answered what came behind."""
    async with client_of(three, reads="any") as client:
        asking = asyncio.create_task(client.run("HOLD CREATE"))
        await until(lambda: three.members[0].held or three.done)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert not client._reads_anywhere


@pytest.mark.parametrize("change", [_publish, _unseal])
async def test_what_is_changed_without_a_sequence_is_read_of_the_leader(
    three: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[AsyncClient], Awaitable[None]],
) -> None:
    """Seals are answered without one, and of nodes before minor 8 so are messages: the leader's
    next answer covers them."""
    if change is _publish:
        monkeypatch.setattr("surfaces.wire.bodies.MINOR", 7)
    async with reading(three) as client:
        await change(client)
        three.members[0].shows = three.seq = 50
        for member in three.members:
            member.requests.clear()
        assert await client.query("SELECT 1") == "n0"
        assert three.members[0].requests[0].after is None
        three.catch_up()
        found = {await client.query("SELECT 1") for _ in range(9)}
        assert found == {"n0", "n1", "n2"}
        assert {one.after for one in three.members[1].requests} == {50}


async def test_what_reads_and_writes_after_all_is_done_by_the_leader_once(
    three: FakeCluster,
) -> None:
    async with reading(three) as client:
        for _ in range(4):
            assert await client.query("RETURN { CREATE t }") == "n0"
    assert len(three.done) == 4 and not three.members[1].done


async def test_moments_and_what_is_kept_are_the_leaders(three: FakeCluster) -> None:
    async with reading(three) as client:
        every: list[dict[str, Any]] = [{"moment": "m-1"}, {"reason": "monthly"}, {"record": True}]
        for fields in every:
            found = {(await client.run("SELECT 1", **fields)).value for _ in range(4)}
            assert found == {"n0"}, fields


async def test_a_moment_is_read_where_it_was_made(three: FakeCluster) -> None:
    async with reading(three) as client:
        made = await client.run("SELECT 1", moment="new")
        assert (made.value, made.moment) == ("n0", "m-of-n0")
        three.leader = three.members[2]
        assert (await client.run("CREATE t:1")).value == "n2"
        for _ in range(3):
            assert (await client.run("SELECT 1", moment=made.moment)).value == "n0"
        assert (await client.run("SELECT 1", moment="new")).moment == "m-of-n2"
        await three.members[0].surface.close()
        assert (await client.run("SELECT 1", moment=made.moment, repeatable=True)).value == "n2"
        for number in range(200):
            client._remember_maker(f"m-{number}", client._nodes._nodes[0])
        assert len(client._makers) == 64


async def test_what_a_follower_refuses_the_leader_answers(three: FakeCluster) -> None:
    async with reading(three) as client:
        for member in three.members[1:]:
            member.refuses = Busy("as much as it will")
        assert {await client.query("SELECT 1") for _ in range(6)} <= {"n0", "n1", "n2"}
        assert [member.refuses for member in three.members] == [None] * 3


async def test_a_session_that_has_ended_is_opened_again_where_it_was(three: FakeCluster) -> None:
    async with reading(three) as client:
        three.members[1].sessions.clear()
        assert {await client.query("SELECT 1") for _ in range(6)} == {"n0", "n1", "n2"}
        assert len(three.members[1].sessions) == 1


async def test_a_node_of_another_store_is_not_read(three: FakeCluster) -> None:
    three.members[1].store = "another"
    async with reading(three) as client:
        with pytest.raises(ProtocolBroken) as no:
            for _ in range(6):
                await client.query("SELECT 1")
        assert "another store" in str(no.value)
        assert {await client.query("SELECT 1") for _ in range(9)} == {"n0", "n2"}


async def test_a_new_history_is_begun_with(three: FakeCluster) -> None:
    """What was higher before it is no more, and would be waited for in vain."""
    async with reading(three) as client:
        three.leader = three.members[0]
        three.members[0].shows = three.seq = 900
        await client.run("CREATE t:1")
        three.epoch, three.seq = 7, 20
        three.catch_up()
        await client.run("CREATE t:2")
        three.catch_up()
        assert {await client.query("SELECT 1") for _ in range(9)} == {"n0", "n1", "n2"}
        assert client._seen.after == three.seq


async def test_a_request_comes_after_what_its_caller_says(three: FakeCluster) -> None:
    async with client_of(three) as client:
        await client.run("SELECT 1", after=10)
        with pytest.raises(errors.StatementTimeout) as late:
            await client.query("SELECT 1", after=11)
        assert late.value.detail == {"after": 11, "seq": 10}
        assert [one.after for one in three.members[0].requests] == [10, 11]


async def test_what_is_to_be_current_is_asked_of_the_leader(three: FakeCluster) -> None:
    """Any node can find it out; who leads does so without asking another."""
    async with reading(three) as client:
        for member in three.members:
            member.requests.clear()
        db = client.database("a", "b")
        found = {await client.query("SELECT 1", current=True) for _ in range(6)}
        found |= {(await db.run("SELECT 1", current=True)).value for _ in range(6)}
        assert found == {"n0"}
        assert [one.current for one in three.members[0].requests] == [True] * 12
        await client.query("SELECT 1")
        assert not all(one.current for member in three.members for one in member.requests)


async def test_an_old_node_is_not_asked_for_what_is_current(
    monkeypatch: pytest.MonkeyPatch, three: FakeCluster
) -> None:
    """It would answer without having looked."""
    monkeypatch.setattr("surfaces.wire.bodies.MINOR", 7)
    async with client_of(three) as client:
        with pytest.raises(errors.VersionNotSupported, match="current"):
            await client.query("SELECT 1", current=True)
        assert not three.members[0].requests


async def test_nodes_of_a_version_before(
    monkeypatch: pytest.MonkeyPatch, three: FakeCluster
) -> None:
    monkeypatch.setattr("surfaces.wire.bodies.MINOR", 6)
    three.leader = three.members[1]
    async with client_of(three, reads="any") as client:
        assert (await client.connect()).writable is None
        assert await client.query("CREATE t:1") == "n1", "found by what the others refuse"
        assert {await client.query("SELECT 1") for _ in range(6)} == {"n1"}
        with pytest.raises(errors.VersionNotSupported, match="minor 6"):
            await client.query("SELECT 1", after=1)


async def test_the_blocking_twin(three: FakeCluster) -> None:
    def work() -> None:
        given = ",".join(three.addresses)
        with Client(given, user=USER, password=PASSWORD, reads="any") as client:
            assert client.query("CREATE t:1") == "n0"
            three.leader = three.members[1]
            assert client.run("CREATE t:2").value == "n1"
            assert client.database("a", "b").query("SELECT 1", after=11)

    await asyncio.get_running_loop().run_in_executor(None, work)
    assert three.done == ["CREATE t:1", "CREATE t:2"]


async def test_nobody_is_there() -> None:
    client = AsyncClient("127.0.0.1:1,127.0.0.1:2", connect_timeout=0.1)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2 in 0\.1 s"):
        await client.run("RETURN 1")
    await client.close()
