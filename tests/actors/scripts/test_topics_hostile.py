"""What nobody should send to a topic: each is refused by name, or harmless, and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from protocol import limits
from protocol.values import NONE
from tests.nodes import Running
from tests.receipts import named, settled
from tests.tables import case

DECLARED = """
    DEFINE TOPIC t LARGEST 1KiB; DEFINE TOPIC u; DEFINE TOPIC d DEDUP 1h; DEFINE READER r ON t;
    DEFINE GROUP g ON t DEADLINE 1h IN FLIGHT 5; DEFINE GROUP h ON u DEADLINE 1h;
    PUBLISH INTO t VALUES [1, 2, 3]; PUBLISH INTO u VALUES [1, 2, 3]; TAKE FROM t AS g
"""
BIG = 2**63 - 1
NAME = "x" * 65

SCRIPTS: dict[str, tuple[str, ...]] = {
    "names": (
        f"DEFINE TOPIC {NAME}", f"DEFINE TOPIC `{NAME}`", "DEFINE TOPIC `a b`",
        "DEFINE TOPIC `a.b`", "DEFINE TOPIC ``", "DEFINE TOPIC `ä`", "DEFINE TOPIC 1t",
        "DEFINE TOPIC '../t'", "DEFINE GROUP `a/b` ON t DEADLINE 1s",
        f"DEFINE GROUP {NAME} ON t DEADLINE 1s", "DEFINE READER `a b` ON t",
        f"DEFINE READER {NAME} ON t", "PUBLISH INTO absent VALUE 1", "READ FROM absent AFTER 0",
        "READ FROM t AS absent", "TAKE FROM absent AS g", "TAKE FROM t AS absent",
        "TAKE FROM u AS g", "ACK t AS absent RECEIPTS []", "INFO FOR TOPIC absent",
        "INFO FOR GROUP absent ON t", "DROP TOPIC absent", "DROP GROUP absent ON t",
        "DROP READER absent ON t", "ALTER TOPIC absent SET KEEP 1h",
        "ALTER GROUP absent ON t SET POSITION END", "ALTER READER absent ON t SET POSITION END",
        "TRIM TOPIC absent BEFORE 1", "REDRIVE FROM absent TO t", "REDRIVE FROM t TO absent",
        "DEFINE TOPIC t", "DEFINE GROUP g ON t DEADLINE 1s", "DEFINE READER r ON t",
        "DEFINE GROUP x ON t DEADLINE 1s DEAD LETTER absent",
        "DEFINE GROUP x ON t DEADLINE 1s DEAD LETTER t", "REDRIVE FROM t TO t",
    ),
    "sizes": (
        "DEFINE TOPIC x LARGEST 9MiB", "DEFINE TOPIC x LARGEST 0", "DEFINE TOPIC x LARGEST -1",
        "DEFINE TOPIC x BYTES 0", "DEFINE TOPIC x BYTES -5", f"DEFINE TOPIC x BYTES {BIG}0",
        "DEFINE TOPIC x BYTES 99999999999999999GiB", "DEFINE TOPIC x KEEP 0s",
        "DEFINE TOPIC x KEEP -1s", "DEFINE TOPIC x KEEP 99999999w", "DEFINE TOPIC x DEDUP 0s",
        "DEFINE TOPIC x DEDUP -1h", "ALTER TOPIC t SET LARGEST 1GiB", "ALTER TOPIC t SET KEEP -1s",
        "ALTER TOPIC t SET BYTES 0", "DEFINE GROUP x ON t DEADLINE 0s",
        "DEFINE GROUP x ON t DEADLINE -1s", "DEFINE GROUP x ON t DEADLINE 1s IN FLIGHT 0",
        "DEFINE GROUP x ON t DEADLINE 1s IN FLIGHT 100001",
        "DEFINE GROUP x ON t DEADLINE 1s IN FLIGHT -1",
        "DEFINE GROUP x ON t DEADLINE 1s DELIVERIES 0",
        "DEFINE GROUP x ON t DEADLINE 1s DELIVERIES 99999999999",
        "DEFINE GROUP x ON t DEADLINE 1s BACKOFF " + ", ".join(["1s"] * 33),
        "DEFINE GROUP x ON t DEADLINE 1s BACKOFF -1s", "ALTER GROUP g ON t SET DEADLINE 0s",
        "ALTER GROUP g ON t SET IN FLIGHT 0", "ALTER GROUP g ON t SET DELIVERIES 0",
        "ALTER GROUP g ON t SET DEAD LETTER t", "ALTER GROUP g ON t SET DEAD LETTER absent",
        "PUBLISH INTO t VALUES []", "PUBLISH INTO t VALUES 5", "PUBLISH INTO t VALUES {a: 1}",
        "PUBLISH INTO t VALUES 0..10001", "PUBLISH INTO t VALUE NONE",
        "PUBLISH INTO t VALUES [1, NONE]", "TAKE 0 FROM t AS g", "TAKE -1 FROM t AS g",
        "TAKE 1001 FROM t AS g", f"TAKE {BIG} FROM t AS g", "TAKE 1.5 FROM t AS g",
        "TAKE 'one' FROM t AS g", "READ FROM t AFTER 0 LIMIT 0", "READ FROM t AFTER 0 LIMIT 1001",
        "READ FROM t AFTER 0 LIMIT -1", "REDRIVE FROM u TO t LIMIT 0",
        "REDRIVE FROM u TO t LIMIT 10001",
    ),
    "positions": (
        "READ FROM t AFTER -1", "READ FROM t AFTER 1.0", "READ FROM t AFTER 'x'",
        "READ FROM t AFTER NULL", "READ FROM t AFTER true", "TRIM TOPIC t BEFORE -1",
        "TRIM TOPIC t BEFORE 'x'", "COMMIT READER r ON t AT -1", "COMMIT READER r ON t AT 4",
        f"COMMIT READER r ON t AT {BIG}", "COMMIT READER r ON t AT 1.5",
        "ALTER READER r ON t SET POSITION -1", "ALTER READER r ON t SET POSITION 4",
        "ALTER READER r ON t SET POSITION TIME 5", "ALTER GROUP g ON t SET POSITION -1",
        f"ALTER GROUP g ON t SET POSITION {BIG}",
        "ALTER GROUP g ON t SET POSITION TIME 'yesterday'", "DEFINE READER x ON t AT 4",
        "DEFINE GROUP x ON t DEADLINE 1s AT 4", "PUBLISH INTO t VALUE 1 EXPECT 2",
        "PUBLISH INTO t VALUE 1 EXPECT -1", "PUBLISH INTO t VALUE 1 EXPECT 'x'",
    ),
    "times": (
        "PUBLISH INTO t VALUE 1 DELAY -1s", "PUBLISH INTO t VALUE 1 DELAY 60000w",
        "PUBLISH INTO t VALUE 1 DELAY 5", "PUBLISH INTO t VALUE 1 AT 5",
        "PUBLISH INTO t VALUE 1 AT 'tomorrow'",
        "PUBLISH INTO t VALUE 1 AT d'9999-12-31T23:59:59Z'", "NACK t AS g RECEIPTS [] DELAY -1s",
        "NACK t AS g RECEIPTS [] DELAY 5", "EXTEND t AS g RECEIPTS [] BY 0s",
        "EXTEND t AS g RECEIPTS [] BY -1s", "EXTEND t AS g RECEIPTS [] BY 60000w",
        "TAKE FROM t AS g WAIT -1s", "TAKE FROM t AS g WAIT 5m1us", "TAKE FROM t AS g WAIT 1",
        "READ FROM t AFTER 0 WAIT 'long'", "READ FROM t AFTER 0 WAIT NULL",
    ),
    "receipts": (
        "ACK t AS g RECEIPTS 'x'", "ACK t AS g RECEIPTS NULL", "ACK t AS g RECEIPTS {a: 1}",
        "ACK t AS g RECEIPTS [1]", "ACK t AS g RECEIPTS [NULL]",
        "ACK t AS g RECEIPTS [['00000000.1.1.1.1']]", "ACK t AS g RECEIPTS ['']",
        "ACK t AS g RECEIPTS ['1']", "ACK t AS g RECEIPTS ['00000000.1.1.1']",
        "ACK t AS g RECEIPTS ['00000000.1.1.1.1.1']", "ACK t AS g RECEIPTS ['a.b.c.d']",
        "ACK t AS g RECEIPTS ['-1.1.1.1']", "ACK t AS g RECEIPTS ['00000000.1.1.1.1 ']",
        "ACK t AS g RECEIPTS ['00000000.1.1.1e5.1']", "ACK t AS g RECEIPTS ['１.1.1.1']",
        "ACK t AS g RECEIPTS ['00000000.1.1.1.0x1']",
        f"ACK t AS g RECEIPTS ['00000000.1.1.{'9' * 400}.1']",
        "ACK t AS g RECEIPTS ['00000000.1.1.1_0.1']",
        f"ACK t AS g RECEIPTS ['00000000.1.1.{BIG}.1']",
        f"ACK t AS g RECEIPTS ['00000000.1.1.{2**64}.1']", "NACK t AS g RECEIPTS ['nonsense']",
        "GIVE UP t AS g RECEIPTS ['nonsense']", "EXTEND t AS g RECEIPTS ['nonsense'] BY 1s",
    ),
}  # fmt: skip

PARAMETERS: dict[str, tuple[str, Any]] = {
    "a message too large": ("PUBLISH INTO t VALUE $v", "x" * 2_000),
    "one of many too large": ("PUBLISH INTO t VALUES $v", [1, "x" * 2_000]),
    "an empty key": ("PUBLISH INTO t VALUE 1 KEY $v", ""),
    "a long key": ("PUBLISH INTO t VALUE 1 KEY $v", "x" * 1025),
    "a key with NUL": ("PUBLISH INTO t VALUE 1 KEY $v", "a\0b"),
    "a key that is a number": ("PUBLISH INTO t VALUE 1 KEY $v", 5),
    "a key of NONE": ("PUBLISH INTO t VALUE 1 KEY $v", NONE),
    "an empty id": ("PUBLISH INTO d VALUE 1 ID $v", ""),
    "a long id": ("PUBLISH INTO d VALUE 1 ID $v", "é" * 600),
    "an id with NUL": ("PUBLISH INTO d VALUE 1 ID $v", "\0"),
    "an id that is an array": ("PUBLISH INTO d VALUE 1 ID $v", ["x"]),
    "headers that are no object": ("PUBLISH INTO t VALUE 1 HEADERS $v", "x"),
    "a header that is a number": ("PUBLISH INTO t VALUE 1 HEADERS $v", {"a": 1}),
    "a header that is null": ("PUBLISH INTO t VALUE 1 HEADERS $v", {"a": None}),
    "too many headers": ("PUBLISH INTO t VALUE 1 HEADERS $v", {f"h{n}": "" for n in range(65)}),
    "headers too large": ("PUBLISH INTO u VALUE 1 HEADERS $v", {"h": "x" * 70_000}),
    "too many messages": ("PUBLISH INTO t VALUES $v", [0] * 10_001),
    "too many receipts": ("ACK t AS g RECEIPTS $v", ["00000000.1.1.1.1"] * 10_001),
    "a long error": ("NACK t AS g RECEIPTS [] ERROR $v", "x" * 4_097),
    "an error that is a number": ("GIVE UP t AS g RECEIPTS [] ERROR $v", 5),
    "a long member": ("TAKE FROM t AS g MEMBER $v", "x" * 257),
    "a member that is a number": ("TAKE FROM t AS g MEMBER $v", 5),
    "a wait of ages": ("TAKE FROM t AS g WAIT $v", timedelta(days=999_999)),
    "a delay of ages": ("PUBLISH INTO t VALUE 1 DELAY $v", timedelta(days=999_999_999)),
    "a wait before now": ("READ FROM t AFTER 9 WAIT $v", timedelta(days=-999_999)),
    "a position of bytes": ("READ FROM t AFTER $v", b"\xff"),
    "a deep message": ("PUBLISH INTO u VALUE $v", "deep"),
    "half a character": ("PUBLISH INTO u VALUE $v", "\ud800"),
    "half a character as key": ("PUBLISH INTO u VALUE 1 KEY $v", "\ud800"),
    "half a character in a header": ("PUBLISH INTO u VALUE 1 HEADERS $v", {"a": "\udfff"}),
}

STALE = (
    "1.1.2.1", "1.1.1.2", "1.2.1.1", "2.1.1.1", "9.1.1.1", "1.9.9.9", "0.0.0.0",
    "1.1.999999999999.1", f"{2**32 - 1}.1.1.1",
)  # fmt: skip
"""Receipts of the right form that were never given, or of another group; behind their topic's."""


@pytest.fixture
async def here(node: Running) -> AsyncIterator[Running]:
    """A node with topics, whose figures are the same after the test."""
    await node.values(DECLARED)
    before = await figures(node)
    yield node
    assert await figures(node) == before
    assert len(node.node.topics.waits) == 0


async def figures(node: Running) -> list[Any]:
    return await node.values("INFO FOR TOPIC t; INFO FOR TOPIC u; INFO FOR TOPIC d;"
                             " READ FROM t AFTER 0; READ FROM u AFTER 0")  # fmt: skip


async def test_hostile_statements(here: Running, figure: Callable[[str, object], None]) -> None:
    for kind in SCRIPTS:
        with case(kind):
            for script in SCRIPTS[kind]:
                answer = await here.answer(script)
                assert answer.refusal is not None, script
                assert 400 <= answer.refusal.status < 500, (script, answer.refusal)
                assert answer.refusal.code != "Failed"
            figure(
                f"hostile statements on topics: {kind}", f"{len(SCRIPTS[kind])}, each a named 4xx"
            )


async def test_hostile_parameters(here: Running) -> None:
    for what in PARAMETERS:
        with case(what):
            script, value = PARAMETERS[what]
            if value == "deep":
                value = 1
                for _ in range(limits.DEPTH + 1):
                    value = [value]
            answer = await here.answer(script, {"v": value})
            assert answer.refusal is not None, what
            assert 400 <= answer.refusal.status < 500, (what, answer.refusal)


async def test_receipts_that_were_never_given(here: Running) -> None:
    for receipt in STALE:
        with case(receipt):
            receipt = f"{named(1, here.node.store.id[:8])}.{receipt}"
            for word, answer in (("ACK", "acked"), ("NACK", "nacked"), ("GIVE UP", "given_up")):
                said = await here.value(f"{word} t AS g RECEIPTS $r", {"r": [receipt]})
                assert said == settled(answer, 0, [receipt]), word
            said = await here.value("EXTEND t AS g RECEIPTS $r BY 1s", {"r": [receipt]})
            assert said == settled("extended", 0, [receipt])
