"""The routes under /kv: every route, condition and outcome, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from itertools import product
from typing import Any
from urllib.parse import quote

import msgpack
import pytest

from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.binary import pack, unpack
from protocol.errors import CATALOGUE
from protocol.jsonvalues import to_json
from protocol.requests import Caller, RunScript, SignOut
from protocol.values import LONG
from surfaces.http.spaces import LONG_BODY
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.conftest import until
from tests.surfaces.http.raw import Answer, Raw, request
from tests.surfaces.http.test_errors import check_common, check_error
from tests.tables import case

BASE = "/kv/shop/main/c"
OWNER = Caller("root", "owner", None, None, "http", "127.0.0.1:1")
TEXT = {"content_type": "text/plain"}
JSON = {"content_type": "application/json"}
MSGPACK = {"content_type": "application/msgpack"}
Tell = Any


@pytest.fixture(autouse=True)
async def space(node: Node) -> None:
    """The space of these tests, and a table that is none."""
    await run(node, "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                    " DEFINE SPACE c; DEFINE TABLE t")  # fmt: skip


async def run(node: Node, text: str) -> Any:
    """Run a script beside the routes; what its last statement answered."""
    answer = await ask(
        node.scripts, RunScript(OWNER, text, "r-test", namespace="shop", database="main")
    )
    assert answer.refusal is None, answer.refusal
    return answer.results[-1].value


@pytest.fixture
async def tell(raw: Raw, bearer: str) -> Tell:
    async def send(method: str, path: str, body: bytes = b"", **fields: str) -> Answer:
        fields.setdefault("authorization", bearer)
        if body:
            fields.setdefault("content_type", "text/plain")
        answer = await raw.ask(method, path if path.startswith("/") else BASE + "/" + path,
                               body, **fields)  # fmt: skip
        check_common(answer)
        return answer

    return send


def says(answer: Answer, **fields: Any) -> None:
    assert (answer.status, answer.json) == (200, fields)
    assert answer.fields["content-type"] == "application/json; charset=utf-8"


# --- every route, condition, outcome --------------------------------------------------------------


async def test_get(tell: Tell) -> None:
    check_error(await tell("GET", "key/k"), "NoKey")
    await tell("PUT", "key/k", b"'v'")
    says(await tell("GET", "key/k"), value="v", ttl=None)
    await tell("PUT", "key/k?expire=1h", b"'v'")
    answer = await tell("GET", "key/k")
    assert set(answer.json) == {"value", "ttl"}
    assert re.fullmatch(r"59m59s[0-9msu]*|1h", answer.json["ttl"])
    head = await tell("HEAD", "key/k")
    assert (head.status, head.body) == (200, b"")
    assert (await tell("HEAD", "key/none")).status == 404


async def test_put(tell: Tell) -> None:
    for present, when, expire in product((False, True), (None, "absent", "present"), (None, "30s")):
        with case(present, when, expire):
            await (tell("PUT", "key/k?expire=9h", b"'old'") if present else tell("DELETE", "key/k"))
            query = [f"if={when}"] if when else []
            query += [f"expire={expire}"] if expire else []
            answer = await tell("PUT", f"key/k?{'&'.join(query)}", b"'new'")
            written = when is None or present == (when == "present")
            says(answer, written=written)
            found = await tell("GET", "key/k")
            if not written and not present:
                assert found.status == 404
            elif not written:
                assert found.json["value"] == "old"
            else:
                assert found.json["value"] == "new"
                ttl = found.json["ttl"]
                assert (ttl is None) if expire is None else ttl.startswith(("29s", "30s"))


async def test_delete(tell: Tell) -> None:
    says(await tell("DELETE", "key/k"), deleted=False)
    await tell("PUT", "key/k", b"1")
    says(await tell("DELETE", "key/k"), deleted=True)
    assert (await tell("GET", "key/k")).status == 404


async def test_swap(tell: Tell) -> None:
    says(await tell("POST", "swap/k", b"{ expect: 1, value: 2 }"), written=False)
    says(await tell("POST", "swap/k", b"{ expect: NONE, value: 2 }"), written=True)
    says(await tell("POST", "swap/k", b"{ expect: 2.0, value: 3 }"), written=False)
    says(await tell("POST", "swap/k?expire=30s", b"{ expect: 2, value: 3 }"), written=True)
    assert (await tell("GET", "key/k")).json["ttl"].startswith(("29s", "30s"))
    body = json.dumps({"expect": 3, "value": {"$dec": "1.0"}}).encode()
    says(await tell("POST", "swap/k", body, **JSON), written=True)
    says(await tell("GET", "key/k"), value={"$dec": "1.0"}, ttl=None)
    says(
        await tell("POST", "swap/k", json.dumps({"expect": 1, "value": 5}).encode(), **JSON),
        written=False,
    )


async def test_incr(tell: Tell) -> None:
    says(await tell("POST", "incr/n"), value=1)
    says(await tell("POST", "incr/n?by=41"), value=42)
    says(await tell("POST", "incr/n?by=-50"), value=-8)
    says(await tell("POST", "incr/n?by=0"), value=-8)
    says(await tell("POST", "incr/big?by=9007199254740993"), value={"$int": "9007199254740993"})
    await tell("PUT", "key/s", b"'text'")
    check_error(await tell("POST", "incr/s"), "NotANumber")
    await tell("PUT", "key/n", str(limits.INT_MAX).encode())
    check_error(await tell("POST", "incr/n"), "NumberTooLarge")


async def test_expire_and_persist(tell: Tell) -> None:
    says(await tell("POST", "expire/k?expire=1h"), found=False)
    says(await tell("POST", "persist/k"), found=False)
    await tell("PUT", "key/k", b"1")
    says(await tell("POST", "expire/k?expire=1h"), found=True)
    assert (await tell("GET", "key/k")).json["ttl"] is not None
    says(await tell("POST", "persist/k"), found=True)
    assert (await tell("GET", "key/k")).json["ttl"] is None
    says(await tell("POST", "expire/k?expire=1us"), found=True)
    check_error(await tell("GET", "key/k"), "NoKey")
    says(await tell("POST", "persist/k"), found=False)


async def test_lock_and_unlock(tell: Tell) -> None:
    says(await tell("POST", "unlock/l?holder=a"), released=False)
    first = await tell("POST", "lock/l?holder=a&expire=1h")
    says(first, held=True)
    again = await tell("POST", "lock/l?holder=a&expire=2h")
    says(again, held=True)
    assert again.fields["store-fence"] == first.fields["store-fence"]
    refused = await tell("POST", "lock/l?holder=b&expire=1h")
    says(refused, held=False)
    assert "store-fence" not in refused.fields
    says(await tell("POST", "unlock/l?holder=b"), released=False)
    says(await tell("POST", "unlock/l?holder=a"), released=True)
    says(await tell("POST", "unlock/l?holder=a"), released=False)
    second = await tell("POST", "lock/l?holder=b&expire=1us")
    says(second, held=True)
    third = await tell("POST", "lock/l?holder=c&expire=1h")
    says(third, held=True)
    fences = [int(answer.fields["store-fence"]) for answer in (first, second, third)]
    assert fences == sorted(set(fences))
    await tell("PUT", "key/v", b"1")
    says(await tell("POST", "lock/v?holder=a&expire=1h"), held=False)


async def test_listing(tell: Tell, node: Node) -> None:
    says(await tell("GET", BASE), keys=[])
    await run(node, "FOR $i IN 0..1100 { SET ('n' + type::string(1000 + $i)) IN c VALUE $i }")
    for name in ("a", "a/b", "é"):
        await tell("PUT", f"key/{quote(name, safe='')}", b"1")
    numbers = [f"n{1000 + n}" for n in range(1100)]
    ordered = sorted(["a", "a/b", "é", *numbers], key=str.encode)
    says(await tell("GET", BASE), keys=ordered[:1000])
    says(await tell("GET", f"{BASE}?after={ordered[999]}"), keys=ordered[1000:])
    says(await tell("GET", f"{BASE}?prefix=a"), keys=["a", "a/b"])
    says(await tell("GET", f"{BASE}?prefix=a%2F"), keys=["a/b"])
    says(await tell("GET", f"{BASE}?prefix=n&limit=2&after=n1003"), keys=["n1004", "n1005"])
    says(await tell("GET", f"{BASE}?prefix=%C3%A9&limit=1"), keys=["é"])
    says(await tell("GET", f"{BASE}?prefix=&after="), keys=ordered[:1000])
    assert (await tell("HEAD", BASE)).body == b""


# --- values ---------------------------------------------------------------------------------------

VALUES = [
    ("12.50dec", {"$dec": "12.50"}),
    ("d'2026-01-02T03:04:05.123456Z'", {"$dt": "2026-01-02T03:04:05.123456Z"}),
    ("person:ana", {"$rec": "person:ana"}),
    ("person:['a', 1]", {"$rec": "person:['a', 1]"}),
    ("5m", {"$dur": "5m"}),
    ("b'aGk='", {"$bytes": "aGk="}),
    ("u'018f0000-0000-7000-8000-000000000001'",
     {"$uuid": "018f0000-0000-7000-8000-000000000001"}),
    ("9223372036854775807", {"$int": "9223372036854775807"}),
    ("-1", -1), ("1.5", 1.5), ("'te\\'xt'", "te'xt"), ("true", True), ("NULL", None),
    ("[1, 'a', [2dec]]", [1, "a", [{"$dec": "2"}]]),
    ("{ a: 1, 'b c': { d: person:1 } }", {"a": 1, "b c": {"d": {"$rec": "person:1"}}}),
    ("{ '$dec': 'x' }", {"$obj": {"$dec": "x"}}),
]  # fmt: skip


async def test_values_keep_their_types_on_every_way(tell: Tell, node: Node) -> None:
    for text, plain in VALUES:
        with case(text, plain):
            says(await tell("PUT", "key/text", text.encode()), written=True)
            says(await tell("PUT", "key/json", json.dumps(plain).encode(), **JSON), written=True)
            exact = (await run(node, "GET 'text' FROM c"))["value"]
            says(await tell("PUT", "key/msgpack", pack(exact), **MSGPACK), written=True)
            for key in ("text", "json", "msgpack"):
                says(await tell("GET", f"key/{key}"), value=plain, ttl=None)
                found = (await run(node, f"GET '{key}' FROM c"))["value"]
                assert (type(found), repr(found)) == (type(exact), repr(exact))
                packed = await tell("GET", f"key/{key}", accept="application/msgpack")
                assert packed.fields["content-type"] == "application/msgpack"
                assert unpack(packed.body) == {"value": exact, "ttl": None}


async def test_msgpack_answers_have_the_same_fields(tell: Tell) -> None:
    accept = {"accept": "application/msgpack"}
    answer = await tell("PUT", "key/k?expire=1h", b"1", **accept)
    assert msgpack.unpackb(answer.body) == {"written": True}
    answer = await tell("GET", "key/k", **accept)
    found = msgpack.unpackb(answer.body)
    assert found["value"] == 1 and isinstance(found["ttl"], str)
    answer = await tell("GET", "key/none", **accept)
    assert answer.status == 404 and msgpack.unpackb(answer.body)["error"]["code"] == "NoKey"
    answer = await tell("POST", "lock/l?holder=a&expire=1h", **accept)
    assert msgpack.unpackb(answer.body) == {"held": True}


async def test_a_long_body_is_read_in_turns_and_refused_as_a_short_one_is(
    tell: Tell, raw: Raw, bearer: str
) -> None:
    plain = [{"n": n, "t": {"$dec": "1.50"}} for n in range(10_000)]
    body = json.dumps(plain).encode()
    says(await tell("PUT", "key/k", body, **JSON), written=True)
    says(await tell("GET", "key/k"), value=plain, ttl=None)
    swap = json.dumps({"expect": plain, "value": plain[:5000]}).encode()
    says(await tell("POST", "swap/k", swap, **JSON), written=True)
    says(await tell("PUT", "key/text", b"'" + b"x" * 100_000 + b"'"), written=True)
    check_error(await tell("PUT", "key/k", body + b"]", **JSON), "BadRequest")
    check_error(await tell("PUT", "key/k", b"[" + b"1," * 40_000 + b"1]"), "TooLarge")
    check_error(
        await raw.ask("PUT", f"{BASE}/key/k", body, authorization="Bearer no", **JSON),
        "SessionEnded",
    )


async def test_a_long_value_is_packed_in_turns_too(tell: Tell, ticks: list[int]) -> None:
    plain = [{"n": n} for n in range(10_000)]
    says(await tell("PUT", "key/k", json.dumps(plain).encode(), **JSON), written=True)
    read, weighed, packed = ticks
    assert min(read, weighed, packed) >= 10
    ticks.clear()
    swap = json.dumps({"expect": plain, "value": plain[:5_000]}).encode()
    says(await tell("POST", "swap/k", swap, **JSON), written=True)
    says(await tell("POST", "swap/k", swap, **JSON), written=False)
    assert len(ticks) == 6 and min(ticks) >= 10
    for body in (swap[:-1] + b',"more":1}', json.dumps(plain).encode()):
        check_error(await tell("POST", "swap/k", body, **JSON), "BadRequest")
    bad = json.dumps([*plain, 1 << 70]).encode()
    check_error(await tell("PUT", "key/k", bad, **JSON), "NumberTooLarge")


async def test_a_body_where_none_is_needed_is_ignored_however_long(tell: Tell) -> None:
    for body in (b"{", b"{" * 5_000, b"{" * 20_000):
        assert (await tell("POST", "incr/n", body)).status == 200


async def test_a_long_value_is_answered_in_turns_and_as_a_short_one_is(
    tell: Tell, surface: HttpSurface, ticks: list[int]
) -> None:
    plain = [{"n": n, "t": {"$dec": "1.50"}} for n in range(10_000)]
    says(await tell("PUT", "key/k?expire=1h", json.dumps(plain).encode(), **JSON), written=True)
    for accept in ("application/json", "application/msgpack"):
        for _ in range(3):  # the head is known from the second on
            ticks.clear()
            answer = await tell("GET", "key/k", accept=accept)
            found: Any = answer.json if accept.endswith("json") else unpack(answer.body)
            assert found.keys() == {"value", "ttl"} and isinstance(found["ttl"], str)
            assert (found["value"] if accept.endswith("json") else to_json(found["value"])) == plain
            assert ticks[0] > 100
            await until(lambda: surface.long_values == 0)  # it is let go behind its answer
    ticks.clear()
    says(await tell("PUT", "key/k", b"[1, 2]", **JSON), written=True)
    says(await tell("GET", "key/k"), value=[1, 2], ttl=None)
    assert not ticks


async def test_only_some_long_values_wait_for_their_turn(
    tell: Tell, surface: HttpSurface, ticks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait are there decoded: of the others none is there for longer than a moment."""
    long = json.dumps([{"n": n} for n in range(10_000)]).encode()
    says(await tell("PUT", "key/k", long, **JSON), written=True)
    says(await tell("PUT", "key/s", json.dumps("x" * 1_000_000).encode(), **JSON), written=True)
    ticks.clear()
    in_turns = await tell("GET", "key/k")
    await until(lambda: surface.long_values == 0)  # it is let go behind its answer
    assert len(ticks) == 2
    ticks.clear()
    with monkeypatch.context() as patch:
        patch.setattr("surfaces.http.spaces.LONG_VALUES", 0)
        assert (await tell("GET", "key/k")).body == in_turns.body
    assert len((await tell("GET", "key/s")).json["value"]) == 1_000_000
    assert not ticks


# --- paths ----------------------------------------------------------------------------------------


async def test_a_key_is_the_rest_of_the_path_decoded_once(tell: Tell) -> None:
    for raw_key, key in [
        ("plain", "plain"), ("a/b/c", "a/b/c"), ("a%2Fb", "a/b"), ("a%252Fb", "a%2Fb"),
        ("a+b", "a+b"), ("a%20b", "a b"), ("%C3%A9", "é"), ("%e2%98%83", "☃"), ("..", ".."),
        ("../../x", "../../x"), ("a//b/", "a//b/"), ("%27%22", "'\""), ("%0a", "\n"),
        ("key", "key"), ("%3F%23", "?#"), ("a:b;c,d@e!$&()*", "a:b;c,d@e!$&()*"),
        ("%F0%9F%98%80", "😀"),
        ("x" * 1024, "x" * 1024), ("%C3%A9" * 512, "é" * 512), ("%7f%01", "\x7f\x01"),
    ]:  # fmt: skip
        with case(raw_key, key):
            says(await tell("PUT", f"key/{raw_key}", b"1"), written=True)
            says(await tell("GET", BASE), keys=[key])
            says(await tell("GET", f"key/{raw_key}"), value=1, ttl=None)
            says(await tell("DELETE", f"key/{raw_key}"), deleted=True)


async def test_a_path_that_names_nothing_is_404(tell: Tell) -> None:
    for method, path, code in [
        ("GET", "/kv/shop/main/none/key/k", "NotASpace"),
        ("GET", "/kv/shop/main/t/key/k", "NotASpace"),
        ("GET", "/kv/shop/none/c/key/k", "NotASpace"),
        ("GET", "/kv/none/main/c/key/k", "NotASpace"),
        ("GET", "/kv/shop/main/none", "NotASpace"),
        ("PUT", "/kv/shop/main/c%20/key/k", "NotASpace"),
        ("PUT", "/kv/shop//c/key/k", "NotASpace"),
        ("POST", "/kv/shop/main/none/incr/k", "NotASpace"),
        ("GET", "/kv", "NoSuchRoute"),
        ("GET", "/kv/", "NoSuchRoute"),
        ("GET", "/kv/shop", "NoSuchRoute"),
        ("GET", "/kv/shop/main", "NoSuchRoute"),
        ("GET", "/kv/shop/main/c/", "NoSuchRoute"),
        ("GET", "/kv/shop/main/c/key", "NoSuchRoute"),
        ("GET", "/kv/shop/main/c/get/k", "NoSuchRoute"),
        ("POST", "/kv/shop/main/c/decr/k", "NoSuchRoute"),
        ("POST", "/kv/shop/main/c/Incr/k", "NoSuchRoute"),
        ("GET", "/KV/shop/main/c", "NoSuchRoute"),
    ]:
        with case(method, path, code):
            check_error(await tell(method, path, b"1" if method == "PUT" else b""), code)


WRONG = [
    ("key/k", ("POST", "PATCH"), "GET, HEAD, PUT, DELETE, OPTIONS"),
    ("", ("POST", "PUT", "DELETE"), "GET, HEAD, OPTIONS"),
    *((f"{word}/k", ("GET", "PUT", "DELETE", "HEAD"), "POST, OPTIONS")
      for word in ("swap", "incr", "expire", "persist", "lock", "unlock")),
]  # fmt: skip


async def test_a_right_operation_with_a_wrong_method_is_405(tell: Tell) -> None:
    for path, methods, allow in WRONG:
        with case(path, methods, allow):
            for method in methods:
                answer = await tell(method, f"{BASE}/{path}" if path else BASE)
                assert answer.status == 405
                assert set(answer.fields["allow"].split(", ")) == set(allow.split(", "))
                if method != "HEAD":
                    check_error(answer, "WrongMethod")


# --- what is refused ------------------------------------------------------------------------------

KEYS_400 = [
    "", "%", "%2", "%zz", "a%", "a%4", "%g0", "%-1", "%u0041", "%00", "a%00b", "%C3", "%ff",
    "%c0%80", "%ed%a0%80", "x" * 1025, "%C3%A9" * 513, "%E2%98%83" * 342, "%F8%88%80%80%80",
    "k%", "%%", "%25%", "k%00", "%C3%28", "%f0%9f%98", "a/%/b", "%20%", "%ZZ%00", "%1", "%0",
]  # fmt: skip
ON_KEY = [
    ("GET", "key", "", b""), ("PUT", "key", "", b"1"), ("DELETE", "key", "", b""),
    ("POST", "swap", "", b"{ expect: 1, value: 2 }"), ("POST", "incr", "", b""),
    ("POST", "expire", "?expire=1h", b""), ("POST", "persist", "", b""),
    ("POST", "lock", "?holder=a&expire=1h", b""), ("POST", "unlock", "?holder=a", b""),
]  # fmt: skip
QUERIES_400 = [
    ("PUT", "key/k?expire=", b"1"), ("PUT", "key/k?expire", b"1"), ("PUT", "key/k?expire=5", b"1"),
    ("PUT", "key/k?expire=0s", b"1"), ("PUT", "key/k?expire=-5s", b"1"),
    ("PUT", "key/k?expire=0", b"1"), ("PUT", "key/k?expire=1h&expire=1h", b"1"),
    ("PUT", "key/k?expire=1h&expire=", b"1"), ("PUT", "key/k?expire=soon", b"1"),
    ("PUT", "key/k?expire=1e3s", b"1"), ("PUT", "key/k?expire=1y", b"1"),
    ("PUT", "key/k?expire=9999999999999999w", b"1"), ("PUT", "key/k?expire=53000w", b"1"),
    ("PUT", "key/k?ttl=5s", b"1"), ("PUT", "key/k?Expire=5s", b"1"), ("PUT", "key/k?if=", b"1"),
    ("PUT", "key/k?if=maybe", b"1"), ("PUT", "key/k?if=ABSENT", b"1"),
    ("PUT", "key/k?if=absent&if=present", b"1"), ("PUT", "key/k?=1", b"1"),
    ("PUT", "key/k?%zz=1", b"1"), ("PUT", "key/k?expire=%zz", b"1"), ("PUT", "key/k?&&", b"1"),
    ("PUT", "key/k?expire=1h%00", b"1"), ("PUT", "key/k?expire=%ff", b"1"),
    ("GET", "key/k?expire=1h", b""), ("DELETE", "key/k?x", b""), ("GET", "key/k?key=k", b""),
    ("POST", "incr/n?by=", b""), ("POST", "incr/n?by=1.5", b""), ("POST", "incr/n?by=abc", b""),
    ("POST", "incr/n?by=1e3", b""), ("POST", "incr/n?by=0x10", b""),
    ("POST", "incr/n?by=%2B1", b""), ("POST", "persist/k?x=1", b""),
    ("POST", "incr/n?by=9223372036854775808", b""), ("POST", "incr/n?by=-9223372036854775809", b""),
    ("POST", "incr/n?by=" + "9" * 400, b""), ("POST", "incr/n?by=1&by=2", b""),
    ("POST", "incr/n?by=%D9%A1", b""), ("POST", "incr/n?by=1_000", b""),
    ("POST", "incr/n?by=+1", b""), ("POST", "expire/k?expire=x", b""),
    ("POST", "incr/n?by=true", b""), ("POST", "incr/n?by=--1", b""), ("POST", "incr/n?by= 1", b""),
    ("POST", "expire/k", b""), ("POST", "expire/k?expire=0s", b""),
    ("POST", "expire/k?expire=-1us", b""), ("POST", "expire/k?expire=1h&expire=2h", b""),
    ("POST", "persist/k?expire=1h", b""), ("POST", "lock/k", b""),
    ("POST", "lock/k?holder=a", b""),
    ("POST", "lock/k?expire=1h", b""), ("POST", "lock/k?holder=&expire=1h", b""),
    ("POST", "lock/k?holder=a&expire=0s", b""), ("POST", "lock/k?holder=a&expire=1", b""),
    ("POST", "lock/k?holder=a&holder=b&expire=1h", b""),
    ("POST", f"lock/k?holder={'x' * 1025}&expire=1h", b""), ("POST", "unlock/k", b""),
    ("POST", "unlock/k?holder=", b""), ("POST", "unlock/k?holder=a&expire=1h", b""),
    ("POST", "unlock/k?holder=a&holder=a", b""), ("POST", "swap/k?if=absent", b"1"),
    ("GET", BASE + "?limit=-1", b""),
    ("GET", BASE + "?limit=1001", b""), ("GET", BASE + "?limit=x", b""),
    ("GET", BASE + "?limit=", b""), ("GET", BASE + "?limit=1&limit=2", b""),
    ("GET", BASE + "?limit=" + "1" * 500, b""), ("GET", BASE + "?prefix=%ff", b""),
    ("GET", BASE + "?prefix=a&prefix=b", b""), ("GET", BASE + "?after=%", b""),
    ("GET", BASE + "?prefix=" + "x" * 1025, b""), ("GET", BASE + "?after=" + "x" * 1025, b""),
    ("GET", BASE + "?start=a", b""), ("GET", BASE + "?limit=5.0", b""),
    ("GET", BASE + "?limit=true", b""),
]  # fmt: skip
BODIES = [
    (b"", TEXT), (b"", JSON), (b"", MSGPACK), (b"'", TEXT), (b"'open", TEXT), (b"1 2", TEXT),
    (b"name", TEXT), (b"$x", TEXT), (b"1 + 1", TEXT), (b"time::now()", TEXT), (b"NONE", TEXT),
    (b"[1, 2", TEXT), (b"{ a: }", TEXT), (b"(SELECT * FROM t)", TEXT), (b"\xff\xfe", TEXT),
    (b"'\xff'", TEXT), (b"1; 2", TEXT), (b"DELETE t", TEXT), (b"9223372036854775808", TEXT),
    (b"1e999", TEXT), (b"1" * 5000, TEXT), (b"[" * 70 + b"]" * 70, TEXT), (b"d'tomorrow'", TEXT),
    (b"u'1'", TEXT), (b"b'!'", TEXT), (b"person:", TEXT), (b"1e9999999dec", TEXT),
    (b"1.{34}dec".replace(b"{34}", b"1" * 40), TEXT), (b"{ a: $b }", TEXT), (b"[1, f(2)]", TEXT),
    (b"{", JSON), (b"nul", JSON), (b"'x'", JSON), (b"1 2", JSON), (b"{'a': 1}", JSON),
    (b"NaN", JSON), (b"Infinity", JSON), (b"-Infinity", JSON), (b"1e999", JSON), (b"\xff", JSON),
    (b'{"a":1,"a":2}', JSON), (b'{"$dec":"x"}', JSON), (b'{"$dec":1}', JSON), (b'{"$x":"1"}', JSON),
    (b'{"$int":"x"}', JSON), (b'{"$int":"99999999999999999999"}', JSON), (b'{"$none":true}', JSON),
    (b"9223372036854775808", JSON), (b"1" * 5000, JSON), (b"[" * 200 + b"]" * 200, JSON),
    (b"[" * 100000, JSON), (b'{"$dt":"x"}', JSON), (b'{"$rec":"x"}', JSON), (b'{"$dur":"x"}', JSON),
    (b'{"$bytes":"!"}', JSON), (b'{"$uuid":"x"}', JSON), (b'"\\ud800"', JSON),
    (b'{"$dec":"1e1000000"}', JSON), (b'{"$obj":1}', JSON), (b'["\\u0000",]', JSON),
    (b"\xc1", MSGPACK), (b"\x91", MSGPACK), (b"\x01\x02", MSGPACK), (b"\xc7\x01\x63\x00", MSGPACK),
    (b"\xdf\xff\xff\xff\xff", MSGPACK), (b"\xdd\xff\xff\xff\xff", MSGPACK), (b"\xa1\xff", MSGPACK),
    (b"\xcb\x7f\xf8\0\0\0\0\0\0", MSGPACK), (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", MSGPACK),
    (b"\x81\x01\x02", MSGPACK), (b"\x91" * 100 + b"\x01", MSGPACK), (b"\xc7\x00\x05", MSGPACK),
    (b"\xc7\x01\x01x", MSGPACK), (b"\xd8\x03", MSGPACK), (b"\xc6\xff\xff\xff\xff", MSGPACK),
    (b"1", {"content_type": "application/xml"}),
    (b"1", {"content_type": "application/x-www-form-urlencoded"}),
    (b"1", {"content_type": "text/plain; charset=latin-1"}),
    (b"1", {"content_type": "text/plain", "content_encoding": "gzip"}),
]  # fmt: skip
SWAPS = [
    b"1", b"[]", b"{}", b"{ expect: 1 }", b"{ value: 1 }", b"{ expect: 1, value: 2, more: 3 }",
    b"{ Expect: 1, value: 2 }", b"{ expect: 1, value: NONE }", b"'x'", b"",
]  # fmt: skip


async def test_hostile_keys_queries_and_bodies_are_each_refused_by_name(
    port: int, bearer: str, figure: Any, node: Node
) -> None:
    """Each on a connection of its own: some of them end it."""
    requests = [
        (method, f"{BASE}/{word}/{key}{query}", body, dict(TEXT) if body else {})
        for key in KEYS_400
        for method, word, query, body in ON_KEY
    ]
    requests += [
        (method, path if path.startswith("/") else f"{BASE}/{path}", body, TEXT if body else {})
        for method, path, body in QUERIES_400
    ]
    requests += [("PUT", f"{BASE}/key/k", body, fields) for body, fields in BODIES]
    requests += [("POST", f"{BASE}/swap/k", body, TEXT) for body in SWAPS]
    wrong, codes = [], set()
    for method, path, body, fields in requests:
        async with await Raw.connect(port) as one:
            await one.send(request(method, path, body, authorization=bearer, **fields))
            answer = await one.answer(method)
        code = answer.json.get("error", {}).get("code")
        codes.add(code)
        if not 400 <= answer.status < 500 or code not in CATALOGUE or answer.status == 404:
            wrong.append(f"{method} {path[:80]} {body[:40]!r} {fields} {answer.status} {code}")
    assert not wrong, "\n".join(wrong)
    figure("hostile keys, queries and bodies under /kv", f"{len(requests)}, each a named 4xx")
    assert len(requests) >= 200
    assert await run(node, "KEYS FROM c") == {"keys": []}


async def test_a_body_over_the_limit_is_refused_by_its_length_and_while_it_comes(
    port: int, bearer: str
) -> None:
    whole = b"'" + b"x" * (limits.CACHE_VALUE_BYTES - 2) + b"'"
    for body, status in ((whole, 413), (whole[:-8] + b"'", 200), (whole + b" ", 413)):
        async with await Raw.connect(port) as one:
            assert (
                await one.ask("PUT", f"{BASE}/key/k", body, authorization=bearer, **TEXT)
            ).status == status, len(body)
    async with await Raw.connect(port) as one:
        head = request("PUT", f"{BASE}/key/k", authorization=bearer, **TEXT)
        head = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await one.send(head)
        for _ in range(17):
            await one.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        check_error(await one.answer(), "TooLarge")


# --- roles, rights, connections -------------------------------------------------------------------


async def test_without_the_writable_role_reads_go_on(tell: Tell, node: Node) -> None:
    await tell("PUT", "key/k", b"1")
    await run(node, "DEFINE NODE ROLES serving")
    says(await tell("GET", "key/k"), value=1, ttl=None)
    says(await tell("GET", BASE), keys=["k"])
    for method, word, query, body in ON_KEY[1:]:
        check_error(await tell(method, f"{word}/k{query}", body), "NotWritable")
    await run(node, "DEFINE NODE ROLES NONE")
    check_error(await tell("GET", "key/k"), "Draining")


@pytest.mark.parametrize("route", ["key", "script"])
@pytest.mark.parametrize(
    ("how", "change"),
    [
        ("token", "sign out"),
        ("token", "ALTER USER ben SET PASSWORD 'another password'"),
        ("password", "ALTER USER ben SET PASSWORD 'another password'"),
        ("password", "DROP USER ben; DEFINE USER ben ROLE owner PASSWORD 'another password'"),
    ],
)
async def test_a_credential_that_ends_while_the_body_is_read_does_nothing(
    node: Node,
    surface: HttpSurface,
    raw: Raw,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
    route: str,
    how: str,
    change: str,
) -> None:
    await run(node, "DEFINE USER ben ROLE editor PASSWORD 'a long password'")
    basic = "Basic " + base64.b64encode(b"ben:a long password").decode()
    token = "Bearer " + (await raw.ask("POST", "/session", authorization=basic)).json["token"]
    work, changed = surface.long_work.run, 0

    async def works_slowly(*given: Any) -> Any:
        nonlocal changed
        found = await work(*given)
        changed += 1
        if changed == 1 and change == "sign out":
            await ask(node.sessions, SignOut(token.split()[1]))
        elif changed == 1:
            await run(node, change)
        return found

    monkeypatch.setattr(surface.long_work, "run", works_slowly)
    value = "x" * (1 + LONG if route == "script" else LONG_BODY)
    given = {"authorization": {"token": token, "password": basic}[how], **TEXT}
    if route == "key":
        answer = await raw.ask("PUT", f"{BASE}/key/k", f"'{value}'".encode(), **given)
    else:
        text = f"USE shop.main; SET 'k' IN c VALUE '{value}'"
        answer = await raw.ask("POST", "/script", text.encode(), **given)
    assert changed, "it is read in turns"
    assert answer.status == 401, answer.body
    assert (await tell("GET", "key/k")).status == 404


async def test_64_clients_that_count_lose_nothing(port: int, bearer: str) -> None:
    async def count() -> list[int]:
        async with await Raw.connect(port) as one:
            return [
                (await one.ask("POST", f"{BASE}/incr/n", authorization=bearer)).json["value"]
                for _ in range(10)
            ]

    found = await asyncio.gather(*(count() for _ in range(64)))
    assert sorted(number for each in found for number in each) == list(range(1, 641))
    for each in found:
        assert each == sorted(each)


# --- sequences ------------------------------------------------------------------------------------


async def test_what_has_changed_something_says_at_which_commit(node: Node, tell: Tell) -> None:
    for method, path, body in (
        ("PUT", "key/a", b"1"), ("POST", "incr/a", b""), ("DELETE", "key/a", b""),
        ("POST", "lock/l?holder=h&expire=1m", b""), ("POST", "unlock/l?holder=h", b""),
    ):  # fmt: skip
        for headers in ({}, {"accept": "application/msgpack"}):
            answer = await tell(method, path, body, **headers)
            seq = answer.fields.get("store-seq")
            if "a" in path and method == "DELETE" and headers:
                assert seq is None, "nothing was deleted"
            elif "unlock" in path and headers:
                assert seq is None, "nothing was released"
            else:
                assert seq is not None and 0 < int(seq) <= node.committer.commit_index, path
    for path in ("key/b", "?limit=1"):
        assert "store-seq" not in (await tell("GET", path)).fields
