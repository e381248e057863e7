"""`docs/wire.md` against the code: kinds, bodies, limits, and the bytes of its example.

The rules of `docs/clients.md`: their numbers, and their figures against the Python client.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from protocol import binary, limits
from protocol.conversation import HELLO_BYTES
from protocol.frames import FROM_CLIENT, FROM_NODE, FrameReader, MessageKind, WireMessage
from storeclient import (
    attempts,
    backups,
    connection,
    exchange,
    groups,
    nodes,
    outages,
    pulse,
    topics,
)
from storeclient import feeds as client_feeds
from surfaces.wire import bodies, feeds, spaces
from surfaces.wire import topics as topic_bodies
from surfaces.wire import vaults as vault_bodies
from tests.architecture.sources import ROOT

STORE = "0b9f3a62-7c1e-4e0b-9d4e-3f3a5f0d9f11"
PAGE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
RULES = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
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
        WireMessage(MessageKind.HELLO, 0, hello),
        WireMessage(MessageKind.RUN, 1, {"script": "RETURN $n", "params": {"n": Decimal("12.30")}}),
        WireMessage(
            MessageKind.ANSWER, 1, {"results": [result], "seq": 8123, "store": STORE, "epoch": 1}
        ),
        WireMessage(MessageKind.PING, 2, None),
        WireMessage(MessageKind.PONG, 2, None),
        WireMessage(MessageKind.BYE, 0, None),
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
        for kind in MessageKind
    }
    assert {name: (int(number), who) for number, name, who in rows} == {
        kind.name: (int(kind), said[kind.name]) for kind in MessageKind
    }


def test_every_field_stands_there() -> None:
    def fields(kind: str) -> set[str]:
        row = next(line for line in PAGE.splitlines() if re.match(rf"\| \d+ \| {kind} \|", line))
        return set(re.findall(r"`(\w+)`", row))

    assert fields("HELLO") == bodies._HELLO
    assert fields("AUTH") == bodies._AUTH
    assert fields("RUN") == set(bodies._RUN)
    assert fields("WATCH") == feeds._WATCH


def test_every_field_of_an_operation_stands_there() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|[^|]*\|$", PAGE, re.MULTILINE))
    for place, operations in (
        (spaces._PLACE, spaces._OPERATIONS),
        (topic_bodies._COMMON, topic_bodies._OPERATIONS),
        (vault_bodies._WHERE, vault_bodies._OPERATIONS),
    ):
        for word, (fields, _) in operations.items():
            assert set(re.findall(r"`(\w+)`", rows[word])) == fields - place, word


def test_rules_of_clients_are_numbered_one_by_one() -> None:
    numbers = [int(number) for number in re.findall(r"^- \*\*C(\d+)\*\* ", RULES, re.MULTILINE)]
    # Numbers stay; a new rule stands beside those of its subject.
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert {int(number) for number in re.findall(r"\bC(\d+)\b", RULES)} == set(numbers)


def test_rules_of_clients_have_the_figures_of_the_python_client() -> None:
    rules = dict(re.findall(r"^- \*\*(C\d+)\*\* (.*?)(?=^- \*\*|^#|\Z)", RULES, re.M | re.S))
    for rule, *figures in (
        ("C2", nodes.KNOWN),
        (
            "C3",
            f"{nodes.BACKOFF_FIRST_SECONDS * 1000:g} ms",
            f"{nodes.BACKOFF_MOST_SECONDS * 1000:g} ms",
        ),
        ("C5", *(f"{seconds:g}" for seconds in connection.KEEPALIVE.values())),
        ("C7", list(exchange.MINORS)),
        ("C15", f"{connection.GRACE_SECONDS:g} s"),
        (
            "C16",
            f"{pulse.QUIET_SECONDS:g} s",
            f"{pulse.ANSWER_SECONDS:g} s more",
            f"{exchange.SMALL // 1024} KiB",
        ),
        ("C16", f"{pulse.QUIET_SECONDS + pulse.LEAVING_SECONDS:g} s"),
        ("C20", f"{outages.RETRY_FIRST_SECONDS * 1000:g} ms", f"{outages.RETRY_MOST_SECONDS:g} s"),
        ("C27", f"{nodes.AWAY_SECONDS:g} s"),
        ("C37", topics.TOGETHER),
        ("C38", f"{groups.TAKE_WAIT.total_seconds():g} s", topics.PAGE),
        ("C39", groups.BATCH),
        ("C40", groups.RECEIPT, groups.STALE),
        ("C45", f"{client_feeds.BEHIND_BYTES // 2**20} MiB"),
        ("C48", f"{backups.AHEAD_BYTES // 2**20} MiB"),
    ):
        for figure in figures:
            assert str(figure) in rules[rule], rule
    assert f"{attempts.BREAKS_MOST} times at most (C20)" in RULES


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
