"""Model of a message queue: random statements on it, with their expected effects.

`q` has a group `g` whose visibility timeouts never expire, so the state of all its messages is
known: it is a `QueueState` in every `StoreState`. Its dead letters go to `dq`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from protocol.binary import unpack, unpack_object
from storage.formats import keys
from tests.receipts import named, settled
from tests.simulation.answers import AtLeast

if TYPE_CHECKING:
    from tests.simulation.scripts import Draft

QUEUE, DEAD = "q", "dq"
NUMBER = 4
"""Id of `q`, which is the fourth topic defined."""
EXTENDED = "extended"
"""Key in the set of changed keys for a delivery of `q` that got more time."""
LONG = "26000w"
"""Visibility timeout beyond the sum of all steps of a world's clocks."""
DEFINED = (
    f"DEFINE TOPIC IF NOT EXISTS {QUEUE}",
    f"DEFINE TOPIC IF NOT EXISTS {DEAD}",
    f"DEFINE GROUP IF NOT EXISTS g ON {QUEUE} DEADLINE {LONG} IN FLIGHT 12 DELIVERIES 3"
    f" DEAD LETTER {DEAD}",
)
"""Run at the beginning of each life, after the one group that is defined before this."""
OUT, WAITING = 1, 2
DELIVERIES, IN_FLIGHT = 3, 12


@dataclass
class DeliveryState:
    state: int
    attempt: int
    member: str
    due: int = field(default=0, compare=False)
    """Time of its next delivery. The log knows it; a draft knows only the order."""


@dataclass
class QueueState:
    """State of `q`, its group and `dq`. Immutable: `copy` makes the next one."""

    messages: dict[int, Any] = field(default_factory=dict)
    last: int = 0
    dead: dict[int, Any] = field(default_factory=dict)
    dead_last: int = 0
    cursor: int = 0
    rows: dict[int, DeliveryState] = field(default_factory=dict)

    def copy(self) -> QueueState:
        rows = {n: DeliveryState(r.state, r.attempt, r.member, r.due) for n, r in self.rows.items()}
        return QueueState(
            dict(self.messages), self.last, dict(self.dead), self.dead_last, self.cursor, rows
        )

    # --- what statements do ---------------------------------------------------------------------

    def publish(self, values: list[Any]) -> int:
        """Publish values. Return the first position."""
        for value in values:
            self.last += 1
            self.messages[self.last] = value
        return self.last - len(values) + 1

    def read(self, after: int, limit: int) -> list[tuple[int, Any]]:
        return [(n, self.messages[n]) for n in sorted(self.messages) if n > after][:limit]

    def take(self, count: int, member: str) -> list[tuple[int, Any, int]]:
        """Take messages. Return positions, values and attempts."""
        room = IN_FLIGHT - sum(row.state == OUT for row in self.rows.values())
        waiting = sorted((r.due, n) for n, r in self.rows.items() if r.state == WAITING)
        taken = [n for _, n in waiting][: max(min(count, room), 0)]
        while len(taken) < min(count, room) and self.cursor < self.last:
            self.cursor += 1
            self.rows[self.cursor] = DeliveryState(WAITING, 0, "")
            taken.append(self.cursor)
        for position in taken:
            row = self.rows[position]
            row.state, row.attempt, row.member = OUT, row.attempt + 1, member
        return [(n, self.messages[n], self.rows[n].attempt) for n in taken]

    def out(self, named: list[tuple[int, int]]) -> list[int]:
        """Return the positions with valid receipts."""
        return sorted(
            position
            for position, attempt in set(named)
            if position in self.rows
            and (self.rows[position].state, self.rows[position].attempt) == (OUT, attempt)
        )

    def nack(self, positions: list[int], tie: bool) -> None:
        """Release a delivery for redelivery, or make it a dead letter.

        :param tie: True if it happens at the log time of the last one
        """
        latest = max((r.due for r in self.rows.values() if r.state == WAITING), default=0)
        for position in positions:
            row = self.rows[position]
            if row.attempt >= DELIVERIES:
                self.bury(position)
            else:
                row.state, row.member, row.due = WAITING, "", latest + (not tie)

    def bury(self, position: int) -> None:
        """Make a dead letter."""
        self.dead_last += 1
        self.dead[self.dead_last] = self.messages[position]
        del self.rows[position]

    def trim(self, before: int) -> int:
        """Trim messages. Return their number."""
        gone = [n for n in self.messages if n < before]
        for position in gone:
            del self.messages[position]
            self.rows.pop(position, None)
        self.cursor = max([self.cursor, *gone])
        return len(gone)

    def redrive(self, limit: int) -> int:
        """Redrive dead letters. Return their number."""
        moved = sorted(self.dead)[:limit]
        self.publish([self.dead.pop(position) for position in moved])
        return len(moved)

    @property
    def committed(self) -> int:
        """Position before the first message that is not done."""
        return min(self.rows) - 1 if self.rows else self.cursor


def folded(pairs: dict[bytes, bytes]) -> QueueState:
    """Read the queue of a store, by code that is independent of the node's."""
    found = QueueState()
    numbers = {
        key[11:].decode(): key[3:11] + unpack_object(value)["id"].to_bytes(4, "big")
        for key, value in pairs.items()
        if key[keys.TAG_AT] == keys.TOPIC
    }
    if QUEUE not in numbers or DEAD not in numbers:
        return found
    at = keys.TAG_AT
    for key, value in pairs.items():
        tag, whose = key[at], key[at + 1 : at + 13]
        if tag == keys.MESSAGE and whose == numbers[QUEUE]:
            found.messages[int.from_bytes(key[15:], "big")] = message_value(value)
        elif tag == keys.MESSAGE and whose == numbers[DEAD]:
            found.dead[int.from_bytes(key[15:], "big")] = message_value(value)
        elif tag == keys.TOPIC_LAST and whose == numbers[QUEUE]:
            found.last = int.from_bytes(value[:8], "big")
        elif tag == keys.TOPIC_LAST and whose == numbers[DEAD]:
            found.dead_last = int.from_bytes(value[:8], "big")
        elif tag == keys.GROUP_STATE and whose == numbers[QUEUE]:
            found.cursor = int.from_bytes(value[8:16], "big")
        elif tag == keys.HAND_OUT and whose == numbers[QUEUE]:
            found.rows[int.from_bytes(key[19:], "big")] = hand_out(value)
    return found


def hand_out(value: bytes) -> DeliveryState:
    """Decode a delivery's row: state (1), flags (1), attempt (4), due (8), batch (8), length of the
    member (2) and of the key (2), member …"""
    member = value[26 : 26 + int.from_bytes(value[22:24], "big")].decode()
    due = int.from_bytes(value[6:14], "big")
    return DeliveryState(value[0], int.from_bytes(value[2:6], "big"), member, due)


def message_value(row: bytes) -> Any:
    """Decode the value of a message.

    After time, total and delay (8 each) its row has the lengths of key (2), id (2) and headers (4).
    """
    skipped = sum(
        int.from_bytes(row[low:high], "big") for low, high in ((24, 26), (26, 28), (28, 32))
    )
    return unpack(row[32 + skipped :])


# --- statements -----------------------------------------------------------------------------------

Said = tuple[str, "Callable[[Draft], Any]"]


_TOPIC = named(NUMBER)


def _receipt(position: int, attempt: int) -> str:
    return f"{_TOPIC}.1.1.{position}.{attempt}"


class Publisher:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def publish(self) -> Said:
        """Publish unique values into the queue."""
        chance = self._chance
        values = [chance.randrange(10**9) for _ in range(chance.choice((1, 1, 2, 3)))]
        key = chance.choice(("", " KEY 'a'", " HEADERS { h: 'x' }"))
        many = len(values) > 1

        def run(draft: Draft) -> Any:
            first = draft.queue.publish(values)
            draft.published(range(first, first + len(values)))
            if many:
                return {"first": first, "last": first + len(values) - 1, "count": len(values)}
            return {"position": first, "duplicate": False}

        what = f"VALUES {values}" if many else f"VALUE {values[0]}"
        return f"PUBLISH INTO {QUEUE} {what}{key}", run

    def read(self, wait: str = "") -> Said:
        after, limit = self._chance.randrange(12), self._chance.choice((1, 3, 100))

        def run(draft: Draft) -> Any:
            return [_shown(*pair) for pair in draft.queue.read(after, limit)]

        return f"READ FROM {QUEUE} AFTER {after} LIMIT {limit}{wait}", run

    def take(self, wait: str = "") -> Said:
        """Take some messages, with a unique member name."""
        count, member = self._chance.choice((1, 2, 5)), f"m{self._chance.randrange(10**9)}"

        def run(draft: Draft) -> Any:
            taken = draft.queue.take(count, member)
            draft.wrote = draft.wrote or bool(taken)
            return [
                _shown(position, value, attempt=attempt, receipt=_receipt(position, attempt))
                for position, value, attempt in taken
            ]

        return f"TAKE {count} FROM {QUEUE} AS g MEMBER '{member}'{wait}", run

    def answer(self) -> Said:
        """ACK, NACK, EXTEND or GIVE UP some messages that may be in flight."""
        chance = self._chance
        first, attempt = chance.randrange(1, 20), chance.choice((1, 1, 1, 2, 3))
        named = [(n, attempt) for n in range(first, first + chance.choice((1, 3, 8)))]
        receipts = [_receipt(position, attempt) for position, attempt in named]
        longer = f" BY {chance.randrange(26_001, 27_000)}w"
        verb, word, more = chance.choice(
            (
                ("ACK", "acked", ""), ("ACK", "acked", ""), ("NACK", "nacked", ""),
                ("EXTEND", "extended", longer), ("GIVE UP", "given_up", " ERROR 'bad'"),
            )
        )  # fmt: skip

        def run(draft: Draft) -> Any:
            good = draft.queue.out(named)
            draft.wrote = draft.wrote or bool(good)
            if verb == "NACK":
                draft.queue.nack(good, draft.tie)
            elif verb == "GIVE UP":
                for position in good:
                    draft.queue.bury(position)
            elif verb == "ACK":
                for position in good:
                    del draft.queue.rows[position]
            else:
                before = draft.before.queue.rows
                draft.puts |= {(EXTENDED, n) for n in good if before.get(n) == draft.queue.rows[n]}
            stale = [
                receipt
                for (position, _), receipt in zip(named, receipts, strict=True)
                if position not in good
            ]
            return settled(word, len(good), stale)

        return f"{verb} {QUEUE} AS g RECEIPTS {receipts}{more}", run

    def trim(self) -> Said:
        """Trim the oldest messages."""
        before = self._chance.randrange(9)

        def run(draft: Draft) -> Any:
            gone = draft.queue.trim(before)
            draft.wrote = draft.wrote or bool(gone)
            draft.puts -= {(QUEUE, position) for position in range(before)}
            return {"trimmed": gone}

        return f"TRIM TOPIC {QUEUE} BEFORE {before}", run

    def redrive(self) -> Said:
        """Redrive dead letters into the queue."""
        limit = self._chance.choice((1, 5))

        def run(draft: Draft) -> Any:
            moved = draft.queue.redrive(limit)
            first = draft.queue.last - moved + 1
            if not moved:
                return {"moved": 0, "first": None, "last": None}
            draft.published(range(first, first + moved))
            return {"moved": moved, "first": first, "last": draft.queue.last}

        return f"REDRIVE FROM {DEAD} TO {QUEUE} LIMIT {limit}", run

    def figures(self) -> Said:
        def run(draft: Draft) -> Any:
            queue = draft.queue
            return AtLeast(
                committed=queue.committed,
                lag=queue.last - queue.committed,
                in_flight=sum(row.state == OUT for row in queue.rows.values()),
                epoch=1,
            )

        return f"INFO FOR GROUP g ON {QUEUE}", run


def _shown(position: int, value: Any, **more: Any) -> AtLeast:
    return AtLeast(position=position, value=value, **more)
