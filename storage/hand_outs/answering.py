"""What members answer: done, again, longer, given up; each names hand-outs by their receipts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from protocol import limits
from protocol.errors import BadRequest
from protocol.values import check_unicode
from storage.appends import NUMBER
from storage.hand_outs.books import Answer
from storage.hand_outs.lapsing import GIVEN_UP, REFUSED, Lapsing, Over
from storage.hand_outs.rows import OUT, HandOut, Named, parsed_receipts, topic_named, unpacked

_FEW: Final = 8
"""Up to so many rows, or among so many times as many positions, a scan costs more than gets."""
PART: Final = 256
"""Receipts worked on between two ticks: about a millisecond."""


class Answering(Lapsing):
    """Takes the answers of members."""

    __slots__ = ("_settled",)

    def ack(self, receipts: Sequence[str]) -> Answer:
        """`{acked, stale, stale_receipts}`.

        :raises BadRequest: what is no receipt, too many of them
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
        """`{nacked, stale, stale_receipts}`: to be handed out again after `delay_us`; None: after
        the group's backoff.

        :raises BadRequest: as `ack`; an error too long, a negative delay
        :raises TooLarge: the dead letters are too much for the transaction, which is spoilt
        """
        said = _checked_error(error)
        if delay_us is not None and not 0 <= delay_us <= limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("DELAY takes a duration up to 1000 years")
        done = 0
        for out in self._out(receipts):
            over = Over(REFUSED)
            self._leave(out)
            for position, row in out.items():
                row.error = said or row.error
                if self._is_last(row):
                    over.rows[position] = row
                    continue
                self._return(position, row, self._now_us, delay_us)
            self._bury(over)
            done += len(out)
        self._store()
        return self._answer("nacked", receipts, done)

    def extend(self, receipts: Sequence[str], by_us: int) -> Answer:
        """`{extended, stale, stale_receipts}`: due `by_us` from now.

        :raises BadRequest: as `ack`; of `by_us`
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

    def count_from_now(self, receipts: Sequence[str]) -> set[int]:
        """Give hand-outs all of the group's deadline once more: nobody has heard of them until now.
        One that was given more than that stays as it is. Answers the positions of the others that
        are still out."""
        done: set[int] = set()
        due_us = self._now_us + self.group.deadline_us
        for found in self._out(receipts, overdue=True):
            out = {position: row for position, row in found.items() if row.due_us < due_us}
            self._leave(out)
            self._move_deadlines(out, due_us)
            done |= out.keys()
        self._store()
        return done

    def give_up(self, receipts: Sequence[str], error: str | None = None) -> Answer:
        """`{given_up, stale, stale_receipts}`: dead letters at once.

        :raises BadRequest, TooLarge: as `nack`
        """
        said = _checked_error(error)
        done = 0
        for out in self._out(receipts):
            over = Over(GIVEN_UP)
            self._leave(out)
            for row in out.values():
                row.error = said or row.error
            over.rows |= out
            self._bury(over)
            done += len(out)
        self._store()
        return self._answer("given_up", receipts, done)

    def _answer(self, word: str, receipts: Sequence[str], done: int) -> Answer:
        """What became of the receipts. One that is named twice is good once."""
        stale: list[str] = []
        if done < len(receipts):
            for receipt, one in zip(receipts, parsed_receipts(receipts), strict=True):
                if one in self._settled:
                    self._settled.discard(one)
                else:
                    stale.append(receipt)
        return {word: done, "stale": len(receipts) - done, "stale_receipts": stale}

    def _move_deadlines(self, out: dict[int, HandOut], due_us: int) -> None:
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
        self._state.out += len(out)

    # --- receipts -------------------------------------------------------------------------------

    def _out(
        self, receipts: Sequence[str], *, overdue: bool = False
    ) -> Iterator[dict[int, HandOut]]:
        """What the receipts name that is out and theirs, by position and in its order, in parts.

        :param overdue: also what has lapsed, as long as nobody has taken it back
        :raises BadRequest: before the first
        """
        named = parsed_receipts(receipts)
        state = self._load()
        self._settled: set[Named] = set()
        here = topic_named(self._tx.store, self.group.topic), self.group.id, state.epoch
        mine = {(named_one[3], named_one[4]) for named_one in named if named_one[:3] == here}
        wanted = sorted(mine)
        for start in range(0, len(wanted), PART):
            found: dict[int, HandOut] = {}
            positions = [position for position, _ in wanted[start : start + PART]]
            for position, row in self._rows_of(positions):
                one = unpacked(row)
                if (
                    one.state == OUT
                    and (position, one.attempt) in mine
                    and (overdue or not self._has_lapsed(position, one))
                ):
                    mine.discard((position, one.attempt))
                    self._settled.add((*here, position, one.attempt))
                    found[position] = one
            if found and state.out >= self.group.in_flight:
                self.wakes = True
            yield found
            if self._tick is not None:
                self._tick()

    def _rows_of(self, positions: list[int]) -> Iterator[tuple[int, bytes]]:
        """The rows of positions in order, those that there are."""
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
    """:raises BadRequest: too long"""
    if error is None:
        return b""
    check_unicode(error)
    if len(error) > limits.GROUP_ERROR_CHARACTERS:
        raise BadRequest(f"ERROR has at most {limits.GROUP_ERROR_CHARACTERS} characters")
    return error.encode()
