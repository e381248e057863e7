"""Expiry of ack deadlines (visibility timeout): redelivery, dead letters after the last attempt.

Past its deadline a delivery waits for the group's backoff and is delivered again. One that has had
the group's `deliveries` goes to the dead-letter topic. `actors/topics/due.py` has it done in time;
NACK and GIVE UP are in `acks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol import limits
from protocol.text import format_datetime
from protocol.values import instant
from storage.topics.deliveries.delivery import OUT, DeliveryRow
from storage.topics.deliveries.index import AHEAD_US, ENTRY, PLACE, DeliveryIndex
from storage.topics.groups import GroupState, state_of
from storage.topics.message_rows import MessageRows, headers_of, with_headers
from storage.topics.topics import find_topic

DEAD_HEADERS: Final = (
    "dead-topic", "dead-group", "dead-position", "dead-attempts", "dead-error", "dead-at",
)  # fmt: skip
"""Headers of a dead letter that name its origin."""
LAPSED: Final = "the deadline passed"
REFUSED: Final = "it was refused"
GIVEN_UP: Final = "it was given up"
SPENT: Final = "it has had its deliveries"
"""Default errors of dead letters, if no NACK gave one: the outcome of the last delivery."""

PART: Final = 256
"""Receipts or entries processed between two ticks: about a millisecond of work."""
_STEP_BYTES: Final = limits.MIB
"""Approximate bytes of dead letters appended per step: a few milliseconds of work."""


class ExhaustedMessages:
    """Messages whose last delivery is over, to be dead-lettered."""

    __slots__ = ("became", "bytes", "letters", "rows")

    def __init__(self, became: str) -> None:
        """:param became: outcome of the last delivery, the default error"""
        self.became = became
        self.rows: dict[int, DeliveryRow] = {}
        """Delivery rows by position."""
        self.letters: dict[int, bytes] = {}
        """Dead letters encoded so far, by position."""
        self.bytes = 0
        """Bytes of those letters."""


def expire(index: DeliveryIndex, most: int = limits.LAPSE_HAND_OUTS) -> int:
    """Expire about `most` deliveries past their ack deadline.

    Fewer, if their dead letters are large.

    Return their number. `more` is True if any are left.
    """
    index.load()
    index.more = False
    done = expire_deliveries(index, most)
    index.store()
    return done


def expire_deliveries(index: DeliveryIndex, most: int) -> int:
    """Expire deliveries on a loaded index; `expire` has the parameters. The caller stores it."""
    group, state, now_us = index.group, index.state, index.now_us
    # Fast path of every TAKE: the state row alone shows that no deadline has passed.
    if not state.out or state.deadlines_from_us > now_us:
        return 0
    done, unreleased, left_us = 0, 0, limits.INT_MAX
    # If the scan finds nothing later, entries begin behind its end at the earliest.
    next_us = now_us + AHEAD_US
    over = ExhaustedMessages(LAPSED)
    for key, entry in index.entries_between(group.deadlines, state.deadlines_from_us, next_us):
        time_us, first = PLACE.unpack_from(key, len(group.deadlines))
        if time_us > now_us or done >= most or over.bytes >= limits.LAPSE_BYTES:
            index.more = time_us <= now_us
            next_us = time_us
            break
        if unreleased >= most:  # none of these can expire yet
            next_us = time_us
            break
        count, last = ENTRY.unpack(entry)
        # An entry is processed whole, so the rest of one may exceed `most`.
        taken_back = _take_back(index, time_us, first, last, over)
        done += taken_back
        if taken_back == count:
            index.tx.delete(key)
            continue
        # The rest stays in the entry: it is unreleased, so no member has received it, or its
        # dead letters would exceed one commit.
        assert taken_back < count, "an entry counts what is out under it"
        left_us = min(left_us, time_us)
        unreleased += count - taken_back
        if taken_back:
            index.tx.put(key, ENTRY.pack(count - taken_back, last))
        if over.bytes >= limits.LAPSE_BYTES:
            index.more, next_us = True, time_us
            break
    # Never beyond an entry that stays, or no later scan would find it.
    state.deadlines_from_us = min(next_us, left_us)
    dead_letter(index, over)
    return done


def _take_back(
    index: DeliveryIndex, due_us: int, first: int, last: int, over: ExhaustedMessages
) -> int:
    """Expire the deliveries under one ack deadline entry. Return their number.

    Unreleased deliveries stay, since no member has received them. Messages to be dead-lettered
    stay too, once the dead letters reach the limit of one commit.

    :param over: collects the messages to dead-letter
    """
    is_full = index.state.out >= index.group.in_flight
    back: dict[int, DeliveryRow] = {}
    for position, row in index.rows_between(first, last):
        # The span also holds rows of other entries: waiting, extended, delivered again.
        if row.state == OUT and row.due_us == due_us and row.batch == first:
            if not index.is_past_deadline(position, row):
                continue
            if index.is_last(row):
                if over.bytes >= limits.LAPSE_BYTES:
                    break
                end_delivery(index, position, row, over)
            back[position] = row
    index.state.out -= len(back)
    if is_full and back:  # otherwise a blocked TAKE would wake itself again and again
        index.wakes = True
    for position, row in back.items():
        if position not in over.rows:
            # The backoff counts from the deadline, so a late expiry delays no redelivery.
            index.schedule_redelivery(position, row, due_us, None)
    return len(back)


# --- counting -------------------------------------------------------------------------------------


def count_expired(index: DeliveryIndex, state: GroupState) -> int:
    """Count the expired deliveries that have not been taken back yet."""
    if not state.out or state.deadlines_from_us > index.now_us:
        return 0
    found = 0
    deadlines, end_us = index.group.deadlines, index.now_us + 1
    entries = index.entries_between(deadlines, state.deadlines_from_us, end_us)
    for number, (key, entry) in enumerate(entries):
        count, last = ENTRY.unpack(entry)
        # A released entry has only released deliveries, so its count needs no rows.
        if index.tx.is_unreleased(key):
            time_us, first = PLACE.unpack_from(key, len(deadlines))
            count = sum(
                row.state == OUT and (row.due_us, row.batch) == (time_us, first)
                and index.is_past_deadline(position, row)
                for position, row in index.rows_between(first, last)
            )  # fmt: skip
        found += count
        if number % PART == 0 and index.tick is not None:
            index.tick()
    return found


def overdue(index: DeliveryIndex) -> int:
    """Count the deliveries whose ack deadline has passed and that have not been taken back."""
    return count_expired(index, state_of(index.tx, index.group)[0])


# --- dead letters ---------------------------------------------------------------------------------


def end_delivery(
    index: DeliveryIndex, position: int, row: DeliveryRow, over: ExhaustedMessages
) -> None:
    """Collect a message to dead-letter, and encode its dead letter if the group has a topic for
    them."""
    over.rows[position] = row
    if index.group.dead_letter is not None:
        letter = over.letters[position] = _letter(index, position, row, over.became)
        over.bytes += len(letter)


def dead_letter(index: DeliveryIndex, over: ExhaustedMessages) -> None:
    """Dead-letter messages that are no longer in flight, in the order of their positions.

    :raises TooLarge: the transaction exceeds its limit; raised at once, before further letters
        are encoded
    """
    if not over.rows:
        return
    group, state = index.group, index.state
    name = group.dead_letter
    dead = None if name is None else find_topic(index.tx, group.topic.database, name)
    if dead is not None:
        # Without a check of BYTES or LARGEST: a refusal here would block the expiry for ever.
        rows = MessageRows(index.tx, dead)
        for letters in _letters(index, over):
            rows.append(letters)
        index.dead = dead
    state.dead_lettered += len(over.rows)
    index.forget(over.rows)


def _letters(index: DeliveryIndex, over: ExhaustedMessages) -> Iterator[list[bytes]]:
    """Yield the dead letters in steps, since all of them may exceed the transaction's limit."""
    some: list[bytes] = []
    size = 0
    for position in sorted(over.rows):
        # `pop` frees each letter with its step: the write set holds a copy by then.
        letter = over.letters.pop(position, None)
        if letter is None:
            letter = _letter(index, position, over.rows[position], over.became)
        some.append(letter)
        size += len(letter)
        if size >= _STEP_BYTES:
            yield some
            some, size = [], 0
            if index.tick is not None:
                index.tick()
    if some:
        yield some


def _letter(index: DeliveryIndex, position: int, row: DeliveryRow, became: str) -> bytes:
    message = index.messages.get(position)
    said = (
        index.group.topic.name, index.group.name, str(position), str(row.attempt),
        row.error.decode() or became, format_datetime(instant(index.now_us)),
    )  # fmt: skip
    return with_headers(
        message, {**headers_of(message), **dict(zip(DEAD_HEADERS, said, strict=True))}
    )
