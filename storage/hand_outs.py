"""The rules of hand-outs: taken, acknowledged, handed out again, given up, moved.

A message that a group has looked at and is not done with has a hand-out (`hand_out_rows.py`) in one
of three states:

- OUT: a member has it, until its deadline;
- WAITING: it is to be handed out, again or for the first time, when it is due;
- PARKED: in a group ORDERED BY KEY, an earlier message of its key is not done.

Invariants:

- Messages handed out together share an entry of the index of deadlines: time · first position →
  how many are still out under it (4) · last position (8). It goes with the last of them.
- Every hand-out that is WAITING stands in the index of what is ready under its time.
- The head of a key (position (8) · how many are parked behind it (4)) is its earliest hand-out, and
  the only one that is not parked.
- What a deadline has passed for is no longer out, whether or not somebody has taken it back: it is
  due since then, or since its backoff from then on. So nothing depends on who looks, and when.
- Except that no deadline has passed of what nobody has been shown: as long as the commit of a
  hand-out is not released, it is out. A stalled disk spends no attempt. What is released late gets
  its time from then on (`HandOuts.count_from_now`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from struct import Struct
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest
from protocol.text import format_datetime
from protocol.values import Tick, check_unicode
from storage import groups, keys
from storage.appends import NUMBER
from storage.groups import Group, Standing, differ, standing
from storage.hand_out_rows import (
    ALONE,
    OUT,
    PARKED,
    WAITING,
    HandOut,
    parsed_receipts,
    unpacked,
)
from storage.message_rows import (
    MessageRows,
    answer,
    due_us,
    headers_of,
    key_of,
    moment,
    with_headers,
)
from storage.topics import Place, Topic, find_topic
from storage.transactions import Transaction

Answer = dict[str, Any]

_ENTRY: Final = Struct(">IQ")
_HEAD: Final = Struct(">QI")
_PLACE: Final = Struct(">QQ")

DEAD_HEADERS: Final = (
    "dead-topic", "dead-group", "dead-position", "dead-attempts", "dead-error", "dead-at",
)  # fmt: skip
"""What a dead letter says of where it comes from."""
LAPSED: Final = "the deadline passed"
REFUSED: Final = "it was refused"
GIVEN_UP: Final = "it was given up"
"""The error of a dead letter of which nobody has said any: what became of its last hand-out."""

_AHEAD_US: Final = 1_000_000
"""How far beyond now an index is looked at, so as not to look again before something can be due."""
_FEW: Final = 8
"""Up to so many rows, or among so many times as many positions, a scan costs more than gets."""
_PART: Final = 256
"""Receipts worked on between two ticks: about a millisecond."""
_STEP: Final = 64
"""Messages looked at together, once some were not to be handed out."""


class _Taken:
    """What one TAKE gets."""

    __slots__ = ("_receipt", "_shown", "_until", "deadline_us", "found", "full", "member", "room",
                 "wanted")  # fmt: skip

    def __init__(self, group: Group, epoch: int, now_us: int, wanted: int, member: str | None):
        self.wanted = wanted
        """How many more it wants."""
        self.room = limits.MESSAGES_READ_BYTES
        """What they may take."""
        self.full = False
        """Whether it gets no more, though it wants some."""
        self.found: list[Answer] = []
        self.deadline_us = now_us + group.deadline_us
        self.member = b"" if member is None else member.encode()
        self._shown = member
        self._until = moment(self.deadline_us)
        self._receipt = f"{group.id}.{epoch}"

    def fits(self, row: bytes) -> bool:
        """Whether there is room for a message; the first always fits."""
        if self.found and len(row) > self.room:
            self.full = True
        return not self.full

    def add(self, position: int, row: bytes, attempt: int) -> None:
        """Hand a message out."""
        made = answer(position, row)
        made["receipt"] = f"{self._receipt}.{position}.{attempt}"
        made["attempt"] = attempt
        made["deadline"] = self._until
        made["member"] = self._shown
        self.found.append(made)
        self.wanted -= 1
        self.room -= len(row)


class _Over:
    """Messages whose last hand-out is over: they are to be dead letters."""

    __slots__ = ("_letter", "bytes", "letters", "rows")

    def __init__(self, letter: Callable[[int, HandOut], bytes] | None) -> None:
        """:param letter: makes the dead letter of a position; None: they are dropped"""
        self._letter = letter
        self.rows: dict[int, HandOut] = {}
        self.letters: dict[int, bytes] = {}
        self.bytes = 0
        """What the letters take."""

    def add(self, position: int, row: HandOut) -> None:
        """One more, which is no longer out."""
        self.rows[position] = row
        if self._letter is not None:
            letter = self.letters[position] = self._letter(position, row)
            self.bytes += len(letter)


class HandOuts:
    """What a group hands out, in one transaction. What raises a refusal has changed nothing."""

    __slots__ = ("_before", "_messages", "_now_us", "_state", "_tick", "_tx", "dead", "group",
                 "more", "soonest_us", "wakes")  # fmt: skip

    def __init__(self, tx: Transaction, group: Group, tick: Tick | None = None) -> None:
        """:param tick: called now and then while many receipts are worked on"""
        self._tx = tx
        self._tick = tick
        self._messages = MessageRows(tx, group.topic)
        self._now_us = tx.now_us
        self._state: Standing
        self._before = b""
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
        self.soonest_us = 0
        """The earliest time written here at which a hand-out lapses or is due; 0: none."""

    # --- taking ---------------------------------------------------------------------------------

    def take(self, count: int = 1, member: str | None = None) -> list[Answer]:
        """Hand out up to so many messages, as `Messages.read` answers them with `receipt`,
        `attempt`, `deadline` and `member`. Writes nothing when there is nothing.

        :raises BadRequest: a count outside 1 … `limits.MESSAGES_READ`, a member's name too long
        """
        if not 1 <= count <= limits.MESSAGES_READ:
            raise BadRequest(f"TAKE takes 1 to {limits.MESSAGES_READ} messages", count=count)
        if member is not None:
            _check_member(member)
        state = self._load()
        self.more = False
        self._lapse(limits.LAPSE_HAND_OUTS)
        wanted = min(count, self.group.in_flight - state.out)
        taken = _Taken(self.group, state.epoch, self._now_us, wanted, member)
        if taken.wanted > 0 and state.hand_outs > state.out + state.parked:
            self._take_waiting(taken)
        if taken.wanted > 0 and not taken.full:
            self._take_new(taken)
        self._store()
        return taken.found

    def _take_waiting(self, taken: _Taken) -> None:
        """Hand out what is due, the longest due first."""
        tx, group, state, now_us = self._tx, self.group, self._state, self._now_us
        next_us = now_us + _AHEAD_US
        for key, _ in self._from(group.ready, state.ready_from_us, next_us):
            time_us, position = _PLACE.unpack_from(key, len(group.ready))
            if time_us > now_us or taken.wanted <= 0:
                next_us = time_us
                break
            message = self._messages.get(position)
            if not taken.fits(message):
                next_us = time_us
                break
            tx.delete(key)
            place = group.hand_outs + NUMBER.pack(position)
            row = self._row(place)
            row.state, row.attempt, row.member = OUT, row.attempt + 1, taken.member
            row.due_us, row.batch = taken.deadline_us, position
            row.flags = self._enter(taken.deadline_us, position, position, 1)
            tx.put(place, row.pack())
            state.out += 1
            state.redelivered += row.attempt > 1
            state.handed_out = max(state.handed_out, position)
            taken.add(position, message, row.attempt)
        state.ready_from_us = next_us

    def _take_new(self, taken: _Taken) -> None:
        """Hand out messages that the group has not looked at yet."""
        state, now_us, ordered = self._state, self._now_us, self.group.ordered
        batch: list[tuple[int, bytes]] = []
        """Positions, and their keys in an ordered group."""
        looked, step = 0, taken.wanted
        while taken.wanted > 0 and not taken.full:
            if looked >= limits.GROUP_LOOKED:
                self.more = True
                break
            rows = self._messages.span(state.cursor + 1, step, taken.room)
            if not rows:
                break
            for position, row in rows:
                if taken.wanted <= 0:
                    break
                key = key_of(row) if ordered else b""
                waits_us = due_us(row)
                head = self._head(key) if key else None
                if head is not None:
                    self._park(position, key, head, waits_us)
                elif waits_us > now_us:
                    self._wait(position, HandOut(WAITING, 0, 0, waits_us, 0, key=key))
                    self._put_head(key, position, 0)
                    state.hand_outs += 1
                elif taken.fits(row):
                    batch.append((position, key))
                    self._put_head(key, position, 0)
                    taken.add(position, row, 1)
                else:
                    break
                state.cursor = position
            looked += len(rows)
            step = max(taken.wanted, _STEP)
        if batch:
            self._put_batch(batch, taken)

    def _put_batch(self, batch: list[tuple[int, bytes]], taken: _Taken) -> None:
        tx, group, state = self._tx, self.group, self._state
        first, last, count = batch[0][0], batch[-1][0], len(batch)
        flags = ALONE if count == 1 else 0
        row = HandOut(OUT, flags, 1, taken.deadline_us, first, taken.member)
        prefix, pack = group.hand_outs, NUMBER.pack
        if group.ordered:
            rows: dict[bytes, bytes] = {}
            for position, row.key in batch:
                rows[prefix + pack(position)] = row.pack()
        else:
            rows = dict.fromkeys([prefix + pack(position) for position, _ in batch], row.pack())
        tx.put_new(rows)
        # No other entry can begin with a position that was never handed out.
        tx.put(group.deadlines + _PLACE.pack(taken.deadline_us, first), _ENTRY.pack(count, last))
        self._expects_deadline(taken.deadline_us)
        state.hand_outs += count
        state.out += count
        state.handed_out = max(state.handed_out, last)

    # --- answering ------------------------------------------------------------------------------

    def ack(self, receipts: Sequence[str]) -> Answer:
        """`{acked, stale}`. :raises BadRequest: what is no receipt, too many of them"""
        done = 0
        for out in self._out(receipts):
            self._leave(out)
            self._forget(out)
            done += len(out)
        self._store()
        return {"acked": done, "stale": len(receipts) - done}

    def nack(
        self, receipts: Sequence[str], delay_us: int | None = None, error: str | None = None
    ) -> Answer:
        """`{nacked, stale}`: to be handed out again after `delay_us`; None: after the group's
        backoff. :raises BadRequest: as `ack`; an error too long, a negative delay"""
        said = _checked_error(error)
        if delay_us is not None and not 0 <= delay_us <= limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("DELAY takes a duration up to 1000 years")
        done = 0
        for out in self._out(receipts):
            over = self._over(REFUSED)
            self._leave(out)
            for position, row in out.items():
                row.error = said or row.error
                if self._is_last(row):
                    over.add(position, row)
                    continue
                self._return(position, row, self._now_us, delay_us)
            self._bury(over)
            done += len(out)
        self._store()
        return {"nacked": done, "stale": len(receipts) - done}

    def extend(self, receipts: Sequence[str], by_us: int) -> Answer:
        """`{extended, stale}`: due `by_us` from now. :raises BadRequest: as `ack`; of `by_us`"""
        if not 0 < by_us <= limits.SPAN_SECONDS * 1_000_000:
            raise BadRequest("BY takes a duration over 0 and up to 1000 years")
        done = 0
        for out in self._out(receipts):
            self._leave(out)
            self._move_deadlines(out, self._now_us + by_us)
            done += len(out)
        self._store()
        return {"extended": done, "stale": len(receipts) - done}

    def count_from_now(self, receipts: Sequence[str]) -> set[int]:
        """Give hand-outs all of the group's deadline once more: nobody has heard of them until now.
        Answers the positions of those that are still out."""
        done: set[int] = set()
        for out in self._out(receipts, overdue=True):
            self._leave(out)
            self._move_deadlines(out, self._now_us + self.group.deadline_us)
            done |= out.keys()
        self._store()
        return done

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

    def give_up(self, receipts: Sequence[str], error: str | None = None) -> Answer:
        """`{given_up, stale}`: dead letters at once. :raises BadRequest: as `nack`"""
        said = _checked_error(error)
        done = 0
        for out in self._out(receipts):
            over = self._over(GIVEN_UP)
            self._leave(out)
            for position, row in out.items():
                row.error = said or row.error
                over.add(position, row)
            self._bury(over)
            done += len(out)
        self._store()
        return {"given_up": done, "stale": len(receipts) - done}

    def _has_lapsed(self, position: int, row: HandOut) -> bool:
        """Whether the deadline of what is out has passed."""
        if row.due_us > self._now_us:
            return False
        return not self._tx.is_unreleased(self._place(position))

    def _out(
        self, receipts: Sequence[str], *, overdue: bool = False
    ) -> Iterator[dict[int, HandOut]]:
        """What the receipts name that is out and theirs, by position and in its order, in parts.

        :param overdue: also what has lapsed, as long as nobody has taken it back
        :raises BadRequest: before the first
        """
        named = parsed_receipts(receipts)
        state = self._load()
        mine = {
            (position, attempt)
            for group, epoch, position, attempt in named
            if group == self.group.id and epoch == state.epoch
        }
        wanted = sorted(mine)
        for start in range(0, len(wanted), _PART):
            found: dict[int, HandOut] = {}
            positions = [position for position, _ in wanted[start : start + _PART]]
            for position, row in self._rows_of(positions):
                one = unpacked(row)
                if (
                    one.state == OUT
                    and (position, one.attempt) in mine
                    and (overdue or not self._has_lapsed(position, one))
                ):
                    mine.discard((position, one.attempt))
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

    # --- what comes of a hand-out ---------------------------------------------------------------

    def _leave(self, out: dict[int, HandOut]) -> None:
        """Take hand-outs off the index of deadlines: they are no longer out."""
        tx, deadlines = self._tx, self.group.deadlines
        entries: Counter[tuple[int, int]] = Counter()
        for row in out.values():
            if row.flags & ALONE:
                tx.delete(deadlines + _PLACE.pack(row.due_us, row.batch))
            else:
                entries[row.due_us, row.batch] += 1
        for place, count in entries.items():
            key = deadlines + _PLACE.pack(*place)
            entry = tx.get(key)
            assert entry is not None, "a hand-out that is out has a deadline"
            left, last = _ENTRY.unpack(entry)
            if left == count:
                tx.delete(key)
            else:
                tx.put(key, _ENTRY.pack(left - count, last))
        self._state.out -= len(out)

    def _forget(self, gone: dict[int, HandOut]) -> None:
        """Remove hand-outs: the group is done with their messages."""
        if not gone:
            return
        state = self._state
        self._tx.delete_all([self._place(position) for position in gone])
        state.hand_outs -= len(gone)
        if self.group.ordered:
            for position in sorted(gone):
                self._release(position, gone[position].key)
        if state.committed + 1 in gone:
            self._commit()

    def _commit(self) -> None:
        """Find the first message that is not done."""
        tx, state, prefix = self._tx, self._state, self.group.hand_outs
        begin, width = state.committed + 1, _STEP
        state.committed = state.cursor
        while state.hand_outs and begin <= state.cursor:
            end = begin + width
            for pairs in tx.scan(prefix + NUMBER.pack(begin), prefix + NUMBER.pack(end)):
                (position,) = NUMBER.unpack_from(pairs[0][0], len(prefix))
                state.committed = position - 1
                return
            begin, width = end, width * 4

    def _is_last(self, row: HandOut) -> bool:
        """Whether a hand-out was the last one that its message gets."""
        deliveries = self.group.deliveries
        return deliveries is not None and row.attempt >= deliveries

    def _return(self, position: int, row: HandOut, since_us: int, delay_us: int | None) -> None:
        """Let a message that is no longer out wait for its next hand-out."""
        if delay_us is None:
            steps = self.group.backoff_us
            delay_us = steps[min(row.attempt, len(steps)) - 1] if steps else 0
        row.state, row.flags, row.batch, row.member = WAITING, 0, 0, b""
        row.due_us = since_us + delay_us
        self._wait(position, row)
        self.wakes = True

    def _wait(self, position: int, row: HandOut) -> None:
        tx, group, state = self._tx, self.group, self._state
        tx.put(self._place(position), row.pack())
        tx.put(group.ready + _PLACE.pack(row.due_us, position), b"")
        state.ready_from_us = min(state.ready_from_us, row.due_us)
        self._expects(row.due_us)

    def _over(self, became: str) -> _Over:
        """:param became: what becomes of the last hand-outs that will be in it"""
        if self.group.dead_letter is None:
            return _Over(None)
        return _Over(lambda position, row: self._letter(position, row, became))

    def _bury(self, over: _Over) -> None:
        """Make dead letters of messages that are no longer out, in the order of their positions."""
        if not over.rows:
            return
        group, state = self.group, self._state
        name = group.dead_letter
        dead = None if name is None else find_topic(self._tx, group.topic.database, name)
        if dead is not None:
            letters = [over.letters[position] for position in sorted(over.letters)]
            MessageRows(self._tx, dead).append(letters)
            self.dead = dead
        state.dead_lettered += len(over.rows)
        self._forget(over.rows)

    def _letter(self, position: int, row: HandOut, became: str) -> bytes:
        message = self._messages.get(position)
        said = (
            self.group.topic.name, self.group.name, str(position), str(row.attempt),
            row.error.decode() or became, format_datetime(moment(self._now_us)),
        )  # fmt: skip
        return with_headers(
            message, {**headers_of(message), **dict(zip(DEAD_HEADERS, said, strict=True))}
        )

    # --- deadlines ------------------------------------------------------------------------------

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
        next_us = now_us + _AHEAD_US
        over = self._over(LAPSED)
        for key, entry in self._from(group.deadlines, state.deadlines_from_us, next_us):
            time_us, first = _PLACE.unpack_from(key, len(group.deadlines))
            if time_us > now_us or done >= most or over.bytes >= limits.LAPSE_BYTES:
                self.more = time_us <= now_us
                next_us = time_us
                break
            if unreleased >= most:  # there is nothing to be done about them now
                next_us = time_us
                break
            count, last = _ENTRY.unpack(entry)
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
                self._tx.put(key, _ENTRY.pack(count - taken_back, last))
            if over.bytes >= limits.LAPSE_BYTES:
                self.more, next_us = True, time_us
                break
        state.deadlines_from_us = min(next_us, left_us)
        self._bury(over)
        return done

    def _take_back(self, due_us: int, first: int, last: int, over: _Over) -> int:
        """Take back what is out under one entry of the index of deadlines; how much that is: all
        that has been shown to anybody, unless it makes more dead letters than one commit should
        hold.

        :param over: gets what is to be a dead letter
        """
        if self._state.out >= self.group.in_flight:
            self.wakes = True
        back: dict[int, HandOut] = {}
        for position, row in self._rows_between(first, last):
            if row.state == OUT and row.due_us == due_us and row.batch == first:
                if not self._has_lapsed(position, row):
                    continue
                if self._is_last(row):
                    if over.bytes >= limits.LAPSE_BYTES:
                        break
                    over.add(position, row)
                back[position] = row
        self._state.out -= len(back)
        for position, row in back.items():
            if position not in over.rows:
                self._return(position, row, due_us, None)
        return len(back)

    def _rows_between(self, first: int, last: int) -> Iterator[tuple[int, HandOut]]:
        prefix = self.group.hand_outs
        if first == last:
            yield first, self._row(self._place(first))
            return
        for pairs in self._tx.scan(prefix + NUMBER.pack(first), prefix + NUMBER.pack(last + 1)):
            for key, row in pairs:
                (position,) = NUMBER.unpack_from(key, len(prefix))
                yield position, unpacked(row)

    def _enter(self, due_us: int, first: int, last: int, count: int) -> int:
        """Put hand-outs on the index of deadlines; their flags."""
        key = self.group.deadlines + _PLACE.pack(due_us, first)
        entry = self._tx.get(key)
        flags = ALONE if count == 1 else 0
        if entry is not None:
            # Of others with the same deadline, that were once handed out with the first of these.
            others, before = _ENTRY.unpack(entry)
            count, last, flags = count + others, max(last, before), 0
        self._tx.put(key, _ENTRY.pack(count, last))
        self._expects_deadline(due_us)
        return flags

    def _expects_deadline(self, due_us: int) -> None:
        state = self._state
        # With nothing out the index is empty, whatever was known of it.
        known = state.deadlines_from_us if state.out else due_us
        state.deadlines_from_us = min(known, due_us)
        self._expects(due_us)

    def _expects(self, time_us: int) -> None:
        if not self.soonest_us or time_us < self.soonest_us:
            self.soonest_us = time_us

    def next_due_us(self, *, ready: bool = True) -> int | None:
        """Log time when the next hand-out lapses or is ready to be handed out again, now and the
        past included; None when there is neither. Messages not yet looked at are not considered.

        :param ready: False: only when one lapses, which is all that happens while nobody takes.
            What can't be handed out because as many are in flight as may is not ready.
        """
        group = self.group
        state, _ = standing(self._tx, group)
        found = []
        if state.out:
            found.append(self._first(group.deadlines, state.deadlines_from_us))
        waiting = state.hand_outs > state.out + state.parked
        if ready and waiting and state.out < group.in_flight:
            found.append(self._first(group.ready, state.ready_from_us))
        return min((time_us for time_us in found if time_us is not None), default=None)

    def _first(self, prefix: bytes, from_us: int) -> int | None:
        _, end = keys.within(prefix)
        for pairs in self._tx.scan(prefix + NUMBER.pack(from_us), end):
            return int(NUMBER.unpack_from(pairs[0][0], len(prefix))[0])
        return None

    def _from(self, prefix: bytes, from_us: int, to_us: int) -> Iterator[tuple[bytes, bytes]]:
        """The entries of an index from one time to before another."""
        start, end = prefix + NUMBER.pack(from_us), prefix + NUMBER.pack(to_us)
        for pairs in self._tx.scan(start, end):
            yield from pairs

    # --- order by key ---------------------------------------------------------------------------

    def _head(self, key: bytes) -> tuple[int, int] | None:
        """The position of a key's head, and how many are parked behind it."""
        row = self._tx.get(self.group.heads + key + b"\0")
        return None if row is None else _HEAD.unpack(row)

    def _put_head(self, key: bytes, position: int, parked: int) -> None:
        if key:
            self._tx.put(self.group.heads + key + b"\0", _HEAD.pack(position, parked))

    def _park(self, position: int, key: bytes, head: tuple[int, int], due_us: int) -> None:
        tx, group, state = self._tx, self.group, self._state
        tx.put(self._place(position), HandOut(PARKED, 0, 0, due_us, 0, key=key).pack())
        tx.put(group.parked + key + b"\0" + NUMBER.pack(position), b"")
        self._put_head(key, head[0], head[1] + 1)
        state.hand_outs += 1
        state.parked += 1

    def _release(self, position: int, key: bytes) -> None:
        """The head of a key is done: the next message of the key takes its place."""
        if not key:
            return
        tx, group, state = self._tx, self.group, self._state
        head = self._head(key)
        assert head is not None, "a hand-out of an ordered group has a head"
        assert head[0] == position, "only the head of a key is not parked"
        if not head[1]:
            tx.delete(group.heads + key + b"\0")
            return
        # From the head on, so as not to pass over what was released before it.
        prefix = group.parked + key + b"\0"
        start, end = prefix + NUMBER.pack(position), keys.within(prefix)[1]
        found = next(tx.scan(start, end))[0][0]
        tx.delete(found)
        (behind,) = NUMBER.unpack_from(found, len(prefix))
        self._put_head(key, behind, head[1] - 1)
        row = self._row(self._place(behind))
        row.state, row.due_us = WAITING, max(row.due_us, self._now_us)
        state.parked -= 1
        self._wait(behind, row)
        self.wakes = True

    # --- beginning anew, trimming ---------------------------------------------------------------

    def move(self, place: Place) -> int:
        """Begin anew at a place; its position. Every receipt given before goes stale.

        :raises BadRequest: no such position
        """
        groups.begin(self._tx, self.group, self._messages.position_at(place))
        self.wakes = True
        return standing(self._tx, self.group)[0].committed

    def trimmed(self, first: int) -> Iterator[None]:
        """Messages before a position were removed: forget their hand-outs, in steps."""
        state, prefix = self._load(), self.group.hand_outs
        if state.committed >= first - 1:
            return
        self.wakes = self.wakes or state.out >= self.group.in_flight
        if state.hand_outs:
            start = prefix + NUMBER.pack(state.committed + 1)
            for pairs in self._tx.scan(start, prefix + NUMBER.pack(first)):
                for key, _ in pairs:
                    (position,) = NUMBER.unpack_from(key, len(prefix))
                    self._trim(position, self._row(key))
                yield
        state.committed = first - 1
        state.cursor = max(state.cursor, first - 1)
        self._commit()
        self._store()

    def _trim(self, position: int, row: HandOut) -> None:
        if row.state == OUT:
            self._leave({position: row})
        else:
            assert row.state == WAITING, "only the first of a key is trimmed, and it is not parked"
            self._tx.delete(self.group.ready + _PLACE.pack(row.due_us, position))
        self._tx.delete(self._place(position))
        self._state.hand_outs -= 1
        if self.group.ordered:
            self._release(position, row.key)

    # --- for INFO -------------------------------------------------------------------------------

    def _lapsed(self, state: Standing) -> int:
        """How many are still to be taken back though their deadline has passed."""
        if not state.out or state.deadlines_from_us > self._now_us:
            return 0
        found = 0
        deadlines, end_us = self.group.deadlines, self._now_us + 1
        entries = self._from(deadlines, state.deadlines_from_us, end_us)
        for number, (key, entry) in enumerate(entries):
            count, last = _ENTRY.unpack(entry)
            if self._tx.is_unreleased(key):
                time_us, first = _PLACE.unpack_from(key, len(deadlines))
                count = sum(
                    row.state == OUT and (row.due_us, row.batch) == (time_us, first)
                    and self._has_lapsed(position, row)
                    for position, row in self._rows_between(first, last)
                )  # fmt: skip
            found += count
            if number % _PART == 0 and self._tick is not None:
                self._tick()
        return found

    def figures(self) -> Answer:
        """`{name, handed_out, committed, lag, in_flight, width, redelivered, dead_lettered,
        deadline, max_in_flight, deliveries, dead_letter, epoch}` and `backoff, ordered`, as
        `INFO FOR GROUP` answers them; deadline and backoff are durations."""
        group = self.group
        state, _ = standing(self._tx, group)
        last, _ = self._messages.end()
        return {
            "name": group.name,
            "handed_out": state.handed_out,
            "committed": state.committed,
            "lag": last - state.committed,
            "in_flight": state.out - self._lapsed(state),
            # What was trimmed before it was handed out is done all the same.
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

    # --- rows -----------------------------------------------------------------------------------

    def _load(self) -> Standing:
        self._state, self._before = standing(self._tx, self.group)
        return self._state

    def _store(self) -> None:
        """Keep where the group stands."""
        row = self._state.pack()
        if differ(self._before, row):
            self._tx.put(self.group.state, row)

    def _place(self, position: int) -> bytes:
        return self.group.hand_outs + NUMBER.pack(position)

    def _row(self, place: bytes) -> HandOut:
        row = self._tx.get(place)
        assert row is not None, "what an index names is there"
        return unpacked(row)


def _check_member(member: str) -> None:
    check_unicode(member)
    if not 1 <= len(member.encode()) <= limits.MEMBER_BYTES:
        raise BadRequest(f"MEMBER has 1 to {limits.MEMBER_BYTES} bytes")


def _checked_error(error: str | None) -> bytes:
    """:raises BadRequest: too long"""
    if error is None:
        return b""
    check_unicode(error)
    if len(error) > limits.GROUP_ERROR_CHARACTERS:
        raise BadRequest(f"ERROR has at most {limits.GROUP_ERROR_CHARACTERS} characters")
    return error.encode()
