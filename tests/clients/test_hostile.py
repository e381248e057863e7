"""A peer that sends what no node does: every request is settled all the same, once, by an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from storeclient.changes import Position, read_commit, read_epoch
from storeclient.errors import ProtocolBroken, Refused, StoreError
from storeclient.exchange import Credential, Exchange, FeedEnded, Welcome
from storeclient.frames import FrameReader, Kind
from storeclient.values import RecordId

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


def test_a_kind_that_is_not_known() -> None:
    """C8. It ends the connection, also where its id is not open."""
    for kind in (0, 12, 40, 2**40):
        with pytest.raises(ProtocolBroken, match="kind"):
            Exchange[str]().receive(frame(kind, 7, {}))


def test_changes_to_who_does_not_watch() -> None:
    """It ends the connection; what came before it is settled, the rest by the end."""
    exchange: Exchange[str] = Exchange()
    first, _ = exchange.ask(Kind.PING, None, "first")
    second, _ = exchange.ask(Kind.RUN, {"script": ""}, "second")
    sent = frame(Kind.PONG, first, None) + frame(Kind.CHANGE, second, {"type": "beat", "seq": 1})
    assert exchange.receive(sent) == [("first", None)]
    assert exchange.broken and isinstance(exchange.cause, ProtocolBroken)
    assert [waiter for waiter, _ in exchange.end(exchange.cause)] == ["second"]


def test_changes_behind_the_end_of_a_watch_are_dropped() -> None:
    exchange: Exchange[str] = Exchange()
    id, _ = exchange.ask(Kind.WATCH, {}, "watch")
    over = frame(Kind.ANSWER, id, {"seq": 1})
    assert exchange.receive(over + frame(Kind.CHANGE, id, {"seq": 1})) == [("watch", FeedEnded())]
    assert not exchange.open and not exchange.broken


COMMIT: dict[str, Any] = {
    "type": "commit", "seq": 5, "at": None, "by": None, "reason": None,
    "changes": [{"action": "create", "id": RecordId("t", 1), "value": {}}],
}  # fmt: skip


AT = Position(5)


@pytest.mark.parametrize("epoch", ["1", 1.5, True, [], {}])
def test_an_epoch_that_is_no_number(epoch: object) -> None:
    assert read_epoch({}) is None and read_epoch({"epoch": 7}) == 7
    with pytest.raises(ProtocolBroken, match="epoch"):
        read_epoch({"epoch": epoch})


@pytest.mark.parametrize(
    "wrong",
    [{"changes": None}, {"changes": [1]}, {"changes": [{}]}, {"seq": "x"}, {"part": 1},
     {"changes": [COMMIT["changes"][0] | {"id": "t:1"}]}, {"of": 2**60, "part": 2**60},
     {"part": 2, "of": 2}],
)  # fmt: skip
def test_a_commit_whose_fields_are_of_other_types(wrong: dict[str, Any]) -> None:
    assert read_commit([COMMIT], AT).changes[0].last
    with pytest.raises(ProtocolBroken):
        read_commit([COMMIT | wrong], AT)


def test_parts_of_two_commits() -> None:
    parts = [COMMIT | {"seq": seq, "part": seq, "of": 2} for seq in (1, 2)]
    with pytest.raises(ProtocolBroken):
        read_commit(list(parts), AT)
    whole = [COMMIT | {"part": number, "of": 2} for number in (1, 2)]
    assert [change.last for change in read_commit(list(whole), AT).changes] == [False, True]
