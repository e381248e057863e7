"""Watches and mirrors of both clients: before a real node, in this process and in its own, while it
is killed, drained and pruned."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.feeds.hub import Feeds
from bench.ports import free_port
from protocol import limits
from storeclient import (
    AsyncClient,
    AsyncDatabase,
    AsyncWatch,
    Change,
    Client,
    RecordId,
    errors,
    feeds,
)
from tests.clients.real import RealNode, cut, real_node
from tests.nodes import PASSWORD
from tests.processes import PASSWORD as PROCESS_PASSWORD
from tests.processes import USER, NodeProcess
from tests.reliability import faulty
from tests.surfaces.wire.peers import until

PAD = "x" * 60_000


class WatchedNode(RealNode):
    async def seq(self, script: str, **parameters: Any) -> int:
        answer = await self.here.answer(script, {"pad": PAD, **parameters})
        if answer.refusal is not None:
            raise answer.refusal
        return answer.sequence

    @property
    def feeds(self) -> Feeds:
        return self.here.node.open_feeds

    def cut(self) -> None:
        cut(self.surface)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[WatchedNode]:
    async with real_node(tmp_path / "store") as node:
        await node.here.values("DEFINE TABLE t; DEFINE TABLE u")
        yield WatchedNode(node.here, node.surface)


@pytest.fixture
async def db(house: WatchedNode) -> AsyncIterator[AsyncDatabase]:
    async with house.client() as client:
        yield client.database("shop", "main")


async def first(watch: AsyncWatch) -> Change:
    async with asyncio.timeout(30):
        return await anext(aiter(watch))


async def some(changes: AsyncIterator[Any], count: int) -> list[Any]:
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]


class TestChanges:
    async def test_what_was_omitted_says_so(self, house: WatchedNode, db: AsyncDatabase) -> None:
        watch = db.watch("t", 0, before=True)
        await house.seq("CREATE t:1 SET a = $a", a="x" * (limits.FEED_CHANGE_BYTES - 1_000_000))
        await house.seq("UPDATE t:1 SET a = $a", a="y" * (limits.FEED_CHANGE_BYTES - 1_000_000))
        _, updated = await some(aiter(watch), 2)
        assert (updated.before, updated.missing) == (None, "omitted")

    async def test_without_a_start_it_begins_now(
        self, house: WatchedNode, db: AsyncDatabase
    ) -> None:
        await house.seq("CREATE t:1")
        watch = db.watch("t")
        assert watch.position is None
        nothing = asyncio.create_task(first(watch))
        await until(lambda: watch.position is not None)
        await house.seq("CREATE t:2")
        assert (await nothing).id == RecordId("t", 2)

    async def test_a_name_that_is_none(self, db: AsyncDatabase) -> None:
        with pytest.raises(ValueError):
            db.watch("a.b")


class TestPosition:
    async def test_another_watch_begins_there(self, house: WatchedNode, db: AsyncDatabase) -> None:
        await house.seq("CREATE t:1; CREATE t:2; CREATE t:3")
        first = db.watch("t", 0)
        commits = first.commits()
        await some(commits, 2)
        await commits.aclose()
        (again,) = await some(aiter(db.watch("t", first.position)), 1)
        assert again.id == RecordId("t", 2)


class TestGoingOn:
    async def test_after_broken_connections_with_a_writer(
        self, house: WatchedNode, db: AsyncDatabase
    ) -> None:
        """20 times, at random: every commit once, in order."""
        rng, writing, number = random.Random(7), True, 0

        async def write() -> None:
            nonlocal number
            while writing:
                size = 1 + number % 3
                puts = "; ".join(f"CREATE t:[{number}, {each}]" for each in range(size))
                await house.seq(f"BEGIN; {puts}; COMMIT")
                number += 1

        writer = asyncio.create_task(write())
        heard: list[Any] = []

        async def follow() -> None:
            async for change in db.watch("t", 0):
                heard.append(change.id.id)

        following = asyncio.create_task(follow())
        for _ in range(20):
            now = len(heard)
            await until(lambda now=now: len(heard) > now)
            await asyncio.sleep(rng.uniform(0, 0.05))
            house.cut()
        writing = False
        await writer
        expected = [[n, each] for n in range(number) for each in range(1 + n % 3)]
        await until(lambda: len(heard) >= len(expected))
        assert heard == expected
        following.cancel()

    async def test_where_it_was_too_slow(
        self, house: WatchedNode, db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its buffer is bounded; what does not fit is heard later, and nothing is lost."""
        monkeypatch.setattr(feeds, "BEHIND_BYTES", 100_000)
        changes = aiter(db.watch("t", 0))
        await house.seq("CREATE t:first")
        heard = await some(changes, 1)
        for _ in range(3):
            await house.seq("FOR $i IN 0..30 { CREATE t SET pad = $pad, at = time::now() }")
            await until(lambda: len(house.feeds) == 0)  # the client has ended it
            heard += await some(changes, 30)
        ids = [change.id for change in heard]
        assert len(set(ids)) == len(ids) == 91

    async def test_many_on_one_connection_are_told_apart(
        self, house: WatchedNode, db: AsyncDatabase
    ) -> None:
        watches = [aiter(db.watch("t", 0, where=f"n % 7 = {rest}")) for rest in range(7)]
        await house.seq("FOR $i IN 0..70 { CREATE type::record('t', $i) SET n = $i }")
        for rest, changes in enumerate(watches):
            assert [one.id.id for one in await some(changes, 10)] == [*range(rest, 70, 7)]
        assert len(house.surface._wire.connections) == 1


class TestTheEnd:
    async def test_a_table_that_was_declared_anew_meanwhile(
        self, house: WatchedNode, db: AsyncDatabase
    ) -> None:
        known = await house.seq("CREATE t:1")
        await house.seq("DROP TABLE t; DEFINE TABLE t")
        with pytest.raises(errors.Unknown, match="read the table again") as refused:
            await first(db.watch("t", known))
        assert refused.value.detail["created"] > known

    async def test_a_right_that_is_taken(self, house: WatchedNode) -> None:
        await house.here.values(
            f"DEFINE USER bob ROLE member PASSWORD '{PASSWORD}';"
            " GRANT READ ON TABLE shop.main.t TO bob"
        )
        async with house.client("bob") as client:
            watch = client.database("shop", "main").watch("t", 0)
            changes = aiter(watch)
            seq = await house.seq("CREATE t:1")
            await some(changes, 1)
            await house.seq("REVOKE READ ON TABLE shop.main.t FROM bob; CREATE t:2")
            with pytest.raises(errors.NotAllowed, match="granted again"):
                await some(changes, 1)
            assert watch.position is not None and watch.position.seq == seq


class TestMirror:
    async def test_there_is_no_hole_between_copy_and_feed(
        self, house: WatchedNode, db: AsyncDatabase
    ) -> None:
        writing, number = True, 0

        async def write() -> None:
            nonlocal number
            while writing:
                await house.seq(f"UPSERT t:{number % 50} SET n = {number}; DELETE t:{number % 7}")
                number += 1

        writer = asyncio.create_task(write())
        for _ in range(10):
            async with db.mirror("t", page=3) as rows:
                house.cut()
                await rows.changed()
        async with db.mirror("t", page=3) as rows:
            writing = False
            await writer
            seq = await house.seq("CREATE t:end")
            await rows.reached(seq)
            assert dict(rows) == {row["id"]: row for row in await db.query("SELECT * FROM t")}

    async def test_a_change_before_the_wait_is_not_missed(self, db: AsyncDatabase) -> None:
        async with db.mirror("t") as rows:
            before = rows.seq
            await rows.reached((await db.run("CREATE t:1")).seq)
            await rows.changed(before)
            waiting = asyncio.create_task(rows.changed(rows.seq))
            await db.run("CREATE t:2")
            await waiting
            assert len(rows) == len(rows.snapshot()) == 2

    async def test_what_is_wrong_is_said_at_once(self, db: AsyncDatabase) -> None:
        with pytest.raises(ValueError):
            db.mirror("t", where="n > 1 ORDER BY n")
        with pytest.raises(errors.Unknown):
            await db.mirror("nothing").__aenter__()


class TestBlocking:
    def test_a_watch_in_a_thread(self, process: NodeProcess) -> None:
        with client_of(process) as client:
            db = client.database("shop", "main")
            db.run("CREATE t:1; CREATE t:2; CREATE t:3")
            watch = db.watch("t", 0)
            heard = []
            for change in watch:
                heard.append(change.id.id)
                if len(heard) == 2:
                    break
            assert watch.position is not None
            for commit in watch.commits():
                heard += [change.id.id for change in commit.changes]
                if len(heard) == 4:
                    break
            assert heard == [1, 2, 2, 3]

    def test_stop_from_another_thread(self, process: NodeProcess) -> None:
        with client_of(process) as client:
            db = client.database("shop", "main")
            watch, heard = db.watch("t", 0), []
            begun = threading.Event()

            def follow() -> None:
                for change in watch:
                    heard.append(change.id)
                    begun.set()

            thread = threading.Thread(target=follow)
            thread.start()
            db.run("CREATE t:1")
            assert begun.wait(20)
            watch.stop()
            thread.join(20)
            assert not thread.is_alive() and heard == [RecordId("t", 1)]

    def test_a_mirror(self, process: NodeProcess) -> None:
        with client_of(process) as client:
            db = client.database("shop", "main")
            db.run("CREATE t:1 SET n = 1")
            with db.mirror("t") as rows:
                rows.reached(db.run("CREATE t:2 SET n = 2").seq)
                assert len(rows) == 2 and rows[RecordId("t", 2)]["n"] == 2
                assert list(rows) == [RecordId("t", 1), RecordId("t", 2)]
                assert rows.snapshot().keys() == set(rows)
                assert rows.seq >= 1
                rows.changed(0)


class TestTheNodeAway:
    async def test_killed_drained_and_pruned(self, tmp_path: Path) -> None:
        """Each life of the node ends in another way; what the reader hears is gapless."""
        port = free_port()
        words = ("--serve", f"127.0.0.1:{port}")
        heard: list[int] = []
        number = 0
        client = AsyncClient(
            f"127.0.0.1:{port}", user=USER, password=PROCESS_PASSWORD, ns="shop", db="main"
        )
        db = client.database("shop", "main")
        watch = db.watch("t", 0)

        async def follow() -> None:
            async for change in watch:
                assert change.value is not None
                heard.append(change.value["n"])

        following: asyncio.Task[None] | None = None
        node = NodeProcess(tmp_path / "store", words)
        try:
            for life in range(4):
                node = NodeProcess(tmp_path / "store", words)
                await asyncio.to_thread(node.start)
                if following is None:
                    await db.run(SETTING, repeatable=True)
                    following = asyncio.create_task(follow())
                for _ in range(30):
                    await db.run("UPSERT t:1 SET n = $n", {"n": number}, repeatable=True)
                    number += 1
                await until(lambda n=number: len(heard) >= n)
                for _ in range(5):  # under way when it ends
                    await db.run("UPSERT t:1 SET n = $n", {"n": number}, repeatable=True)
                    number += 1
                await asyncio.to_thread(node.kill if life % 2 else node.stop)
            node = NodeProcess(tmp_path / "store", words)
            await asyncio.to_thread(node.start)
            await until(lambda: len(heard) >= number)
            assert heard == [*range(number)]
            assert following is not None
            following.cancel()
            await client.close()
            assert await asyncio.to_thread(node.stop) == 0
        finally:
            node.end()

    async def test_a_log_that_was_pruned_meanwhile(self, tmp_path: Path) -> None:
        words = ("--serve", "127.0.0.1:0", "--keep-log", "40KiB")
        small = {faulty.FAULTS: "small"}
        node = NodeProcess(tmp_path / "store", words, small, module=faulty.MODULE).start()
        try:
            async with AsyncClient(node.at("wire"), user=USER, password=PROCESS_PASSWORD) as client:
                db = client.database("shop", "main")
                await client.run(SETTING)
                old = (await db.run("UPSERT t:1 SET n = 1")).seq

                async def until_pruned() -> None:
                    for number in range(1_000):
                        await db.run("UPSERT t:1 SET pad = $pad", {"pad": f"{number:4000}"})
                        await first(db.watch("t", old))

                with pytest.raises(errors.LogPruned, match=r"begins at .*: read the table again"):
                    await until_pruned()
        finally:
            node.end()


SETTING = (
    "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main;"
    " USE shop.main; DEFINE TABLE IF NOT EXISTS t"
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "store", ("--serve", "127.0.0.1:0")).start()
    try:
        with client_of(node) as client:
            client.run(SETTING)
        yield node
    finally:
        node.end()


def client_of(node: NodeProcess) -> Client:
    return Client(node.at("wire"), user=USER, password=PROCESS_PASSWORD)
