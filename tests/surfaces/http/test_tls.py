"""HTTPS, by a context given in."""

from __future__ import annotations

from surfaces.http import console
from surfaces.http.shared import Deadlines
from tests.certificates import Contexts
from tests.surfaces.http.conftest import Serve, until
from tests.surfaces.http.raw import Raw, request


async def test_requests_over_tls(serve: Serve, contexts: Contexts) -> None:
    surface = await serve(tls=contexts[0])
    async with await Raw.connect(surface.address[1], contexts[1]) as raw:
        for _ in range(3):
            assert (await raw.ask("GET", "/health")).status == 200
        await raw.send(b"GET / HTTP/9.9\r\n\r\n" + request("GET", "/health"))
        assert (await raw.answer()).status in (400, 505)
        assert await raw.rest() == b""
    await until(lambda: not surface.connections)


async def test_nothing_is_compressed_over_tls(serve: Serve, contexts: Contexts) -> None:
    for tls, encoding in ((None, "gzip"), (contexts[0], None)):
        surface = await serve(tls=tls)
        async with await Raw.connect(surface.address[1], tls and contexts[1]) as raw:
            for path in ("/", f"/console/{console.HASH}/main.js"):
                answer = await raw.ask("GET", path, accept_encoding="gzip")
                assert answer.fields.get("content-encoding") == encoding


async def test_a_handshake_that_never_comes_is_cut(serve: Serve, contexts: Contexts) -> None:
    surface = await serve(tls=contexts[0], deadlines=Deadlines(tls_s=0.2))
    async with await Raw.connect(surface.address[1]) as raw:
        assert await raw.rest() == b""


async def test_plain_http_on_the_tls_port_is_refused_in_clear(
    serve: Serve, contexts: Contexts
) -> None:
    surface = await serve(tls=contexts[0])
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(request("GET", "/health"))
        assert (await raw.rest()).startswith(b"HTTP/1.1 400 ")
    async with await Raw.connect(surface.address[1], contexts[1]) as raw:
        assert (await raw.ask("GET", "/health")).status == 200


async def test_closing_with_a_handshake_under_way(serve: Serve, contexts: Contexts) -> None:
    surface = await serve(tls=contexts[0])
    async with await Raw.connect(surface.address[1]) as raw:
        await until(lambda: surface.counters.connections == 0)
        await surface.close()
        assert await raw.rest() == b""
