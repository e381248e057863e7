"""TOPIC requests: decoding of operations on the messages of a topic. Strict, field by field, like
other bodies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest
from protocol.messages import (
    AckMessages,
    ExtendMessages,
    GiveUpMessages,
    MessageOperation,
    NackMessages,
    PublishMessages,
    TakeMessages,
    integer,
    lasting,
    moment,
    receipts,
    text,
    values,
    waiting,
)
from protocol.values import MICROSECOND
from surfaces.wire.bodies import field, operation

Body = dict[str, Any]

_COMMON: Final = frozenset({"op", "ns", "db", "topic", "timeout"})


def read_messages(body: Body | None) -> tuple[tuple[str, str], MessageOperation, int | None]:
    """Decode TOPIC. Return its namespace and database, the operation, and the timeout in
    microseconds.

    :raises BadRequest: a field is missing, unknown, or of the wrong type
    :raises Refusal: an argument of the statement is refused
    """
    body = body or {}
    read = operation("TOPIC", body, _OPERATIONS)
    timeout = field("TOPIC", body, "timeout", timedelta)
    if timeout is not None and timeout <= timedelta(0):
        raise BadRequest("TOPIC timeout must be above zero", field="timeout")
    timeout_us = None if timeout is None else timeout // MICROSECOND
    return (_name(body, "ns"), _name(body, "db")), read(body), timeout_us


def _name(body: Body, what: str) -> str:
    name = body.get(what)
    if type(name) is not str:
        raise BadRequest(f"TOPIC needs {what}", field=what)
    if len(name) > limits.NAME_CHARACTERS:
        raise BadRequest(
            f"TOPIC {what} has at most {limits.NAME_CHARACTERS} characters", field=what
        )
    return name


def _publish(body: Body) -> MessageOperation:
    many = "values" in body
    if many is ("value" in body):
        raise BadRequest("TOPIC publish needs value or values", field="value")
    if many and body.get("id") is not None:
        raise BadRequest("ID belongs to one message: use it with VALUE, not with VALUES")
    delay, at, expect = body.get("delay"), body.get("at"), body.get("expect")
    if delay is not None and at is not None:
        raise BadRequest("a message takes DELAY or AT, not both", field="at")
    return PublishMessages(
        _name(body, "topic"),
        values(body["values"]) if many else [body["value"]],
        many,
        body.get("key"),
        body.get("id"),
        body.get("headers"),
        None if delay is None else lasting(delay, "DELAY"),
        None if at is None else moment(at, "AT"),
        None if expect is None else integer(expect, "EXPECT"),
    )


def _take(body: Body) -> MessageOperation:
    count, wait = body.get("count"), body.get("wait")
    return TakeMessages(
        _name(body, "topic"),
        _name(body, "group"),
        1 if count is None else integer(count, "TAKE"),
        text(body.get("member"), "MEMBER"),
        None if wait is None else waiting(wait),
    )


def _on_receipts(body: Body) -> tuple[str, str, list[str]]:
    if body.get("receipts") is None:
        raise BadRequest("TOPIC needs receipts", field="receipts")
    return _name(body, "topic"), _name(body, "group"), receipts(body["receipts"])


def _nack(body: Body) -> MessageOperation:
    delay = body.get("delay")
    delay_us = None if delay is None else lasting(delay, "DELAY")
    return NackMessages(*_on_receipts(body), delay_us, text(body.get("error"), "ERROR"))


def _extend(body: Body) -> MessageOperation:
    by = body.get("by")
    if by is None:
        raise BadRequest("TOPIC extend needs by", field="by")
    return ExtendMessages(*_on_receipts(body), lasting(by, "BY", least_us=1))


_OPERATIONS: Final[dict[str, tuple[frozenset[str], Callable[[Body], MessageOperation]]]] = {
    word: (_COMMON | {*fields.split()}, read)
    for word, fields, read in (
        ("publish", "value values key id headers delay at expect", _publish),
        ("take", "group count member wait", _take),
        ("ack", "group receipts", lambda body: AckMessages(*_on_receipts(body))),
        ("nack", "group receipts delay error", _nack),
        ("extend", "group receipts by", _extend),
        (
            "give_up",
            "group receipts error",
            lambda body: GiveUpMessages(*_on_receipts(body), text(body.get("error"), "ERROR")),
        ),
    )
}
