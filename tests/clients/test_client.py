"""Both clients against the real wire surface, before a node that does what each test says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from protocol import limits
from protocol.frames import FrameReader, MessageKind, encode
from storeclient import (
    AsyncClient,
    Client,
    Closed,
    OutcomeUnknown,
    Unreachable,
    async_client,
    attempts,
    errors,
    outages,
    pulse,
)
from storeclient import (
    connection as client_connection,
)
from surfaces.wire import WireSettings, WireSurface
from tests.certificates import self_signed
from tests.surfaces.wire.peers import PASSWORD, USER, FakeNode, serving, until


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def surface(node: FakeNode) -> AsyncIterator[WireSurface]:
    async with serving(node) as surface:
        yield surface


def at(surface: WireSurface) -> str:
    host, port = surface.address
    return f"{host}:{port}"


@pytest.fixture
async def client(surface: WireSurface) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(at(surface), user=USER, password=PASSWORD) as client:
        yield client


class TestRun:
    async def test_answer(self, client: AsyncClient, node: FakeNode) -> None:
        client.use("shop", "main")
        answer = await client.run("RETURN $v", {"v": [1, "two"]}, timeout=2.5, reason="because")
        assert answer.value == [1, "two"]
        assert answer.seq == 8123
        assert answer.results[0].kind == "value"
        assert answer.results[0].took == timedelta(microseconds=1500)
        request = node.requests[0]
        assert (request.namespace, request.database) == ("shop", "main")
        assert (request.timeout_us, request.reason) == (2_500_000, "because")

    async def test_query_answers_the_last_value(self, client: AsyncClient) -> None:
        assert await client.query("RETURN $v", {"v": 5}) == 5

    @pytest.mark.parametrize(
        "place, expected",
        [
            ({}, ("shop", "main")),
            ({"ns": "other", "db": "x"}, ("other", "x")),
            ({"ns": "other"}, ("other", None)),
            ({"db": "x"}, ("shop", "x")),
        ],
    )
    async def test_places(
        self, client: AsyncClient, node: FakeNode, place: dict[str, str], expected: object
    ) -> None:
        client.use("shop", "main")
        await client.run("RETURN", **place)  # type: ignore[arg-type]
        assert (node.requests[0].namespace, node.requests[0].database) == expected

    async def test_a_refusal_is_an_exception_of_its_code(self, client: AsyncClient) -> None:
        with pytest.raises(errors.SignInRefused) as refused:
            await client.run("REFUSE")
        assert refused.value.statement == 2
        assert [result.value for result in refused.value.results] == [1]

    async def test_what_cannot_be_sent_is_told_before(
        self, client: AsyncClient, node: FakeNode
    ) -> None:
        with pytest.raises(TypeError):
            await client.run("RETURN $v", {"v": object()})
        with pytest.raises(ValueError):
            await client.run("RETURN $v", {"v": bytes(limits.FRAME_BYTES)})
        assert await client.query("RETURN $v", {"v": 1}) == 1
        assert len(node.requests) == 1

    async def test_many_at_once_on_one_connection(
        self, client: AsyncClient, surface: WireSurface, node: FakeNode
    ) -> None:
        held = [asyncio.create_task(client.query("HOLD $v", {"v": n})) for n in range(100)]
        await until(lambda: len(node.held) == 100)
        assert await client.query("RETURN $v", {"v": "between"}) == "between"
        for request in reversed(list(node.held)):
            node.release(request)
        assert await asyncio.gather(*held) == list(range(100))
        assert surface.held == 1

    async def test_a_cancelled_task_cancels_its_script(
        self, client: AsyncClient, node: FakeNode
    ) -> None:
        task = asyncio.create_task(client.run("HOLD"))
        await until(lambda: node.held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: node.cancelled)
        assert await client.query("RETURN $v", {"v": 1}) == 1

    async def test_no_answer_in_time_is_an_unknown_outcome(
        self, client: AsyncClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(async_client, "GRACE_SECONDS", 0.0)
        with pytest.raises(OutcomeUnknown):
            await client.run("HOLD", timeout=0.05)
        await until(lambda: node.cancelled)
        assert await client.query("RETURN $v", {"v": 1}) == 1

    async def test_ping(self, client: AsyncClient) -> None:
        await client.ping()


class TestSignIn:
    async def test_welcome(self, surface: WireSurface) -> None:
        async with AsyncClient(at(surface), user=USER, password=PASSWORD) as client:
            welcome = await client.connect()
        assert welcome.user == {"name": USER, "role": "owner", "space": None}
        assert welcome.node == "node-1"

    async def test_a_token(self, surface: WireSurface, node: FakeNode) -> None:
        session = await node.sign_in(USER, PASSWORD, "elsewhere")
        async with AsyncClient(at(surface), token=session.token) as client:
            assert await client.query("RETURN $v", {"v": 1}) == 1

    async def test_refused_at_once_and_without_repeating(self, surface: WireSurface) -> None:
        client = AsyncClient(at(surface), user=USER, password="wrong")
        with pytest.raises(errors.SignInRefused):
            await client.connect()
        await client.close()

    async def test_an_ended_session_is_opened_again_with_the_password(
        self, client: AsyncClient, node: FakeNode
    ) -> None:
        node.sessions.clear()
        assert await client.query("RETURN $v", {"v": 1}) == 1
        assert len(node.requests) == 1

    async def test_an_ended_token_is_for_the_caller_to_replace(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        session = await node.sign_in(USER, PASSWORD, "elsewhere")
        async with AsyncClient(at(surface), token=session.token) as client:
            node.sessions.clear()
            with pytest.raises(errors.SessionEnded):
                await client.run("RETURN")

    @pytest.mark.parametrize(
        "arguments",
        [
            {"user": "ana"},
            {"password": "x"},
            {"user": "ana", "password": "x", "token": "t"},
            {"connect_timeout": 0},
            {"address": "host:0"},
            {"address": "host:http"},
            {"address": "::1"},
            {"address": "[::1"},
        ],
    )
    def test_arguments_that_contradict(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError):
            AsyncClient(**arguments)
        with pytest.raises(ValueError):
            Client(**arguments)


class Proxy:
    """Passes bytes between a client and a surface, and breaks off when told to."""

    def __init__(self, surface: WireSurface) -> None:
        self._surface = surface
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.made = 0
        self.passed = 0
        """Pieces that came from a client."""
        self._silent: set[asyncio.StreamWriter] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        here = asyncio.current_task()
        assert here is not None
        self._tasks.add(here)
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection(*self._surface.address)
            self._open.add(back)
            try:
                with contextlib.suppress(OSError):
                    await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
            finally:
                await self._end(back)
        finally:
            await self._end(writer)
            self._tasks.discard(here)

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if writer not in self._silent:
                writer.write(data)
            self.passed += 1
        writer.close()

    def fall_silent(self) -> None:
        """Nothing is passed on any more of what there is, and nobody is told."""
        self._silent |= self._open

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def _ended(self) -> bool:
        self.cut()  # each time: somebody may have been about to connect
        return not self._tasks

    async def stop(self) -> None:
        self._server.close()
        await until(self._ended)
        await self._server.wait_closed()


class TestBrokenConnections:
    @pytest.fixture
    async def proxy(self, surface: WireSurface) -> AsyncIterator[Proxy]:
        proxy = Proxy(surface)
        yield proxy
        await proxy.stop()

    @pytest.fixture
    async def cut_client(self, proxy: Proxy) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(await proxy.start(), user=USER, password=PASSWORD) as client:
            yield client

    async def test_a_script_under_way_has_an_unknown_outcome_and_is_not_repeated(
        self, cut_client: AsyncClient, proxy: Proxy, node: FakeNode
    ) -> None:
        tasks = [asyncio.create_task(cut_client.run("HOLD")) for _ in range(5)]
        await until(lambda: len(node.held) == 5)
        proxy.cut()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(found, OutcomeUnknown)
        assert await cut_client.query("RETURN $v", {"v": 1}) == 1
        assert len(node.requests) == 6
        assert proxy.made == 2

    async def test_a_repeatable_one_is_sent_again(
        self, cut_client: AsyncClient, proxy: Proxy, node: FakeNode
    ) -> None:
        task = asyncio.create_task(cut_client.run("HOLD", repeatable=True))
        await until(lambda: node.held)
        first = set(node.held)
        proxy.cut()
        await until(lambda: set(node.held) - first)
        node.release_all()
        await task
        assert len(node.requests) == 2

    async def test_one_under_which_every_connection_ends_is_given_up(
        self, cut_client: AsyncClient, proxy: Proxy, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outages, "RETRY_FIRST_SECONDS", 0.001)
        task = asyncio.create_task(cut_client.run("HOLD", repeatable=True))
        for again in range(attempts.BREAKS_MOST + 1):
            await until(lambda again=again: len(node.requests) > again)
            assert not task.done()
            proxy.cut()
        with pytest.raises(OutcomeUnknown):
            async with asyncio.timeout(10):
                await task
        assert len(node.requests) == attempts.BREAKS_MOST + 1
        assert await cut_client.query("RETURN $v", {"v": 1}) == 1

    async def test_an_idle_connection_that_broke_is_replaced_unseen(
        self, cut_client: AsyncClient, proxy: Proxy, surface: WireSurface
    ) -> None:
        proxy.cut()
        await until(lambda: surface.held == 0)
        assert await cut_client.query("RETURN $v", {"v": 1}) == 1
        assert proxy.made == 2

    async def test_a_peer_that_vanished_without_a_word_is_a_broken_connection(
        self, cut_client: AsyncClient, proxy: Proxy, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pulse, "QUIET_SECONDS", 0.01)
        once = asyncio.create_task(cut_client.run("HOLD"))
        twice = asyncio.create_task(cut_client.run("HOLD", repeatable=True))
        await until(lambda: len(node.held) == 2)
        monkeypatch.setattr(pulse, "ANSWER_SECONDS", 0.5)
        held = set(node.held)
        proxy.fall_silent()
        with pytest.raises(OutcomeUnknown) as lost:
            await once
        assert isinstance(lost.value.__cause__, TimeoutError)
        await until(lambda: set(node.held) - held)
        node.release_all()
        await twice

    async def test_no_ping_is_sent_that_a_node_may_not_read(
        self, cut_client: AsyncClient, node: FakeNode
    ) -> None:
        """Beside any open request that counts there it may read nothing more."""
        connection = cut_client._nodes.connection
        assert connection is not None
        large = bytes(limits.UNCOUNTED_BYTES)
        running = asyncio.create_task(cut_client.run("HOLD", {"v": large}))
        await until(lambda: node.held)
        assert connection._ping() is None
        node.release_all()
        await running
        assert connection._ping() == pulse.ANSWER_SECONDS

    async def test_unreachable_after_the_time_allowed(self) -> None:
        client = AsyncClient("127.0.0.1:1", connect_timeout=1)
        with pytest.raises(
            Unreachable, match=r"127\.0\.0\.1:1 in 1 s: Connection refused$"
        ) as found:
            await client.run("RETURN")
        assert isinstance(found.value.__cause__, OSError)
        await client.close()

    async def test_a_node_that_is_not_there_yet_is_waited_for(self, node: FakeNode) -> None:
        port = free_port()
        client = AsyncClient(f"127.0.0.1:{port}", user=USER, password=PASSWORD)
        task = asyncio.create_task(client.query("RETURN $v", {"v": 1}))
        await until(lambda: client._nodes.finding is not None)
        surface = WireSurface(node, WireSettings("127.0.0.1", port))
        await surface.start()
        assert await task == 1
        await client.close()
        await surface.close()

    async def test_a_full_node_is_waited_for(
        self, node: FakeNode, monkeypatch: pytest.MonkeyPatch, logbook: Any
    ) -> None:
        logbook.allow("wire surface is full")
        monkeypatch.setattr(limits, "CONNECTIONS", 1)
        async with serving(node) as surface:
            first = AsyncClient(at(surface), user=USER, password=PASSWORD)
            await first.connect()
            second = AsyncClient(at(surface), user=USER, password=PASSWORD)
            task = asyncio.create_task(second.ping())
            await until(lambda: any("full" in name for name in logbook.names()))
            await first.close()
            await task
            await second.close()

    async def test_a_draining_node_answers_what_runs_and_the_next_goes_elsewhere(
        self, node: FakeNode
    ) -> None:
        async with serving(node, port=free_port()) as old:
            address = old.address
            async with AsyncClient(at(old), user=USER, password=PASSWORD) as client:
                running = asyncio.create_task(client.query("HOLD $v", {"v": "old"}))
                await until(lambda: node.held)
                draining = asyncio.create_task(old.drain())
                await until(lambda: client._nodes.connection and client._nodes.connection.leaving)
                new = WireSurface(node, WireSettings(*address))
                await new.start()
                try:
                    assert await client.query("RETURN $v", {"v": "new"}) == "new"
                    node.release_all()
                    assert await running == "old"
                    await draining
                    await client.close()
                finally:
                    await new.close()

    @pytest.mark.parametrize(
        ("says", "why"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this port speaks HTTP"),
            (b"\x15\x03\x03\x00\x02\x02\x28", "this port speaks TLS"),
            (b"\x00\x00\x00\x01\xc1", "invalid message"),
        ],
    )
    async def test_a_peer_that_speaks_nonsense(self, says: bytes, why: str) -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(says)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = AsyncClient(f"127.0.0.1:{port}")
        with pytest.raises(Unreachable, match=why):
            await client.connect()
        await client.close()
        server.close()
        await server.wait_closed()

    @pytest.mark.parametrize("last", [MessageKind.BYE, MessageKind.ERROR])
    async def test_a_peer_that_welcomes_and_ends_each_connection_is_not_asked_for_ever(
        self, last: MessageKind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor waited for at the end, though it leaves its side of them open."""
        monkeypatch.setattr(client_connection, "GRACE_SECONDS", 0.05)
        connections = 0

        async def turning(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            body = {"version": "1", "node": "n", "minor": 0, "limits": {}, "user": None}
            error = {"code": "Busy", "message": "not now", "status": 503}
            writer.write(encode(MessageKind.WELCOME, 0, body))
            writer.write(encode(last, 0, {"error": error} if last is MessageKind.ERROR else None))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(turning, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = AsyncClient(f"127.0.0.1:{port}", connect_timeout=0.3)
        with pytest.raises(Unreachable, match="before a request was sent"):
            await client.run("RETURN")
        assert connections < 20
        await client.close()
        server.close()
        await server.wait_closed()

    async def test_a_wrong_kind_of_answer_breaks_nothing_else(self) -> None:
        """A node that answers RUN with PONG: that request fails, the others don't."""

        async def confused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            frames = FrameReader()
            while data := await reader.read(65536):
                frames.feed(data)
                while (message := frames.next()) is not None:
                    if message.kind is MessageKind.HELLO:
                        body = {"version": "1", "node": "n", "minor": 0, "limits": {}, "user": None}
                        writer.write(encode(MessageKind.WELCOME, 0, body))
                    elif message.kind is not MessageKind.BYE:
                        writer.write(encode(MessageKind.PONG, message.id))
            writer.close()

        server = await asyncio.start_server(confused, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            with pytest.raises(errors.ProtocolBroken):
                await client.run("RETURN")
            await client.ping()
            client_connection.GRACE_SECONDS, kept = 0.05, client_connection.GRACE_SECONDS
            try:
                await client.close()
            finally:
                client_connection.GRACE_SECONDS = kept
        server.close()
        await server.wait_closed()


class TestClosing:
    async def test_twice_and_use_after(self, surface: WireSurface, node: FakeNode) -> None:
        client = AsyncClient(at(surface), user=USER, password=PASSWORD)
        await client.close()
        await client.close()
        with pytest.raises(Closed):
            await client.run("RETURN")

    async def test_waits_for_what_is_under_way(self, surface: WireSurface, node: FakeNode) -> None:
        client = AsyncClient(at(surface), user=USER, password=PASSWORD)
        task = asyncio.create_task(client.query("HOLD $v", {"v": 7}))
        await until(lambda: node.held)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        assert not closing.done()
        node.release_all()
        assert await task == 7
        await closing
        await until(lambda: surface.held == 0)


class TestSync:
    """The blocking twin, used from threads beside the loop that serves."""

    async def beside(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def test_the_same_conversation(self, surface: WireSurface) -> None:
        def work() -> None:
            with Client(at(surface), user=USER, password=PASSWORD) as client:
                client.use("shop", "main")
                assert (client.ns, client.db) == ("shop", "main")
                assert client.query("RETURN $v", {"v": 5}) == 5
                assert client.run("RETURN $v", {"v": 5}).seq == 8123
                client.ping()
                with pytest.raises(errors.SignInRefused):
                    client.run("REFUSE")
            with pytest.raises(Closed):
                client.run("RETURN")
            client.close()

        await self.beside(work)
        await until(lambda: surface.held == 0)

    async def test_many_threads_share_one_connection(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        def work() -> list[int]:
            with Client(at(surface), user=USER, password=PASSWORD) as client:
                barrier = threading.Barrier(16)

                def one(n: int) -> int:
                    barrier.wait()
                    return sum(client.query("RETURN $v", {"v": n}) for _ in range(20))

                with ThreadPoolExecutor(16) as pool:
                    found = list(pool.map(one, range(16)))
            return found

        assert await self.beside(work) == [20 * n for n in range(16)]
        assert surface._wire.made == 1


async def test_tls(node: FakeNode, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    serving_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_side.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serving(node, serving_side) as surface:
        async with AsyncClient(at(surface), user=USER, password=PASSWORD, tls=trusting) as client:
            assert await client.query("BIG", {"v": 1_000_000}) == bytes(1_000_000)
        distrustful = AsyncClient(at(surface), user=USER, password=PASSWORD, tls=True)
        with pytest.raises(Unreachable, match="not trusted"):
            await distrustful.connect()
        await distrustful.close()


async def test_a_name_that_is_none_is_refused_before_anything_is_asked() -> None:
    client = AsyncClient("127.0.0.1:1")
    good = ("ns", "db", "name")
    for made in (client.cache, client.topic, client.vault):
        made(*good)
        for at in range(3):
            names = [*good]
            names[at] = "no name"
            with pytest.raises(ValueError, match="'no name' is not a name"):
                made(*names)
    for place in (("no name", "db"), ("ns", "no name")):
        with pytest.raises(ValueError, match="'no name' is not a name"):
            client.use(*place)
        with pytest.raises(ValueError, match="'no name' is not a name"):
            AsyncClient("127.0.0.1:1", ns=place[0], db=place[1])
        with pytest.raises(ValueError, match="'no name' is not a name"):
            await client.run("RETURN 1", ns=place[0], db=place[1])
    client.use(None)
    await client.close()
