"""Operations on the messages of a topic: one immutable struct for each kind of statement.

Surfaces build them from wire messages, scripts from statements; `storage/topics/messages.py` and
`storage/topics/deliveries/` hold the rules. The answer of an operation is an object with exactly
the fields that its docstring names. `needs`: the verbs that its caller needs on the topic. All of
them write.

The functions below validate arguments, for all callers alike, so that both refuse the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from msgspec import Struct

from protocol import limits
from protocol.errors import BadRequest, TypeRefused
from protocol.rights import CONSUME, WRITE, Verbs
from protocol.values import MICROSECOND, Value, type_name

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PublishMessages(Struct, frozen=True):
    """Answer: `{position, duplicate}` of one value; `{first, last, count}` of `many`."""

    needs: ClassVar[Verbs] = WRITE
    topic: str
    values: Sequence[Value]
    many: bool = False
    key: Value = None
    id: Value = None
    headers: Value = None
    delay_us: int | None = None
    """Delay until the first delivery, in microseconds. Alternatively `at_us`, the log time before
    which the message is not delivered."""
    at_us: int | None = None
    expect: int | None = None
    """Optimistic concurrency: refuse unless the topic's last position is this one."""


class TakeMessages(Struct, frozen=True):
    """Answer: `{messages}`, as `deliveries.fetch.take` builds them; the statement answers only the
    messages."""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    count: int = 1
    member: str | None = None
    wait_us: int | None = None
    """Longest wait for the first message, in microseconds; None: do not wait."""


class AckMessages(Struct, frozen=True):
    """Answer: `{acked, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]


class NackMessages(Struct, frozen=True):
    """Answer: `{nacked, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]
    delay_us: int | None = None
    """Delay until redelivery, in microseconds; None: the group's backoff."""
    error: str | None = None


class ExtendMessages(Struct, frozen=True):
    """Answer: `{extended, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]
    by_us: int


class GiveUpMessages(Struct, frozen=True):
    """Answer: `{given_up, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]
    error: str | None = None


Settling = AckMessages | NackMessages | ExtendMessages | GiveUpMessages
"""Answers of a consumer to its deliveries."""
MessageOperation = PublishMessages | TakeMessages | Settling


# --- arguments ------------------------------------------------------------------------------------


def integer(value: Any, what: str) -> int:
    """Return the value if it is an integer. :raises TypeRefused:"""
    if type(value) is not int:
        raise _wrong(what, "an integer", value)
    return value


def text(value: Any, what: str) -> str | None:
    """Return the value if it is a string or None. :raises TypeRefused:"""
    if value is not None and not isinstance(value, str):
        raise _wrong(what, "a string", value)
    return value


def lasting(value: Any, what: str, least_us: int = 0) -> int:
    """Return a duration in microseconds, `least_us` or more. :raises TypeRefused, BadRequest:"""
    if not isinstance(value, timedelta):
        raise _wrong(what, "a duration", value)
    microseconds = value // MICROSECOND
    if not least_us <= microseconds <= limits.SPAN_SECONDS * 1_000_000:
        least = "longer than 0, up" if least_us else "from 0"
        raise BadRequest(f"{what} must be a duration {least} to {limits.SPAN_SECONDS} s")
    return microseconds


def waiting(value: Any) -> int:
    """Return the duration of a WAIT, in microseconds. :raises TypeRefused, BadRequest:"""
    for_us = lasting(value, "WAIT")
    if for_us > limits.WAIT_SECONDS * 1_000_000:
        raise BadRequest(f"WAIT is at most {limits.WAIT_SECONDS} s")
    return for_us


def moment(value: Any, what: str) -> int:
    """Return a datetime in microseconds since 1970. :raises TypeRefused:"""
    if not isinstance(value, datetime):
        raise _wrong(what, "a datetime", value)
    return (value - EPOCH) // MICROSECOND


def receipts(value: Any) -> list[str]:
    """Return the receipts; each is checked later, with its group. :raises TypeRefused: no array"""
    if not isinstance(value, list):
        raise _wrong("RECEIPTS", "an array of receipts", value)
    return value


def values(value: Any) -> list[Value]:
    """Return the values of a PUBLISH of many. :raises TypeRefused:"""
    if not isinstance(value, list):
        raise TypeRefused(f"VALUES takes an array, not {type_name(value)}", found=type_name(value))
    return value


def _wrong(what: str, wanted: str, value: Any) -> TypeRefused:
    found = type_name(value)
    return TypeRefused(f"{what} takes {wanted}, not {found}", wanted=wanted, found=found)
