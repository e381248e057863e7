"""Equivalent statements of operations on messages: for the statement log, for INFO FOR RUNNING, and
to run long operations as scripts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from language.keywords import quote
from protocol.messages import (
    EPOCH,
    AckMessages,
    ExtendMessages,
    GiveUpMessages,
    MessageOperation,
    NackMessages,
    PublishMessages,
    Settling,
    TakeMessages,
)
from protocol.values import MICROSECOND, Value

_WORDS: Final[dict[type, str]] = {
    AckMessages: "ACK",
    NackMessages: "NACK",
    ExtendMessages: "EXTEND",
    GiveUpMessages: "GIVE UP",
}
_TEXTS: Final[dict[tuple[Any, ...], str]] = {}
_TEXTS_KEPT: Final = 1_000


def statement(operation: MessageOperation) -> str:
    """Return the equivalent statement of an operation, its arguments as parameters (`parameters`):
    for the statement log, and to run it."""
    # The shape alone decides the text, since values are parameters. So few texts are made.
    if type(operation) is PublishMessages:
        shape: tuple[Any, ...] = (
            PublishMessages, operation.topic, operation.many, operation.key is None,
            operation.id is None, operation.headers is None, operation.delay_us is None,
            operation.at_us is None, operation.expect is None,
        )  # fmt: skip
    elif type(operation) is TakeMessages:
        shape = (
            TakeMessages, operation.topic, operation.group, operation.member is None,
            operation.wait_us is None,
        )  # fmt: skip
    else:
        assert not isinstance(operation, PublishMessages | TakeMessages)
        shape = type(operation), operation.topic, operation.group, *_given(operation)
    made = _TEXTS.get(shape)
    if made is None:
        if len(_TEXTS) >= _TEXTS_KEPT:
            # Names of topics have no bound: a full cache starts over.
            _TEXTS.clear()
        made = _TEXTS[shape] = _text(operation)
    return made


def _given(operation: Settling) -> tuple[bool, ...]:
    """Return the presence of each optional clause."""
    if type(operation) is NackMessages:
        return operation.delay_us is not None, operation.error is not None
    return (type(operation) is GiveUpMessages and operation.error is not None,)


def _text(operation: MessageOperation) -> str:
    given = parameters(operation)
    # Every other parameter is a clause of the same name, such as `KEY $key`.
    clauses = "".join(f" {name.upper()} ${name}" for name in given if name not in _PLACED)
    if isinstance(operation, PublishMessages):
        many = "VALUES $values" if operation.many else "VALUE $value"
        return f"PUBLISH INTO {quote(operation.topic)} {many}{clauses}"
    on = f"{quote(operation.topic)} AS {quote(operation.group)}"
    if isinstance(operation, TakeMessages):
        return f"TAKE $count FROM {on}{clauses}"
    return f"{_WORDS[type(operation)]} {on} RECEIPTS $receipts{clauses}"


_PLACED: Final = frozenset({"value", "values", "count", "receipts"})
"""Parameters that stand at a fixed place of the statement, not in a clause."""


def parameters(operation: MessageOperation) -> Mapping[str, Value]:
    """Return the parameters of the equivalent statement."""
    given: dict[str, Value]
    if isinstance(operation, PublishMessages):
        # A single value has a statement form of its own: its answer is a position.
        if operation.many:
            given = {"values": list(operation.values)}
        else:
            given = {"value": operation.values[0]}
        given |= {
            "key": operation.key,
            "id": operation.id,
            "headers": operation.headers,
            "delay": _duration(operation.delay_us),
            "at": None if operation.at_us is None else EPOCH + operation.at_us * MICROSECOND,
            "expect": operation.expect,
        }
    elif isinstance(operation, TakeMessages):
        given = {
            "count": operation.count,
            "member": operation.member,
            "wait": _duration(operation.wait_us),
        }
    else:
        given = {"receipts": list(operation.receipts)}
        if isinstance(operation, NackMessages):
            given["delay"] = _duration(operation.delay_us)
        if isinstance(operation, ExtendMessages):
            given["by"] = _duration(operation.by_us)
        if isinstance(operation, NackMessages | GiveUpMessages):
            given["error"] = operation.error
    # A null is a message too. Any other None is a clause that was not given.
    return {name: one for name, one in given.items() if one is not None or name == "value"}


def _duration(lasting_us: int | None) -> timedelta | None:
    return None if lasting_us is None else lasting_us * MICROSECOND
