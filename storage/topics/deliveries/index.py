"""Rows and indexes of a group's deliveries, as one transaction changes them together.

These are the delivery rows, the index of ack deadlines, the index of messages ready for redelivery,
the order by key, and the group's cursors.

A message that a group has read and is not done with has a delivery row (`delivery.py`) in one of
three states:

- OUT: in flight, a member has it until its ack deadline (SQS: visibility timeout);
- WAITING: to be delivered, again or for the first time, once it is due;
- PARKED: in a group ORDERED BY KEY, an earlier message of its key is not done.

Invariants:

- Messages delivered together share an entry of the ack deadline index: time · first position →
  number still in flight under it (4) · last position (8). It is deleted with the last of them.
- Every WAITING delivery is in the index of ready messages under its time.
- The head of a key (position (8) · number parked behind it (4)) is its earliest delivery, and
  the only one that is not parked.
- A delivery whose ack deadline has passed is no longer in flight, even before the expiry has run.
  It is due since then, or since its backoff after that. So the outcome does not depend on when the
  expiry runs.
- Exception: an ack deadline does not pass before the member has received the delivery. While the
  commit of a delivery is unreleased, the delivery is in flight, so a stalled disk uses up no
  attempt. A late release restarts the deadline (`acks.restart_deadlines`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from protocol.values import Tick
from storage.formats import keys
from storage.topics.deliveries.delivery import ALONE, PARKED, WAITING, DeliveryRow, unpacked
from storage.topics.groups import Group, GroupState, differ, state_of
from storage.topics.message_rows import MessageRows
from storage.topics.topics import Topic
from storage.txn.appends import NUMBER
from storage.txn.transaction import Transaction

Answer = dict[str, Any]

ENTRY: Final = Struct(">IQ")
"""Value of an ack deadline entry: number of deliveries in flight under it, and the last of their
positions."""
PLACE: Final = Struct(">QQ")
"""Time (µs) and position, as in the keys of both indexes."""
_HEAD: Final = Struct(">QI")

AHEAD_US: Final = 1_000_000
"""Lookahead (µs) when an index is scanned, so that the next scan is not due before an entry can be.
"""
STEP: Final = 64
"""Messages read per step after the first, that is once some were not deliverable."""

_NEAR: Final = 4
"""Positions probed one by one for the first message that is not done, before a scan."""


class DeliveryIndex:
    """Delivery rows and indexes of one group in one transaction.

    `fetch`, `acks`, `expiry` and `group` are the operations on it: functions that call `load`,
    change the rows, and call `store`. One that raises a refusal changes nothing.
    """

    __slots__ = ("_before", "dead", "group", "messages", "more", "now_us", "soonest_us", "state",
                 "tick", "tx", "wakes")  # fmt: skip

    def __init__(self, tx: Transaction, group: Group, tick: Tick | None = None) -> None:
        """:param tick: called from time to time while many receipts are processed"""
        self.tx = tx
        self.tick = tick
        self.messages = MessageRows(tx, group.topic)
        self.now_us = tx.now_us
        """Log time of the transaction (µs)."""
        self.state: GroupState
        """The group's cursors and counts, from `load` on."""
        self._before = b""
        self.group = group
        self.wakes = False
        """True if a blocked TAKE may succeed: a message is ready for redelivery, or there is room
        in flight."""
        self.dead: Topic | None = None
        """Dead letter topic that received a message, so that its waiting consumers can be woken."""
        self.more = False
        """True if a `take` or `expire` stopped at the end of its slice with work left.

        A `take` that found no message must then be called again.
        """
        self.soonest_us = 0
        """Earliest time written here at which a delivery expires or is ready (µs); 0: none."""

    # --- rows -----------------------------------------------------------------------------------

    def load(self) -> GroupState:
        """Read the group's state row."""
        self.state, self._before = state_of(self.tx, self.group)
        return self.state

    def store(self) -> None:
        """Write the group's state row if it changed."""
        row = self.state.pack()
        # An unchanged row stays unwritten, so an idle TAKE makes no commit.
        if differ(self._before, row):
            self.tx.put(self.group.state, row)

    def place(self, position: int) -> bytes:
        """Return the key of a delivery's row."""
        return self.group.hand_outs + NUMBER.pack(position)

    def row(self, place: bytes) -> DeliveryRow:
        """Read a delivery row that exists."""
        row = self.tx.get(place)
        assert row is not None, "what an index names is there"
        return unpacked(row)

    def rows_between(self, first: int, last: int) -> Iterator[tuple[int, DeliveryRow]]:
        """Yield the delivery rows from one position to another, both inclusive."""
        prefix = self.group.hand_outs
        if first == last:
            yield first, self.row(self.place(first))
            return
        for pairs in self.tx.scan(prefix + NUMBER.pack(first), prefix + NUMBER.pack(last + 1)):
            for key, row in pairs:
                (position,) = NUMBER.unpack_from(key, len(prefix))
                yield position, unpacked(row)

    def is_past_deadline(self, position: int, row: DeliveryRow) -> bool:
        """True if the ack deadline of an in-flight delivery has passed.

        False as long as the commit of the delivery is unreleased: no member has received it yet.
        """
        if row.due_us > self.now_us:
            return False
        # By the commit index when the transaction began, so it judges all its rows alike.
        return not self.tx.is_unreleased(self.place(position))

    def is_last(self, row: DeliveryRow) -> bool:
        """True if the message has had its maximum number of deliveries."""
        deliveries = self.group.deliveries
        return deliveries is not None and row.attempt >= deliveries

    # --- ends of a delivery ---------------------------------------------------------------------

    def leave_flight(self, out: dict[int, DeliveryRow]) -> None:
        """Remove deliveries from the ack deadline index: they are no longer in flight."""
        tx, deadlines = self.tx, self.group.deadlines
        entries: Counter[tuple[int, int]] = Counter()
        for row in out.values():
            # No read: the common TAKE of one message has an entry to itself.
            if row.flags & ALONE:
                tx.delete(deadlines + PLACE.pack(row.due_us, row.batch))
            else:
                entries[row.due_us, row.batch] += 1
        for place, count in entries.items():
            key = deadlines + PLACE.pack(*place)
            entry = tx.get(key)
            assert entry is not None, "a hand-out that is out has a deadline"
            left, last = ENTRY.unpack(entry)
            if left == count:
                tx.delete(key)
            else:
                tx.put(key, ENTRY.pack(left - count, last))
        self.state.out -= len(out)

    def forget(self, gone: dict[int, DeliveryRow]) -> None:
        """Delete delivery rows: the group is done with their messages."""
        if not gone:
            return
        state = self.state
        self.tx.delete_all([self.place(position) for position in gone])
        state.hand_outs -= len(gone)
        if self.group.ordered:
            for position in sorted(gone):
                self.release_key(position, gone[position].key)
        # `committed` moves only when the first message that was not done goes.
        if state.committed + 1 in gone:
            self.advance_committed()

    def advance_committed(self) -> None:
        """Advance `committed` to before the first message that is not done."""
        tx, state, prefix = self.tx, self.state, self.group.hand_outs
        # It is mostly near, and a few gets cost less than a scan through the deliveries in flight.
        for position in range(state.committed + 1, min(state.committed + _NEAR, state.cursor) + 1):
            if tx.get(prefix + NUMBER.pack(position)) is not None:
                state.committed = position - 1
                return
        begin, width = state.committed + 1, STEP
        state.committed = state.cursor
        while state.hand_outs and begin <= state.cursor:
            end = begin + width
            for pairs in tx.scan(prefix + NUMBER.pack(begin), prefix + NUMBER.pack(end)):
                (position,) = NUMBER.unpack_from(pairs[0][0], len(prefix))
                state.committed = position - 1
                return
            begin, width = end, width * 4

    def schedule_redelivery(
        self, position: int, row: DeliveryRow, since_us: int, delay_us: int | None
    ) -> None:
        """Schedule the redelivery of a message that is no longer in flight.

        :param since_us: start of the delay
        :param delay_us: delay; None: the group's backoff for this attempt
        """
        if delay_us is None:
            steps = self.group.backoff_us
            delay_us = steps[min(row.attempt, len(steps)) - 1] if steps else 0
        row.state, row.flags, row.batch, row.member = WAITING, 0, 0, b""
        row.due_us = since_us + delay_us
        self.schedule(position, row)
        self.wakes = True

    def schedule(self, position: int, row: DeliveryRow) -> None:
        """Write a WAITING delivery to its row and to the index of ready messages."""
        tx, group, state = self.tx, self.group, self.state
        tx.put(self.place(position), row.pack())
        tx.put(group.ready + PLACE.pack(row.due_us, position), b"")
        state.ready_from_us = min(state.ready_from_us, row.due_us)
        self._expect(row.due_us)

    # --- deadlines ------------------------------------------------------------------------------

    def add_deadline(self, due_us: int, first: int, last: int, count: int) -> int:
        """Add deliveries to the ack deadline index. Return the flags of their rows."""
        key = self.group.deadlines + PLACE.pack(due_us, first)
        entry = self.tx.get(key)
        flags = ALONE if count == 1 else 0
        if entry is not None:
            # An entry of other deliveries with the same deadline and the same first position.
            # None has the flag ALONE: that row would be at `first`, which is not in flight.
            others, before = ENTRY.unpack(entry)
            count, last, flags = count + others, max(last, before), 0
        self.tx.put(key, ENTRY.pack(count, last))
        self.expect_deadline(due_us)
        return flags

    def expect_deadline(self, due_us: int) -> None:
        """Lower the known bound of the ack deadline index to a new entry."""
        state = self.state
        # With none in flight the index is empty, so the known bound is void.
        known = state.deadlines_from_us if state.out else due_us
        state.deadlines_from_us = min(known, due_us)
        self._expect(due_us)

    def _expect(self, time_us: int) -> None:
        if not self.soonest_us or time_us < self.soonest_us:
            self.soonest_us = time_us

    def next_due_us(self, *, ready: bool = True) -> int | None:
        """Return the log time of the next expiry or redelivery, also if it has passed.

        None if there is none.

        Messages behind the cursor, which the group has not read yet, are not considered.

        :param ready: False: consider expiries only, which are all that happens without a TAKE. With
            the maximum in flight, no message counts as ready for redelivery.
        """
        group = self.group
        state, _ = state_of(self.tx, group)
        found = []
        if state.out:
            found.append(self._first_time(group.deadlines, state.deadlines_from_us))
        waiting = state.hand_outs > state.out + state.parked
        if ready and waiting and state.out < group.in_flight:
            found.append(self._first_time(group.ready, state.ready_from_us))
        return min((time_us for time_us in found if time_us is not None), default=None)

    def _first_time(self, prefix: bytes, from_us: int) -> int | None:
        _, end = keys.within(prefix)
        for pairs in self.tx.scan(prefix + NUMBER.pack(from_us), end):
            return int(NUMBER.unpack_from(pairs[0][0], len(prefix))[0])
        return None

    def entries_between(
        self, prefix: bytes, from_us: int, to_us: int
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of an index from one time (inclusive) to another (exclusive)."""
        start, end = prefix + NUMBER.pack(from_us), prefix + NUMBER.pack(to_us)
        for pairs in self.tx.scan(start, end):
            yield from pairs

    # --- order by key ---------------------------------------------------------------------------

    def head(self, key: bytes) -> tuple[int, int] | None:
        """Return the position of a key's head, and the number of messages parked behind it."""
        # Keys hold no NUL, so the end mark keeps a key apart from longer keys that begin with it.
        row = self.tx.get(self.group.heads + key + b"\0")
        return None if row is None else _HEAD.unpack(row)

    def put_head(self, key: bytes, position: int, parked: int) -> None:
        """Set the head of a key; without a key there is no order to keep."""
        if key:
            self.tx.put(self.group.heads + key + b"\0", _HEAD.pack(position, parked))

    def park(self, position: int, key: bytes, head: tuple[int, int], due_us: int) -> None:
        """Write a PARKED delivery behind the head of its key."""
        tx, group, state = self.tx, self.group, self.state
        tx.put(self.place(position), DeliveryRow(PARKED, 0, 0, due_us, 0, key=key).pack())
        tx.put(group.parked + key + b"\0" + NUMBER.pack(position), b"")
        self.put_head(key, head[0], head[1] + 1)
        state.hand_outs += 1
        state.parked += 1

    def release_key(self, position: int, key: bytes) -> None:
        """Replace a key's head that is done by the next parked message of that key."""
        if not key:
            return
        tx, group, state = self.tx, self.group, self.state
        head = self.head(key)
        assert head is not None, "a hand-out of an ordered group has a head"
        assert head[0] == position, "only the head of a key is not parked"
        if not head[1]:
            tx.delete(group.heads + key + b"\0")
            return
        # Start at the head's position, so as to skip the tombstones of earlier messages.
        prefix = group.parked + key + b"\0"
        start, end = prefix + NUMBER.pack(position), keys.within(prefix)[1]
        found = next(tx.scan(start, end))[0][0]
        tx.delete(found)
        (behind,) = NUMBER.unpack_from(found, len(prefix))
        self.put_head(key, behind, head[1] - 1)
        row = self.row(self.place(behind))
        # A delay of the publish still counts. A past time moves up: the message was blocked.
        row.state, row.due_us = WAITING, max(row.due_us, self.now_us)
        state.parked -= 1
        self.schedule(behind, row)
        self.wakes = True
