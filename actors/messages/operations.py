"""Operations on messages over one transaction, shared by statements and the wire protocol.

Each function makes all its changes, or none where it raises a refusal. Only `TooLarge` of the whole
transaction comes after some changes. `OperationResult.follow_up` runs after the commit: it fills in
positions and wakes waiting consumers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from actors.topics.service import DeliveredMessages, TopicService
from actors.topics.waiting import StatementWait
from protocol.messages import (
    AckMessages,
    ExtendMessages,
    NackMessages,
    PublishMessages,
    Settling,
    TakeMessages,
)
from protocol.values import Tick
from storage.topics.deliveries import acks, fetch
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group
from storage.topics.messages import PublishResult, TopicMessages
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction


class OperationResult:
    """Result of an operation; its answer is final once `follow_up` was called."""

    __slots__ = ("answer", "follow_up", "goes_on", "handed_out", "waits", "wrote")

    def __init__(self, answer: Any, follow_up: Callable[[], None], wrote: bool) -> None:
        self.answer = answer
        self.follow_up = follow_up
        self.wrote = wrote
        """True if it has published, delivered or settled messages."""
        self.handed_out: DeliveredMessages | None = None
        """Messages delivered to the caller."""
        self.waits = False
        """True if it has found nothing, and is to wait."""
        self.goes_on = False
        """True if it has done a part of its work, which is to be a commit of its own, and is to be
        run again."""

    @property
    def changed(self) -> bool:
        """True if it has changed something that is visible to its caller."""
        return self.wrote or self.goes_on


def publish(
    service: TopicService,
    tx: Transaction,
    topic: Topic,
    operation: PublishMessages,
    *,
    pin: bool = False,
    tick: Tick | None = None,
) -> OperationResult:
    """Append messages. Their positions are final with the commit.

    :param pin: True if other parts of the transaction use the positions
    """
    messages = TopicMessages(tx, topic)
    # 0: due at once.
    due_us = 0
    if operation.delay_us is not None:
        due_us = tx.now_us + operation.delay_us
    elif operation.at_us is not None:
        due_us = operation.at_us
    published = messages.publish(
        operation.values,
        key=operation.key,  # validated there, as are the following
        id=operation.id,
        headers=operation.headers,
        due_us=due_us,
        expect=operation.expect,
        tick=tick,
    )
    if pin:
        messages.pin()
    answer: dict[str, Any] = {}
    # Provisional positions, for the rest of a script. A paused transaction gets the final ones at
    # its commit (docs/decisions/positions-at-commit.md).
    _fill_in(answer, published, operation.many)
    tell = telling(service, messages)
    follow_up = partial(_has_published, answer, published, operation.many, tell)
    return OperationResult(answer, follow_up, messages.wakes)


def _fill_in(answer: dict[str, Any], published: PublishResult, many: bool) -> None:
    if many:
        answer["first"], answer["last"] = published.first, published.last
        answer["count"] = published.count
    else:
        answer["position"], answer["duplicate"] = published.first, published.duplicate


def _has_published(
    answer: dict[str, Any], published: PublishResult, many: bool, tell: Callable[[], None]
) -> None:
    # The commit has numbered the messages.
    _fill_in(answer, published, many)
    tell()


def telling(service: TopicService, messages: TopicMessages) -> Callable[[], None]:
    """Return a function that wakes the takers of these messages, to be called after the commit."""
    return partial(_notify_service, service, messages)


def _notify_service(service: TopicService, messages: TopicMessages) -> None:
    # False for a duplicate, which appends nothing.
    if messages.wakes:
        service.published(messages.topic, over=messages.may_be_over())


def take(
    service: TopicService,
    tx: Transaction,
    group: Group,
    operation: TakeMessages,
    wait: StatementWait | None,
    stops: Callable[[], bool],
    tick: Tick | None = None,
) -> OperationResult:
    """Deliver messages to the caller.

    :param wait: its wait, where it may wait
    :param stops: asked after each part of the work without a result; True: that part is to be a
        commit of its own
    """
    index = DeliveryIndex(tx, group, tick)
    found = fetch.take(index, operation.count, operation.member)
    goes_on = False
    # A part may expire, dead-letter or pass rows without a delivery; the next goes on behind.
    while not found and index.more:
        # The caller commits this part and runs the operation again: work between yields is bounded.
        if stops():
            goes_on = True
            break
        found = fetch.take(index, operation.count, operation.member)
    # With `over` set, an empty result is the answer.
    waits = wait is not None and not found and not wait.over
    out_us = group.deadline_us if found else None
    done = OperationResult(found, _follow_up(service, tx, index, out_us, waits), bool(found))
    done.waits, done.goes_on = waits, goes_on
    if found:
        done.handed_out = DeliveredMessages(group, found)
    return done


def apply_receipts(
    service: TopicService,
    tx: Transaction,
    group: Group,
    operation: Settling,
    tick: Tick | None = None,
) -> OperationResult:
    """Apply a member's ACK, NACK, EXTEND or GIVE UP for its deliveries."""
    index = DeliveryIndex(tx, group, tick)
    receipts, out_us = operation.receipts, None
    if isinstance(operation, AckMessages):
        answer = acks.ack(index, receipts)
    elif isinstance(operation, NackMessages):
        answer = acks.nack(index, receipts, operation.delay_us, operation.error)
    elif isinstance(operation, ExtendMessages):
        answer = acks.extend(index, receipts, operation.by_us)
        out_us = operation.by_us if answer["extended"] else None
    else:
        answer = acks.give_up(index, receipts, operation.error)
    # A stale receipt changes nothing (at-least-once delivery).
    wrote = answer["stale"] < len(receipts)
    return OperationResult(answer, _follow_up(service, tx, index, out_us, False), wrote)


def _follow_up(
    service: TopicService,
    tx: Transaction,
    index: DeliveryIndex,
    out_us: int | None,
    waited: bool,
) -> Callable[[], None]:
    """Return the function to call after the commit.

    :param out_us: ack deadline of deliveries, from now on; None: there are none
    :param waited: True if the operation itself will wait
    """
    group = index.group
    at_us = None if out_us is None else tx.now_us + out_us
    # A taker in line needs the exact time, redeliveries included. Without one TAKE looks by itself,
    # and the schedule may be somewhat late.
    exact = waited or service.waits.is_taken_from(group.topic.id, group.id)
    if exact:
        at_us = index.next_due_us()
        # A due message that can't be delivered waits for something other than time.
        exact = at_us is not None and at_us > tx.now_us
    elif at_us is not None:
        exact = service.waits.is_expiry_awaited(tx, group)
    return partial(_has_moved, service, index, at_us, exact)


def _has_moved(service: TopicService, index: DeliveryIndex, at_us: int | None, exact: bool) -> None:
    group = index.group
    if at_us is not None:
        service.schedules.expects(group.topic, at_us, exact=exact)
    if index.wakes:
        service.waits.may_take(group.topic.id, group.id)
    # Dead letters are messages of another topic, which has consumers of its own.
    if index.dead is not None:
        service.published(index.dead)
