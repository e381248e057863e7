"""Deliveries of a group as a whole: seek, trimming and the figures of INFO."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from storage.topics import groups
from storage.topics.deliveries.delivery import OUT, WAITING, DeliveryRow
from storage.topics.deliveries.expiry import count_expired
from storage.topics.deliveries.index import PLACE, Answer, DeliveryIndex
from storage.topics.groups import state_of
from storage.topics.topics import StartPosition
from storage.txn.appends import NUMBER


def move(index: DeliveryIndex, place: StartPosition) -> int:
    """Reset the group to a place. Return its position; all earlier receipts become stale.

    :raises BadRequest: the topic has no such position
    """
    groups.reset_group(index.tx, index.group, index.messages.position_at(place))
    index.wakes = True
    return state_of(index.tx, index.group)[0].committed


def trim(index: DeliveryIndex, first: int) -> Iterator[None]:
    """Forget the deliveries of messages trimmed before `first`. Yields between steps."""
    state, prefix = index.load(), index.group.hand_outs
    if state.committed >= first - 1:
        return
    # Before the rows go: afterwards the group no longer looks full.
    index.wakes = index.wakes or state.out >= index.group.in_flight
    if state.hand_outs:
        start = prefix + NUMBER.pack(state.committed + 1)
        for pairs in index.tx.scan(start, prefix + NUMBER.pack(first)):
            for key, _ in pairs:
                (position,) = NUMBER.unpack_from(key, len(prefix))
                # Read again: `release_key` may have made this parked row a waiting one.
                _trim_delivery(index, position, index.row(key))
            yield
    # Trimmed messages count as done; `advance_committed` goes on to the first that is not.
    state.committed = first - 1
    state.cursor = max(state.cursor, first - 1)
    index.advance_committed()
    index.store()


def _trim_delivery(index: DeliveryIndex, position: int, row: DeliveryRow) -> None:
    if row.state == OUT:
        index.leave_flight({position: row})
    else:
        assert row.state == WAITING, "only the first of a key is trimmed, and it is not parked"
        index.tx.delete(index.group.ready + PLACE.pack(row.due_us, position))
    index.tx.delete(index.place(position))
    index.state.hand_outs -= 1
    if index.group.ordered:
        index.release_key(position, row.key)


def figures(index: DeliveryIndex) -> Answer:
    """Return the figures of `INFO FOR GROUP`; deadline and backoff are durations.

    `{name, handed_out, committed, lag, pending, waiting, in_flight, width, redelivered,
    dead_lettered, deadline, max_in_flight, deliveries, dead_letter, epoch, backoff, ordered}`
    """
    group = index.group
    state, _ = state_of(index.tx, group)
    last, _ = index.messages.end()
    in_flight = state.out - count_expired(index, state)
    pending = state.pending(last)
    return {
        "name": group.name,
        "handed_out": state.handed_out,
        "committed": state.committed,
        "lag": last - state.committed,
        "pending": pending,
        "waiting": pending - in_flight,
        "in_flight": in_flight,
        # Messages trimmed before their delivery count as done.
        "width": max(state.handed_out - state.committed, 0),
        "redelivered": state.redelivered,
        "dead_lettered": state.dead_lettered,
        "deadline": timedelta(microseconds=group.deadline_us),
        "max_in_flight": group.in_flight,
        "deliveries": group.deliveries,
        "dead_letter": group.dead_letter,
        "epoch": state.epoch,
        "backoff": [timedelta(microseconds=step_us) for step_us in group.backoff_us],
        "ordered": group.ordered,
    }
