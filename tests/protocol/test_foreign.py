"""Long messages decoded in pieces: the strict decoder's value, or left to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import msgpack
import pytest

from protocol import binary, foreign, limits
from protocol.binary import NeedsStrictDecoder, pack, unpack_strictly
from protocol.errors import Refusal
from protocol.foreign import LongMessage
from protocol.values import FEW, NONE, RecordId, identical

PLAIN: tuple[Any, ...] = (
    "", "word", "é", 0, -1, 127, 128, 2**63 - 1, -(2**63), 0.5, -0.0, True, None, NONE, b"",
    b"x" * 40,
    Decimal("1.50"), Decimal("1E+20"), Decimal(9**30), timedelta(hours=1), UUID(int=5),
    datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, 2, 3, 456, tzinfo=UTC),
    RecordId("t", 1), RecordId("t", "x"), RecordId("u", ["a", UUID(int=1)]), [], {},
)  # fmt: skip


TEXTS = (b"1.50", b"-0", b"+1", b"1.", b".5", b"00.10", b"0.00000001", b"9" * 34)
ODD_TEXTS = (
    b"", b" ", b"1 2", b" 1", b"1\n", b"1_0", b"NaN", b"1E5", b"--1", b".", b"9" * 35, b"1\xff",
)  # fmt: skip


def column(rng: Random) -> list[Any]:
    """Values of one type, one of which may be unusual."""
    ext = msgpack.ExtType
    kinds: tuple[list[Any], ...] = (
        [ext(1, text) for text in TEXTS], [RecordId("t", number) for number in range(9)],
        [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(9)],
        [ext(2, bytes(8)), ext(3, bytes(16))], [1.5, -0.0], [0, -(2**63)], ["é", "x"],
        [True, False],
    )  # fmt: skip
    some = rng.choice(kinds)
    found = [rng.choice(some) for _ in range(FEW + rng.randrange(9))]
    if rng.random() < 0.2:
        odd = [ext(1, text) for text in ODD_TEXTS] + [ext(4, b"\x92\xa1 \x01"), ext(9, b"")]
        found[rng.randrange(len(found))] = rng.choice([*odd, *PLAIN])
    return found


def value(rng: Random, depth: int) -> Any:
    kind = rng.random()
    if depth and kind < 0.05:
        return column(rng)
    if depth and kind < 0.3:
        return [value(rng, depth - 1) for _ in range(rng.choice([1, 3, 20]))]
    if depth and kind < 0.6:
        return {f"f{at}": value(rng, depth - 1) for at in range(rng.choice([1, 3, 20]))}
    return "x" * rng.randrange(600) if kind > 0.97 else rng.choice(PLAIN)


def damaged(rng: Random, data: bytes) -> bytes:
    """The message with a fault of the kinds that a decoder could pass over."""
    kind, at = rng.randrange(4), rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
    if kind == 2:
        return data.replace(b"\xa2f0", b"\xa2f1", 1)  # a key that comes twice
    return data + b"\xc0"


def outcome(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except Refusal as refusal:
        return refusal.code, refusal.message


@pytest.mark.parametrize("rounds", [150, pytest.param(20_000, marks=pytest.mark.hard)])
def test_pieces_make_the_value_of_the_strict_decoder(
    rounds: int, figure: Callable[[str, object], None]
) -> None:
    rng = Random(1)
    decoded = 0
    for seed in range(rounds):
        data = pack([3, seed, {"params": {"rows": value(rng, 4), "more": value(rng, 3)}}])
        if rng.random() < 0.4:
            data = damaged(rng, data)
        message = LongMessage(
            data, lambda: None, rng.choice([8, 64, 5_000]), rng.choice([16, 200, 5_000])
        )
        strict = outcome(lambda data=data: unpack_strictly(data))  # type: ignore[misc]
        try:
            found = message.decode()
        except NeedsStrictDecoder:
            continue
        decoded += 1
        assert identical(found, strict), f"round {seed}"
    figure("long messages decoded in pieces", f"{decoded} of {rounds}")
    assert decoded > rounds / 3


@pytest.mark.parametrize("text", [*TEXTS, *ODD_TEXTS])
def test_a_decimal_of_a_column_is_judged_as_one_alone(text: bytes) -> None:
    data = pack([[msgpack.ExtType(1, b"1.5")] * FEW + [msgpack.ExtType(1, text)]])
    strict = outcome(lambda: unpack_strictly(data))
    try:
        found = LongMessage(data, lambda: None).decode()
    except NeedsStrictDecoder:
        assert text in ODD_TEXTS
    else:
        assert identical(found, strict)


NANOSECONDS = msgpack.packb(msgpack.Timestamp(1, 1_001))


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\xa1a\x01\xa1a" + pack("x" * 5_000),
        b"\x92" + NANOSECONDS + pack("x" * 5_000),
        b"\x92\xcb\x7f\xf8\0\0\0\0\0\0" + pack("x" * 5_000),
        b"\x92\xcf" + b"\xff" * 8 + pack("x" * 5_000),
        b"\x92\x81\x01\x02" + pack("x" * 5_000),
        b"\x92\xc7\x00\x63" + pack("x" * 5_000),
        b"\x92" + b"\x91" * limits.DEPTH + b"\xc0" + pack("x" * 5_000),
        b"\xdd\xff\xff\xff\xff" + b"\xc0" * 5_000,
        b"\x93" + pack("x" * 5_000),
    ],
    ids=["twice", "nanoseconds", "nan", "unsigned", "key", "extension", "deep", "count", "cut"],
)
def test_the_strict_decoder_judges_what_is_unusual(data: bytes) -> None:
    with pytest.raises(NeedsStrictDecoder):
        LongMessage(data, lambda: None, 64, 256).decode()


def test_too_many_containers_are_left_to_the_strict_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = pack([[1], [2], [3], "x" * 5_000])
    monkeypatch.setattr(limits, "CONTAINERS", 3)
    with pytest.raises(NeedsStrictDecoder):
        LongMessage(data, lambda: None).decode()


def test_rows_of_a_request_are_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of every import: the strict decoder is not asked."""
    row = {
        "id": 1,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "price": Decimal("1.5"),
        "of": RecordId("t", 1),
        "n": None,
    }
    data = pack([3, 1, {"script": "INSERT INTO t $rows", "params": {"rows": [row] * 3_000}}])
    ticks: list[int] = []
    monkeypatch.setattr(foreign, "unpack_strictly", None)
    found: Any = foreign.unpack_foreign(data, lambda: ticks.append(1))
    assert identical(found[2]["params"]["rows"], [row] * 3_000)
    assert len(ticks) > len(data) // binary.STEP_BYTES
