"""Watches and mirrors of both clients: before a real node, in this process and in its own, while it
is killed, drained and pruned."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
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
    Closed,
    Commit,
    Copied,
    Position,
    RecordId,
    errors,
    feeds,
)
from storeclient.exchange import StreamedMessage
from surfaces.wire import NodeGate, WireSettings, WireSurface
from surfaces.wire.connection import WireConnection
from tests.nodes import PASSWORD, Running, running
from tests.processes import PASSWORD as PROCESS_PASSWORD
from tests.processes import USER, NodeProcess
from tests.reliability import faulty
from tests.surfaces.wire.peers import until

PAD = "x" * 60_000


class WatchServer:
    """A node with its wire surface, and a client of it."""

    def __init__(self, here: Running, surface: WireSurface) -> None:
        self.here, self.surface = here, surface
        host, port = surface.address
        self.address = f"{host}:{port}"

    def client(self, user: str = "root", **more: Any) -> AsyncClient:
        return AsyncClient(self.address, user=user, password=PASSWORD, **more)

    async def seq(self, script: str, **parameters: Any) -> int:
        answer = await self.here.answer(script, {"pad": PAD, **parameters})
        if answer.refusal is not None:
            raise answer.refusal
        return answer.sequence

    @property
    def feeds(self) -> Feeds:
        return self.here.node.open_feeds

    def cut(self) -> None:
        """Every connection breaks."""
        for connection in list(self.surface._wire.connections):
            assert isinstance(connection, WireConnection)
            connection.abort()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[WatchServer]:
    async with running(tmp_path / "store") as here:
        await here.values("DEFINE TABLE t; DEFINE TABLE u")
        surface = WireSurface(NodeGate(here.node), WireSettings("127.0.0.1", 0))
        await surface.start()
        yield WatchServer(here, surface)
        await surface.close()


@pytest.fixture
async def db(house: WatchServer) -> AsyncIterator[AsyncDatabase]:
    async with house.client() as client:
        yield client.database("shop", "main")


async def first(watch: AsyncWatch) -> Change:
    """The first that an iteration of it brings."""
    async with asyncio.timeout(30):
        return await anext(aiter(watch))


async def following_one(changes: AsyncIterator[Change]) -> Change | None:
    """What it brings next; None: it ends."""
    return await anext(changes, None)


async def some(changes: AsyncIterator[Any], count: int) -> list[Any]:
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]


class TestChanges:
    async def test_each_says_what_became_of_a_record(
        self, house: WatchServer, db: AsyncDatabase
    ) -> None:
        changes = aiter(db.watch("t", 0, before=True))
        first = await house.seq("CREATE t:1 SET a = 1")
        last = await house.seq("BEGIN; UPDATE t:1 SET a = 2; CREATE t:2; COMMIT; DELETE t:1")
        created, updated, other, deleted = await some(changes, 4)
        assert isinstance(created, Change) and isinstance(created.at, datetime)
        assert (created.seq, created.action, created.id) == (first, "create", RecordId("t", 1))
        assert (created.value, created.before) == ({"id": RecordId("t", 1), "a": 1}, None)
        assert (created.by, created.reason, created.last) == ("root", None, True)
        assert (updated.last, other.last) == (False, True)
        assert updated.seq == other.seq == last - 1
        assert updated.before["a"] == 1 and updated.value["a"] == 2
        assert (deleted.action, deleted.value, deleted.before["a"]) == ("delete", None, 2)

    async def test_filters_and_actions(self, house: WatchServer, db: AsyncDatabase) -> None:
        large = aiter(db.watch("t", 0, where="a > 1"))
        gone = aiter(db.watch("t", 0, actions=["delete"]))
        await house.seq("CREATE t:1 SET a = 1; UPDATE t:1 SET a = 2; DELETE t:1")
        assert [one.action for one in await some(large, 2)] == ["create", "delete"]
        (deleted,) = await some(gone, 1)
        assert deleted.action == "delete"

    async def test_parts_come_as_one_commit(self, house: WatchServer, db: AsyncDatabase) -> None:
        commits = db.watch("t", 0).commits()
        seq = await house.seq(
            "BEGIN; FOR $i IN 0..100 { CREATE type::record('t', $i) SET pad = $pad }; COMMIT"
        )
        (commit,) = await some(commits, 1)
        assert isinstance(commit, Commit)
        assert commit.seq == seq
        assert [change.id.id for change in commit.changes] == [*range(100)]
        assert [change.last for change in commit.changes] == [False] * 99 + [True]

    async def test_what_was_omitted_says_so(self, house: WatchServer, db: AsyncDatabase) -> None:
        watch = db.watch("t", 0, before=True)
        await house.seq("CREATE t:1 SET a = $a", a="x" * (limits.FEED_CHANGE_BYTES - 1_000_000))
        await house.seq("UPDATE t:1 SET a = $a", a="y" * (limits.FEED_CHANGE_BYTES - 1_000_000))
        _, updated = await some(aiter(watch), 2)
        assert (updated.before, updated.missing) == (None, "omitted")

    async def test_without_a_start_it_begins_now(
        self, house: WatchServer, db: AsyncDatabase
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
    async def test_it_moves_when_more_is_asked_for(
        self, house: WatchServer, db: AsyncDatabase
    ) -> None:
        watch = db.watch("t", await house.seq("CREATE t:0"))
        first = await house.seq("BEGIN; CREATE t:1; CREATE t:2; COMMIT")
        second = await house.seq("CREATE t:3")
        changes = aiter(watch)
        for _ in range(2):
            await anext(changes)
            assert watch.position is not None and watch.position.seq < first
        await anext(changes)
        assert watch.position is not None and watch.position.seq == first
        asking = asyncio.create_task(following_one(changes))
        await until(lambda: watch.position.seq == second)
        await house.seq("CREATE t:4")
        await asking
        assert watch.position == Position(second, house.here.node.store.id, 1)

    async def test_broken_off_it_goes_on_there(self, house: WatchServer, db: AsyncDatabase) -> None:
        watch = db.watch("t", 0)
        for number in range(6):
            await house.seq(f"BEGIN; CREATE t:[{number}, 0]; CREATE t:[{number}, 1]; COMMIT")
        seen = []
        for _ in range(3):  # each breaks off in the midst of a commit, and hears it again
            taken = []
            async for change in watch:
                taken.append(change.id.id)
                if len(taken) == 3:
                    break
            seen.append(taken)
        assert seen == [[[n, 0], [n, 1], [n + 1, 0]] for n in range(3)]
        await until(lambda: len(house.feeds) <= 1)

    async def test_another_watch_begins_there(self, house: WatchServer, db: AsyncDatabase) -> None:
        await house.seq("CREATE t:1; CREATE t:2; CREATE t:3")
        first = db.watch("t", 0)
        commits = first.commits()
        await some(commits, 2)
        await commits.aclose()
        (again,) = await some(aiter(db.watch("t", first.position)), 1)
        assert again.id == RecordId("t", 2)

    async def test_of_another_history_it_is_refused(
        self, house: WatchServer, db: AsyncDatabase
    ) -> None:
        seq = await house.seq("CREATE t:1")
        for position in (
            Position(seq, "0" * 32, 1),
            Position(seq, house.here.node.store.id, 7),
            Position(seq + 1_000),
        ):
            with pytest.raises(errors.Diverged, match="read the table again"):
                await first(db.watch("t", position))

    async def test_a_quiet_table_moves_it_too(self, house: WatchServer, db: AsyncDatabase) -> None:
        watch = db.watch("t")
        waiting = asyncio.create_task(first(watch))
        await until(lambda: len(house.feeds) == 1)
        last = await house.seq("CREATE u:1")

        def moved() -> bool:
            house.feeds.beat()
            return watch.position is not None and watch.position.seq == last

        await until(moved)
        waiting.cancel()


class TestGoingOn:
    async def test_after_broken_connections_with_a_writer(
        self, house: WatchServer, db: AsyncDatabase
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

    async def test_in_the_midst_of_a_commit(
        self, house: WatchServer, db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What came of it is forgotten: all of it comes again."""
        take, cut = feeds.Feed.take, list[int]()

        def taken(feed: feeds.Feed, reply: Any) -> None:
            if isinstance(reply, StreamedMessage) and reply.body.get("part") == 3 and len(cut) < 3:
                cut.append(reply.body["of"])
                house.cut()
            take(feed, reply)

        monkeypatch.setattr(feeds.Feed, "take", taken)
        commits = db.watch("t", 0).commits()
        before = await house.seq("CREATE t:before")
        long = await house.seq(
            "BEGIN; FOR $i IN 0..600 { CREATE type::record('t', $i) SET pad = $pad }; COMMIT"
        )  # more than sockets hold: it does not come whole where it is cut
        after = await house.seq("CREATE t:after")
        heard = await some(commits, 3)
        assert len(cut) == 3
        assert [commit.seq for commit in heard] == [before, long, after]
        assert [change.id.id for change in heard[1].changes] == [*range(600)]

    async def test_where_it_was_too_slow(
        self, house: WatchServer, db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
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

    async def test_behind_a_new_sign_in(self, house: WatchServer, db: AsyncDatabase) -> None:
        changes = aiter(db.watch("t", 0))
        await house.seq("CREATE t:1")
        await some(changes, 1)
        (connection,) = house.surface._wire.connections
        assert isinstance(connection, WireConnection) and connection.token is not None
        await NodeGate(house.here.node).sign_out(connection.token)
        assert len(house.feeds) == 0
        await house.seq("CREATE t:2")
        assert (await some(changes, 1))[0].id == RecordId("t", 2)

    async def test_a_session_of_a_token_is_not_made_anew(self, house: WatchServer) -> None:
        gate = NodeGate(house.here.node)
        session = await gate.sign_in("root", PASSWORD, "127.0.0.1:1")
        async with AsyncClient(house.address, token=session.token) as client:
            watch = client.database("shop", "main").watch("t", 0)
            changes = aiter(watch)
            await house.seq("CREATE t:1")
            await some(changes, 1)
            await gate.sign_out(session.token)
            with pytest.raises(errors.SessionEnded, match="another token"):
                await some(changes, 1)
            assert watch.position is not None

    async def test_many_on_one_connection_are_told_apart(
        self, house: WatchServer, db: AsyncDatabase
    ) -> None:
        watches = [aiter(db.watch("t", 0, where=f"n % 7 = {rest}")) for rest in range(7)]
        await house.seq("FOR $i IN 0..70 { CREATE type::record('t', $i) SET n = $i }")
        for rest, changes in enumerate(watches):
            assert [one.id.id for one in await some(changes, 10)] == [*range(rest, 70, 7)]
        assert len(house.surface._wire.connections) == 1


class TestTheEnd:
    async def test_a_table_that_is_dropped(self, house: WatchServer, db: AsyncDatabase) -> None:
        changes = aiter(db.watch("t", 0))
        await house.seq("CREATE t:1; DROP TABLE t; DEFINE TABLE t; CREATE t:2")
        assert (await some(changes, 1))[0].id == RecordId("t", 2)
        changes = aiter(db.watch("t", 0))
        await some(changes, 1)
        await house.seq("DROP TABLE t")
        with pytest.raises(
            errors.Unknown, match=r"dropped: .*another table has its name now: read the table again"
        ):
            await some(changes, 1)

    async def test_a_table_that_was_declared_anew_meanwhile(
        self, house: WatchServer, db: AsyncDatabase
    ) -> None:
        known = await house.seq("CREATE t:1")
        await house.seq("DROP TABLE t; DEFINE TABLE t")
        with pytest.raises(errors.Unknown, match="read the table again") as refused:
            await first(db.watch("t", known))
        assert refused.value.detail["created"] > known

    async def test_a_table_that_is_none(self, db: AsyncDatabase) -> None:
        with pytest.raises(errors.Unknown) as refused:
            await first(db.watch("nothing"))
        assert "anew" not in str(refused.value)

    async def test_a_right_that_is_taken(self, house: WatchServer) -> None:
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

    async def test_stop_ends_the_iteration(self, house: WatchServer, db: AsyncDatabase) -> None:
        watch = db.watch("t", 0)
        heard: list[Change] = []

        async def follow() -> None:
            async with watch:
                async for change in watch:
                    heard.append(change)

        following = asyncio.create_task(follow())
        await house.seq("CREATE t:1")
        await until(lambda: heard)
        await watch.stop()
        await watch.stop()
        await following
        await until(lambda: len(house.feeds) == 0)
        assert [change async for change in watch] == []

    async def test_a_client_that_closes(self, house: WatchServer) -> None:
        async with house.client() as client:
            changes = aiter(client.database("shop", "main").watch("t"))
            waiting = asyncio.create_task(following_one(changes))
            await until(lambda: len(house.feeds) == 1)
        with pytest.raises(Closed):
            await waiting
        assert len(house.feeds) == 0

    async def test_a_task_that_is_cancelled(self, house: WatchServer, db: AsyncDatabase) -> None:
        waiting = asyncio.create_task(first(db.watch("t")))
        await until(lambda: len(house.feeds) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: len(house.feeds) == 0)
        assert await db.query("RETURN 1") == 1

    async def test_a_node_that_has_no_feeds(
        self, house: WatchServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("surfaces.wire.bodies.MINOR", 0)
        async with house.client() as client:
            with pytest.raises(errors.VersionNotSupported, match="no feeds"):
                await anext(aiter(client.database("shop", "main").watch("t")))


class TestMirror:
    async def test_it_shows_what_the_table_has(self, house: WatchServer, db: AsyncDatabase) -> None:
        await house.seq("FOR $i IN 0..25 { CREATE type::record('t', $i) SET n = $i }")
        async with db.mirror("t", page=10) as rows:
            assert len(rows) == 25
            seq = await house.seq("UPDATE t:3 SET n = 33; DELETE t:4; CREATE t:[1, 'x'] SET n = 1")
            await rows.reached(seq)
            assert rows[RecordId("t", 3)]["n"] == 33
            assert RecordId("t", 4) not in rows and RecordId("t", [1, "x"]) in rows
            assert sorted(map(str, rows)) == sorted(
                str(row["id"]) for row in await db.query("SELECT * FROM t")
            )
        with pytest.raises(Closed):
            len(rows)

    async def test_with_a_condition(self, house: WatchServer, db: AsyncDatabase) -> None:
        await house.seq("CREATE t:1 SET n = 1; CREATE t:2 SET n = 20")
        async with db.mirror("t", where="n > 10 -- ten") as rows:
            assert list(rows) == [RecordId("t", 2)]
            await rows.reached(await house.seq("UPDATE t SET n = n + 10"))
            assert {row["n"] for row in rows.values()} == {11, 30}
            await rows.reached(await house.seq("UPDATE t:2 SET n = 0"))
            assert list(rows) == [RecordId("t", 1)]

    async def test_there_is_no_hole_between_copy_and_feed(
        self, house: WatchServer, db: AsyncDatabase
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

    async def test_it_is_copied_anew_where_the_table_is_another(
        self, house: WatchServer, db: AsyncDatabase
    ) -> None:
        copied: list[Copied] = []
        await house.seq("CREATE t:1")
        async with db.mirror("t", on_copy=copied.append) as rows:
            seq = await house.seq("BEGIN; DROP TABLE t; DEFINE TABLE t; COMMIT; CREATE t:2")
            await rows.reached(seq)
            assert list(rows) == [RecordId("t", 2)]
            await until(lambda: len(copied) == 2)
            assert (copied[0].rows, copied[0].why) == (1, None)
            assert isinstance(copied[1].why, errors.Unknown)
            await house.seq("DROP TABLE t")
            with pytest.raises(errors.Unknown):
                await rows.reached(2**60)
            with pytest.raises(errors.Unknown):
                rows.get(RecordId("t", 2))

    async def test_it_is_copied_anew_where_the_log_was_pruned(
        self, house: WatchServer, db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copied: list[Copied] = []
        async with db.mirror("t", on_copy=copied.append) as rows:
            await rows.reached(await house.seq("CREATE t:0"))  # it follows, on both sides
            watch = AsyncClient._watch

            async def pruned(client: AsyncClient, body: dict[str, Any]) -> feeds.Feed:
                monkeypatch.setattr(AsyncClient, "_watch", watch)
                await house.seq("CREATE t:1")
                raise errors.LogPruned({"message": "what follows is no longer in the log"})

            monkeypatch.setattr(AsyncClient, "_watch", pruned)
            house.cut()
            await until(lambda: len(copied) == 2)
            assert isinstance(copied[1].why, errors.LogPruned)
            assert list(rows) == [RecordId("t", 0), RecordId("t", 1)]
            await rows.reached(await house.seq("CREATE t:2"))
            assert len(rows) == 3

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


class TestTheNodeAway:
    """Against the command itself."""

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
            async with AsyncClient(
                "{}:{}".format(*node.address("wire")), user=USER, password=PROCESS_PASSWORD
            ) as client:
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
    host, port = node.address("wire")
    return Client(f"{host}:{port}", user=USER, password=PROCESS_PASSWORD)
