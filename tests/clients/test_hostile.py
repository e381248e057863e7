"""A peer that sends what no node does: every request is settled all the same, once, by an error."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from storeclient.errors import ProtocolBroken, Refused, StoreError
from storeclient.exchange import Credential, Exchange, Welcome
from storeclient.frames import FrameReader, Kind

ERROR: dict[str, Any] = {
    "code": "Unknown", "message": "no", "status": 404, "retry": False, "detail": {},
    "request": "r-1",
}  # fmt: skip
WELCOME: dict[str, Any] = {
    "version": "1", "node": "n", "minor": 0, "limits": {}, "user": {"name": "ana"},
}  # fmt: skip
TOOK = msgpack.ExtType(2, bytes(8))
RESULT: dict[str, Any] = {"value": 1, "kind": "value", "rows": 0, "took": TOOK}


def frame(kind: int, id: int, body: Any) -> bytes:
    packed: bytes = msgpack.packb([kind, id, body])
    return len(packed).to_bytes(4, "big") + packed


def settled(kind: Kind, body: dict[str, Any]) -> object:
    """How a RUN is settled by a message that names it; it must be, and by that alone."""
    exchange: Exchange[str] = Exchange()
    id, _ = exchange.ask(Kind.RUN, {"script": ""}, "waiter")
    found = exchange.receive(frame(kind, id, body))
    assert [waiter for waiter, _ in found] == ["waiter"] and not exchange.open
    return found[0][1]


def welcomed(body: dict[str, Any]) -> object:
    exchange: Exchange[str] = Exchange()
    exchange.greet(Credential(), "waiter")
    found = exchange.receive(frame(Kind.WELCOME, 0, body))
    assert [waiter for waiter, _ in found] == ["waiter"]
    return found[0][1]


@pytest.mark.parametrize(
    "wrong",
    [{"status": "x"}, {"status": None}, {"status": [1]}, {"detail": [1]}, {"detail": "x"},
     {"code": [1]}, {"code": None}, {"message": {"a": 1}}, {"line": "x"}, {"statement": {}},
     {"request": 7}],
)  # fmt: skip
def test_an_error_whose_fields_are_of_other_types(wrong: dict[str, Any]) -> None:
    for kind in (Kind.ERROR, Kind.REFUSED):
        assert isinstance(settled(kind, {"error": ERROR | wrong}), ProtocolBroken)
    exchange: Exchange[str] = Exchange()
    exchange.receive(frame(Kind.ERROR, 0, {"error": ERROR | wrong}))
    assert exchange.broken and isinstance(exchange.cause, StoreError)


def test_an_error_as_nodes_send_it() -> None:
    found = settled(Kind.ERROR, {"error": ERROR, "results": [RESULT]})
    assert isinstance(found, Refused) and found.status == 404 and len(found.results) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"rows": "x"}, {"rows": None}, {"took": 5}, {"took": None}],
)
def test_a_result_whose_fields_are_of_other_types(wrong: dict[str, Any]) -> None:
    body = {"results": [RESULT | wrong], "seq": 1}
    assert isinstance(settled(Kind.ANSWER, body), ProtocolBroken)


def test_a_moment_that_is_no_name() -> None:
    body = {"results": [RESULT], "seq": 1, "moment": {"a": 1}}
    assert isinstance(settled(Kind.ANSWER, body), ProtocolBroken)


@pytest.mark.parametrize(
    "wrong",
    [{"version": 1}, {"node": None}, {"minor": "x"}, {"limits": []}, {"user": "ana"},
     {"user": {}}, {"user": {"name": 1}}],
)  # fmt: skip
def test_a_welcome_whose_fields_are_of_other_types(wrong: dict[str, Any]) -> None:
    assert isinstance(welcomed(WELCOME), Welcome)
    assert isinstance(welcomed(WELCOME | wrong), ProtocolBroken)


@pytest.mark.parametrize("inside", [[{"a": 1}, 1], ["t", {"b": []}], ["t", None], ["t"], 7])
def test_a_record_that_is_none(inside: Any) -> None:
    record = msgpack.ExtType(4, msgpack.packb(inside))
    with pytest.raises(ProtocolBroken):
        FrameReader().feed(frame(Kind.ANSWER, 1, {"results": [RESULT | {"value": record}]}))


def test_records_in_records_without_end() -> None:
    """Each would take the stack of a decoder, and enough of them the process."""
    chain: bytes = msgpack.packb(1)
    for _ in range(5_000):
        inner = b"\x92\xa1t" + chain
        chain = b"\xc9" + len(inner).to_bytes(4, "big") + b"\x04" + inner
    body = b"\x93\x22\x01\x82\xa3seq\x01\xa7results" + chain
    with pytest.raises(ProtocolBroken):
        FrameReader().feed(len(body).to_bytes(4, "big") + body)
