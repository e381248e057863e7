"""Frames that are too deep, and messages that nothing waits for. All else that a peer may do wrong
is in `clients/conformance/cases/malformed.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from storeclient.errors import ProtocolBroken
from storeclient.exchange import Exchange, FeedEnded
from storeclient.frames import FrameReader, Kind

TOOK = msgpack.ExtType(2, bytes(8))
RESULT: dict[str, Any] = {"value": 1, "kind": "value", "rows": 0, "took": TOOK}


def frame(kind: int, id: int, body: Any) -> bytes:
    packed: bytes = msgpack.packb([kind, id, body])
    return len(packed).to_bytes(4, "big") + packed


def test_records_in_records_without_end() -> None:
    """Each would take the stack of a decoder, and enough of them the process."""
    chain: bytes = msgpack.packb(1)
    for _ in range(5_000):
        inner = b"\x92\xa1t" + chain
        chain = b"\xc9" + len(inner).to_bytes(4, "big") + b"\x04" + inner
    body = b"\x93\x22\x01\x82\xa3seq\x01\xa7results" + chain
    with pytest.raises(ProtocolBroken):
        FrameReader().feed(len(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize("holder", [lambda inside: [inside], lambda inside: {"a": inside, "b": 1}])
def test_values_that_nest_deeper_than_values_do(holder: Callable[[Any], Any]) -> None:
    """C8. A value of as many levels as one may have, with an envelope of sixteen around it."""
    value: Any = {}
    for _ in range(63):
        value = holder(value)
    for _ in range(12):  # besides frame, body, results, and one of these
        value = [value]
    whole = frame(Kind.ANSWER, 1, {"results": [RESULT | {"value": value}], "seq": 1})
    assert FrameReader().feed(whole)[0].body["results"][0]["value"] == value
    deeper = frame(Kind.ANSWER, 1, {"results": [RESULT | {"value": holder(value)}], "seq": 1})
    with pytest.raises(ProtocolBroken, match="deeper than 80"):
        FrameReader().feed(deeper)


def test_changes_behind_the_end_of_a_watch_are_dropped() -> None:
    exchange: Exchange[str] = Exchange()
    id, _ = exchange.ask(Kind.WATCH, {}, "watch")
    over = frame(Kind.ANSWER, id, {"seq": 1})
    assert exchange.receive(over + frame(Kind.CHANGE, id, {"seq": 1})) == [("watch", FeedEnded())]
    assert not exchange.open and not exchange.broken
