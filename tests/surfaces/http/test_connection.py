"""Connections: order, keep-alive, caps, expectations."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from actors.node import Node
from actors.sign_ins import SessionsActor
from protocol import limits
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.conftest import PASSWORD, until
from tests.surfaces.http.raw import Raw, request, script

SLOW = {"script": "FOR $x IN 0..900000 { LET $y = $x; };", "timeout": "100ms"}


async def test_pipelined_requests_are_answered_in_order(raw: Raw, bearer: str) -> None:
    await raw.send(
        script(SLOW, bearer)
        + script("RETURN 'second';", bearer)
        + request("GET", "/health")
        + request("POST", "/no", b"x")
        + request("HEAD", "/")
        + script("RETURN 'last';", bearer)
    )
    assert (await raw.answer()).status == 408
    assert (await raw.answer()).json["results"][0]["value"] == "second"
    assert (await raw.answer()).json["status"] == "well"
    assert (await raw.answer()).status == 404
    assert (await raw.answer("HEAD")).status == 200
    assert (await raw.answer()).json["results"][0]["value"] == "last"


async def test_every_request_has_a_name_of_its_own(raw: Raw) -> None:
    names = {(await raw.ask("GET", "/health")).fields["store-request"] for _ in range(5)}
    assert len(names) == 5


async def test_close_is_honoured(raw: Raw) -> None:
    await raw.send(request("GET", "/health", connection="close") + request("GET", "/health"))
    answer = await raw.answer()
    assert answer.fields["connection"] == "close"
    assert await raw.rest() == b""


async def test_http_1_0_closes_unless_asked_not_to(port: int) -> None:
    async with await Raw.connect(port) as raw:
        await raw.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await raw.answer()).fields["connection"] == "close"
        assert await raw.rest() == b""
    async with await Raw.connect(port) as raw:
        for _ in range(2):
            await raw.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert (await raw.answer()).fields["connection"] == "keep-alive"


async def test_an_upgrade_is_not_taken(raw: Raw) -> None:
    await raw.send(
        request("GET", "/health", connection="Upgrade, HTTP2-Settings", upgrade="h2c")
        + request("GET", "/health")
    )
    answer = await raw.answer()
    assert (answer.status, answer.fields["connection"]) == (200, "close")
    assert await raw.rest() == b""


async def test_a_target_with_the_same_host_is_taken(raw: Raw) -> None:
    await raw.send(b"GET http://localhost/health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await raw.answer()).status == 200


async def test_an_empty_line_before_a_request_is_taken(raw: Raw) -> None:
    await raw.send(b"\r\n" + request("GET", "/health"))
    assert (await raw.answer()).status == 200


async def test_a_body_is_asked_for(raw: Raw, bearer: str) -> None:
    data = script("RETURN 7;", bearer, expect="100-continue")
    head, _, body = data.partition(b"\r\n\r\n")
    await raw.send(head + b"\r\n\r\n")
    assert (await raw.answer()).status == 100
    await raw.send(body)
    assert (await raw.answer()).json["results"][0]["value"] == 7


async def test_a_body_is_not_asked_for_over_http_1_0(
    surface: HttpSurface, raw: Raw, bearer: str
) -> None:
    """RFC 9110, 10.1.1: a client of 1.0 would take the 100 for its answer."""
    data = script("RETURN 7;", bearer, expect="100-continue").replace(b"HTTP/1.1", b"HTTP/1.0")
    head, _, body = data.partition(b"\r\n\r\n")
    await raw.send(head + b"\r\n\r\n")
    await until(lambda: any(one.receiving for one in surface.connections))
    await raw.send(body)
    answer = await raw.answer()
    assert answer.status == 200 and answer.json["results"][0]["value"] == 7


async def test_a_body_is_not_asked_for_when_the_head_is_refused(raw: Raw) -> None:
    data = request("POST", "/script", b"RETURN 7;", expect="100-continue")
    await raw.send(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    answer = await raw.answer()
    assert (answer.status, answer.fields["connection"]) == (401, "close")
    assert await raw.rest() == b""


async def test_a_body_is_asked_for_in_its_turn(raw: Raw, bearer: str) -> None:
    first = script(SLOW, bearer)
    data = script("RETURN 7;", bearer, expect="100-continue")
    head, _, body = data.partition(b"\r\n\r\n")
    await raw.send(first + head + b"\r\n\r\n")
    assert (await raw.answer()).status == 408
    assert (await raw.answer()).status == 100
    await raw.send(body)
    assert (await raw.answer()).json["results"][0]["value"] == 7


async def test_the_largest_head_is_read(raw: Raw) -> None:
    fields = b"".join(b"X-%d: 1\r\n" % number for number in range(limits.HEAD_FIELDS - 2))
    base = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + fields
    left = limits.HEAD_BYTES - len(base) - 200
    await raw.send(base + b"X: " + b"a" * left + b"\r\n\r\n")
    assert (await raw.answer()).status == 200


async def test_a_head_that_never_ends_is_cut_at_its_cap(raw: Raw) -> None:
    try:
        await raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(1_000):
            await raw.send(b"a" * 4096)
    except OSError:
        pass
    answer = await raw.answer()
    assert (answer.status, answer.error["code"]) == (431, "HeadTooLarge")


async def test_heads_split_over_reads_do_not_add_up(raw: Raw) -> None:
    one = request("GET", "/health", x="a" * 3000)
    stream = one * 60
    received = 0
    for start in range(0, len(stream), 5000):
        await raw.send(stream[start : start + 5000])
        while received < (start + 5000) // len(one):
            assert (await raw.answer()).status == 200
            received += 1


class SlowSignIns:
    """Passwords are looked at once somebody says so. :ivar asked: how many wait"""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()
        verified = SessionsActor._verified

        async def held(actor: SessionsActor, *who: Any) -> Any:
            self.asked += 1
            await self.go_on.wait()
            return await verified(actor, *who)

        monkeypatch.setattr(SessionsActor, "_verified", held)

    async def until(self, count: int) -> None:
        await until(lambda: self.asked == count)


def put_of(count: int) -> bytes:
    """A request with a password, for a value of so many empty arrays."""
    return request(
        "PUT", "/kv/a/b/c/key/k", b"[" + b",".join([b"[]"] * count) + b"]",
        content_type="application/json",
        authorization=f"Basic {base64.b64encode(f'root:{PASSWORD}'.encode()).decode()}",
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 4_000])
async def test_who_goes_while_its_password_is_looked_at_runs_and_counts_until_then(
    surface: HttpSurface, port: int, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    signing_in = SlowSignIns(monkeypatch)
    for number in (1, 2, 3):
        async with await Raw.connect(port) as raw:
            await raw.send(put_of(count))
            await signing_in.until(number)
    await until(lambda: not surface.connections)
    assert (surface.admission.begun, surface.running) == (3, 0)
    signing_in.go_on.set()
    await until(lambda: not surface.admission.begun)
    assert (surface.running, surface.bodies_bytes, surface.requests.total) == (0, 0, 0)


async def test_a_sign_in_before_a_request_runs_makes_room_for_nobody(
    surface: HttpSurface, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing_in, data = SlowSignIns(monkeypatch), put_of(10_000)
    async with await Raw.connect(port) as raw:
        await raw.send(data[:-1])
        await signing_in.until(1)
        assert (surface.admission.begun, surface.running) == (0, 0)
        signing_in.go_on.set()
        await raw.send(data[-1:])
        assert (await raw.answer()).error["code"] == "NotASpace"


async def test_an_answer_larger_than_any_buffer_reaches_a_slow_reader(
    raw: Raw, bearer: str, node: Node
) -> None:
    text = "x" * 1_000_000
    await raw.send(script(f"LET $a = '{text}'; RETURN [$a, $a, $a, $a, $a, $a];", bearer))
    await until(lambda: not node.registry.unfinished)
    await raw.send(request("GET", "/health"))
    answer = await raw.answer()
    assert answer.json["results"][-1]["value"] == [text] * 6
    assert (await raw.answer()).status == 200
