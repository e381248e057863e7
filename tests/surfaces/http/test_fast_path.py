"""GET of a key as it is read: the same answer, byte for byte but for the request's name, as on the
way that every other request takes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from actors.node import Node
from protocol import limits
from protocol.spaces import SetKey
from protocol.text import parse_duration
from surfaces.http.fast_path import FastPath
from surfaces.http.surface import HttpSurface
from tests.keys import ask_keys
from tests.storage.keyspace.test_keyspace import TYPES
from tests.surfaces.http.conftest import LONG, Serve, until
from tests.surfaces.http.raw import Answer, Raw, request, script
from tests.surfaces.http.test_errors import check_common
from tests.surfaces.http.test_metrics import samples
from tests.surfaces.http.test_spaces import BASE, OWNER, run


@pytest.fixture(autouse=True)
async def space(node: Node) -> None:
    await run(node, "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                    " DEFINE SPACE c")  # fmt: skip


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    answer = FastPath.get
    found: list[bytes] = []

    def spied(self: FastPath, *arguments: Any) -> bool:
        told = answer(self, *arguments)
        if told:
            found.append(arguments[2])
        return told

    monkeypatch.setattr(FastPath, "get", spied)
    return found


async def put(node: Node, key: str, value: Any, expire_us: int | None = None) -> None:
    await ask_keys(node, OWNER, ("shop", "main", "c"), SetKey(key, value, expire_us))


async def both(raw: Raw, bearer: str, key: str, given: list[bytes]) -> tuple[Answer, Answer]:
    path = f"{BASE}/key/{key}"
    slow = await raw.ask("GET", path, authorization=bearer, trace="another head each time" + key)
    await raw.ask("GET", path, authorization=bearer)  # the head is known from here on
    given.clear()
    quick = await raw.ask("GET", path, authorization=bearer)
    assert len(given) == 1, "it was not given at once"
    return slow, quick


def shape(answer: Answer) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of an answer but its request's name, the time and its commit, in order."""
    fields = [
        (name, "n" if name == "store-seq" else value)
        for name, value in answer.fields.items()
        if name not in ("store-request", "date")
    ]
    assert "date" in answer.fields
    name = answer.fields["store-request"]
    return answer.status, fields, answer.body.replace(name.encode(), b"r-1")


MORE: list[Any] = [
    "", 'quotes " and \\ and / and \x7f', "".join(map(chr, range(32))), "\u2028\U0001f600é", 2**53,
    2**53 + 1, -(2**63), float("inf"), -0.0, 1e16, False, {"$dt": 1}, {"a": [None, {"$x": "y"}]},
    [], "v" * (limits.CACHE_INLINE_BYTES + 1),
]  # fmt: skip


async def test_a_value_is_shown_as_on_the_long_way(
    raw: Raw, bearer: str, node: Node, given: list[bytes]
) -> None:
    for number, value in enumerate([*TYPES, *MORE]):
        await put(node, f"k{number}", value)
        slow, quick = await both(raw, bearer, f"k{number}", given)
        check_common(quick)
        assert shape(quick) == shape(slow), value
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


UNUSUAL = [
    ("/key/a%20b", "*/*"), ("/key/k?x=1", "*/*"), ("/key/", "*/*"), ("", "*/*"),
    ("?prefix=k", "*/*"), ("/key/k", "application/msgpack"), ("/keys/k", "*/*"),
    ("/swap/key/k", "*/*"),
]  # fmt: skip


async def test_what_is_unusual_takes_the_long_way(
    raw: Raw, bearer: str, node: Node, given: list[bytes]
) -> None:
    await put(node, "k", "v")
    await put(node, "a b", "v")
    for path, accept in UNUSUAL:
        first, *others = [
            await raw.ask("GET", BASE + path, authorization=bearer, accept=accept) for _ in range(3)
        ]
        assert not given, path
        for other in others:
            assert (other.status, other.fields.keys()) == (first.status, first.fields.keys()), path


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
        await until(lambda: node.registry.unfinished == 1)
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


# --- PUT ------------------------------------------------------------------------------------------


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    write = FastPath.write
    found: list[bytes] = []

    def spied(self: FastPath, *arguments: Any) -> bool:
        told = write(self, *arguments)
        if told:
            found.append(arguments[3])
        return told

    monkeypatch.setattr(FastPath, "write", spied)
    return found


PUTS = [
    ("", b"'v'", "text/plain"), ("", b"42", "text/plain; charset=utf-8"),
    ("", b'{"a": {"$dt": "2026-01-01T00:00:00Z"}}', "application/json"),
    ("?expire=1h", b"[1, 'two']", "Text/Plain"), ("", b"'" + b"x" * 4000 + b"'", "text/plain"),
]  # fmt: skip


async def test_a_value_is_put_as_on_the_long_way(raw: Raw, bearer: str, done: list[bytes]) -> None:
    for number, (query, body, kind) in enumerate(PUTS):
        fields = {"authorization": bearer, "content_type": kind}
        new_head = {"trace": str(number)}
        long_way = await raw.ask("PUT", f"{BASE}/key/long{query}", body, **fields, **new_head)
        await raw.ask("PUT", f"{BASE}/key/k{query}", body, **fields)
        done.clear()
        short = await raw.ask("PUT", f"{BASE}/key/k{query}", body, **fields)
        assert len(done) == 1, f"{body!r} took the long way"
        check_common(short)
        assert shape(short) == shape(long_way) and short.json == {"written": True}
        one, other = [
            (await raw.ask("GET", f"{BASE}/key/{key}", authorization=bearer)).json
            for key in ("k", "long")
        ]
        assert one["value"] == other["value"]
        assert (one["ttl"] is None) == (other["ttl"] is None) == (not query)


ODD = [
    ("k?expire=0s", b"1", "text/plain", 400), ("k?x=1", b"1", "text/plain", 400),
    ("k?if=absent&if=absent", b"1", "text/plain", 400), ("%", b"1", "text/plain", 400),
    ("k", b"1 +", "text/plain", 400), ("k", b"\xff\xfe", "text/plain", 400),
    ("k", b"1", "text/html", 400), ("k", b"1", "text/plain; charset=latin-1", 400),
    ("k", b"\x01", "application/msgpack", 200), ("", b"1", "text/plain", 400),
    ("k", b"'" + b"x" * 20_000 + b"'", "text/plain", 200),
    ("x" * 1025, b"1", "text/plain", 400), ("k", b"{", "application/json", 400),
]  # fmt: skip


async def test_a_put_that_is_odd_to_read_takes_the_long_way(
    raw: Raw, bearer: str, done: list[bytes]
) -> None:
    for path, body, kind, outcome in ODD:
        fields = {"authorization": bearer, "content_type": kind}
        statuses = [
            (await raw.ask("PUT", f"{BASE}/key/{path}", body, **fields)).status for _ in range(3)
        ]
        assert statuses == [outcome] * 3 and not done, (path, body, kind)


async def test_a_put_is_refused_without_the_writable_role(
    raw: Raw, bearer: str, node: Node, done: list[bytes]
) -> None:
    fields = {"authorization": bearer, "content_type": "text/plain"}
    for _ in range(2):
        assert (await raw.ask("PUT", BASE + "/key/k", b"1", **fields)).status == 200
    assert done
    await run(node, "DEFINE NODE ROLES serving")
    refused = await raw.ask("PUT", BASE + "/key/k", b"2", **fields)
    assert refused.error["code"] == "NotWritable"
    await run(node, "DEFINE NODE ROLES serving, writable")
    assert (await raw.ask("GET", BASE + "/key/k", authorization=bearer)).json["value"] == 1


async def test_who_has_gone_is_told_nothing_and_its_put_happened(
    serve: Serve, node: Node, bearer: str, done: list[bytes]
) -> None:
    surface = await serve()
    put_it = request("PUT", BASE + "/key/k", b"7", authorization=bearer, content_type="text/plain")
    async with await Raw.connect(surface.address[1]) as raw:
        for _ in range(2):
            await raw.send(put_it)
            assert (await raw.answer()).status == 200
    for _ in range(20):
        async with await Raw.connect(surface.address[1]) as raw:
            await raw.send(put_it)
            raw.writer.transport.abort()
    await until(lambda: not surface.connections and not surface.admission.begun)
    assert len(done) > 1
    assert surface.counters.requests.keys() <= {
        ("PUT", "/kv/{ns}/{db}/{space}/key/{key}", status) for status in (200, 499)
    }


async def test_a_put_is_counted_as_any_other(raw: Raw, bearer: str, done: list[bytes]) -> None:
    fields = {"authorization": bearer, "content_type": "text/plain"}
    for _ in range(5):
        await raw.ask("PUT", BASE + "/key/k", b"1", **fields)
    assert done
    found = samples((await raw.ask("GET", "/metrics")).body.decode())
    route = ("route", "/kv/{ns}/{db}/{space}/key/{key}")
    labels = frozenset({("method", "PUT"), route, ("status", "200")})
    assert found["store_http_requests_total", labels] == 5
    assert found["store_http_request_seconds_count", frozenset({route})] == 5
    assert found["store_http_running", frozenset()] == 0


OPERATIONS = [
    ("POST", "incr", "?by=-5", b"", "text/plain"), ("POST", "incr", "", b"", "text/plain"),
    ("DELETE", "key", "", b"", "text/plain"), ("PUT", "key", "?if=present", b"1", "text/plain"),
    ("POST", "swap", "", b'{"expect": 7, "value": 8}', "application/json"),
    ("POST", "expire", "?expire=1h", b"", "text/plain"), ("POST", "persist", "", b"", "a/b"),
    ("PUT", "key", "?expire=2h&if=present", b"'a'", "text/plain"),
]  # fmt: skip


async def test_an_operation_is_done_as_on_the_long_way(
    raw: Raw, bearer: str, node: Node, done: list[bytes]
) -> None:
    for number, (method, word, query, body, kind) in enumerate(OPERATIONS):
        fields = {"authorization": bearer, **({"content_type": kind} if body else {})}
        for key in ("long", "known", "short"):
            await put(node, key, 7, 60_000_000)

        path = f"{BASE}/{word}"
        long_way = await raw.ask(method, f"{path}/long{query}", body, **fields, trace=str(number))
        await raw.ask(method, f"{path}/known{query}", body, **fields)
        done.clear()
        short = await raw.ask(method, f"{path}/short{query}", body, **fields)
        assert len(done) == 1, f"{word}{query} took the long way"
        check_common(short)
        assert shape(short) == shape(long_way)
        one, other = [
            await raw.ask("GET", f"{BASE}/key/{key}", authorization=bearer)
            for key in ("long", "short")
        ]
        assert one.status == other.status
        if one.status == 200:
            assert one.json["value"] == other.json["value"]
            lasts, other_lasts = (read.json["ttl"] for read in (one, other))
            assert (lasts is None) == (other_lasts is None)
            if lasts is not None:  # they were set and read one after the other
                apart = parse_duration(lasts) - parse_duration(other_lasts)
                assert abs(apart) < timedelta(seconds=10)


async def test_what_writes_nothing_is_answered_too(
    raw: Raw, bearer: str, node: Node, done: list[bytes]
) -> None:
    await put(node, "k", "text")
    for method, path, body, outcome in (
        ("DELETE", "key/absent", b"", {"deleted": False}),
        ("POST", "persist/k", b"", {"found": True}),
        ("POST", "swap/k", b"{ expect: 1, value: 2 }", {"written": False}),
        ("POST", "unlock/k?holder=me", b"", {"released": False}),
        ("PUT", "key/k?if=absent", b"1", {"written": False}),
    ):
        fields = {"content_type": "text/plain"} if body else {}
        for _ in range(3):
            answer = await raw.ask(method, f"{BASE}/{path}", body, authorization=bearer, **fields)
            assert answer.json == outcome
    for _ in range(3):
        answer = await raw.ask("POST", BASE + "/incr/k", authorization=bearer)
        assert answer.error["code"] == "NotANumber"
    fences = set()
    for number in range(3):
        path = f"{BASE}/lock/l{number}?holder=me&expire=1h"
        locked = await raw.ask("POST", path, authorization=bearer)
        assert locked.json == {"held": True}
        fences.add(locked.fields["store-fence"])
    assert len(fences) == 3 and done


REFUSED = [
    ("PUT", "c/key/k", b"NONE", "TypeRefused"), ("POST", "c/incr/k", b"", "NotANumber"),
    ("PUT", "nothing/key/k", b"1", "NotASpace"), ("GET", "nothing/key/k", b"", "NotASpace"),
]  # fmt: skip


async def test_what_the_engine_refuses_is_refused_as_on_the_long_way(
    raw: Raw, bearer: str, node: Node, given: list[bytes], done: list[bytes]
) -> None:
    await put(node, "k", "text")
    for number, (method, path, body, code) in enumerate(REFUSED):
        fields = {"authorization": bearer, **({"content_type": "text/plain"} if body else {})}
        target = f"{BASE.rpartition('/')[0]}/{path}"
        long_way = await raw.ask(method, target, body, **fields, trace=str(number))
        await raw.ask(method, target, body, **fields)
        given.clear()
        done.clear()
        short = await raw.ask(method, target, body, **fields)
        assert len(given + done) == 1, f"{path} took the long way"
        check_common(short)
        assert short.error["code"] == code
        assert shape(short) == shape(long_way)
