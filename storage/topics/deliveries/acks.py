"""Acknowledgements: ACK, NACK, EXTEND and GIVE UP of deliveries, each named by its receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from protocol import limits
from protocol.errors import BadRequest
from protocol.values import check_unicode
from storage.topics.deliveries.delivery import (
    OUT,
    DeliveryRow,
    Named,
    parsed_receipts,
    topic_named,
    unpacked,
)
from storage.topics.deliveries.expiry import (
    GIVEN_UP,
    PART,
    REFUSED,
    DeliveryExpiry,
    ExhaustedMessages,
)
from storage.topics.deliveries.index import Answer
from storage.txn.appends import NUMBER

_FEW: Final = 8
"""Threshold between gets and a scan. A scan pays off for more rows than this, spread over fewer
positions than this many times their number."""


class DeliveryAcks(DeliveryExpiry):
    """Acknowledgements of one group's deliveries."""

    __slots__ = ("_settled",)

    def ack(self, receipts: Sequence[str]) -> Answer:
        """Acknowledge deliveries. Return `{acked, stale, stale_receipts}`.

        :raises BadRequest: a malformed receipt, or too many of them
        """
        done = 0
        for out in self._out(receipts):
            self._leave(out)
            self._forget(out)
            done += len(out)
        self._store()
        return self._answer("acked", receipts, done)

    def nack(
        self, receipts: Sequence[str], delay_us: int | None = None, error: str | None = None
    ) -> Answer:
        """Negatively acknowledge deliveries, for redelivery after `delay_us`.

        A delay of None is the group's backoff.

        Return `{nacked, stale, stale_receipts}`.

        :raises BadRequest: as `ack`; `error` is too long, or the delay is negative or over 1000
            years
        :raises TooLarge: the dead letters exceed the transaction's limit; the transaction is
            unusable
        """
        said = _checked_error(error)
        if delay_us is not None and not 0 <= delay_us <= limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("DELAY takes a duration of up to 1000 years")
        done = 0
        for out in self._out(receipts):
            over = ExhaustedMessages(REFUSED)
            # Before `_return` overwrites the deadline by which the index finds the row.
            self._leave(out)
            for position, row in out.items():
                row.error = said or row.error
                if self._is_last(row):
                    over.rows[position] = row
                    continue
                # The delay counts from the NACK, not from the deadline, which is still to come.
                self._return(position, row, self._now_us, delay_us)
            self._dead_letter(over)
            done += len(out)
        self._store()
        return self._answer("nacked", receipts, done)

    def extend(self, receipts: Sequence[str], by_us: int) -> Answer:
        """Set the ack deadline of deliveries to `by_us` from now.

        Return `{extended, stale, stale_receipts}`.

        :raises BadRequest: as `ack`; `by_us` is not over 0, or over 1000 years
        """
        if not 0 < by_us <= limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("BY takes a duration over 0 and up to 1000 years")
        done = 0
        for out in self._out(receipts):
            self._leave(out)
            self._move_deadlines(out, self._now_us + by_us)
            done += len(out)
        self._store()
        return self._answer("extended", receipts, done)

    def restart_deadlines(self, receipts: Sequence[str]) -> set[int]:
        """Restart the ack deadline of deliveries that members receive only now.

        A longer deadline stays as it is. Return the positions of the extended deliveries that are
        still in flight.
        """
        done: set[int] = set()
        due_us = self._now_us + self.group.deadline_us
        # The slow release may have used up the whole deadline already.
        for found in self._out(receipts, overdue=True):
            # A member may have extended its delivery meanwhile.
            out = {position: row for position, row in found.items() if row.due_us < due_us}
            self._leave(out)
            self._move_deadlines(out, due_us)
            done |= out.keys()
        self._store()
        return done

    def give_up(self, receipts: Sequence[str], error: str | None = None) -> Answer:
        """Dead-letter deliveries at once. Return `{given_up, stale, stale_receipts}`.

        :raises BadRequest, TooLarge: as `nack`
        """
        said = _checked_error(error)
        done = 0
        for out in self._out(receipts):
            over = ExhaustedMessages(GIVEN_UP)
            self._leave(out)
            for row in out.values():
                row.error = said or row.error
            over.rows |= out
            self._dead_letter(over)
            done += len(out)
        self._store()
        return self._answer("given_up", receipts, done)

    def _answer(self, word: str, receipts: Sequence[str], done: int) -> Answer:
        """Return the response to an acknowledgement. A receipt given twice counts once and is stale
        once."""
        stale: list[str] = []
        if done < len(receipts):
            for receipt, one in zip(receipts, parsed_receipts(receipts), strict=True):
                if one in self._settled:
                    # So a second copy of the receipt is reported as stale.
                    self._settled.discard(one)
                else:
                    stale.append(receipt)
        return {word: done, "stale": len(receipts) - done, "stale_receipts": stale}

    def _move_deadlines(self, out: dict[int, DeliveryRow], due_us: int) -> None:
        # Deliveries that shared an entry share the new one, so a batch stays one index row.
        together: dict[tuple[int, int], list[int]] = {}
        for position, row in out.items():
            together.setdefault((row.due_us, row.batch), []).append(position)
        for positions in together.values():
            first, last = min(positions), max(positions)
            flags = self._enter(due_us, first, last, len(positions))
            for position in positions:
                row = out[position]
                row.due_us, row.batch, row.flags = due_us, first, flags
                self._tx.put(self._place(position), row.pack())
        # Last: `_leave` has subtracted them, and `_enter` reads the count of the others.
        self._state.out += len(out)

    # --- receipts -------------------------------------------------------------------------------

    def _out(
        self, receipts: Sequence[str], *, overdue: bool = False
    ) -> Iterator[dict[int, DeliveryRow]]:
        """Yield the in-flight deliveries that the receipts name, by position, in parts.

        A receipt of an earlier delivery, or of another group or epoch, names none.

        :param overdue: also include those past their ack deadline that the expiry has yet to
            process
        :raises BadRequest: a malformed receipt; raised before the first part
        """
        # All receipts are parsed before the first change: a malformed one refuses the whole call.
        named = parsed_receipts(receipts)
        state = self._load()
        self._settled: set[Named] = set()
        here = topic_named(self._tx.store, self.group.topic), self.group.id, state.epoch
        mine = {(named_one[3], named_one[4]) for named_one in named if named_one[:3] == here}
        wanted = sorted(mine)
        # Sorted parts: neighbours are read by one scan, and each part ends with a tick.
        for start in range(0, len(wanted), PART):
            found: dict[int, DeliveryRow] = {}
            positions = [position for position, _ in wanted[start : start + PART]]
            for position, row in self._rows_of(positions):
                one = unpacked(row)
                if (
                    one.state == OUT
                    and (position, one.attempt) in mine
                    and (overdue or not self._is_past_deadline(position, one))
                ):
                    mine.discard((position, one.attempt))
                    self._settled.add((*here, position, one.attempt))
                    found[position] = one
            # Before the caller changes them: a TAKE waits for room only in a full group.
            if found and state.out >= self.group.in_flight:
                self.wakes = True
            yield found
            if self._tick is not None:
                self._tick()

    def _rows_of(self, positions: list[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the rows of positions in order; positions without a row are skipped."""
        tx, prefix = self._tx, self.group.hand_outs
        if len(positions) > _FEW and positions[-1] - positions[0] < _FEW * len(positions):
            wanted = {prefix + NUMBER.pack(position): position for position in positions}
            end = prefix + NUMBER.pack(positions[-1] + 1)
            for pairs in tx.scan(prefix + NUMBER.pack(positions[0]), end):
                for key, row in pairs:
                    if key in wanted:
                        yield wanted[key], row
            return
        for position in positions:
            found = tx.get(prefix + NUMBER.pack(position))
            if found is not None:
                yield position, found


def _checked_error(error: str | None) -> bytes:
    """Encode the error text of a NACK or GIVE UP.

    :raises BadRequest: it is too long
    """
    if error is None:
        return b""
    check_unicode(error)
    if len(error) > limits.GROUP_ERROR_CHARACTERS:
        raise BadRequest(f"ERROR has at most {limits.GROUP_ERROR_CHARACTERS} characters")
    return error.encode()
