"""Both clients against the real wire surface, before a node that does what each test says."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from storeclient import (
    AsyncClient,
    Client,
    Closed,
    Unreachable,
    errors,
)
from surfaces.wire import WireSurface
from tests.certificates import contexts_of
from tests.clients.real import at
from tests.surfaces.wire.peers import PASSWORD, USER, FakeNode, serving, until


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def surface(node: FakeNode) -> AsyncIterator[WireSurface]:
    async with serving(node) as surface:
        yield surface


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


class TestSignIn:
    async def test_welcome(self, surface: WireSurface) -> None:
        async with AsyncClient(at(surface), user=USER, password=PASSWORD) as client:
            welcome = await client.connect()
        assert welcome.user == {"name": USER, "role": "owner", "space": None}
        assert welcome.node == "node-1"

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


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this port speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "this port speaks TLS"),
        (b"\x00\x00\x00\x01\xc1", "invalid message"),
    ],
)
async def test_a_peer_that_speaks_nonsense(says: bytes, why: str) -> None:
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


async def test_who_is_cancelled_while_connecting_leaves_no_connection() -> None:
    greeted, gone = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        greeted.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        gone.set()
        writer.close()

    async def use() -> None:
        async with AsyncClient(f"127.0.0.1:{port}"):
            raise AssertionError("nobody has answered HELLO")

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    using = asyncio.ensure_future(use())
    async with asyncio.timeout(10):
        await greeted.wait()
        using.cancel()
        await asyncio.gather(using, return_exceptions=True)
        await gone.wait()
    assert using.cancelled()
    server.close()
    await server.wait_closed()


class TestSync:
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
    serving_side, trusting = contexts_of(tmp_path)
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
        for which in range(3):
            names = [*good]
            names[which] = "no name"
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
