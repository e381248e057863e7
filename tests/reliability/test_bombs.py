"""Small requests that would cost much, sent to a real node."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess, serving

MIB = 1024 * 1024
GROWTH = 32 * MIB
DIGITS = "9" * MIB

TEXTS = {
    "an exponent": "RETURN 1e1000000dec",
    "an int": f"RETURN {DIGITS}",
    "a decimal": f"RETURN {DIGITS}dec",
    "a record id": f"RETURN t:{DIGITS}",
    "an int of a decimal": "RETURN type::int(1e6143dec)",
    "a power of ints": "RETURN math::pow(2, 9223372036854775807)",
    "a power of decimals": "RETURN math::pow(1.0000001dec, 9e6143dec)",
    "a range": "RETURN 1..9223372036854775807",
    "a loop": "FOR $i IN 1..=9223372036854775807 { type::int('x') }",
    "a repeated repetition": "RETURN 'a' ~ '((a{100}){100}){100}'",
    "a large pattern": "RETURN 'a' ~ '" + "\\\\pL{100}" * 20 + "'",
    "strings doubled": "LET $x = 'xxxxxxxx'; FOR $i IN 1..60 { LET $x = $x + $x }",
    "strings replaced": "LET $x = 'xxxxxxxx';"
    " FOR $i IN 1..20 { LET $x = string::replace($x, 'x', 'xxxxxxxxxx') }",
    "arrays doubled": "LET $x = [1]; FOR $i IN 1..60 { LET $x = $x + $x }",
    "arrays nested": "LET $x = [1]; FOR $i IN 1..60 { LET $x = [$x, $x] }",
    "objects nested": "LET $x = { a: 1 }; FOR $i IN 1..60 { LET $x = { a: $x, b: $x } }",
    "a position": "UPDATE t:1 SET a[1000000000] = 1",
    "a path": "UPDATE t:1 SET " + ".".join("a" * 10_000) + " = 1",
    "parentheses": "(" * MIB,
    "signs": "- " * MIB,
    "negations": "NOT " * MIB,
    "sums": "RETURN 1" + "+1" * MIB,
    "a text": "RETURN '" + "x" * MIB,
    "statements": "1;" * 300_000,
    "numbers": "RETURN [" + "1," * 8 * MIB + "1]",
    "rows": "INSERT INTO t [" + "{a:1}," * 2 * MIB + "{a:1}]",
    "assignments": "UPDATE t SET " + ",".join(f"a{n}=1" for n in range(200_000)),
    "sources": "SELECT * FROM " + "t," * 200_000 + "t",
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 100_000,
}


def _with(value: str) -> str:
    return '{"script": "RETURN 1", "params": {"a": ' + value + "}}"


JSON = {
    "depth": _with("[" * 100_000 + "]" * 100_000),
    "digits": _with(DIGITS),
    "a float": _with("1e" + DIGITS),
    "a decimal": _with('{"$dec": "' + DIGITS + '"}'),
    "an exponent": _with('{"$dec": "1e999999999"}'),
    "a record": _with('{"$rec": "t:' + "[" * MIB + '"}'),
    "a duration": _with('{"$dur": "' + DIGITS + 'w"}'),
    "a datetime": _with('{"$dt": "' + DIGITS + '"}'),
    "objects in objects": _with('{"$obj":' * 1000 + "{}" + "}" * 1000),
}


def _packed(value: bytes) -> bytes:
    return b"\x82\xa6script\xa11\xa6params\x81\xa1a" + value


MSGPACK = {
    "an array of 4 G": _packed(b"\xdd\xff\xff\xff\xff"),
    "an object of 4 G": _packed(b"\xdf\xff\xff\xff\xff"),
    "a string of 4 G": _packed(b"\xdb\xff\xff\xff\xff"),
    "bytes of 4 G": _packed(b"\xc6\xff\xff\xff\xff"),
    "a value of 4 G": _packed(b"\xc9\xff\xff\xff\xff\x01"),
    "depth": _packed(b"\x91" * MIB + b"\x01"),
    "empty arrays": _packed(b"\xdd\x00\x10\x00\x00" + b"\x90" * MIB),
    "a decimal": _packed(b"\xc9\x00\x10\x00\x00\x01" + b"9" * MIB),
}
BOMBS = [
    *((f"text: {name}", "text/plain", text.encode()) for name, text in TEXTS.items()),
    *((f"JSON: {name}", "application/json", text.encode()) for name, text in JSON.items()),
    *((f"msgpack: {name}", "application/msgpack", body) for name, body in MSGPACK.items()),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder: Path = tmp_path_factory.mktemp("bombs")
    with serving(folder / "store") as running:
        made = running.script(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TABLE t;"
            "CREATE t:1"
        )
        assert "error" not in made
        yield running
        assert running.stop() == 0
        assert not [line for line in running.lines if line.get("level") == "error"]


def memory(node: NodeProcess, field: str) -> int:
    """A figure of the process in bytes: `VmRSS`, or `VmHWM`, the most since `forget_peak`."""
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def forget_peak(node: NodeProcess) -> None:
    Path(f"/proc/{node.process.pid}/clear_refs").write_text("5")


def grown(node: NodeProcess, body: bytes, kind: str, token: str) -> tuple[int, str, int]:
    """Status, code and growth of one request; its own bytes, held a few times over on the way from
    the socket to the parser, are no growth."""
    connection = http.client.HTTPConnection(*node.address("http"), timeout=START_SECONDS)
    try:
        forget_peak(node)
        before = memory(node, "VmRSS")
        connection.request(
            "POST",
            "/script",
            body,
            {
                "Authorization": f"Bearer {token}",
                "Content-Type": kind,
                "Store-Namespace": "shop",
                "Store-Database": "main",
            },
        )
        answer = connection.getresponse()
        found = json.loads(answer.read())
        peak = memory(node, "VmHWM") - before - 4 * len(body)
        return answer.status, found.get("error", {}).get("code", ""), peak
    finally:
        connection.close()


def test_every_bomb_is_refused_by_name_and_costs_no_memory(node: NodeProcess) -> None:
    token = node.request("POST", "/session").json["token"]
    for _ in range(3):  # buffers that are kept for later are no growth either
        grown(node, _with('"' + "x" * MIB + '"').encode(), "application/json", token)
    wrong: list[str] = []
    worst, slowest = 0, (0.0, "")
    for name, kind, body in BOMBS:
        began = time.monotonic()
        status, code, growth = grown(node, body, kind, token)
        slowest = max(slowest, (time.monotonic() - began, name))
        worst = max(worst, growth)
        if not 400 <= status < 500 or not code or growth > GROWTH:
            wrong.append(f"{name}: {status} {code}, {growth // MIB} MiB more")
    print(
        f"S5 value bombs: {len(BOMBS)} refused, at most {worst // MIB} MiB more,"
        f" the slowest in {slowest[0] * 1000:.0f} ms ({slowest[1]})"
    )
    assert not wrong, "\n".join(wrong)
    assert node.script("RETURN 1")["results"][0]["value"] == 1
