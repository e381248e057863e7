"""The ceilings on connections and running requests, and the end of descriptors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import resource
import socket
from collections.abc import Iterator

from actors.node import Node
from tests.logbook import Logbook
from tests.surfaces.http.conftest import LONG, Serve, until
from tests.surfaces.http.raw import Raw, request, script


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_too_many_running_is_busy_and_the_connection_stays(
    serve: Serve, node: Node, bearer: str
) -> None:
    surface = await serve(running=2)
    port = surface.address[1]
    async with await Raw.connect(port) as one, await Raw.connect(port) as raw:
        async with await Raw.connect(port) as two:
            await one.send(script(LONG, bearer))
            await two.send(script(LONG, bearer))
            await until(lambda: node.registry.unfinished == 2)
            busy = await raw.run("RETURN 1;", bearer)
            assert (busy.status, busy.error["code"], busy.error["retry"]) == (503, "Busy", True)
            assert busy.fields["retry-after"] == "1"
            assert "connection" not in busy.fields
            for path, status in (("/health", 200), ("/metrics", 200), ("/ready", 503)):
                assert (await raw.ask("GET", path)).status == status
            assert (await raw.ask("GET", "/ready")).json["reason"] == "full"
        await until(lambda: surface.running == 1)
        assert (await raw.run("RETURN 1;", bearer)).status == 200


async def test_who_runs_little_is_let_in_where_another_has_taken_all(
    serve: Serve, node: Node, bearer: str
) -> None:
    surface = await serve(running=2)
    port = surface.address[1]
    async with await Raw.connect(port) as one, await Raw.connect(port) as raw:
        password = "a password of hers"
        define = f"DEFINE USER eve ROLE owner PASSWORD '{password}'"
        assert (await raw.run(define, bearer)).status == 200
        signed_in = await raw.post("/session", {"user": "eve", "password": password})
        hers = f"Bearer {signed_in.json['token']}"
        async with await Raw.connect(port) as two:
            await one.send(script(LONG, bearer))
            await two.send(script(LONG, bearer))
            await until(lambda: node.registry.unfinished == 2)
            for credential, status in ((hers, 200), (bearer, 503), (hers, 200)):
                assert (await raw.run("RETURN 1;", credential)).status == status
            assert (await raw.run("RETURN 1;", basic("eve", password))).status == 503, (
                "nobody knows yet that it is her"
            )
        await until(lambda: surface.running == 1)
        assert (await raw.run("RETURN 1;", basic("eve", password))).status == 200
        async with await Raw.connect(port) as two:
            await two.send(script(LONG, bearer))
            await until(lambda: node.registry.unfinished == 2)
            assert (await raw.run("RETURN 1;", basic("eve", password))).status == 200
    await until(lambda: surface.admission.begun == 0)
    assert surface.admission._begun_of == {}


async def test_an_owner_sees_and_ends_what_runs_where_there_is_no_room(
    serve: Serve, node: Node, bearer: str
) -> None:
    surface = await serve(running=2)
    port = surface.address[1]
    async with await Raw.connect(port) as one, await Raw.connect(port) as two:
        await one.send(script(LONG, bearer))
        await two.send(script(LONG, bearer))
        await until(lambda: node.registry.unfinished == 2)
        async with await Raw.connect(port) as raw:
            for form in ("INFO FOR RUNNING", {"script": "INFO FOR RUNNING"}):
                shown = (await raw.run(form, bearer)).json["results"][0]["value"]
                assert len(shown) == 3, "and itself"
            for text in (
                "RETURN 1",
                "INFO FOR RUNNING; RETURN 1",
                "INFO FOR NODE",
                "KILL (SELECT VALUE id FROM thing)[0]",
                "INFO FOR RUNNING;" * 100,
                "INFO FOR RUNNING (",
            ):
                assert (await raw.run(text, bearer)).error["code"] == "Busy", text
            assert (await raw.run("INFO FOR RUNNING", "not a token of anybody")).status == 401
            assert surface.admission.beside == 0 and surface.running == 2
            (id,) = [run["id"] for run in shown[:1]]
            kill = {"script": "KILL $id", "params": {"id": id}}
            assert (await raw.run(kill, bearer)).status == 200
            await until(lambda: surface.running == 1)
            assert (await raw.run("RETURN 1", bearer)).status == 200


async def test_so_many_are_let_in_beside_and_no_more(serve: Serve, node: Node, bearer: str) -> None:
    surface = await serve(running=1)
    port = surface.address[1]
    async with await Raw.connect(port) as one, await Raw.connect(port) as raw:
        await one.send(script(LONG, bearer))
        await until(lambda: node.registry.unfinished == 1)
        surface.admission.beside += 1
        surface.admission.begun += 1
        assert (await raw.run("INFO FOR RUNNING", bearer)).error["code"] == "Busy"
        surface.admission.beside -= 1
        surface.admission.begun -= 1
        assert (await raw.run("INFO FOR RUNNING", bearer)).status == 200


async def test_too_many_connections_are_told_and_closed(serve: Serve) -> None:
    surface = await serve(connections=3)
    port = surface.address[1]
    async with contextlib.AsyncExitStack() as stack:
        held = [await stack.enter_async_context(await Raw.connect(port)) for _ in range(3)]
        await until(lambda: len(surface.connections) == 3)
        async with await Raw.connect(port) as raw:
            full = await raw.ask("GET", "/health")
            assert (full.status, full.error["code"]) == (503, "Full")
            assert full.fields["retry-after"] == "1"
            assert full.fields["connection"] == "close"
            assert await raw.rest() == b""
        assert (await held[0].ask("GET", "/health")).status == 200
        held[0].writer.close()
        await until(lambda: len(surface.connections) == 2)
        async with await Raw.connect(port) as raw:
            assert (await raw.ask("GET", "/health")).status == 200
    assert surface.counters.refused_connections == 1


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_descriptors_a_connection_is_refused_and_nothing_spins(
    serve: Serve, logbook: Logbook
) -> None:
    logbook.allow("out of file descriptors")
    surface = await serve()
    loop = asyncio.get_running_loop()
    # The client's own descriptor has to be there before the last one is gone.
    client = socket.socket()
    client.setblocking(False)
    with no_descriptor_left():
        await loop.sock_connect(client, surface.address)
        with contextlib.suppress(OSError):
            await loop.sock_sendall(client, request("GET", "/health"))
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := await loop.sock_recv(client, 65_536):
                received += part
    client.close()
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"Full"' in received
    assert b"Retry-After: 1\r\n" in received
    assert surface.counters.refused_connections == 1
    async with await Raw.connect(surface.address[1]) as raw:
        assert (await raw.ask("GET", "/health")).status == 200
