"""Clients of real nodes: two copies of a store that hear nothing of each other, and two nodes of
which one follows the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import shutil
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest

from actors.cluster.log_matching import last_common_frame
from actors.environment import SystemClock, SystemRng, system_environment
from actors.node import Node, start
from actors.settings import NodeSettings
from protocol import limits
from protocol.errors import NotWritable
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState as ClusterFile
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from storeclient import AsyncClient, AsyncWatch, Change, Commit, Copied, Position
from surfaces.wire import NodeGate, WireSurface
from tests.actors.live import running_scripts
from tests.actors.nodes import leads_by_hand
from tests.clients.real import at, cut
from tests.logbook import Logbook
from tests.nodes import CHEAP, Running, running
from tests.nodes import PASSWORD as REAL_PASSWORD
from tests.surfaces.wire.peers import serving, until

# --- copies of a store ----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def pair(tmp_path: Path) -> AsyncIterator[tuple[list[Running], list[WireSurface]]]:
    """Two nodes with copies of one store, of which the first takes changes. Neither hears of the
    other."""
    async with running(tmp_path / "one") as here:
        await here.values(
            "DEFINE TABLE t; DEFINE TABLE pad; DEFINE SPACE c;"
            "DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1m"
        )
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    async with contextlib.AsyncExitStack() as stack:
        nodes, surfaces = list[Running](), list[WireSurface]()
        for name in ("one", "two"):
            nodes.append(await stack.enter_async_context(running(tmp_path / name)))
            surfaces.append(await stack.enter_async_context(serving(NodeGate(nodes[-1].node))))
        await takes_changes(nodes, 0)
        yield nodes, surfaces


async def takes_changes(nodes: list[Running], which: int, ahead: int = 0) -> None:
    """:param ahead: how many commits it makes: they hear nothing of each other, so one that follows
    stands as far back as its own sign-ins have left it"""
    for number, node in enumerate(nodes):
        roles = "serving, writable" if number == which else "serving"
        await node.values(f"DEFINE NODE ROLES {roles}")
    if ahead:
        await nodes[which].values("CREATE pad RETURN NONE;" * ahead)


async def test_real_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AFTER_SECONDS", 0.05)
    async with (
        pair(tmp_path) as (nodes, surfaces),
        AsyncClient(
            [at(one) for one in reversed(surfaces)],
            user="root", password=REAL_PASSWORD, ns="shop", db="main", reads="any",
        ) as client,
    ):  # fmt: skip
        for turn, which in enumerate((0, 1, 0)):
            await takes_changes(nodes, which, ahead=50 * (turn + 1))
            await client.run("CREATE t CONTENT { turn: $turn }", {"turn": turn})
            keys, topic = client.cache("shop", "main", "c"), client.topic("shop", "main", "q")
            await keys.set("k", turn)
            lease = await keys.lock(f"lock {turn}", 30)
            assert lease is not None and await lease.release()
            await topic.publish(turn)
            (taken,) = await topic.group("g").take()
            assert taken.value == turn and await taken.ack()
            # The other one never shows it: what is read there is asked here.
            for _ in range(3):
                assert turn in await client.query("SELECT VALUE turn FROM t")
            assert await keys.get("k") == turn
            assert [one.value for one in await topic.read(0)][-1] == turn
        turns = [await node.value("SELECT VALUE turn FROM t") for node in nodes]
        assert [sorted(one) for one in turns] == [[0, 2], [1]], "each was written once"


async def test_a_real_feed_goes_on_where_changes_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a mirror: the other node has the store as it was, and what comes there later."""
    monkeypatch.setattr(limits, "AFTER_SECONDS", 0.05)
    async with (
        pair(tmp_path) as (nodes, surfaces),
        AsyncClient(
            [at(one) for one in surfaces],
            user="root", password=REAL_PASSWORD, ns="shop", db="main",
        ) as client,
    ):  # fmt: skip
        await takes_changes(nodes, 1, ahead=50)
        await takes_changes(nodes, 0)
        db = client.database("shop", "main")
        start = (await client.run("RETURN 1")).position
        watch = db.watch("t", start)
        async with db.mirror("t") as rows:
            heard = asyncio.ensure_future(anext(aiter(watch)))
            await until(lambda: len(nodes[0].node.open_feeds) == 2)
            await takes_changes(nodes, 1)
            await surfaces[0].close()
            seq = (await client.run("CREATE t:1")).seq
            change = await heard
            assert (change.seq, change.id.id) == (seq, 1)
            await rows.reached(seq)
            assert len(rows) == 1
        await watch.stop()


# --- one that follows the other -------------------------------------------------------------------


@pytest.fixture
def moves(logbook: Logbook) -> None:
    """The lead does, at any moment: who led has written and not released the entry of a sign-in,
    or of what else there is to log."""
    logbook.allow("unreleased frames were cut off")


class Followed:
    """Two real nodes with one log: what the one commits is handed to the other, by this test."""

    def __init__(self, nodes: list[Node], surfaces: list[WireSurface]) -> None:
        self.nodes = nodes
        self.surfaces = surfaces
        self.addresses = [at(one) for one in surfaces]
        self.epoch = 1
        self.held = False
        """Whether what is committed is kept from the other for now."""
        self._ships = False
        self._shipping: asyncio.Task[None] | None = None

    async def lead(self, which: int) -> None:
        """That one takes changes from now on, and has all that was acknowledged."""
        leader, other = self.nodes[which], self.nodes[1 - which]
        await self.end()
        elsewhere = NotWritable("another node leads", leader=[self.addresses[which]])
        await other.committer.begin_following(elsewhere)
        if leader.committer.follows:
            await self._ship(other, leader)
            self.epoch += 1
            await leader.committer.begin_leading(self.epoch)
        await other.committer.cut(
            last_common_frame(other.committer.history(), leader.committer.history())
        )
        self._ships = True
        self._shipping = asyncio.create_task(self._ship_on(leader, other))

    async def _ship_on(self, leader: Node, other: Node) -> None:
        while self._ships:
            if not self.held:
                await self._ship(leader, other)
            await asyncio.sleep(0.003)

    async def _ship(self, leader: Node, other: Node) -> None:
        upto = leader.committer.commit_index
        begin = other.committer.log_upto + 1
        frames = list(leader.store.parts.log.reader.read(begin, upto)) if begin <= upto else []
        await other.committer.receive(frames, upto)
        other.committer.show(upto)

    def cut(self) -> None:
        for surface in self.surfaces:
            cut(surface)

    async def end(self) -> None:
        self._ships = False
        if self._shipping is not None:
            await self._shipping


@contextlib.asynccontextmanager
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    async with running(tmp_path / "0") as here:
        await here.values("DEFINE TABLE t; DEFINE SPACE c; DEFINE TOPIC q")
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    async with contextlib.AsyncExitStack() as stack:
        nodes, surfaces = list[Node](), list[WireSurface]()
        for number in range(2):
            directory = str(tmp_path / str(number))
            if number:
                told = StoreDirectory.open(
                    directory, Disk(), SystemClock(), SystemRng(), create=False
                )
                cluster_file.save(told, ClusterFile(coordinating=True))
                told.close()
            node = await start(NodeSettings(directory, password_cost=CHEAP), system_environment())
            stack.push_async_callback(node.stop)
            await leads_by_hand(node)
            nodes.append(node)
            surfaces.append(await stack.enter_async_context(serving(NodeGate(node))))
        both = Followed(nodes, surfaces)
        await both.lead(0)
        stack.push_async_callback(both.end)
        yield both


@contextlib.asynccontextmanager
async def at_both(both: Followed) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(
        both.addresses, user="root", password=REAL_PASSWORD, ns="shop", db="main", reads="any"
    ) as client:
        await client.query("RETURN 1")
        await until(lambda: all(one.is_usable for one in client._nodes._nodes))
        yield client


async def _first(watch: AsyncWatch) -> Change:
    return await anext(aiter(watch))


async def _own_writes(both: Followed, client: AsyncClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        await client.run("CREATE t CONTENT { n: $n }", {"n": number})
        rows = await client.query("SELECT VALUE n FROM t")
        assert number in rows, "it did not read its own write"


async def test_own_writes_are_read_of_a_node_that_follows(tmp_path: Path) -> None:
    async with followed(tmp_path) as both, at_both(both) as client:
        await _own_writes(both, client, 0, 30)
        asked_there = both.surfaces[1]._wire.made
        assert asked_there == 1, "it was connected to"
        both.held = True
        await client.run("CREATE t CONTENT { n: 30 }")
        reading = [asyncio.create_task(client.query("SELECT VALUE n FROM t")) for _ in range(4)]
        await until(lambda: len(both.nodes[1].committer.sequence_waiters) > 0)
        both.held = False
        assert all(30 in found for found in await asyncio.gather(*reading))


async def test_a_feed_of_a_node_that_is_behind_begins_when_it_is_not(tmp_path: Path) -> None:
    """From a position that it does not show yet, and from now on, behind what was seen."""
    async with followed(tmp_path) as both, at_both(both) as client:
        other, db = both.nodes[1], client.database("shop", "main")
        await client.run("CREATE t CONTENT { n: 0 }", ns="shop", db="main")
        both.held = True
        position = (await client.run("CREATE t CONTENT { n: 1 }")).position
        watches = [db.watch("t", position) for _ in range(2)] + [db.watch("t") for _ in range(2)]
        heard = [asyncio.create_task(_first(one)) for one in watches]
        await until(lambda: len(other.committer.sequence_waiters) > 0)
        await until(
            lambda: len(both.nodes[0].open_feeds) + len(other.committer.sequence_waiters) == 4
        )
        assert not running_scripts(other), "no script waits in its place"
        both.held = False
        await until(lambda: sum(len(one.open_feeds) for one in both.nodes) == 4)
        assert len(other.open_feeds) > 0
        await client.run("CREATE t CONTENT { n: 2 }")
        changes = await asyncio.gather(*heard)
        assert [change.value and change.value["n"] for change in changes] == [2] * 4
        for one in watches:
            await one.stop()


@pytest.mark.usefixtures("moves")
@pytest.mark.parametrize("where", [0, 1])
async def test_what_stands_while_the_lead_moves_goes_on_behind_that(
    tmp_path: Path, where: int
) -> None:
    """A watch and a mirror of one node, whichever of them leads: what they tell is of this history
    wherever they come back, and nothing is copied anew."""
    async with (
        followed(tmp_path) as both,
        AsyncClient(both.addresses[where], user="root", password=REAL_PASSWORD) as client,
        at_both(both) as writer,
    ):
        db, copied = client.database("shop", "main"), list[Copied]()
        watch = db.watch("t", 0)
        commits, heard = watch.commits(), list[Commit]()
        async with db.mirror("t", on_copy=copied.append) as rows:
            for turn in range(4):
                seq = (await writer.run("CREATE t CONTENT { n: $n }", {"n": turn})).seq
                while not heard or heard[-1].seq < seq:
                    heard.append(await asyncio.wait_for(anext(commits), 60))
                await rows.reached(seq)
                if turn == 2:
                    both.cut()
                await both.lead((turn + 1) % 2)
            assert sorted(row["n"] for row in rows.values()) == list(range(4))
            both.cut()
            seq = (await writer.run("CREATE t CONTENT { n: 4 }", repeatable=True)).seq
            await rows.reached(seq)
            assert len(copied) == 1 and copied[0].why is None
        heard.append(await anext(commits))
        values = [change.value or {} for one in heard for change in one.changes]
        assert [value["n"] for value in values] == list(range(5))
        epochs = [one.position.epoch or 0 for one in heard]
        assert epochs == sorted(epochs) and len(set(epochs)) >= 4
        await _comes_back(both, heard)
        await commits.aclose()


async def _comes_back(both: Followed, heard: list[Commit]) -> None:
    """To each node, with each position, as it was kept in a file: what follows is told."""
    for address in both.addresses:
        async with AsyncClient(address, user="root", password=REAL_PASSWORD) as client:
            for number, commit in enumerate(heard[:-1]):
                assert commit.position.seq == commit.seq
                kept = pickle.loads(pickle.dumps(commit.position))
                assert kept == Position(**json.loads(json.dumps(asdict(kept)))) == commit.position
                watch = client.database("shop", "main").watch("t", kept)
                next_one = await asyncio.wait_for(_first(watch), 60)
                assert next_one.seq == heard[number + 1].seq
                await watch.stop()


@pytest.mark.usefixtures("moves")
async def test_a_client_of_a_node_that_tells_no_epochs_claims_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surfaces.wire.bodies.MINOR", 8)
    async with followed(tmp_path) as both, at_both(both) as client:
        watch = client.database("shop", "main").watch("t")
        commits = watch.commits()
        heard = asyncio.ensure_future(anext(commits))
        await until(lambda: watch.position is not None)
        await both.lead(1)
        await client.run("CREATE t CONTENT { n: 0 }")
        assert (await heard).position.epoch is None
        both.cut()
        await client.run("CREATE t CONTENT { n: 1 }", repeatable=True)
        (change,) = (await anext(commits)).changes
        assert change.value is not None and change.value["n"] == 1
        await commits.aclose()


@pytest.mark.usefixtures("moves")
async def test_a_moment_is_read_on_when_the_lead_moves(tmp_path: Path) -> None:
    async with followed(tmp_path) as both, at_both(both) as client:
        await client.run("CREATE t CONTENT { n: 0 }")
        async with client.database("shop", "main").moment() as then:
            for turn in (1, 0, 1):
                await both.lead(turn)
                await client.run("CREATE t CONTENT { n: $n }", {"n": turn})
                assert await then.query("SELECT VALUE n FROM t") == [0]
        assert len(await client.query("SELECT VALUE n FROM t")) == 4


@pytest.mark.usefixtures("moves")
async def test_a_real_leader_that_moves_is_followed_and_nothing_is_done_twice(
    tmp_path: Path,
) -> None:
    async with followed(tmp_path) as both, at_both(both) as client:
        db, heard = client.database("shop", "main"), list[int]()
        keys, topic = client.cache("shop", "main", "c"), client.topic("shop", "main", "q")

        async def follow() -> None:
            async for change in db.watch("t", 0):
                assert change.value is not None
                heard.append(change.value["n"])

        following = asyncio.create_task(follow())
        async with db.mirror("t") as rows:
            for turn in range(4):
                await both.lead(turn % 2)
                await _own_writes(both, client, turn * 10, 10)
                await keys.set("k", turn)
                assert await keys.get("k") == turn
                await topic.publish(turn)
                assert [one.value for one in await topic.read(0)] == list(range(turn + 1))
            await rows.reached((await client.run("CREATE t CONTENT { n: 40 }")).seq)
            assert sorted(row["n"] for row in rows.values()) == list(range(41))
        await until(lambda: len(heard) >= 41)
        assert heard == list(range(41)), "each once, and in order"
        assert sorted(await client.query("SELECT VALUE n FROM t")) == list(range(41))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
