"""Frames: each message whole, byte by byte, with trailing bytes; each limit from both sides."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import limits
from protocol.errors import AnswerTooLarge, BadRequest, Refusal, TooLarge
from protocol.frames import (
    HEAD_BYTES,
    ID_MAX,
    PREFIX_BYTES,
    FrameReader,
    MessageKind,
    WireMessage,
    decode,
    encode,
)
from protocol.values import NONE, RecordId
from tests.tables import case

EVERY_VALUE: dict[str, Any] = {
    "none": NONE, "null": None, "bool": True, "int": -(2**63), "float": 1.5,
    "decimal": Decimal("12.30"), "string": "naïve ☃", "bytes": b"\x00\xff",
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC),
    "duration": timedelta(days=-3, microseconds=7),
    "uuid": UUID("018f0000-0000-7000-8000-000000000001"),
    "record": RecordId("person", ["a", 1, UUID(int=5)]), "array": [1, [2, []]],
    "object": {"b c": {}},
}  # fmt: skip

MESSAGES = [
    WireMessage(
        MessageKind.HELLO,
        0,
        {"magic": "STORE", "major": 1, "minor": [0, 5], "user": "ana", "password": "s3cret pass"},
    ),
    WireMessage(MessageKind.AUTH, 3, {"token": "t"}),
    WireMessage(
        MessageKind.RUN, 1, {"script": "RETURN $v", "params": EVERY_VALUE, "ns": None, "db": "d"}
    ),
    WireMessage(MessageKind.CANCEL, 1, None),
    WireMessage(MessageKind.PING, ID_MAX, None),
    WireMessage(MessageKind.BYE, 0, None),
    WireMessage(MessageKind.WELCOME, 0, {"major": 1, "minor": 0, "user": None}),
    WireMessage(MessageKind.REFUSED, 0, {"error": {"code": "Full", "retry": True}}),
    WireMessage(MessageKind.ANSWER, 1, {"results": [{"value": EVERY_VALUE}], "seq": 8123}),
    WireMessage(MessageKind.ERROR, 2, {"error": {"code": "Unknown"}, "results": []}),
    WireMessage(MessageKind.PONG, 9, None),
    WireMessage(MessageKind.KV, 4, {"op": "set", "ns": "a", "key": "k", "value": EVERY_VALUE}),
    WireMessage(
        MessageKind.TOPIC, 5, {"op": "publish", "ns": "a", "topic": "t", "value": EVERY_VALUE}
    ),
    WireMessage(MessageKind.VALUE, 4, {"value": EVERY_VALUE, "ttl": None}),
    WireMessage(
        MessageKind.WATCH, 6, {"ns": "a", "db": "b", "table": "t", "from": 7, "actions": ["create"]}
    ),
    WireMessage(MessageKind.UNWATCH, 6, None),
    WireMessage(MessageKind.VAULT, 8, {"op": "unseal", "passphrase": "open sesame"}),
    WireMessage(MessageKind.PART, 7, {"n": 1, "bytes": b"STORSNAP", "done": 8, "total": 8}),
    WireMessage(
        MessageKind.CHANGE, 6, {"type": "commit", "seq": 8, "changes": [{"value": EVERY_VALUE}]}
    ),
]


def read_all(reader: FrameReader) -> list[WireMessage]:
    found = []
    while (message := reader.next()) is not None:
        found.append(message._replace(size=0))
    return found


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_there_is_an_example_of_every_kind() -> None:
    assert {message.kind for message in MESSAGES} == set(MessageKind)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind.name)
class TestEveryMessage:
    def test_twice_cut_anywhere(self, message: WireMessage) -> None:
        data = encode(*message[:3]) * 2
        for cut in range(len(data)):
            reader = FrameReader()
            reader.feed(data[:cut])
            first = read_all(reader)
            reader.feed(data[cut:])
            assert first + read_all(reader) == [message, message]


@given(
    st.lists(st.sampled_from(MESSAGES), max_size=8),
    st.lists(st.integers(1, 97), min_size=1, max_size=20),
)
def test_any_cutting_gives_the_same_messages(messages: list[WireMessage], sizes: list[int]) -> None:
    stream = b"".join(encode(*message[:3]) for message in messages)
    reader, found, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        reader.feed(stream[at : at + size])
        found += read_all(reader)
        at, turn = at + size, turn + 1
    assert found == messages


def test_types_come_through_exactly() -> None:
    body = decode(encode(MessageKind.RUN, 1, EVERY_VALUE)[4:]).body
    assert body is not None
    for name, value in EVERY_VALUE.items():
        assert type(body[name]) is type(value), name
    assert str(body["decimal"]) == "12.30"


class TestLength:
    def test_the_longest_frame_passes(self) -> None:
        empty = len(encode(MessageKind.RUN, 1, {"s": b""})) - 4
        body = {"s": bytes(limits.FRAME_BYTES - empty - 3)}  # bin 32 has 3 bytes more of head
        data = encode(MessageKind.RUN, 1, body)
        assert len(data) == 4 + limits.FRAME_BYTES
        reader = FrameReader()
        reader.feed(data)
        assert read_all(reader) == [WireMessage(MessageKind.RUN, 1, body)]

    def test_one_byte_more_is_refused_from_its_prefix(self) -> None:
        reader = FrameReader()
        reader.feed((limits.FRAME_BYTES + 1).to_bytes(4, "big"))
        with pytest.raises(TooLarge) as refused:
            reader.next()
        assert refused.value.detail == {
            "bytes": limits.FRAME_BYTES + 1,
            "limit": limits.FRAME_BYTES,
        }

    def test_an_answer_too_large_names_its_size(self) -> None:
        with pytest.raises(AnswerTooLarge) as refused:
            encode(MessageKind.ANSWER, 1, {"v": bytes(limits.FRAME_BYTES)})
        size = limits.FRAME_BYTES + 11
        assert refused.value.detail["bytes"] == size
        assert str(size) in refused.value.message

    def test_an_empty_frame_is_no_message(self) -> None:
        reader = FrameReader()
        reader.feed(b"\x00\x00\x00\x00")
        with pytest.raises(BadRequest):
            reader.next()


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, [3, 1], [3, 1, None, None], ["RUN", 1, None], [True, 1, None], [99, 1, None],
        [3.0, 1, None], [3, -1, None], [3, ID_MAX + 1, None], [3, "1", None], [3, True, None],
        [3, 1, []], [3, 1, "body"], [3, 1, {1: 2}], [3, 1, {b"script": 2}],
        [3, 1, {"v": msgpack.ExtType(77, b"")}], [3, 1, {"v": msgpack.ExtType(3, b"short")}],
        [3, 1, {"v": msgpack.ExtType(2, b"")}], [3, 1, {"v": msgpack.ExtType(4, b"\xc0")}],
        [3, 1, {"v": msgpack.ExtType(1, b"NaN")}], [3, 1, {"v": float("inf")}],
        [3, 1, {"v": 2**63}],
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(value: object) -> None:
    with pytest.raises(Refusal):
        decode(msgpack.packb(value))


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x93\x03\x01", b"\x93\x03\x01\xc0\xc0", b"\x93\x03\x01\x81\xa1\xff\xc0"],
)
def test_what_is_no_msgpack_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(data)


@pytest.mark.parametrize(
    "value, code",
    [
        (msgpack.ExtType(77, b""), "BadRequest"),
        (float("nan"), "TypeRefused"),
        (2**63, "NumberTooLarge"),
        ({1: 2}, "BadRequest"),
    ],
)
def test_a_value_that_is_none_leaves_the_stream_to_be_followed(value: object, code: str) -> None:
    reader = FrameReader()
    bad = framed(msgpack.packb([3, 300, {"script": "", "params": {"v": value}}]))
    reader.feed(bad + encode(MessageKind.PING, 9))
    message = reader.next()
    assert message is not None
    assert message.refusal is not None
    assert (message.kind, message.id, message.body) == (MessageKind.RUN, 300, None)
    assert message.refusal.code == code
    assert read_all(reader) == [WireMessage(MessageKind.PING, 9, None)]


class TestBombs:
    """Small frames that would become large: refused before they have."""

    def test_depth(self) -> None:
        around = {
            "a field": b"\x81\xa1v",
            "a parameter": b"\x81\xa6params\x81\xa1v",
            "a row": b"\x81\xa6params\x81\xa1v\x91\x81\xa1a",
            "one of several": b"\x81\xa6values\x91",
        }

        def nested(before: bytes, depth: int) -> bytes:
            return b"\x93\x03\x01" + before + b"\x91" * depth + b"\xd7\xff" + bytes(8)

        for name, before in around.items():
            most = limits.DEPTH - (name == "a row")  # an object is a level of its row
            with case(name):
                decode(nested(before, most))
                for depth in (most + 1, most + 6, 200, 1000, 5000, 1_000_000):
                    with pytest.raises(Refusal):
                        decode(nested(before, depth))
        for deep in (b"\x93" + b"\x91" * 65 + b"\xc0\x01\xc0", b"\x91" * 65 + b"\xc0"):
            with pytest.raises(TooLarge):
                decode(deep)

    def test_records_inside_records(self) -> None:
        """Each level of these took C stack for a decoder of its own: 2 KB ended the process."""
        inner = b"\x01"
        for _ in range(5000):
            inner = msgpack.packb(["t", msgpack.ExtType(4, inner)])
        with pytest.raises(BadRequest):
            decode(msgpack.packb([3, 1, {"v": msgpack.ExtType(4, inner)}]))

    @pytest.mark.parametrize("one", [b"\x90", b"\x81\xa0\xc0"])
    def test_containers(self, one: bytes) -> None:
        count = 15 * limits.MIB // len(one) // 2
        array = b"\xdd" + (count // 8).to_bytes(4, "big") + one * (count // 8)
        data = b"\x93\x03\x01\x81\xa1v\x98" + array * 8
        tracemalloc.start()
        try:
            with pytest.raises(TooLarge):
                decode(data)
            grown = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert grown <= 96 * limits.MIB

    def test_elements_claimed_but_not_sent(self) -> None:
        data = b"\x93\x03\x01\x81\xa1v" + (b"\xdd" + (4_000_000).to_bytes(4, "big")) * 2000
        tracemalloc.start()
        try:
            with pytest.raises(Refusal):
                decode(data)
            grown = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert grown <= 32 * limits.MIB

    def test_the_digits_of_a_decimal(self) -> None:
        for text in (b"1e1000000", b"9" * 1_000_000, b"1" * 35):
            with pytest.raises(Refusal):
                decode(msgpack.packb([3, 1, {"v": msgpack.ExtType(1, text)}]))


def test_a_reader_keeps_one_frame_at_most() -> None:
    """A thousand frames fed at once and taken one by one are not copied a thousand times."""
    frame = encode(MessageKind.PING, 1)
    reader = FrameReader()
    for _ in range(1000):
        reader.feed(frame + frame[:3])
        assert reader.next() is not None
        reader.feed(frame[3:])
        assert reader.next() is not None
        assert reader.next() is None
        assert reader.unread == 0


class TestRefusedByItsHead:
    """A frame that there is no room for: what comes of it is dropped, what follows it is read."""

    LONG = encode(MessageKind.RUN, 7, {"script": "x" * 5_000})

    @pytest.mark.parametrize("cut", [14, 23, 100, 5_000])
    @pytest.mark.parametrize("step", [1, 7, 100_000])
    def test_and_the_next_is_read(self, cut: int, step: int) -> None:
        reader = FrameReader()
        reader.feed(self.LONG[:cut])
        assert reader.next() is None
        if cut < PREFIX_BYTES + HEAD_BYTES:
            assert not reader.begun
            return
        assert reader.begun == len(self.LONG)
        refusal = TooLarge("not now")
        assert reader.refuse(refusal) == WireMessage(MessageKind.RUN, 7, None, refusal)
        assert not reader.unread and not reader.begun
        rest = self.LONG[cut:] + encode(MessageKind.PING, 8)
        found = []
        for at in range(0, len(rest), step):
            reader.feed(rest[at : at + step])
            assert reader.unread <= len(encode(MessageKind.PING, 8))
            found += read_all(reader)
        assert found == [WireMessage(MessageKind.PING, 8, None)]
        assert not reader.awaited

    def test_one_that_does_not_say_what_it_is_breaks_off(self) -> None:
        reader = FrameReader()
        reader.feed((5_000).to_bytes(4, "big") + b"\xc1" * 100)
        with pytest.raises(BadRequest):
            reader.refuse(TooLarge("not now"))


def test_what_has_been_read_is_let_go() -> None:
    """A connection that has sent a long frame keeps nothing of it while it is idle."""
    reader, frame = FrameReader(), encode(MessageKind.RUN, 1, {"script": "x" * 100_000})
    for at in range(0, len(frame), 10_000):
        reader.feed(frame[at : at + 10_000])
    assert reader.next() is not None
    assert not reader._kept
