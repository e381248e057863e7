"""GET of a key as it is read: the same answer, byte for byte but for the request's name, as on the
way that every other request takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.spaces import RunKeys, SetKey
from surfaces.http.glances import Glances
from surfaces.http.surface import HttpSurface
from tests.storage.test_spaces import TYPES
from tests.surfaces.http.conftest import LONG, Serve, script, until
from tests.surfaces.http.raw import Answer, Raw, request
from tests.surfaces.http.test_errors import check_common
from tests.surfaces.http.test_metrics import samples
from tests.surfaces.http.test_spaces import BASE, OWNER, run


@pytest.fixture(autouse=True)
async def space(node: Node) -> None:
    await run(node, "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                    " DEFINE SPACE c")  # fmt: skip


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The answers that were given at once."""
    answer = Glances.answer
    found: list[bytes] = []

    def spied(self: Glances, *arguments: Any) -> bytes | None:
        told = answer(self, *arguments)
        if told is not None:
            found.append(told)
        return told

    monkeypatch.setattr(Glances, "answer", spied)
    return found


async def put(node: Node, key: str, value: Any, expire_us: int | None = None) -> None:
    ref = node.spaces.find("shop", "main", "c")
    assert ref is not None
    await ask(ref, RunKeys(OWNER, "shop", "main", "c", (SetKey(key, value, expire_us),)))


async def both(raw: Raw, bearer: str, key: str, given: list[bytes]) -> tuple[Answer, Answer]:
    """The answer of the long way and that of the short one."""
    path = f"{BASE}/key/{key}"
    slow = await raw.ask("GET", path, authorization=bearer, trace="another head each time" + key)
    await raw.ask("GET", path, authorization=bearer)  # the head is known from here on
    given.clear()
    quick = await raw.ask("GET", path, authorization=bearer)
    assert len(given) == 1, "it was not given at once"
    return slow, quick


def shape(answer: Answer) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of an answer but its request's name and the time, in order."""
    fields = [pair for pair in answer.fields.items() if pair[0] not in ("store-request", "date")]
    assert "date" in answer.fields
    name = answer.fields["store-request"]
    return answer.status, fields, answer.body.replace(name.encode(), b"r-1")


MORE: list[Any] = [
    "", 'quotes " and \\ and / and \x7f', "".join(map(chr, range(32))), "\u2028\U0001f600é", 2**53,
    2**53 + 1, -(2**63), float("inf"), -0.0, 1e16, False, {"$dt": 1}, {"a": [None, {"$x": "y"}]},
    [],
]  # fmt: skip


@pytest.mark.parametrize("value", [*TYPES, *MORE], ids=repr)
async def test_a_value_is_shown_as_on_the_long_way(
    raw: Raw, bearer: str, node: Node, given: list[bytes], value: Any
) -> None:
    await put(node, "k", value)
    slow, quick = await both(raw, bearer, "k", given)
    check_common(quick)
    assert shape(quick) == shape(slow)
    assert quick.fields["store-request"] != slow.fields["store-request"]


async def test_a_key_that_expires_and_one_that_is_not_there(
    raw: Raw, bearer: str, node: Node, given: list[bytes]
) -> None:
    await put(node, "k", "v", 3_600_000_000)
    slow, quick = await both(raw, bearer, "k", given)
    assert (slow.json["value"], quick.json["value"]) == ("v", "v")
    assert slow.json["ttl"].startswith("59m") and quick.json["ttl"].startswith("59m")
    assert slow.fields.keys() == quick.fields.keys()
    slow, quick = await both(raw, bearer, "absent", given)
    assert quick.error["request"] == quick.fields["store-request"]
    assert shape(quick)[:2] == shape(slow)[:2]
    assert quick.error["code"] == "NoKey"


@pytest.mark.parametrize(
    "path, accept",
    [
        ("key/a%20b", "*/*"), ("key/k?x=1", "*/*"), ("key/", "*/*"), ("", "*/*"),
        ("?prefix=k", "*/*"), ("key/k", "application/msgpack"), ("keys/k", "*/*"),
        ("swap/key/k", "*/*"), ("key/large", "*/*"), ("key/lock", "*/*"),
    ],
)  # fmt: skip
async def test_what_is_unusual_takes_the_long_way(
    raw: Raw, bearer: str, node: Node, given: list[bytes], path: str, accept: str
) -> None:
    await put(node, "k", "v")
    await put(node, "a b", "v")
    await put(node, "large", "v" * (limits.CACHE_INLINE_BYTES + 1))
    await run(node, "LOCK 'lock' IN c HOLDER 'me' EXPIRE 1h")
    target = BASE + ("/" if path and not path.startswith("?") else "") + path
    first, *others = [
        await raw.ask("GET", target, authorization=bearer, accept=accept) for _ in range(3)
    ]
    assert not given
    for other in others:
        assert (other.status, other.fields.keys()) == (first.status, first.fields.keys())


async def test_it_is_counted_as_any_other(raw: Raw, bearer: str, given: list[bytes]) -> None:
    for _ in range(5):
        await raw.ask("GET", BASE + "/key/k", authorization=bearer)
    assert given
    found = samples((await raw.ask("GET", "/metrics")).body.decode())
    route = ("route", "/kv/{ns}/{db}/{space}/key/{key}")
    labels = frozenset({("method", "GET"), route, ("status", "404")})
    assert found["store_http_requests_total", labels] == 5
    assert found["store_http_request_seconds_count", frozenset({route})] == 5


async def test_its_order_among_pipelined_requests(raw: Raw, bearer: str) -> None:
    def get() -> bytes:
        return request("GET", BASE + "/key/k", authorization=bearer)

    def set_to(number: int) -> bytes:
        fields = {"authorization": bearer, "content_type": "application/json"}
        return request("PUT", BASE + "/key/k", b'"%06d"' % number, **fields)

    for _ in range(2):
        await raw.send(set_to(0) + get() + get())
        for _ in range(3):
            await raw.answer()
    await raw.send(b"".join(set_to(number) + get() + get() for number in range(20)))
    for number in range(20):
        assert (await raw.answer()).json == {"written": True}
        for _ in range(2):
            assert (await raw.answer()).json["value"] == f"{number:06}"


async def test_many_large_answers_to_one_read_wait_for_their_reader(
    raw: Raw, bearer: str, node: Node, surface: HttpSurface
) -> None:
    await put(node, "large", "v" * 900_000)
    get = request("GET", BASE + "/key/large", authorization=bearer)
    for _ in range(2):
        await raw.send(get)
        await raw.answer()
    await raw.send(get * 60)
    (connection,) = surface.connections
    await until(lambda: connection.queue)
    assert connection.transport.get_write_buffer_size() < 4_000_000
    for _ in range(60):
        assert len((await raw.answer()).body) > 900_000


async def test_a_full_surface_is_busy_here_too(serve: Serve, node: Node, bearer: str) -> None:
    surface = await serve(running=1)
    port = surface.address[1]
    get = request("GET", BASE + "/key/k", authorization=bearer)
    async with await Raw.connect(port) as raw, await Raw.connect(port) as other:
        for _ in range(3):
            await raw.send(get)
            assert (await raw.answer()).status == 404
        await other.send(script(LONG, bearer))
        await until(lambda: len(node.running) == 1)
        await raw.send(get)
        assert (await raw.answer()).error["code"] == "Busy"


async def test_a_surface_that_stops_says_so(serve: Serve, bearer: str) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        get = request("GET", BASE + "/key/k", authorization=bearer)
        for _ in range(3):
            await raw.send(get)
            assert (await raw.answer()).status == 404
        surface.stop_accepting()
        await raw.send(get)
        refused = await raw.answer()
        assert (refused.error["code"], refused.fields["connection"]) == ("Draining", "close")


async def test_the_date_goes_on(raw: Raw, bearer: str, given: list[bytes]) -> None:
    seen: set[str] = set()
    async with asyncio.timeout(20):
        while len(seen) < 2:
            answer = await raw.ask("GET", BASE + "/key/k", authorization=bearer)
            seen.add(answer.fields["date"])
    assert given
