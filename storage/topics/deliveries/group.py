"""Deliveries of a group: the complete class, with seek, trimming and the figures of INFO."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from storage.topics import groups
from storage.topics.deliveries.delivery import OUT, WAITING, DeliveryRow
from storage.topics.deliveries.fetch import DeliveryFetch
from storage.topics.deliveries.index import PLACE, Answer
from storage.topics.groups import state_of
from storage.topics.topics import StartPosition
from storage.txn.appends import NUMBER


class GroupDeliveries(DeliveryFetch):
    """Deliveries of one group in one transaction. A call that raises a refusal changes nothing."""

    __slots__ = ()

    # --- seek, trimming -------------------------------------------------------------------------

    def move(self, place: StartPosition) -> int:
        """Reset the group to a place. Return its position; all earlier receipts become stale.

        :raises BadRequest: the topic has no such position
        """
        groups.reset_group(self._tx, self.group, self._messages.position_at(place))
        self.wakes = True
        return state_of(self._tx, self.group)[0].committed

    def trimmed(self, first: int) -> Iterator[None]:
        """Forget the deliveries of messages trimmed before `first`. Yields between steps."""
        state, prefix = self._load(), self.group.hand_outs
        if state.committed >= first - 1:
            return
        # Before the rows go: afterwards the group no longer looks full.
        self.wakes = self.wakes or state.out >= self.group.in_flight
        if state.hand_outs:
            start = prefix + NUMBER.pack(state.committed + 1)
            for pairs in self._tx.scan(start, prefix + NUMBER.pack(first)):
                for key, _ in pairs:
                    (position,) = NUMBER.unpack_from(key, len(prefix))
                    # Read again: `_release` may have made this parked row a waiting one.
                    self._trim(position, self._row(key))
                yield
        # Trimmed messages count as done; `_commit` goes on to the first that is not.
        state.committed = first - 1
        state.cursor = max(state.cursor, first - 1)
        self._commit()
        self._store()

    def _trim(self, position: int, row: DeliveryRow) -> None:
        if row.state == OUT:
            self._leave({position: row})
        else:
            assert row.state == WAITING, "only the first of a key is trimmed, and it is not parked"
            self._tx.delete(self.group.ready + PLACE.pack(row.due_us, position))
        self._tx.delete(self._place(position))
        self._state.hand_outs -= 1
        if self.group.ordered:
            self._release(position, row.key)

    # --- for INFO -------------------------------------------------------------------------------

    def figures(self) -> Answer:
        """Return the figures of `INFO FOR GROUP`; deadline and backoff are durations.

        `{name, handed_out, committed, lag, pending, waiting, in_flight, width, redelivered,
        dead_lettered, deadline, max_in_flight, deliveries, dead_letter, epoch, backoff, ordered}`
        """
        group = self.group
        state, _ = state_of(self._tx, group)
        last, _ = self._messages.end()
        in_flight = state.out - self._count_expired(state)
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
