"""The rules of hand-outs: taken, acknowledged, handed out again, given up, moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol import limits
from storage.groups import Group
from storage.topics import Place, Topic
from storage.transactions import Transaction

Answer = dict[str, Any]


class HandOuts:
    """What a group hands out, in one transaction. What raises a refusal has changed nothing."""

    def __init__(self, tx: Transaction, group: Group) -> None:
        self.group = group
        self.wakes = False
        """Whether a TAKE that waits may find something now: a message to be handed out again, or
        room for more in flight."""
        self.dead: Topic | None = None
        """The topic into which a dead letter was put: whoever waits for its messages may find it.
        """
        self.more = False
        """Whether a `take` or `lapse` stopped at the end of its slice: there is more to look at,
        so a `take` that found nothing is to be called again."""

    def take(self, count: int = 1, member: str | None = None) -> list[Answer]:
        """Hand out up to so many messages, as `Messages.read` answers them with `receipt`,
        `attempt`, `deadline` and `member`. Writes nothing when there is nothing.

        :raises BadRequest: a count outside 1 … `limits.MESSAGES_READ`, a member's name too long
        """
        raise NotImplementedError

    def ack(self, receipts: Sequence[str]) -> Answer:
        """`{acked, stale}`. :raises BadRequest: what is no receipt, too many of them"""
        raise NotImplementedError

    def nack(
        self, receipts: Sequence[str], delay_us: int | None = None, error: str | None = None
    ) -> Answer:
        """`{nacked, stale}`: to be handed out again after `delay_us`; None: after the group's
        backoff. :raises BadRequest: as `ack`; an error too long, a negative delay"""
        raise NotImplementedError

    def extend(self, receipts: Sequence[str], by_us: int) -> Answer:
        """`{extended, stale}`: due `by_us` from now. :raises BadRequest: as `ack`; of `by_us`"""
        raise NotImplementedError

    def give_up(self, receipts: Sequence[str], error: str | None = None) -> Answer:
        """`{given_up, stale}`: dead letters at once. :raises BadRequest: as `nack`"""
        raise NotImplementedError

    def lapse(self, most: int = limits.LAPSE_HAND_OUTS) -> int:
        """Take back about so many hand-outs whose deadline has passed; how many there were."""
        raise NotImplementedError

    def move(self, place: Place) -> int:
        """Begin anew at a place; its position. Every receipt given before goes stale.

        :raises BadRequest: no such position
        """
        raise NotImplementedError

    def next_due_us(self, *, ready: bool = True) -> int | None:
        """Log time when the next hand-out lapses or is ready to be handed out again, now and the
        past included; None when there is neither. Messages not yet looked at are not considered.

        :param ready: False: only when one lapses, which is all that happens while nobody takes.
            What can't be handed out because as many are in flight as may is not ready.
        """
        raise NotImplementedError

    def figures(self) -> Answer:
        """`{name, handed_out, committed, lag, in_flight, width, redelivered, dead_lettered,
        deadline, max_in_flight, deliveries, dead_letter, epoch}` and `backoff, ordered`, as
        `INFO FOR GROUP` answers them; deadline and backoff are durations."""
        raise NotImplementedError
