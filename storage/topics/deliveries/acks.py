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
    ExhaustedMessages,
    dead_letter,
)
from storage.topics.deliveries.index import Answer, DeliveryIndex
from storage.txn.appends import NUMBER

_FEW: Final = 8
"""Threshold between gets and a scan. A scan pays off for more rows than this, spread over fewer
positions than this many times their number."""


def ack(index: DeliveryIndex, receipts: Sequence[str]) -> Answer:
    """Acknowledge deliveries. Return `{acked, stale, stale_receipts}`.

    :raises BadRequest: a malformed receipt, or too many of them
    """
    done, ended = 0, set[Named]()
    for out in _in_flight(index, receipts, ended):
        index.leave_flight(out)
        index.forget(out)
        done += len(out)
    index.store()
    return _answer("acked", receipts, done, ended)


def nack(
    index: DeliveryIndex,
    receipts: Sequence[str],
    delay_us: int | None = None,
    error: str | None = None,
) -> Answer:
    """Negatively acknowledge deliveries, for redelivery after `delay_us`.

    A delay of None is the group's backoff.

    Return `{nacked, stale, stale_receipts}`.

    :raises BadRequest: as `ack`; `error` is too long, or the delay is negative or over 1000 years
    :raises TooLarge: the dead letters exceed the transaction's limit; the transaction is unusable
    """
    said = _checked_error(error)
    if delay_us is not None and not 0 <= delay_us <= limits.SPAN_SECONDS * 1_000_000:
        raise BadRequest("DELAY takes a duration of up to 1000 years")
    done, ended = 0, set[Named]()
    for out in _in_flight(index, receipts, ended):
        over = ExhaustedMessages(REFUSED)
        # Before `schedule_redelivery` overwrites the deadline by which the index finds the row.
        index.leave_flight(out)
        for position, row in out.items():
            row.error = said or row.error
            if index.is_last(row):
                over.rows[position] = row
                continue
            # The delay counts from the NACK, not from the deadline, which is still to come.
            index.schedule_redelivery(position, row, index.now_us, delay_us)
        dead_letter(index, over)
        done += len(out)
    index.store()
    return _answer("nacked", receipts, done, ended)


def extend(index: DeliveryIndex, receipts: Sequence[str], by_us: int) -> Answer:
    """Set the ack deadline of deliveries to `by_us` from now.

    Return `{extended, stale, stale_receipts}`.

    :raises BadRequest: as `ack`; `by_us` is not over 0, or over 1000 years
    """
    if not 0 < by_us <= limits.SPAN_SECONDS * 1_000_000:
        raise BadRequest("BY takes a duration over 0 and up to 1000 years")
    done, ended = 0, set[Named]()
    for out in _in_flight(index, receipts, ended):
        index.leave_flight(out)
        _move_deadlines(index, out, index.now_us + by_us)
        done += len(out)
    index.store()
    return _answer("extended", receipts, done, ended)


def restart_deadlines(index: DeliveryIndex, receipts: Sequence[str]) -> set[int]:
    """Restart the ack deadline of deliveries that members receive only now.

    A longer deadline stays as it is. Return the positions of the extended deliveries that are still
    in flight.
    """
    done: set[int] = set()
    due_us = index.now_us + index.group.deadline_us
    # The slow release may have used up the whole deadline already.
    for found in _in_flight(index, receipts, set(), overdue=True):
        # A member may have extended its delivery meanwhile.
        out = {position: row for position, row in found.items() if row.due_us < due_us}
        index.leave_flight(out)
        _move_deadlines(index, out, due_us)
        done |= out.keys()
    index.store()
    return done


def give_up(index: DeliveryIndex, receipts: Sequence[str], error: str | None = None) -> Answer:
    """Dead-letter deliveries at once. Return `{given_up, stale, stale_receipts}`.

    :raises BadRequest, TooLarge: as `nack`
    """
    said = _checked_error(error)
    done, ended = 0, set[Named]()
    for out in _in_flight(index, receipts, ended):
        over = ExhaustedMessages(GIVEN_UP)
        index.leave_flight(out)
        for row in out.values():
            row.error = said or row.error
        over.rows |= out
        dead_letter(index, over)
        done += len(out)
    index.store()
    return _answer("given_up", receipts, done, ended)


def _answer(word: str, receipts: Sequence[str], done: int, ended: set[Named]) -> Answer:
    """Return the response to an acknowledgement. A receipt given twice counts once and is stale
    once.

    :param ended: receipts of the deliveries found; it is emptied
    """
    stale: list[str] = []
    if done < len(receipts):
        for receipt, one in zip(receipts, parsed_receipts(receipts), strict=True):
            if one in ended:
                # So a second copy of the receipt is reported as stale.
                ended.discard(one)
            else:
                stale.append(receipt)
    return {word: done, "stale": len(receipts) - done, "stale_receipts": stale}


def _move_deadlines(index: DeliveryIndex, out: dict[int, DeliveryRow], due_us: int) -> None:
    # Deliveries that shared an entry share the new one, so a batch stays one index row.
    together: dict[tuple[int, int], list[int]] = {}
    for position, row in out.items():
        together.setdefault((row.due_us, row.batch), []).append(position)
    for positions in together.values():
        first, last = min(positions), max(positions)
        flags = index.add_deadline(due_us, first, last, len(positions))
        for position in positions:
            row = out[position]
            row.due_us, row.batch, row.flags = due_us, first, flags
            index.tx.put(index.place(position), row.pack())
    # Last: `leave_flight` has subtracted them, and `add_deadline` reads the count of the others.
    index.state.out += len(out)


# --- receipts -----------------------------------------------------------------------------------


def _in_flight(
    index: DeliveryIndex, receipts: Sequence[str], ended: set[Named], *, overdue: bool = False
) -> Iterator[dict[int, DeliveryRow]]:
    """Yield the in-flight deliveries that the receipts name, by position, in parts.

    A receipt of an earlier delivery, or of another group or epoch, names none.

    :param ended: set to which the receipts of these deliveries are added
    :param overdue: also include those past their ack deadline that the expiry has yet to process
    :raises BadRequest: a malformed receipt; raised before the first part
    """
    # All receipts are parsed before the first change: a malformed one refuses the whole call.
    named = parsed_receipts(receipts)
    state = index.load()
    here = topic_named(index.tx.store, index.group.topic), index.group.id, state.epoch
    mine = {(named_one[3], named_one[4]) for named_one in named if named_one[:3] == here}
    wanted = sorted(mine)
    # Sorted parts: neighbours are read by one scan, and each part ends with a tick.
    for start in range(0, len(wanted), PART):
        found: dict[int, DeliveryRow] = {}
        positions = [position for position, _ in wanted[start : start + PART]]
        for position, row in _rows_of(index, positions):
            one = unpacked(row)
            if (
                one.state == OUT
                and (position, one.attempt) in mine
                and (overdue or not index.is_past_deadline(position, one))
            ):
                mine.discard((position, one.attempt))
                ended.add((*here, position, one.attempt))
                found[position] = one
        # Before the caller changes them: a TAKE waits for room only in a full group.
        if found and state.out >= index.group.in_flight:
            index.wakes = True
        yield found
        if index.tick is not None:
            index.tick()


def _rows_of(index: DeliveryIndex, positions: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of positions in order; positions without a row are skipped."""
    tx, prefix = index.tx, index.group.hand_outs
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
