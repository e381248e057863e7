"""What pipelined requests, heads, bodies and answers make the HTTP surface hold."""

from __future__ import annotations

import asyncio
import json
import socket
import tracemalloc
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgpack
import pytest

from actors.node import Node
from protocol import limits
from protocol.weights import weigh
from surfaces.http.connection import HttpConnection
from surfaces.http.surface import HttpSurface
from surfaces.memory_quota import NOBODY
from tests.actors.scripts.test_stalled_disk import Stall
from tests.surfaces.http.conftest import LONG, until
from tests.surfaces.http.raw import Raw, request, script

TINY = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
MIB = limits.MIB


def slow(bearer: str, timeout: str) -> bytes:
    return script({"script": LONG, "timeout": timeout}, bearer)


def only(surface: HttpSurface, raw: Raw) -> HttpConnection:
    port = raw.writer.get_extra_info("sockname")[1]
    (found,) = (c for c in surface.connections if c.address.endswith(f":{port}"))
    return found


def small_buffers(surface: HttpSurface, raw: Raw) -> HttpConnection:
    """Let the system hold little on the way to a client."""
    connection = only(surface, raw)
    for transport, way in (
        (connection.transport, socket.SO_SNDBUF),
        (raw.writer.transport, socket.SO_RCVBUF),
    ):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, way, 16_384)
    return connection


def is_answered(connection: HttpConnection) -> bool:
    return connection.known and connection.idle and connection.receiving is None


async def settled(connection: HttpConnection) -> None:
    """Wait until a connection takes nothing more in."""
    before: tuple[int, int] | None = None
    still = 0
    while still < 30:
        await asyncio.sleep(0.001)
        now = len(connection.queue), len(connection.reading.kept)
        before, still = now, still + 1 if now == before else 0


class TestPipelined:
    """What waits behind a slow request is bounded, by one read too."""

    @pytest.mark.parametrize("known", [False, True])
    async def test_tiny_ones_of_one_read(
        self, surface: HttpSurface, raw: Raw, node: Node, bearer: str, known: bool
    ) -> None:
        tiny = request("GET", "/health") if known else TINY
        count = 60_000 // len(tiny)
        await raw.send(tiny)  # its head is known from here on
        await raw.answer()
        connection = only(surface, raw)
        await raw.send(slow(bearer, "500ms") + tiny * count)
        await until(lambda: connection.queue)
        most = 0
        while connection.current is not None and connection.current.route is not None:
            most = max(most, len(connection.queue))
            if connection.current.route.probe:
                break
            await asyncio.sleep(0.001)
        assert 1 < most <= limits.PIPELINED + 200
        assert (await raw.answer()).status == 408
        for _ in range(count):
            assert (await raw.answer()).json["status"] == "well"
        assert not connection.reading.kept and not connection.queue

    async def test_large_heads_and_bodies(
        self, surface: HttpSurface, raw: Raw, node: Node, bearer: str
    ) -> None:
        connection = only(surface, raw)
        await raw.send(slow(bearer, "1s"))
        await until(lambda: node.registry.unfinished == 1)
        head = request("GET", "/health", x="y" * 50_000)
        body = script("RETURN 1;" + " " * 50_000, bearer)
        sending = asyncio.create_task(raw.send((head + body) * 40))
        await until(lambda: connection.queue)
        await settled(connection)
        held = sum(one.waits_with + one.bytes_held for one in connection.queue)
        unjudged = sum(one.unjudged for one in connection.queue)
        counted = surface.requests.of(NOBODY)
        kept = len(connection.reading.kept)
        sending.cancel()
        raw.writer.transport.abort()
        assert held < 200_000 and kept <= limits.SMALL_BODY_BYTES
        assert counted >= unjudged
        await until(lambda: not surface.connections)

    async def test_where_nobody_has_room_a_queue_is_not_read_on(
        self, surface: HttpSurface, raw: Raw, node: Node, bearer: str
    ) -> None:
        surface.requests.most = 40_000
        await raw.send(slow(bearer, "300ms") + TINY * 500)
        connection = only(surface, raw)
        await until(lambda: connection.queue)
        await settled(connection)
        assert surface.requests.of(NOBODY) <= 20_000
        assert (await raw.answer()).status == 408
        for _ in range(500):
            assert (await raw.answer()).status == 200


class TestWhoHasNotSignedIn:
    """They are one user together, and leave room for the others."""

    @pytest.mark.parametrize("what", ["heads", "bodies"])
    async def test_half_heads_and_half_bodies(
        self, surface: HttpSurface, bearer: str, what: str
    ) -> None:
        surface.requests.most = 200_000
        half = (
            b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 15_000
            if what == "heads"
            else request("POST", "/session", b" " * 20_000, content_type="application/json")[
                :15_000
            ]
        )
        port = surface.address[1]
        async with AsyncExitStack() as stack:
            crowd = [await stack.enter_async_context(await Raw.connect(port)) for _ in range(20)]
            for one in crowd:
                one.writer.write(half)
            await until(lambda: sum(not c.reading.ended for c in surface.connections) < 10)
            assert surface.requests.of(NOBODY) <= 100_000
            answered = [asyncio.create_task(one.answer()) for one in crowd]
            done, waiting = await asyncio.wait(answered, return_when=asyncio.FIRST_COMPLETED)
            assert done.pop().result().error["code"] == "Busy"
            for task in (*done, *waiting):
                task.cancel()
            await asyncio.gather(*done, *waiting, return_exceptions=True)
            user = await stack.enter_async_context(await Raw.connect(port))
            large = script("RETURN 7;" + " " * 50_000, bearer)
            await user.send(large[:30_000])
            await until(lambda: surface.requests.of("root") > 20_000)
            await user.send(large[30_000:])
            assert (await user.answer()).json["results"][0]["value"] == 7


class TestBodiesInPieces:
    """A body takes about what is counted of it, whatever it is cut into."""

    @pytest.mark.parametrize("cut", ["chunks", "writes"])
    async def test_two_bytes_at_a_time(self, surface: HttpSurface, cut: str) -> None:
        size = 60_000
        head = request("POST", "/session", content_type="application/json")
        declared = b"Transfer-Encoding: chunked"
        if cut == "writes":
            declared = b"Content-Length: %d" % (size + 1)
        head = head.replace(b"Content-Length: 0", declared)
        async with await Raw.connect(surface.address[1]) as raw:
            await until(lambda: surface.connections)
            connection = only(surface, raw)
            await raw.send(head)
            await until(lambda: connection.receiving)
            receiving = connection.receiving
            assert receiving is not None
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                if cut == "chunks":
                    await raw.send(b"2\r\nab\r\n" * (size // 2))
                else:
                    for _ in range(size // 2):
                        connection.data_received(b"ab")
                await until(lambda: receiving.bytes_in == size)
                await until(lambda: not connection.reading.kept)
                after, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert receiving.bytes_held == size == surface.bodies_bytes
            assert after - before < 4 * size
            raw.writer.transport.abort()
            await until(lambda: not surface.connections)


class TestWhatAScriptWaitsWith:
    """What a request was read into counts until it is answered, small bodies too."""

    async def test_parameters(
        self, surface: HttpSurface, raw: Raw, node: Node, bearer: str
    ) -> None:
        asked = script({"script": LONG, "params": {"v": ["ab"] * 8_000}}, bearer)
        assert len(asked) < limits.SMALL_BODY_BYTES
        await raw.send(asked)
        await until(lambda: surface.requests.of("root") > 400_000)
        raw.writer.transport.abort()
        await until(lambda: not surface.requests.total)

    async def test_one_that_finds_no_room(
        self, surface: HttpSurface, raw: Raw, bearer: str
    ) -> None:
        surface.requests.most = 300_000
        asked = {"script": "RETURN 1", "params": {"v": ["ab"] * 8_000}}
        for _ in range(2):
            assert (await raw.run(asked, bearer)).error["code"] == "Busy"
        assert (await raw.run("RETURN 1", bearer)).status == 200


class TestWhatAKeyWaitsWith:
    """A cache value counts as what it was read into too, until its operation is answered."""

    @pytest.mark.parametrize("count", [5_000, 20_000])
    async def test_behind_a_disk_that_stalls(
        self, surface: HttpSurface, raw: Raw, node: Node, bearer: str, count: int
    ) -> None:
        assert (
            await raw.run(
                "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE SPACE s", bearer
            )
        ).status == 200
        body = msgpack.packb([{}] * count)
        fields = {"authorization": bearer, "content_type": "application/msgpack"}
        stall = Stall(node)
        try:
            await raw.send(request("PUT", "/kv/n/d/s/key/k", body, **fields))
            await until(lambda: surface.requests.of("root") >= 64 * count)
        finally:
            stall.end()
        assert (await raw.answer()).json == {"written": True}
        assert not surface.requests.total
        surface.requests.most = 64 * count
        assert (await raw.ask("PUT", "/kv/n/d/s/key/k", body, **fields)).error["code"] == "Busy"
        assert (
            await raw.ask("PUT", "/kv/n/d/s/key/k", msgpack.packb("v" * count), **fields)
        ).status == 200


class TestBodiesThatAreRead:
    """How much one takes is known once it is read: of one user one after the other is."""

    BODY = json.dumps({"script": "RETURN 1", "params": {"v": [[]] * 40_000}}).encode()

    async def test_side_by_side(
        self, surface: HttpSurface, raw: Raw, bearer: str, under_way: list[int]
    ) -> None:
        assert (
            await raw.run(f"DEFINE USER ben ROLE owner PASSWORD '{'x' * 12}'", bearer)
        ).status == 200
        signed_in = await raw.post("/session", {"user": "ben", "password": "x" * 12})
        other = f"Bearer {signed_in.json['token']}"
        for bearers, most in (([bearer] * 4, 1), ([bearer, other] * 2, 2)):
            under_way.clear()
            async with AsyncExitStack() as stack:
                peers = []
                for one in bearers:
                    peer = await Raw.connect(surface.address[1])
                    peers.append(await stack.enter_async_context(peer))
                    fields = {"authorization": one, "content_type": "application/json"}
                    await peer.send(request("POST", "/script", self.BODY, **fields))
                for peer in peers:
                    assert (await peer.answer()).status == 200
            assert len(under_way) == 8 and max(under_way) == most

    @pytest.mark.parametrize(("method", "path"), [("PUT", "/kv/n/d/s/key/k"), ("POST", "/script")])
    async def test_of_one_that_goes_away(
        self, surface: HttpSurface, raw: Raw, bearer: str, method: str, path: str
    ) -> None:
        """It counts for as long as it is there."""
        fields = {"authorization": bearer, "content_type": "application/json"}
        async with surface.long_work.reading_of("root"):
            await raw.send(request(method, path, self.BODY, **fields))
            await until(lambda: is_read(surface))
            raw.writer.transport.abort()
            await until(lambda: not surface.connections)
            assert surface.requests.of("root") >= len(self.BODY)
        await until(lambda: not surface.requests.total)
        assert not surface.running

    @pytest.mark.parametrize(("method", "path"), [("PUT", "/kv/n/d/s/key/k"), ("POST", "/script")])
    async def test_nobody_holds_one_that_has_been_read(
        self,
        surface: HttpSurface,
        raw: Raw,
        bearer: str,
        monkeypatch: pytest.MonkeyPatch,
        method: str,
        path: str,
    ) -> None:
        told: list[str] = []

        class Body(bytes):
            def __del__(self) -> None:
                told.append("gone")

        def weighing(*what: Any) -> int:
            told.append("weighed")
            return weigh(*what)

        monkeypatch.setattr("surfaces.http.body_weights.weigh", weighing)
        fields = {"authorization": bearer, "content_type": "application/json"}
        async with surface.long_work.reading_of("root"):
            await raw.send(request(method, path, self.BODY, **fields))
            await until(lambda: is_read(surface))
            exchange = only(surface, raw).current
            assert exchange is not None
            exchange.body = Body(exchange.body)
        assert (await raw.answer()).status in (200, 404)
        assert told == ["gone", "weighed"]


def is_read(surface: HttpSurface) -> bool:
    return surface.requests.of("root") >= len(TestBodiesThatAreRead.BODY) and bool(surface.running)


class TestAnswers:
    """What is not taken counts; a large one that finds no room is told so."""

    async def test_of_one_user(self, surface: HttpSurface, bearer: str) -> None:
        surface.answers.most = 8 * MIB
        text = f"LET $a = '{'x' * 600_000}'; RETURN [$a, $a, $a, $a, $a]"
        port = surface.address[1]
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(await Raw.connect(port)) for _ in range(3)]
            await until(lambda: len(surface.connections) >= 3)
            for one in readers:
                small_buffers(surface, one)
                await one.send(script(text, bearer))
                connection = only(surface, one)
                await until(partial(is_answered, connection))
            assert 2 * MIB < surface.answers.of("root") <= 4 * MIB
            statuses = [(await one.answer()).status for one in readers]
            assert statuses == [200, 413, 413]
            await until(lambda: not surface.answers.total)
            await readers[1].send(script(text, bearer))
            assert (await readers[1].answer()).status == 200

    async def test_one_of_a_write_that_finds_no_room_says_what_stands(
        self, surface: HttpSurface, raw: Raw, bearer: str, node: Node
    ) -> None:
        surface.answers.most = 300_000
        assert (
            await raw.run("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main", bearer)
        ).status == 200
        text = f"DEFINE NAMESPACE other; RETURN ['{'x' * 400_000}']"
        answer = await raw.run(text, bearer)
        assert answer.status == 413 and answer.error["code"] == "AnswerTooLarge"
        assert answer.error["detail"]["committed"] == node.status().sequence
        assert (await raw.run("DEFINE NAMESPACE third; THROW 'no'", bearer)).error["detail"][
            "committed"
        ] == node.status().sequence

    async def test_of_keys_over_known_heads(
        self, surface: HttpSurface, raw: Raw, bearer: str, node: Node
    ) -> None:
        define = "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE SPACE s;"
        assert (
            await raw.run(f"{define} SET 'k' IN s VALUE '{'x' * 900_000}'", bearer)
        ).status == 200
        await until(lambda: not surface.answers.total)
        get = request("GET", "/kv/n/d/s/key/k", authorization=bearer)
        await raw.send(get)
        assert (await raw.answer()).status == 200
        connection = only(surface, raw)
        await raw.send(get * 40)
        await until(lambda: connection.outgoing.paused)
        await settled(connection)
        assert connection.outgoing.unsent < 2 * MIB
        assert surface.answers.of("root") >= connection.outgoing.unsent
        for _ in range(40):
            assert (await raw.answer()).status == 200

    async def test_who_is_nobody_is_cut_off(self, surface: HttpSurface) -> None:
        surface.answers.most = 60_000
        async with await Raw.connect(surface.address[1]) as raw:
            await until(lambda: surface.connections)
            small_buffers(surface, raw)
            sending = asyncio.create_task(raw.send(request("GET", "/openapi.json") * 500))
            await until(lambda: not surface.connections)
            sending.cancel()
