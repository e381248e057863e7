"""What is done to the messages of a topic: one frozen operation for each statement on them.

Surfaces make them of wire messages, scripts of statements; `storage/messages.py` and
`storage/hand_outs/` have the rules. An operation's answer is an object with exactly the fields that
its docstring names. `needs`: what its caller needs on the topic. All of them write.

The functions below make arguments of values, whoever brings them: so both are refused alike.
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
    """`{position, duplicate}` of one value; `{first, last, count}` of `many`."""

    needs: ClassVar[Verbs] = WRITE
    topic: str
    values: Sequence[Value]
    many: bool = False
    key: Value = None
    id: Value = None
    headers: Value = None
    delay_us: int | None = None
    """Until a group hands it out; or `at_us`, log time before which none does."""
    at_us: int | None = None
    expect: int | None = None
    """Refuse unless the last position is this one."""


class TakeMessages(Struct, frozen=True):
    """`{messages}`, as `HandOuts.take` answers them; of the statement these alone."""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    count: int = 1
    member: str | None = None
    wait_us: int | None = None
    """How long it waits for the first, where there is none; None: not at all."""


class AckMessages(Struct, frozen=True):
    """`{acked, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]


class NackMessages(Struct, frozen=True):
    """`{nacked, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]
    delay_us: int | None = None
    """None: the group's backoff."""
    error: str | None = None


class ExtendMessages(Struct, frozen=True):
    """`{extended, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]
    by_us: int


class GiveUpMessages(Struct, frozen=True):
    """`{given_up, stale, stale_receipts}`"""

    needs: ClassVar[Verbs] = CONSUME
    topic: str
    group: str
    receipts: Sequence[str]
    error: str | None = None


Settling = AckMessages | NackMessages | ExtendMessages | GiveUpMessages
"""What a member answers to what it was handed out."""
MessageOperation = PublishMessages | TakeMessages | Settling


# --- arguments ------------------------------------------------------------------------------------


def integer(value: Any, what: str) -> int:
    """:raises TypeRefused:"""
    if type(value) is not int:
        raise _wrong(what, "an integer", value)
    return value


def text(value: Any, what: str) -> str | None:
    """A string; None stays None. :raises TypeRefused:"""
    if value is not None and not isinstance(value, str):
        raise _wrong(what, "a string", value)
    return value


def lasting(value: Any, what: str, least_us: int = 0) -> int:
    """A duration in microseconds, from the least on. :raises TypeRefused, BadRequest:"""
    if not isinstance(value, timedelta):
        raise _wrong(what, "a duration", value)
    microseconds = value // MICROSECOND
    if not least_us <= microseconds <= limits.SPAN_SECONDS * 1_000_000:
        least = "longer than 0, up" if least_us else "from 0"
        raise BadRequest(f"{what} is a duration {least} to {limits.SPAN_SECONDS} s")
    return microseconds


def waiting(value: Any) -> int:
    """How long one may WAIT, in microseconds. :raises TypeRefused, BadRequest:"""
    for_us = lasting(value, "WAIT")
    if for_us > limits.WAIT_SECONDS * 1_000_000:
        raise BadRequest(f"WAIT is at most {limits.WAIT_SECONDS} s")
    return for_us


def moment(value: Any, what: str) -> int:
    """A datetime in microseconds since 1970. :raises TypeRefused:"""
    if not isinstance(value, datetime):
        raise _wrong(what, "a datetime", value)
    return (value - EPOCH) // MICROSECOND


def receipts(value: Any) -> list[str]:
    """:raises TypeRefused: no array; what stands in it is judged with the group"""
    if not isinstance(value, list):
        raise _wrong("RECEIPTS", "an array of receipts", value)
    return value


def values(value: Any) -> list[Value]:
    """What a PUBLISH of many publishes. :raises TypeRefused:"""
    if not isinstance(value, list):
        raise TypeRefused(f"VALUES takes an array, not {type_name(value)}", found=type_name(value))
    return value


def _wrong(what: str, wanted: str, value: Any) -> TypeRefused:
    found = type_name(value)
    return TypeRefused(f"{what} takes {wanted}, not {found}", wanted=wanted, found=found)
