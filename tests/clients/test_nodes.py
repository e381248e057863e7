"""Clients of several nodes: whom they ask, whom they follow, what they ask again and what not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from protocol.errors import UnknownOutcome
from storeclient import AsyncClient, Client, errors
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


# --- who leads ------------------------------------------------------------------------------------


async def test_one_who_stops_does_not_search_on(three: FakeCluster) -> None:
    async with client_of(three) as client:
        three.leader = None
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writing = asyncio.create_task(client.run("CREATE t:1", stop=stop))
        await until(lambda: sum(len(one.requests) for one in three.members) > 4)
        stop.set_result(None)
        with pytest.raises((errors.NotWritable, errors.Cancelled)):
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


# --- reads anywhere -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def reading(found: FakeCluster, **more: Any) -> AsyncIterator[AsyncClient]:
    async with client_of(found, reads="any", **more) as client:
        await client.query("SELECT 1")
        await until(lambda: all(one.is_usable for one in client._nodes._nodes))
        await until(lambda: all(one.rests_until == 0 for one in client._nodes._nodes))
        yield client


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


async def test_a_session_that_has_ended_is_opened_again_where_it_was(three: FakeCluster) -> None:
    async with reading(three) as client:
        three.members[1].sessions.clear()
        assert {await client.query("SELECT 1") for _ in range(6)} == {"n0", "n1", "n2"}
        assert len(three.members[1].sessions) == 1


async def test_a_request_comes_after_what_its_caller_says(three: FakeCluster) -> None:
    async with client_of(three) as client:
        await client.run("SELECT 1", after=10)
        with pytest.raises(errors.StatementTimeout) as late:
            await client.query("SELECT 1", after=11)
        assert late.value.detail == {"after": 11, "seq": 10}
        assert [one.after for one in three.members[0].requests] == [10, 11]


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
