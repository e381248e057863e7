"""A socket that stands: what is sent on it, peers that are slow, silent or gone, and its end."""

from __future__ import annotations

import asyncio
import math
import socket as sockets
import struct
from collections.abc import AsyncIterator, Iterable
from itertools import repeat
from typing import cast

import pytest

from protocol import limits
from protocol.errors import Draining, NotAllowed, Refusal
from surfaces.http import frames
from surfaces.http.connection import HttpConnection
from surfaces.http.shared import Deadlines
from surfaces.http.stream import READ_AHEAD
from surfaces.http.surface import CHECKS_A_SECOND, HttpSurface
from surfaces.http.websocket import text_frame
from tests.certificates import Contexts
from tests.logbook import Logbook
from tests.surfaces.http.conftest import Serve, until
from tests.surfaces.http.sockets import Echo, Frame, Peer, masked, nobody_before, surface, with_echo
from tests.surfaces.http.test_bounds import small_buffers

__all__ = ["nobody_before", "surface"]

GOODBYE = masked(0x88, b"\x03\xe8")


async def standing(number: int = 1) -> list[Echo]:
    await until(lambda: len(Echo.standing) == number)
    return Echo.standing


@pytest.fixture
async def peer(port: int, bearer: str) -> AsyncIterator[Peer]:
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        await standing()
        yield peer


@pytest.fixture
def one(peer: Peer) -> Echo:
    return Echo.standing[0]


# --- what is sent -------------------------------------------------------------------------------


def test_frames_take_the_fewest_bytes() -> None:
    for size, head in (
        (0, b"\x81\x00"), (1, b"\x81\x01"), (125, b"\x81\x7d"), (126, b"\x81\x7e\x00\x7e"),
        (65_535, b"\x81\x7e\xff\xff"), (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ):  # fmt: skip
        assert text_frame(b"*" * size) == head + b"*" * size
    assert frames.close_frame(None) == b"\x88\x00"
    assert frames.close_frame(1000) == b"\x88\x02\x03\xe8"
    cut = frames.close_frame(1000, "é" * 100)
    assert cut == b"\x88\x7c\x03\xe8" + "é".encode() * 61
    assert len(frames.close_frame(1000, "*" * 200)) == 2 + 125


async def test_what_is_sent_to_nobody(peer: Peer, one: Echo) -> None:
    assert stands(one)
    await peer.send(GOODBYE)
    await peer.rest()
    await until(lambda: not Echo.standing)
    assert not one.send(text_frame(b"hello"))
    assert not stands(one)
    assert not choked(one)
    assert one.buffered == 0
    one.end(1000)
    one.refuse(NotAllowed("no"))


async def test_a_refusal_on_an_open_socket(peer: Peer, one: Echo) -> None:
    one.refuse(NotAllowed("no more", needs="SELECT"))
    error, close = await peer.frame(), await peer.frame()
    assert error.json["error"]["code"] == "NotAllowed"
    assert error.json["error"]["detail"] == {"needs": "SELECT"}
    assert (close.code, close.payload[2:]) == (4403, b"NotAllowed")
    assert not one.send(text_frame(b"hello"))
    await peer.send(masked(0x88, close.payload))
    assert await peer.rest() == []
    await until(lambda: not Echo.standing)
    assert Echo.told == ["opened", "parted 4403"]


@pytest.mark.parametrize("raised", [NotAllowed("no"), ZeroDivisionError("no")])
async def test_what_a_route_raises_ends_its_socket_alone(
    serve: Serve, bearer: str, raised: Exception, monkeypatch: pytest.MonkeyPatch,
    logbook: Logbook,
) -> None:  # fmt: skip
    surface = await serve(deadlines=Deadlines(close_s=0.1))
    with_echo(surface)
    port = surface.address[1]
    refused = isinstance(raised, Refusal)
    logbook.allow("request failed")
    expected = [4403] if refused else [1011]

    def fails(*_args: object) -> None:
        raise raised

    async def awaited(*_args: object) -> None:
        raise raised

    async with await Peer.connect(port, None, authorization=bearer) as other:
        await standing()
        for name, hook in (("received", awaited), ("opened", fails), ("has_room", fails)):
            with monkeypatch.context() as patched:
                patched.setattr(Echo, name, hook)
                async with await Peer.connect(port, None, authorization=bearer) as peer:
                    if name == "received":
                        await peer.text("hello")
                    elif name == "has_room":
                        stream = connection_of((await standing(2))[-1]).stream
                        assert stream is not None
                        stream.room()
                    told = await peer.rest()
                    assert [frame.code for frame in told if frame.opcode == 8] == expected
                    assert len(told) == (2 if refused else 1)
                await standing(1)
        await other.text("hello")
        assert await other.frame() == Frame(frames.TEXT, b"hello")
        await other.send(GOODBYE)
        await other.rest()
    await until(lambda: not Echo.standing)
    assert logbook.names().count("request failed") == (0 if refused else 3)


async def test_a_route_that_fails_at_the_end(
    surface: HttpSurface, port: int, bearer: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("request failed")
    monkeypatch.setattr(Echo, "opened", lambda _one: None)
    monkeypatch.setattr(Echo, "parted", lambda _one, _code: 1 // 0)
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        await peer.send(GOODBYE)
        assert [frame.code for frame in await peer.rest()] == [1000]
    await until(lambda: not surface.sockets)
    await until(lambda: "request failed" in logbook.names())


async def test_how_a_route_hears_of_the_end(port: int, bearer: str) -> None:
    for said, code in (
        (masked(0x88), 1005),
        (masked(0x88, b"\x0f\xa0bye"), 4000),
        (masked(0x88, b"\x00"), 1006),
        (masked(0xFF), 1006),
        (b"", 1006),
    ):
        Echo.told.clear()
        async with await Peer.connect(port, None, authorization=bearer) as peer:
            await peer.send(said)
            await standing()
        await until(lambda: len(Echo.told) == 2)
        assert Echo.told == ["opened", f"parted {code}"]


# --- slow peers ---------------------------------------------------------------------------------

MIB = 1024 * 1024


def fill(one: Echo, size: int = 8 * MIB) -> bytes:
    """Send until so much of it waits in the node. Answers all that was sent."""
    frame = text_frame(b"*" * 65_536)
    sent = bytearray()
    while one.buffered < size:
        assert one.send(frame)
        sent += frame
    return bytes(sent)


async def read(peer: Peer, sent: bytes) -> None:
    """Take what waits for a slow one: by itself a client reads no more than 128 KiB."""
    assert await peer.raw.reader.readexactly(len(sent)) == sent


async def read_some(peer: Peer, one: Echo) -> bytes:
    """Take of it until less waits in the node."""
    taken, waits = bytearray(), one.buffered
    assert waits
    while one.buffered >= waits:
        taken += await peer.raw.reader.read(65_536)
    return bytes(taken)


def choked(one: Echo) -> bool:
    return one.choked


def stands(one: Echo) -> bool:
    return one.open_still


def by_hand(surface: HttpSurface) -> float:
    """From here on a test alone looks at deadlines, at times of its own. Answers the present."""
    assert surface._timer is not None
    surface._timer.cancel()
    return math.ceil(surface.loop.time() * 1024) / 1024  # so that sums with it are exact


def connection_of(one: Echo) -> HttpConnection:
    return cast(HttpConnection, one.exchange.connection)


async def test_a_slow_reader_is_told_of_and_counted(
    surface: HttpSurface, peer: Peer, one: Echo
) -> None:
    assert (one.buffered, choked(one)) == (0, False)
    sent = fill(one)
    assert choked(one)
    assert one.buffered >= 8 * MIB
    await until(lambda: surface.answers.of("root") >= one.buffered)  # when this turn has ended
    assert surface.answers.of("root") >= 7 * MIB
    assert Echo.told == ["opened"]
    await read(peer, sent)
    await until(lambda: Echo.told == ["opened", "room"])
    assert not choked(one)
    assert one.buffered == 0
    assert surface.answers.of("root") == 0


async def test_a_peer_that_takes_nothing_is_cut(surface: HttpSurface, one: Echo) -> None:
    connection = connection_of(one)
    fill(one)
    now = by_hand(surface)
    connection.check(now)
    connection.check(now + limits.WRITE_SECONDS - 0.1)
    assert stands(one)
    connection.check(now + limits.WRITE_SECONDS)
    await until(lambda: Echo.told[-1] == "parted 1006")
    assert surface.answers.of("root") == 0


async def test_a_peer_that_takes_less_than_is_sent_is_not(
    surface: HttpSurface, peer: Peer, one: Echo
) -> None:
    """More waits each time that it is looked at, and yet it reads."""
    connection = connection_of(one)
    now = by_hand(surface)
    sent, taken = fill(one), b""
    for _ in range(5):
        waits = one.buffered
        now += limits.WRITE_SECONDS - 1
        connection.check(now)
        assert stands(one)
        taken += await read_some(peer, one)
        sent += fill(one, waits + MIB)
    assert sent.startswith(taken)
    await read(peer, sent[len(taken) :])


async def test_room_goes_by_user(surface: HttpSurface, peer: Peer, one: Echo) -> None:
    """Where others of its user hold all that there is, one socket may not send more either."""
    rest = surface.answers.most // 2 - 2 * MIB
    assert surface.answers.take("root", rest)
    sent = fill(one, 4 * MIB)
    connection = connection_of(one)
    outgoing = connection.outgoing
    over = [outgoing.over]
    surface.answers.give_back_bytes("root", rest)
    connection.check(surface.loop.time())
    assert [*over, outgoing.over] == [True, False]
    assert choked(one)  # by itself
    await read(peer, sent)
    await until(lambda: "room" in Echo.told)


async def test_pings_of_who_reads_no_pongs_cost_nothing(
    surface: HttpSurface, peer: Peer, one: Echo
) -> None:
    small_buffers(surface, peer.raw)  # else the system takes all of it while the pings come
    sent = fill(one, MIB)
    waits, before = one.buffered, Echo.echoed
    for number in range(2_000):
        await peer.send(masked(0x89, b"%d" % number))
    await peer.text("hello")
    await until(lambda: Echo.echoed > before)
    assert one.buffered < waits + 100
    await read(peer, sent)
    told, wanted = list[Frame](), {Frame(frames.TEXT, b"hello"), Frame(frames.PONG, b"1999")}
    while not wanted <= set(told):
        told.append(await peer.frame())
    assert len(told) < 10


# --- what comes ---------------------------------------------------------------------------------


async def test_half_a_message_counts(surface: HttpSurface, peer: Peer, one: Echo) -> None:
    half = masked(0x01, b"*" * 30_000)
    await peer.send(half)
    await until(lambda: surface.requests.of("root") >= 28_000)
    whole = masked(0x80, b"*" * 30_000)
    await peer.send(whole[:20_000])
    await until(lambda: surface.requests.of("root") >= 48_000)
    await peer.send(whole[20_000:])
    assert await peer.frame() == Frame(frames.TEXT, b"*" * 60_000)
    await until(lambda: surface.requests.of("root") == 0)
    assert stands(one)


async def test_half_a_message_is_let_go_with_the_conversation(
    surface: HttpSurface, port: int, bearer: str
) -> None:
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        await peer.send(masked(0x01, b"*" * 30_000) + b"\x80")
        await until(lambda: surface.requests.of("root"))
        await peer.send(b"\x00")  # no mask
        assert (await peer.frame()).code == frames.PROTOCOL_ERROR
        assert surface.requests.of("root") == 0


async def test_where_there_is_no_room_for_it(surface: HttpSurface, port: int, bearer: str) -> None:
    assert surface.requests.take("root", surface.requests.most // 2)
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        await peer.text("hello")
        assert await peer.frame() == Frame(frames.TEXT, b"hello")
        await peer.send(masked(0x01, b"*" * 30_000) + b"\x80")
        assert [frame.code for frame in await peer.rest()] == [frames.TRY_LATER]
    surface.requests.give_back_bytes("root", surface.requests.most // 2)


async def test_no_more_is_read_than_is_worked_on(
    surface: HttpSurface, port: int, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    async def received(_self: Echo, _message: object) -> None:
        await goes_on.wait()

    monkeypatch.setattr(Echo, "received", received)
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        (one,) = await standing()
        connection = connection_of(one)
        flood = b"".join(masked(0x82, b"*" * 60_000) for _ in range(10)) * 20
        peer.raw.writer.write(flood)
        await until(lambda: not connection.transport.is_reading())
        assert connection.stream is not None
        assert len(connection.stream._received) <= READ_AHEAD + 256 * 1024
        goes_on.set()
        await peer.send(GOODBYE)
        assert [frame.code for frame in await peer.rest()] == [1000]


# --- peers that are silent, or gone -------------------------------------------------------------


class Hours:
    """Time that passes for one connection."""

    def __init__(self, surface: HttpSurface, one: Echo) -> None:
        self.connection = connection_of(one)
        self.now = by_hand(surface)
        self.passed = 0.0

    async def pass_by(self, seconds: float) -> None:
        """Look at the deadlines as often as the surface does."""
        for _ in range(round(seconds * CHECKS_A_SECOND)):
            self.passed += 1 / CHECKS_A_SECOND
            self.connection.check(self.now + self.passed)
            await asyncio.sleep(0)


async def test_a_peer_that_vanished_is_noticed(surface: HttpSurface, peer: Peer, one: Echo) -> None:
    hours = Hours(surface, one)
    await hours.pass_by(limits.PING_SECONDS + limits.PONG_SECONDS - 1)
    assert stands(one)
    await hours.pass_by(2)
    assert not stands(one)
    assert hours.passed <= 75
    await until(lambda: Echo.told[-1] == "parted 1006")
    assert [frame.opcode for frame in await peer.rest()] == [frames.PING]


PART = masked(0x81, b"*" * 65_536)
SIGNS: dict[str, Iterable[bytes]] = {
    "pong": repeat(masked(0x8A)),
    "byte of a message": (PART[at : at + 1] for at in range(len(PART))),
}


@pytest.mark.parametrize("given", SIGNS)
async def test_one_that_gives_signs_of_life_stays_for_ever(
    surface: HttpSurface, peer: Peer, one: Echo, given: str
) -> None:
    """An answer to a ping, whatever it holds, or anything else."""
    stream = connection_of(one).stream
    assert stream is not None
    hours = Hours(surface, one)
    for sign in SIGNS[given]:
        await hours.pass_by(limits.PING_SECONDS + 1)
        while (await peer.frame()).opcode != frames.PING:
            pass  # its own message
        await peer.send(sign)
        await until(lambda: stream._heard or not stream._awaits_pong)
        if hours.passed > 3_600:
            break
    assert stands(one)


async def test_a_slow_peer_is_not_taken_for_one_that_vanished(
    surface: HttpSurface, peer: Peer, one: Echo
) -> None:
    """It can't answer a ping that stands behind what it has not read."""
    connection = connection_of(one)
    now = by_hand(surface)
    connection.check(now + limits.PING_SECONDS)
    sent, taken = frames.PING_FRAME + fill(one, 16 * MIB), b""
    for _ in range(3):
        now += limits.WRITE_SECONDS - 1
        connection.check(now)
        assert stands(one)
        taken += await read_some(peer, one)
    assert one.buffered
    assert sent.startswith(taken)
    await read(peer, sent[len(taken) :])
    now += limits.PONG_SECONDS - 1  # from here on an answer is due
    connection.check(now)
    assert stands(one)


async def test_a_peer_that_resets(peer: Peer, one: Echo) -> None:
    socket = peer.raw.writer.transport.get_extra_info("socket")
    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    peer.raw.writer.transport.abort()
    await until(lambda: Echo.told == ["opened", "parted 1006"])
    assert not one.send(text_frame(b"hello"))


# --- the end ------------------------------------------------------------------------------------


async def test_a_goodbye_comes_behind_what_is_buffered(peer: Peer, one: Echo) -> None:
    sent = fill(one)
    one.end(4408, "too slow")
    one.end(4000, "again")
    await read(peer, sent)
    close = await peer.frame()
    assert (close.code, close.payload[2:]) == (4408, b"too slow")
    assert one in Echo.standing
    await peer.send(masked(0x88, close.payload))
    assert await peer.rest() == []
    await until(lambda: "parted 4408" in Echo.told)


async def test_a_peer_that_says_no_goodbye_is_cut(
    surface: HttpSurface, peer: Peer, one: Echo
) -> None:
    one.end(1000)
    connection, now = connection_of(one), by_hand(surface)
    assert (await peer.frame()).code == 1000
    connection.check(now)
    connection.check(now + limits.CLOSE_SECONDS - 0.1)
    await peer.text("still here")
    over = [connection.closing]
    connection.check(now + limits.CLOSE_SECONDS)
    assert [*over, connection.closing] == [False, True]
    assert await peer.rest() == []
    await until(lambda: Echo.told == ["opened", "parted 1006"])


@pytest.mark.parametrize("polite", [True, False])
async def test_a_drain_waits_for_goodbyes(serve: Serve, bearer: str, *, polite: bool) -> None:
    surface = await serve(deadlines=Deadlines(linger_s=0.2, close_s=0.5))
    with_echo(surface)
    async with await Peer.connect(surface.address[1], None, authorization=bearer) as peer:
        await standing()
        surface.stop_accepting()
        await peer.text("hello")  # what stands goes on until the drain begins
        assert await peer.frame() == Frame(frames.TEXT, b"hello")
        draining = asyncio.create_task(surface.drain())
        assert (await peer.frame()).code == frames.GOING_AWAY
        assert surface._busy() == 1
        assert not draining.done()
        if polite:
            await peer.send(masked(0x88, b"\x03\xe9"))
        assert await peer.rest() == []
        assert await draining == 0
    await until(lambda: not Echo.standing)
    assert Echo.told == ["opened", "parted 1001" if polite else "parted 1006"]


async def test_a_socket_that_is_not_open_yet_hears_of_nothing(peer: Peer, one: Echo) -> None:
    stream = connection_of(one).stream
    assert stream is not None
    watcher, stream.watcher = stream.watcher, None
    stream.leave()
    stream.room()
    stream.watcher = watcher
    await peer.send(GOODBYE)
    assert (await peer.frame()).code == 1000
    await until(lambda: not Echo.standing)
    assert Echo.told == ["opened", "parted 1000"]


async def test_a_route_says_how_it_leaves(
    surface: HttpSurface, port: int, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Echo, "leaving", lambda one: one.refuse(Draining("the node is stopping")))
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        await standing()
        await surface.close()
        told = await peer.rest()
        assert told[0].json["error"]["code"] == "Draining"
        assert [frame.code for frame in told[1:]] == [4503]


async def test_a_surface_that_closes_waits_for_nobody(
    surface: HttpSurface, peer: Peer, one: Echo
) -> None:
    fill(one)
    await surface.close()
    assert not surface.connections
    await until(lambda: not Echo.standing)
    peer.raw.writer.transport.abort()


# --- over TLS -----------------------------------------------------------------------------------


async def test_over_tls(serve: Serve, contexts: Contexts, bearer: str) -> None:
    server, client = contexts
    surface = await serve(tls=server)
    with_echo(surface)
    port = surface.address[1]
    async with await Peer.connect(port, client, authorization=bearer) as peer:
        await peer.text("hello")
        assert await peer.frame() == Frame(frames.TEXT, b"hello")
        await peer.raw.trickle(masked(0x81, "κόσμε".encode()))
        assert await peer.frame() == Frame(frames.TEXT, "κόσμε".encode())
        await peer.send(masked(0xC1, b"hello"))
        assert [frame.code for frame in await peer.rest()] == [frames.PROTOCOL_ERROR]
    await until(lambda: not Echo.standing)
    async with await Peer.connect(port, client, authorization=bearer) as peer:
        await peer.send(GOODBYE)
        assert [frame.code for frame in await peer.rest()] == [1000]
    await until(lambda: not surface.connections)


async def test_one_long_frame_over_tls_waits_until_it_is_taken(
    serve: Serve, contexts: Contexts, bearer: str
) -> None:
    """It is encrypted at once, and then waits where the transport itself does not look."""
    server, client = contexts
    surface = await serve(tls=server)
    with_echo(surface)
    peer = await Peer.connect(surface.address[1], client, authorization=bearer)
    (one,) = await standing()
    now = by_hand(surface)
    frame = text_frame(b"*" * (32 * MIB))
    assert one.send(frame)
    assert one.buffered >= 16 * MIB
    assert surface.answers.of("root") >= one.buffered
    connection_of(one).check(now)
    connection_of(one).check(now + limits.WRITE_SECONDS - 0.1)
    assert stands(one)
    connection_of(one).check(now + limits.WRITE_SECONDS)
    await until(lambda: Echo.told[-1] == "parted 1006")
    peer.raw.writer.transport.abort()
