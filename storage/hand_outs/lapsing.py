"""Deadlines that have passed: hand-outs are taken back, and those that were the last become dead
letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol import limits
from protocol.text import format_datetime
from protocol.values import instant
from storage.hand_outs.books import AHEAD_US, ENTRY, PLACE, Books
from storage.hand_outs.rows import OUT, HandOut
from storage.message_rows import MessageRows, headers_of, with_headers
from storage.topics import find_topic

DEAD_HEADERS: Final = (
    "dead-topic", "dead-group", "dead-position", "dead-attempts", "dead-error", "dead-at",
)  # fmt: skip
"""What a dead letter says of where it comes from."""
LAPSED: Final = "the deadline passed"
REFUSED: Final = "it was refused"
GIVEN_UP: Final = "it was given up"
SPENT: Final = "it has had its deliveries"
"""The error of a dead letter of which nobody has said any: what became of its last hand-out."""

_STEP_BYTES: Final = limits.MIB
"""Of dead letters put into their topic together, about: a few milliseconds."""


class Over:
    """Messages whose last hand-out is over: they are to be dead letters."""

    __slots__ = ("became", "bytes", "letters", "rows")

    def __init__(self, became: str) -> None:
        """:param became: what becomes of their last hand-outs"""
        self.became = became
        self.rows: dict[int, HandOut] = {}
        """By their positions."""
        self.letters: dict[int, bytes] = {}
        """Those that were made before all is known that is over."""
        self.bytes = 0
        """What these take."""


class Lapsing(Books):
    """Takes back what was out for too long."""

    __slots__ = ()

    def lapse(self, most: int = limits.LAPSE_HAND_OUTS) -> int:
        """Take back about so many hand-outs whose deadline has passed, fewer where they make
        large dead letters; how many there were. `more` says whether any are left."""
        self._load()
        self.more = False
        done = self._lapse(most)
        self._store()
        return done

    def _lapse(self, most: int) -> int:
        group, state, now_us = self.group, self._state, self._now_us
        if not state.out or state.deadlines_from_us > now_us:
            return 0
        done, unreleased, left_us = 0, 0, limits.INT_MAX
        next_us = now_us + AHEAD_US
        over = Over(LAPSED)
        for key, entry in self._from(group.deadlines, state.deadlines_from_us, next_us):
            time_us, first = PLACE.unpack_from(key, len(group.deadlines))
            if time_us > now_us or done >= most or over.bytes >= limits.LAPSE_BYTES:
                self.more = time_us <= now_us
                next_us = time_us
                break
            if unreleased >= most:  # there is nothing to be done about them now
                next_us = time_us
                break
            count, last = ENTRY.unpack(entry)
            taken_back = self._take_back(time_us, first, last, over)
            done += taken_back
            if taken_back == count:
                self._tx.delete(key)
                continue
            # What is left stands in the entry still: nobody has been shown it, or the dead letters
            # would be more than one commit should hold.
            assert taken_back < count, "an entry counts what is out under it"
            left_us = min(left_us, time_us)
            unreleased += count - taken_back
            if taken_back:
                self._tx.put(key, ENTRY.pack(count - taken_back, last))
            if over.bytes >= limits.LAPSE_BYTES:
                self.more, next_us = True, time_us
                break
        state.deadlines_from_us = min(next_us, left_us)
        self._bury(over)
        return done

    def _take_back(self, due_us: int, first: int, last: int, over: Over) -> int:
        """Take back what is out under one entry of the index of deadlines; how much that is: all
        that has been shown to anybody, unless it makes more dead letters than one commit should
        hold.

        :param over: gets what is to be a dead letter
        """
        is_full = self._state.out >= self.group.in_flight
        back: dict[int, HandOut] = {}
        for position, row in self._rows_between(first, last):
            if row.state == OUT and row.due_us == due_us and row.batch == first:
                if not self._has_lapsed(position, row):
                    continue
                if self._is_last(row):
                    if over.bytes >= limits.LAPSE_BYTES:
                        break
                    self._end(position, row, over)
                back[position] = row
        self._state.out -= len(back)
        if is_full and back:  # else who takes would be woken by its own look, again and again
            self.wakes = True
        for position, row in back.items():
            if position not in over.rows:
                self._return(position, row, due_us, None)
        return len(back)

    # --- dead letters ---------------------------------------------------------------------------

    def _is_last(self, row: HandOut) -> bool:
        """Whether a hand-out was the last one that its message gets."""
        deliveries = self.group.deliveries
        return deliveries is not None and row.attempt >= deliveries

    def _end(self, position: int, row: HandOut, over: Over) -> None:
        """Count a message among those whose last hand-out is over."""
        over.rows[position] = row
        if self.group.dead_letter is not None:
            letter = over.letters[position] = self._letter(position, row, over.became)
            over.bytes += len(letter)

    def _bury(self, over: Over) -> None:
        """Make dead letters of messages that are no longer out, in the order of their positions.

        :raises TooLarge: of the transaction, as soon as it is: no more of them are made then
        """
        if not over.rows:
            return
        group, state = self.group, self._state
        name = group.dead_letter
        dead = None if name is None else find_topic(self._tx, group.topic.database, name)
        if dead is not None:
            rows = MessageRows(self._tx, dead)
            for letters in self._letters(over):
                rows.append(letters)
            self.dead = dead
        state.dead_lettered += len(over.rows)
        self._forget(over.rows)

    def _letters(self, over: Over) -> Iterator[list[bytes]]:
        """The dead letters, some at a time: all of them may be more than a transaction holds."""
        some: list[bytes] = []
        size = 0
        for position in sorted(over.rows):
            letter = over.letters.pop(position, None)
            if letter is None:
                letter = self._letter(position, over.rows[position], over.became)
            some.append(letter)
            size += len(letter)
            if size >= _STEP_BYTES:
                yield some
                some, size = [], 0
                if self._tick is not None:
                    self._tick()
        if some:
            yield some

    def _letter(self, position: int, row: HandOut, became: str) -> bytes:
        message = self._messages.get(position)
        said = (
            self.group.topic.name, self.group.name, str(position), str(row.attempt),
            row.error.decode() or became, format_datetime(instant(self._now_us)),
        )  # fmt: skip
        return with_headers(
            message, {**headers_of(message), **dict(zip(DEAD_HEADERS, said, strict=True))}
        )
