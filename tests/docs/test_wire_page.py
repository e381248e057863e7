"""`docs/wire.md` against the code: kinds, bodies, limits, and the bytes of its example."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from protocol import binary, limits
from protocol.conversation import HELLO_BYTES
from protocol.frames import FROM_CLIENT, FROM_NODE, FrameReader, Kind, Message
from surfaces.wire import bodies, feeds
from tests.architecture.sources import ROOT

STORE = "0b9f3a62-7c1e-4e0b-9d4e-3f3a5f0d9f11"
PAGE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.split("## A conversation, byte by byte")[1].split("## Minors")[0]


def bytes_of(block: str) -> bytes:
    """The hex of a block: pairs of digits, what stands in quotes or brackets and words left out."""
    found = b""
    for line in block.splitlines():
        for column in re.split(r"\s{2,}", line.strip()):
            if re.fullmatch(r"(?:[0-9a-f]{2})(?: [0-9a-f]{2})*", column):
                found += bytes.fromhex(column)
    return found


def test_the_example_is_what_is_said() -> None:
    reader = FrameReader()
    for block in re.findall(r"```\n(.*?)```", EXAMPLE, re.DOTALL):
        reader.feed(bytes_of(block))
    hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "client": "demo/1", "token": "t0k"}
    result = {
        "value": Decimal("12.30"),
        "kind": "value",
        "rows": 0,
        "took": timedelta(microseconds=180),
    }
    for expected in (
        Message(Kind.HELLO, 0, hello),
        Message(Kind.RUN, 1, {"script": "RETURN $n", "params": {"n": Decimal("12.30")}}),
        Message(Kind.ANSWER, 1, {"results": [result], "seq": 8123, "store": STORE, "epoch": 1}),
        Message(Kind.PING, 2, None),
        Message(Kind.PONG, 2, None),
        Message(Kind.BYE, 0, None),
    ):
        message = reader.next()
        assert message is not None and message._replace(size=0) == expected
    assert reader.unread == 0


def test_every_kind_stands_there_with_who_says_it() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z]+) \| (\w+) \|", PAGE, re.MULTILINE)
    said = {
        kind.name: "both"
        if kind in FROM_CLIENT & FROM_NODE
        else ("client" if kind in FROM_CLIENT else "node")
        for kind in Kind
    }
    assert {name: (int(number), who) for number, name, who in rows} == {
        kind.name: (int(kind), said[kind.name]) for kind in Kind
    }


def test_every_field_stands_there() -> None:
    def fields(kind: str) -> set[str]:
        row = next(line for line in PAGE.splitlines() if re.match(rf"\| \d+ \| {kind} \|", line))
        return set(re.findall(r"`(\w+)`", row))

    assert fields("HELLO") == bodies._HELLO
    assert fields("AUTH") == bodies._AUTH
    assert fields("RUN") == set(bodies._RUN)
    assert fields("WATCH") == feeds._WATCH


def test_the_newest_minor_is_the_last_that_stands_there() -> None:
    minors = [
        int(number) for number in re.findall(r"^\| (\d+) \| ", PAGE.split("## Minors")[1], re.M)
    ]
    assert max(minor for minor in minors if minor <= bodies.MINOR) == bodies.MINOR


def test_extensions_and_limits() -> None:
    for name in ("decimal", "duration", "uuid", "record", "none"):
        assert f"| {name} | {getattr(binary, 'EXT_' + name.upper())} |" in PAGE
    assert HELLO_BYTES == 16 * limits.KIB
    for number in (limits.FRAME_BYTES, limits.ELEMENTS, limits.CONTAINERS):
        assert f"{number:,}".replace(",", " ") in PAGE
    for number in (limits.DEPTH, limits.GREETING_SECONDS, limits.RUNNING + 1):
        assert str(number) in PAGE
    assert f"{limits.CONNECTIONS + 1:,}".replace(",", " ") in PAGE
