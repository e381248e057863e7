"""Heads that are known are not parsed again: every answer must be the one that llhttp's reading of
the same bytes gives. Requests broken at random go to two connections of one surface's code, one
that knows heads and one that never does."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from actors.node import Node
from actors.runtime import ask
from protocol.requests import SignIn
from protocol.spaces import DeleteKey, KeyOperation, SetKey
from surfaces.http import reading as reading_module
from surfaces.http.connection import HttpConnection
from surfaces.http.header_cache import MISSES, HeaderCache
from surfaces.http.surface import HttpSurface
from tests.keys import ask_keys
from tests.logbook import Logbook
from tests.surfaces.http.conftest import PASSWORD, Serve, until
from tests.surfaces.http.raw import Raw
from tests.surfaces.http.test_spaces import BASE, OWNER, run

SEED = 20261121
CASES = 250
MANY_CASES = 2_000
PORT = 40_000


class Kept(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", PORT)})
        self.sent = b""
        self.ended = self.aborted = False

    def write(self, data: Any) -> None:
        self.sent += data

    def write_eof(self) -> None:
        self.ended = True

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = self.aborted = True


async def told(surface: HttpSurface, parts: list[bytes]) -> tuple[bytes, bool]:
    """All that a connection answers to these reads, and whether it ended then. What differs from
    one request to the next anyway is masked."""
    connection, transport = HttpConnection(surface), Kept()
    connection.connection_made(transport)
    try:
        for part in parts:
            connection.data_received(part)
        # What a connection that failed has queued is answered no more: it is cut.
        while not transport.aborted and (
            connection.queue or connection.current is not None or connection.unsent
        ):
            await asyncio.sleep(0)
        return masked(transport.sent), transport.ended
    finally:
        connection.connection_lost(None)


def masked(sent: bytes) -> bytes:
    """Without names of requests, lengths that they have a part in, and the time."""
    sent = re.sub(rb"(\xa7request.|\b)r-[0-9a-f]+", b"r-", sent, flags=re.DOTALL)
    sent = re.sub(rb"Content-Length: \d+", b"Content-Length: n", sent)
    sent = re.sub(rb'"seq":\d+|\xa3seq(\xcd..|\xcc?.)', b"", sent, flags=re.DOTALL)
    sent = re.sub(rb".(1h|[1-5]?[0-9]m[0-9]+s)\w*", b"ttl", sent)
    sent = re.sub(rb"Store-(Fence|Seq): \d+", rb"Store-\1: n", sent)
    return re.sub(rb"Date: [^\r]*", b"Date: d", sent)


class Blind(HeaderCache):
    """Never knows a head."""

    def find(self, name: bytes) -> None:
        return None


ODD = [b"\0", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"%", b"#", b"?", b"/", b"\x80", b"\xff",
       b"a", b"=", b"&", b"\x0b", b"\x7f", b",", b";", b"\r\n\r\n", b"%00", b"%2F"]  # fmt: skip
LINES = [
    b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 7", b"Transfer-Encoding: chunked",
    b"Connection: close", b"Connection: keep-alive", b"Expect: 100-continue", b"Host: other",
    b"Host: localhost", b"Upgrade: websocket", b"Connection: upgrade", b" folded", b"X : y", b"X",
    b"Accept: application/msgpack", b"Authorization: Basic cm9vdDp4", b"Content-Type: text/plain",
    b"Authorization:", b"Content-Encoding: gzip", b"Accept: */*",
]  # fmt: skip


def requests(token: str) -> list[bytes]:
    """Good ones, of every kind that a known head may lead to."""
    base = b"Host: localhost\r\nAuthorization: Bearer " + token.encode() + b"\r\n"
    more = base + b"Accept: */*\r\nUser-Agent: test\r\n"
    text = base + b"Content-Type: text/plain\r\nContent-Length: %d\r\n"
    key = BASE.encode() + b"/key/"
    return [
        b"GET " + key + b"k HTTP/1.1\r\n" + base + b"\r\n",
        b"GET " + key + b"k HTTP/1.1\r\n" + base + b"\r\n",
        b"GET " + key + b"absent HTTP/1.1\r\n" + base + b"\r\n",
        b"GET " + key + b"a/b%20c HTTP/1.1\r\n" + more + b"\r\n",
        b"GET " + key + b"long HTTP/1.1\r\n" + more + b"\r\n",
        b"GET " + BASE.encode() + b"?prefix=a HTTP/1.1\r\n" + more + b"\r\n",
        b"HEAD " + key + b"k HTTP/1.1\r\n" + more + b"\r\n",
        b"PUT " + key + b"k HTTP/1.1\r\n" + text % 7 + b"\r\n'hello'",
        b"PUT " + key + b"k?expire=1h HTTP/1.1\r\n" + text % 3 + b"\r\n'v'",
        b"POST " + BASE.encode() + b"/lock/k?holder=a&expire=1h HTTP/1.1\r\n" + base + b"\r\n",
        b"POST /script HTTP/1.1\r\n" + text % 8 + b"\r\nRETURNS!",
        b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
        b"OPTIONS " + key + b"k HTTP/1.1\r\n" + base + b"\r\n",
        b"DELETE " + key + b"absent HTTP/1.1\r\n" + base + b"\r\n",
    ]  # fmt: skip


def broken(dice: random.Random, good: list[bytes]) -> bytes:
    """A few good requests one after the other, one of them broken in a way or two."""
    chosen = [dice.choice(good) for _ in range(dice.randint(1, 4))]
    at = dice.randrange(len(chosen))
    for _ in range(dice.randint(0, 2)):
        chosen[at] = _changed(dice, chosen[at], good)
    return b"".join(chosen)


def _changed(dice: random.Random, data: bytes, good: list[bytes]) -> bytes:
    at = dice.randrange(len(data) + 1)
    line = data.find(b"\r\n", at if dice.random() < 0.5 else 0) + 2
    match dice.randrange(8):
        case 0:
            return data[:at] + dice.choice(ODD) + data[at:]
        case 1:
            return data[:at] + data[at + dice.randint(1, 3) :]
        case 2:
            return data[:at] + dice.choice(ODD) + data[at + 1 :]
        case 3 | 4:
            return data[:line] + dice.choice(LINES) + b"\r\n" + data[line:]
        case 5:
            return data[:at]
        case 6:
            other = dice.choice(good)
            return data[:at] + other[dice.randrange(len(other)) :]
        case _:
            return data.replace(b"HTTP/1.1", dice.choice([b"HTTP/1.0", b"HTTP/1.2", b"http/1.1"]))


def pieces(dice: random.Random, data: bytes) -> list[bytes]:
    """The same bytes in one read, or in several."""
    if dice.random() < 0.6:
        return [data] if data else []
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randint(1, 3)))
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [part for part in parts if part]


class Pair:
    """Two surfaces on one node; the second has never seen any head."""

    def __init__(self, node: Node, knowing: HttpSurface, blind: HttpSurface, token: str) -> None:
        self.node = node
        self.knowing = knowing
        self.blind = blind
        self.good = requests(token)
        self.statuses = Counter[bytes]()
        blind.known = Blind(b"secret of sixteen")

    async def reset(self) -> None:
        operations: list[KeyOperation] = [
            SetKey("k", "hello"), SetKey("a/b c", [1, 2.5]), SetKey("long", "x" * 10_000),
            DeleteKey("absent"),
        ]  # fmt: skip
        await ask_keys(self.node, OWNER, ("shop", "main", "c"), *operations)

    async def difference(self, parts: list[bytes]) -> str | None:
        """What the two answer differently; None when nothing."""
        writes = re.search(b"PUT|POST|DELETE", b"".join(parts))
        found = []
        for surface in (self.knowing, self.blind):
            if writes:
                await self.reset()
            found.append(await told(surface, parts))
        self.statuses.update(re.findall(rb"HTTP/1.1 (\d+)", found[0][0]))
        return None if found[0] == found[1] else f"{parts}\n{found[0]}\n{found[1]}"

    async def check(self, count: int, seed: int) -> None:
        """Of so many cases none may differ; each good head is known when they begin."""
        await self.reset()
        dice = random.Random(seed)
        for request in self.good * 2:
            assert await self.difference([request]) is None, request
        cases = (pieces(dice, broken(dice, self.good)) for _ in range(count))
        for parts in cases:
            if parts:
                wrong = await self.difference(parts)
                assert wrong is None, wrong


@pytest.fixture
async def pair(node: Node, serve: Serve) -> Pair:
    await run(node, "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                    " DEFINE SPACE c")  # fmt: skip
    signed_in = await ask(node.sessions, SignIn("root", PASSWORD, "http", "127.0.0.1:1"))
    return Pair(node, await serve(), await serve(), signed_in.token)


async def test_what_is_known_is_read_as_llhttp_reads_it(
    pair: Pair, figure: Callable[[str, object], None]
) -> None:
    await pair.check(CASES, SEED)
    assert pair.statuses[b"200"] > CASES and pair.statuses[b"400"] > CASES / 10
    counts = {status.decode(): count for status, count in sorted(pair.statuses.items())}
    figure("requests to heads known and unknown", f"{CASES} cases, none differ; answers {counts}")


@pytest.mark.hard
@pytest.mark.parametrize("seed", range(4))
async def test_what_is_known_is_read_as_llhttp_reads_it_at_length(pair: Pair, seed: int) -> None:
    await pair.check(MANY_CASES, seed)


async def test_a_request_line_read_too_leniently_is_caught(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("a connection failed")
    lenient = re.compile(rb"(GET|HEAD|POST|PUT|DELETE) +([^ \r]*) [Hh]TTP/1\.\d\r\n")
    monkeypatch.setattr(reading_module, "REQUEST_LINE", lenient)
    with pytest.raises(AssertionError):
        await pair.check(CASES, SEED)


async def test_an_answer_from_a_known_head_is_used_at_all(pair: Pair) -> None:
    await pair.reset()
    for _ in range(3):
        await told(pair.knowing, [pair.good[0]])
    fed: list[bytes] = []
    connection = HttpConnection(pair.knowing)
    connection.connection_made(Kept())
    parser = connection.reading.parser
    connection.reading.parser = cast(Any, type("Spy", (), {"feed_data": fed.append}))
    connection.data_received(pair.good[0] * 3)
    assert fed == []
    connection.data_received(pair.good[0] * 2 + b"G")
    assert fed == [b"G"]
    connection.reading.parser = parser
    connection.connection_lost(None)


async def test_a_client_whose_heads_are_never_the_same_is_not_looked_up_for_ever(
    pair: Pair,
) -> None:
    await pair.reset()
    connection, transport = HttpConnection(pair.knowing), Kept()
    connection.connection_made(transport)
    for number in range(2 * MISSES):
        fresh = pair.good[0].replace(b"\r\n\r\n", b"\r\nTrace: %d\r\n\r\n" % number)
        connection.data_received(fresh)
    # Keys take a slice of the loop at a time, and there was no other turn so far.
    await until(lambda: transport.sent.count(b"HTTP/1.1 200 OK") == 2 * MISSES)
    assert len(pair.knowing.known) == MISSES
    connection.connection_lost(None)


async def test_what_is_kept_holds_no_credential(pair: Pair) -> None:
    await pair.reset()
    token = pair.good[0].partition(b"Bearer ")[2][:43]
    basic = pair.good[0].replace(b"Bearer " + token, b"Basic cm9vdDpjb3JyZWN0IGhvcnNl")
    for data in (pair.good[0], pair.good[7], basic):
        assert (await told(pair.knowing, [data]))[0].startswith(b"HTTP/1.1 200 OK")
    assert len(pair.knowing.known) == 3
    kept = repr(vars(pair.knowing.known))
    assert token.decode() not in kept and "cm9vdDpjb3JyZWN0" not in kept
    assert f"{token!r}" not in kept
    pair.knowing.known.forget()
    assert len(pair.knowing.known) == 0


async def test_heads_with_more_to_them_are_not_kept(pair: Pair) -> None:
    await pair.reset()
    get, put = pair.good[0], pair.good[7]
    for data in (
        get.replace(b"Host", b"Connection: close\r\nHost"),
        get.replace(b"HTTP/1.1", b"HTTP/1.0"),
        get.replace(b"Host", b"Connection: upgrade\r\nUpgrade: websocket\r\nHost"),
        get.replace(b"Host", b"X: " + b"y" * 4096 + b"\r\nHost"),
        put.replace(b"Content-Length: 7", b"Transfer-Encoding: chunked").replace(
            b"'hello'", b"7\r\n'hello'\r\n0\r\n\r\n"
        ),
        put.replace(b"Host", b"Expect: 100-continue\r\nHost"),
    ):
        assert b"HTTP/1.1 200 OK" in (await told(pair.knowing, [data]))[0], data
        assert len(pair.knowing.known) == 0, data


async def test_a_token_that_ended_is_refused_on_a_connection_whose_head_is_known(
    pair: Pair, node: Node
) -> None:
    await pair.reset()
    port = pair.knowing.address[1]
    async with await Raw.connect(port) as raw:
        for _ in range(3):
            await raw.send(pair.good[0])
            assert (await raw.answer()).status == 200
        node.spaces.sessions.end_all("root")
        await raw.send(pair.good[0] * 2)
        for _ in range(2):
            assert (await raw.answer()).error["code"] == "SessionEnded"
