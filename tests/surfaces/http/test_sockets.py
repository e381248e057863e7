"""How a WebSocket begins: what is upgraded, what is refused and how that is told."""

from __future__ import annotations

import asyncio
import base64

import pytest

from actors.node import Node
from protocol import errors
from protocol.errors import CATALOGUE, LogPruned, NotAllowed
from surfaces.http import frames
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.conftest import LONG, PASSWORD, Serve, until
from tests.surfaces.http.raw import Answer, Raw, request, script
from tests.surfaces.http.sockets import (
    KEY,
    SPOKEN,
    Echo,
    Frame,
    Peer,
    asks,
    masked,
    nobody_before,
    surface,
    with_echo,
)

__all__ = ["nobody_before", "surface"]


@pytest.fixture
def token(bearer: str) -> str:
    return bearer.removeprefix("Bearer ")


async def test_a_request_is_upgraded(surface: HttpSurface, port: int, bearer: str) -> None:
    async with await Peer.connect(port, authorization=bearer) as peer:
        assert "content-length" not in peer.answer.fields
        assert "sec-websocket-protocol" not in peer.answer.fields
        assert peer.answer.fields["store-request"].startswith("r-")
        await peer.text("hello")
        assert await peer.frame() == Frame(frames.TEXT, b"hello")
        assert surface.sockets == 1
        assert surface.held == 2
        assert surface.running == 0
        await peer.send(masked(0x88, b"\x03\xe8"))
        assert await peer.rest() == [Frame(frames.CLOSE, b"\x03\xe8")]
    await until(lambda: not surface.sockets)
    assert Echo.told == ["opened", "parted 1000"]
    assert surface.counters.requests["GET", "/echo", 101] == 1


async def test_sockets_are_counted_and_run_nothing(serve: Serve, bearer: str) -> None:
    surface = await serve(connections=3, running=1)
    with_echo(surface)
    port = surface.address[1]
    async with (
        await Peer.connect(port, authorization=bearer),
        await Peer.connect(port, authorization=bearer),
        await Raw.connect(port) as raw,
    ):
        figures = (await raw.ask("GET", "/metrics")).body.decode()
        assert "store_http_connections 3.0" in figures
        assert "store_http_sockets 2.0" in figures
        assert "store_http_running 0.0" in figures
        async with await Raw.connect(port) as one_too_many:
            assert (await one_too_many.answer()).error["code"] == "Full"
        assert (await raw.ask("POST", "/script", b"RETURN 1;", authorization=bearer)).status == 200


async def test_frames_that_came_with_the_request_are_read(port: int, bearer: str) -> None:
    """A client should wait for the answer; one that does not has lost nothing."""
    async with await Raw.connect(port) as raw:
        early = masked(0x81, b"one") + masked(0x81, b"two")
        await raw.send(asks(authorization=bearer) + early[:5])
        await raw.send(early[5:])
        peer = Peer(raw)
        assert b"101 Switching" in await raw.reader.readuntil(b"\r\n\r\n")
        assert [await peer.frame(), await peer.frame()] == [
            Frame(frames.TEXT, b"one"),
            Frame(frames.TEXT, b"two"),
        ]


async def test_a_request_behind_an_upgrade_is_none(port: int, bearer: str) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(asks(authorization=bearer) + request("GET", "/health") * 3)
        peer = Peer(raw)
        assert b"101 Switching" in await raw.reader.readuntil(b"\r\n\r\n")
        told = await peer.rest()
        assert [frame.code for frame in told] == [frames.PROTOCOL_ERROR]


async def test_a_request_behind_a_refused_upgrade_is_none(port: int) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(asks() + request("GET", "/health") * 3)
        assert (await raw.answer()).error["code"] == "SignInRefused"
        assert await raw.rest() == b""


async def test_requests_before_an_upgrade_are_answered_first(port: int, bearer: str) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(script("RETURN 7;", bearer) + asks(authorization=bearer))
        assert (await raw.answer()).json["results"][0]["value"] == 7
        assert b"101 Switching" in await raw.reader.readuntil(b"\r\n\r\n")


async def test_what_comes_behind_an_upgrade_that_waits_is_bounded(
    node: Node, surface: HttpSurface, port: int, bearer: str
) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(script(LONG, bearer) + asks(authorization=bearer))
        await until(lambda: node.registry.unfinished)
        connection = next(one for one in surface.connections if one.queue)
        raw.writer.write(b"x" * (32 << 20))
        await until(lambda: not connection.transport.is_reading())
        assert 0 < len(connection.reading.behind or b"") <= 256 * 1024
        raw.writer.transport.abort()


def _without(field: str, **more: str | None) -> bytes:
    return asks(**{field: None, **more})


MALFORMED: dict[str, tuple[bytes, int]] = {
    "no upgrade": (_without("Upgrade"), 426),
    "no upgrade, no connection": (_without("Upgrade", Connection=None), 426),
    "upgrade to h2c": (asks(Upgrade="h2c"), 426),
    "upgrade to two": (asks(Upgrade="websocket, h2c"), 426),
    "upgrade twice": (asks().replace(b"Upgrade: ", b"Upgrade: websocket\r\nUpgrade: ", 1), 426),
    "no connection": (_without("Connection"), 400),
    "connection: keep-alive": (asks(Connection="keep-alive"), 400),
    "connection: close": (asks(Connection="close"), 400),
    "connection: part of a word": (asks(Connection="Upgrades"), 400),
    "HTTP/1.0": (asks().replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
    "no version": (_without("Sec-WebSocket-Version"), 400),
    "version 8": (asks(Sec_WebSocket_Version="8"), 426),
    "version 14": (asks(Sec_WebSocket_Version="14"), 426),
    "version 13.0": (asks(Sec_WebSocket_Version="13.0"), 426),
    "versions 13 and 8": (asks(Sec_WebSocket_Version="13, 8"), 426),
    "empty version": (asks(Sec_WebSocket_Version=""), 426),
    "no key": (_without("Sec-WebSocket-Key"), 400),
    "empty key": (asks(Sec_WebSocket_Key=""), 400),
    "key of 15 bytes": (asks(Sec_WebSocket_Key=base64.b64encode(bytes(15)).decode()), 400),
    "key of 17 bytes": (asks(Sec_WebSocket_Key=base64.b64encode(bytes(17)).decode()), 400),
    "key without padding": (asks(Sec_WebSocket_Key=KEY.rstrip("=")), 400),
    "key with too much padding": (asks(Sec_WebSocket_Key=KEY + "===="), 400),
    "key that is no base64": (asks(Sec_WebSocket_Key="!" + KEY[1:]), 400),
    "key that is no ASCII": (asks(Sec_WebSocket_Key="é" + KEY[1:]), 400),
    "two keys": (asks(Sec_WebSocket_Key=f"{KEY}, {KEY}"), 400),
    "a body": (asks(Content_Length="3") + b"abc", 400),
    "a body in chunks": (asks(Transfer_Encoding="chunked") + b"3\r\nabc\r\n0\r\n\r\n", 400),
    "HEAD": (asks().replace(b"GET", b"HEAD"), 426),
    "POST": (asks().replace(b"GET", b"POST"), 405),
    "another subprotocol": (asks(Sec_WebSocket_Protocol="chat"), 400),
    "subprotocol in capitals": (asks(Sec_WebSocket_Protocol=SPOKEN.upper()), 400),
    "a subprotocol twice": (asks(Sec_WebSocket_Protocol=f"{SPOKEN}, {SPOKEN}"), 400),
    "an empty subprotocol": (asks(Sec_WebSocket_Protocol=f"{SPOKEN},,a"), 400),
    "no subprotocol in the field": (asks(Sec_WebSocket_Protocol=""), 400),
    "subprotocol with a space": (asks(Sec_WebSocket_Protocol=f"{SPOKEN}, a b"), 400),
    "a token alone": (asks(Sec_WebSocket_Protocol="store.bearer.abc"), 400),
    "an empty token": (asks(Sec_WebSocket_Protocol=f"{SPOKEN}, store.bearer."), 400),
    "two tokens": (asks(Sec_WebSocket_Protocol=f"{SPOKEN}, store.bearer.a, store.bearer.b"), 400),
}


def wrongs(answer: Answer, status: int, *, body: bool) -> list[str]:
    """What is wrong with the answer to a malformed handshake."""
    found = []
    if answer.status != status:
        found.append(f"{answer.status}, not {status}")
    if body and CATALOGUE[answer.error["code"]].status != answer.status:
        found.append(f"{answer.error} with {answer.status}")
    upgrades = (answer.fields.get("upgrade"), answer.fields.get("sec-websocket-version"))
    if upgrades != (("websocket", "13") if status == 426 else (None, None)):
        found.append(f"{upgrades} with {status}")
    return found


async def test_a_malformed_handshake_is_refused(port: int, bearer: str) -> None:
    """Whoever sends it: what is wrong with it says nothing of a credential."""
    found = []
    credential = b"\r\nAuthorization: %s\r\n" % bearer.encode()
    for case, (data, status) in MALFORMED.items():
        for sent in (data, data.replace(b"\r\n", credential, 1)):
            async with await Raw.connect(port) as raw:
                await raw.send(sent)
                answer = await raw.answer("HEAD" if case == "HEAD" else "GET")
                found += [f"{case}: {what}" for what in wrongs(answer, status, body=case != "HEAD")]
                if answer.fields.get("connection") == "close":
                    found += [f"{case}: not closed"] * (await raw.rest() != b"")
    assert found == []
    assert Echo.told == []
    assert len(MALFORMED) >= 35


ALSO_GOOD: list[dict[str, str]] = [
    {"Upgrade": "WebSocket"},
    {"Connection": "keep-alive, Upgrade"},
    {"Connection": "UPGRADE"},
    {"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"},
    {"Sec_WebSocket_Extensions": "\x80;;="},
    {"Sec_WebSocket_Protocol": f"a, {SPOKEN},\tb"},
    {"Host": "127.0.0.1"},
]


async def test_a_handshake_may_look_otherwise(port: int, bearer: str) -> None:
    for fields in ALSO_GOOD:
        async with await Peer.connect(port, authorization=bearer, **fields) as peer:
            assert "sec-websocket-extensions" not in peer.answer.fields
            named = "Sec_WebSocket_Protocol" in fields
            assert peer.answer.fields.get("sec-websocket-protocol") == (SPOKEN if named else None)
            await peer.text("hello")
            assert await peer.frame() == Frame(frames.TEXT, b"hello")


def browser(token: str) -> str:
    """What a page offers that has a token."""
    return f"{SPOKEN}, store.bearer.{token}"


async def test_who_comes_with_each_credential(port: int, bearer: str, token: str) -> None:
    basic = base64.b64encode(f"root:{PASSWORD}".encode()).decode()
    for fields in (
        {"authorization": bearer},
        {"authorization": f"Basic {basic}"},
        {"sec_websocket_protocol": browser(token)},
    ):
        async with await Peer.connect(port, **fields) as peer:
            assert token not in str(peer.answer.fields)
            await peer.text("hello")
            assert await peer.frame() == Frame(frames.TEXT, b"hello")
            assert Echo.standing[-1].who.user == "root"


async def test_both_credentials_are_too_many(port: int, bearer: str, token: str) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(asks(authorization=bearer, sec_websocket_protocol=browser(token)))
        answer = await raw.answer()
        assert answer.status == 400
        assert token not in answer.body.decode()


async def test_who_is_nobody_is_refused_before_the_upgrade(port: int) -> None:
    for authorization in (None, "Bearer no", "Basic bm86bm8=", "Digest x"):
        async with await Raw.connect(port) as raw:
            await raw.send(asks(authorization=authorization))
            answer = await raw.answer()
            assert answer.status == 401
            assert answer.fields["www-authenticate"] == "Bearer"
            assert await raw.rest() == b""


async def told(peer: Peer) -> tuple[str, int | None, str]:
    """How an open socket was refused: the error's code, the close code and its reason."""
    error, close = await peer.frame(), await peer.frame()
    assert set(error.json) == {"type", "error"}
    assert error.json["type"] == "error"
    assert set(error.json["error"]) >= {"code", "message", "status", "retry", "detail", "request"}
    assert error.json["error"]["request"] == peer.answer.fields["store-request"]
    await peer.send(masked(0x88, close.payload))
    assert await peer.rest() == []
    return error.json["error"]["code"], close.code, close.payload[2:].decode()


async def test_a_browser_with_a_bad_token_is_told_on_the_socket(port: int) -> None:
    async with await Peer.connect(port, sec_websocket_protocol=browser("no")) as peer:
        assert peer.answer.fields["sec-websocket-protocol"] == SPOKEN
        assert await told(peer) == ("SessionEnded", 4401, "SessionEnded")
    assert Echo.told == []


REFUSALS = [
    errors.BadRequest("no"), NotAllowed("no", needs="SELECT"), errors.Unknown("no"),
    LogPruned("no", begins=7), errors.TooManyTries("no"), errors.Draining("no"),
]  # fmt: skip


async def test_a_refusal_is_told_where_it_can_be_heard(port: int, bearer: str, token: str) -> None:
    for refusal in REFUSALS:
        Echo.refused = refusal
        async with await Raw.connect(port) as raw:
            await raw.send(asks(authorization=bearer))
            answer = await raw.answer()
            assert (answer.status, answer.error["code"]) == (refusal.status, refusal.code)
            assert answer.error["detail"] == refusal.detail
        async with await Peer.connect(port, sec_websocket_protocol=browser(token)) as peer:
            assert await told(peer) == (refusal.code, 4000 + refusal.status, refusal.code)
    assert Echo.told == []


async def test_the_node_is_full_of_what_runs(
    serve: Serve, node: Node, bearer: str, token: str
) -> None:
    surface = await serve(running=1)
    with_echo(surface)
    port = surface.address[1]
    async with await Raw.connect(port) as busy, await Raw.connect(port) as raw:
        await busy.send(script(LONG, bearer))
        await until(lambda: node.registry.unfinished)
        await raw.send(asks(authorization=bearer))
        assert (await raw.answer()).error["code"] == "Busy"
        async with await Peer.connect(port, sec_websocket_protocol=browser(token)) as peer:
            assert await told(peer) == ("Busy", 4503, "Busy")
        assert surface.running == 1


async def test_a_node_that_stops_opens_none(serve: Serve, bearer: str, token: str) -> None:
    surface = await serve()
    with_echo(surface)
    port = surface.address[1]
    async with await Raw.connect(port) as raw, await Raw.connect(port) as page:
        for one in (raw, page):
            assert (await one.ask("GET", "/health")).status == 200
        surface.stop_accepting()
        await raw.send(asks(authorization=bearer))
        assert (await raw.answer()).error["code"] == "Draining"
        peer = Peer(page)
        await peer.upgrade(sec_websocket_protocol=browser(token))
        assert await told(peer) == ("Draining", 4503, "Draining")


FOREIGN = [
    {"Origin": "https://other.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Origin": "file://"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "cross-site", "Origin": "https://other.example"},
]


async def test_a_page_of_another_site_opens_none(port: int, bearer: str, token: str) -> None:
    """Also where its token is good, and not on an open socket: it gets none."""
    for fields in FOREIGN:
        for credential in ({"authorization": bearer}, {"sec_websocket_protocol": browser(token)}):
            async with await Raw.connect(port) as raw:
                await raw.send(asks(**credential, **fields))
                answer = await raw.answer()
                assert (answer.status, answer.error["code"]) == (403, "ForeignOrigin")
    assert Echo.told == []


async def test_pages_of_the_node_and_of_declared_origins_do(
    raw: Raw, port: int, bearer: str, token: str
) -> None:
    declared = script("DEFINE NODE ORIGINS 'https://app.example';", bearer)
    await raw.send(declared)
    assert (await raw.answer()).status == 200
    for fields in (
        {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"},
        {"Host": f"localhost:{port}", "Origin": f"http://LOCALHOST:{port}"},
        {"Origin": "https://app.example"},
        {"Origin": "https://app.example", "Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-origin"},
    ):
        async with await Peer.connect(
            port, sec_websocket_protocol=browser(token), **fields
        ) as peer:
            await peer.text("hello")
            assert await peer.frame() == Frame(frames.TEXT, b"hello")


async def test_an_unknown_host_opens_none(port: int, bearer: str) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(asks(Host="other.example", authorization=bearer))
        assert (await raw.answer()).status == 421


async def test_a_client_that_leaves_while_it_is_judged(
    surface: HttpSurface, port: int, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging, gone = asyncio.Event(), asyncio.Event()

    async def admit(_self: Echo, _who: object) -> None:
        judging.set()
        await gone.wait()

    monkeypatch.setattr(Echo, "admit", admit)
    async with await Raw.connect(port) as raw:
        await raw.send(asks(authorization=bearer))
        await judging.wait()
    await until(lambda: len(surface.connections) == 1)
    assert surface.running == 1
    gone.set()
    await until(lambda: surface.running == 0)
    assert Echo.told == []


async def test_a_node_that_stops_while_it_is_judged(
    surface: HttpSurface, port: int, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging, stopped = asyncio.Event(), asyncio.Event()

    async def admit(_self: Echo, _who: object) -> None:
        judging.set()
        await stopped.wait()

    monkeypatch.setattr(Echo, "admit", admit)
    async with await Raw.connect(port) as raw:
        await raw.send(asks(authorization=bearer))
        await judging.wait()
        surface.stop_accepting()
        stopped.set()
        assert (await raw.answer()).error["code"] == "Draining"
    assert Echo.told == []
