"""What topics and groups must do, on plain dictionaries: the rules once more, as simply as they
can be said, with no thought of cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from protocol import binary
from protocol.errors import AssertFailed, BadRequest, Full, TooLarge
from protocol.text import format_datetime
from storage.topics.topics import StartPosition
from tests.receipts import named

OUT, WAITING, PARKED = 1, 2, 3
DEAD = ("dead-topic", "dead-group", "dead-position", "dead-attempts", "dead-error", "dead-at")


def moment(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)


@dataclass
class HeldMessage:
    at: int
    value: Any
    key: str | None = None
    id: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    due: int = 0

    @property
    def size(self) -> int:
        named = len((self.key or "").encode()) + len((self.id or "").encode())
        headers = len(binary.pack(self.headers)) if self.headers else 0
        return 32 + named + headers + len(binary.pack(self.value))


@dataclass
class UnfinishedMessage:
    """A message that a group is not done with."""

    state: int
    attempt: int
    due: int
    member: str = ""
    error: str = ""
    key: str | None = None
    """Only in groups ORDERED BY KEY."""
    since: int = field(default=0, compare=False)
    """The commit that gave it its deadline; 0: the one at hand."""

    def is_out(self, now: int, released: int) -> bool:
        """Whether it is out and its deadline has not passed, which it does for nobody who has not
        been shown it."""
        return self.state == OUT and (self.due > now or self.since > released)


@dataclass
class GroupModel:
    """A group: its settings, and where it stands."""

    id: int
    deadline: int
    in_flight: int = 1000
    deliveries: int | None = None
    dead_letter: str | None = None
    backoff: tuple[int, ...] = ()
    ordered: bool = False
    epoch: int = 1
    cursor: int = 0
    handed_out: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    rows: dict[int, UnfinishedMessage] = field(default_factory=dict)

    @property
    def committed(self) -> int:
        """The position before the first message that is not done."""
        return min(self.rows) - 1 if self.rows else self.cursor

    def pending(self, topic: TopicModel) -> int:
        return sum(position in self.rows or position > self.cursor for position in topic.messages)

    def out_at(self, now: int, released: int) -> int:
        """How many are out, their deadline not passed."""
        return sum(row.is_out(now, released) for row in self.rows.values())

    def count(self, state: int) -> int:
        return sum(row.state == state for row in self.rows.values())


@dataclass
class TopicModel:
    """A topic: its settings, and what it holds."""

    id: int
    keep: int | None = None
    max_bytes: int | None = None
    largest: int = 8 << 20
    dedup: int | None = None
    full: str = "DROP"
    last: int = 0
    messages: dict[int, HeldMessage] = field(default_factory=dict)
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    groups: dict[str, GroupModel] = field(default_factory=dict)

    @property
    def trimmed(self) -> int:
        """The last position that is held no more."""
        return min(self.messages) - 1 if self.messages else self.last

    @property
    def size(self) -> int:
        return sum(message.size for message in self.messages.values())


class QueueModel:
    """All topics of a database."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicModel] = {}
        self.now = 0
        """Log time of the transaction at hand."""
        self.fresh: list[tuple[str, int]] = []
        """Topics and positions of what it has appended."""
        self.named: list[tuple[str, str]] = []
        """Topics and ids that it has given."""

        self.released = 0
        """The newest commit that anybody had been shown when it began."""
        self.moved: list[UnfinishedMessage] = []
        """What it has handed out, or given another deadline."""

    def begin(self, now: int, released: int) -> None:
        self.now, self.released = now, released
        self.fresh, self.named, self.moved = [], [], []

    def commit(self, time: int, sequence: int) -> None:
        """It is committed at that log time, under that number."""
        for row in self.moved:
            row.since = sequence
        for topic, position in self.fresh:
            if position in self.topics[topic].messages:
                self.topics[topic].messages[position].at = time
        for topic, id in self.named:
            position, _ = self.topics[topic].ids[id]
            self.topics[topic].ids[id] = position, time

    # --- messages -------------------------------------------------------------------------------

    def append(self, topic: str, message: HeldMessage) -> int:
        one = self.topics[topic]
        one.last += 1
        one.messages[one.last] = message
        self.fresh.append((topic, one.last))
        return one.last

    def publish(
        self,
        topic: str,
        values: list[Any],
        key: str | None = None,
        id: str | None = None,
        headers: dict[str, str] | None = None,
        due: int = 0,
        expect: int | None = None,
    ) -> tuple[int, int, bool]:
        """First position, count, whether it is a duplicate."""
        one = self.topics[topic]
        due = due if due > self.now else 0
        made = [HeldMessage(self.now, value, key, id, dict(headers or {}), due) for value in values]
        self._check_sizes(one, made)
        if id is not None and one.dedup is not None and id in one.ids:
            position, at = one.ids[id]
            if self.now < at + one.dedup:
                return position, 1, True
        if expect is not None and expect != one.last:
            raise AssertFailed("")
        added = sum(message.size for message in made)
        if one.full == "REFUSE" and one.max_bytes is not None and one.size + added > one.max_bytes:
            raise Full("")
        positions = [self.append(topic, message) for message in made]
        if id is not None and one.dedup is not None:
            one.ids[id] = positions[0], self.now
            self.named.append((topic, id))
        return positions[0], len(values), False

    @staticmethod
    def _check_sizes(one: TopicModel, made: list[HeldMessage]) -> None:
        bound = min(one.largest, one.max_bytes or one.largest)
        if any(message.size > bound for message in made):
            raise TooLarge("")

    def shown(self, topic: str, position: int) -> dict[str, Any]:
        """A message as it is answered."""
        message = self.topics[topic].messages[position]
        made = {
            "position": position, "at": moment(message.at), "key": message.key, "id": message.id,
            "headers": message.headers, "value": message.value, "bytes": message.size,
        }  # fmt: skip
        if message.due:
            made["due"] = moment(message.due)
        return made

    def read(self, topic: str, after: int, limit: int) -> list[dict[str, Any]]:
        held = sorted(self.topics[topic].messages)
        return [self.shown(topic, n) for n in held if n > after][:limit]

    def position_at(self, topic: str, place: StartPosition) -> int:
        """Where a place is."""
        one = self.topics[topic]
        if place.kind == "START":
            return one.trimmed
        if place.kind == "END":
            return one.last
        if place.kind == "AFTER":
            if not 0 <= place.value <= one.last:
                raise BadRequest("")
            return place.value
        later = [n for n, message in one.messages.items() if message.at >= place.value]
        return min(later, default=one.last + 1) - 1

    def trim(self, topic: str, before: int) -> int:
        one = self.topics[topic]
        gone = [n for n in one.messages if n < before]
        for position in gone:
            del one.messages[position]
        for group in one.groups.values():
            for position in sorted(n for n in group.rows if n < before):
                self._done(group, topic, position)
            group.cursor = max(group.cursor, one.trimmed)
        return len(gone)

    def trim_due(self, topic: str) -> int:
        """Remove what is too old or too much."""
        one = self.topics[topic]
        before, size = one.trimmed + 1, one.size
        for position in sorted(one.messages):
            message = one.messages[position]
            old = one.keep is not None and message.at + one.keep <= self.now
            much = one.full == "DROP" and one.max_bytes is not None and size > one.max_bytes
            much = much and position < one.last
            if not old and not much:
                break
            before, size = position + 1, size - message.size
        return self.trim(topic, before)

    def sweep_ids(self, topic: str) -> int:
        """Forget ids whose time is over."""
        one = self.topics[topic]
        window = one.dedup or 0
        gone = [id for id, (_, at) in one.ids.items() if at + window <= self.now]
        for id in gone:
            del one.ids[id]
        self.named = [name for name in self.named if name[0] != topic or name[1] in one.ids]
        return len(gone)

    def redrive(self, dead: str, topic: str, limit: int) -> int:
        """Move messages back."""
        one, target = self.topics[dead], self.topics[topic]
        moved = sorted(one.messages)[:limit]
        made = []
        for position in moved:
            message = one.messages[position]
            headers = {name: text for name, text in message.headers.items() if name not in DEAD}
            made.append(HeldMessage(self.now, message.value, message.key, message.id, headers))
        self._check_sizes(target, made)
        added = sum(message.size for message in made)
        refuses = target.full == "REFUSE" and target.max_bytes is not None and made
        if refuses and target.max_bytes is not None and target.size + added > target.max_bytes:
            raise Full("")
        for message in made:
            self.append(topic, message)
        if moved:
            self.trim(dead, moved[-1] + 1)
        return len(moved)

    # --- hand-outs ------------------------------------------------------------------------------

    def expire_overdue(self, topic: str, name: str) -> int:
        """Take back what is out past its deadline."""
        group = self.topics[topic].groups[name]
        past = [
            n
            for n, row in group.rows.items()
            if row.state == OUT and not row.is_out(self.now, self.released)
        ]
        for position in sorted(past):
            due = group.rows[position].due
            self._back(topic, name, position, due, None, "the deadline passed")
        return len(past)

    def take(self, topic: str, name: str, count: int, member: str | None) -> list[dict[str, Any]]:
        self.expire_overdue(topic, name)
        one = self.topics[topic]
        group = one.groups[name]
        room = min(count, group.in_flight - group.count(OUT))
        due = sorted(
            (row.due, n)
            for n, row in group.rows.items()
            if row.state == WAITING and row.due <= self.now
        )
        taken = [n for _, n in due[: max(room, 0)]]
        while len(taken) < room and group.cursor < one.last:
            group.cursor += 1
            position = group.cursor
            message = one.messages[position]
            key = message.key if group.ordered else None
            if key is not None and any(row.key == key for row in group.rows.values()):
                group.rows[position] = UnfinishedMessage(PARKED, 0, message.due, key=key)
                continue
            group.rows[position] = UnfinishedMessage(WAITING, 0, message.due, key=key)
            if message.due <= self.now:
                taken.append(position)
        answers = []
        for position in taken:
            row = group.rows[position]
            row.state, row.attempt, row.due = OUT, row.attempt + 1, self.now + group.deadline
            row.member = member or ""
            self.moved.append(row)
            group.redelivered += row.attempt > 1
            group.handed_out = max(group.handed_out, position)
            answers.append({
                **self.shown(topic, position),
                "receipt": self._receipt(one, group, position, row),
                "attempt": row.attempt, "deadline": moment(row.due), "member": member,
            })  # fmt: skip
        return answers

    @staticmethod
    def _receipt(
        topic: TopicModel, group: GroupModel, position: int, row: UnfinishedMessage
    ) -> str:
        return f"{named(topic.id)}.{group.id}.{group.epoch}.{position}.{row.attempt}"

    def out(self, topic: str, name: str, receipts: list[str]) -> list[int]:
        """The positions that receipts are good for."""
        one = self.topics[topic]
        group = one.groups[name]
        good = []
        for receipt in dict.fromkeys(receipts):
            position = int(receipt.split(".")[3])
            row = group.rows.get(position)
            if (
                row is not None
                and receipt == self._receipt(one, group, position, row)
                and row.is_out(self.now, self.released)
            ):
                good.append(position)
        return sorted(good)

    def stale(self, topic: str, name: str, receipts: list[str]) -> list[str]:
        """Those that come too late, or a second time."""
        good = set(self.out(topic, name, receipts))
        stale = []
        for receipt in receipts:
            position = int(receipt.split(".")[3])
            if position in good and self.out(topic, name, [receipt]):
                good.remove(position)
            else:
                stale.append(receipt)
        return stale

    def ack(self, topic: str, name: str, receipts: list[str]) -> int:
        good = self.out(topic, name, receipts)
        for position in good:
            self._done(self.topics[topic].groups[name], topic, position)
        return len(good)

    def nack(
        self, topic: str, name: str, receipts: list[str], delay: int | None, error: str | None
    ) -> int:
        good = self.out(topic, name, receipts)
        for position in good:
            row = self.topics[topic].groups[name].rows[position]
            row.error = error or row.error
            self._back(topic, name, position, self.now, delay, "it was refused")
        return len(good)

    def give_up(self, topic: str, name: str, receipts: list[str], error: str | None) -> int:
        """Make dead letters."""
        good = self.out(topic, name, receipts)
        for position in good:
            row = self.topics[topic].groups[name].rows[position]
            row.error = error or row.error
            self._bury(topic, name, position, "it was given up")
        return len(good)

    def extend(self, topic: str, name: str, receipts: list[str], by: int) -> int:
        good = self.out(topic, name, receipts)
        for position in good:
            row = self.topics[topic].groups[name].rows[position]
            row.due = self.now + by
            self.moved.append(row)
        return len(good)

    def alter(self, topic: str, keep: int | None, max_bytes: int | None) -> None:
        one = self.topics[topic]
        newest = one.messages.get(one.last)
        if max_bytes not in (None, one.max_bytes) and newest is not None:
            assert max_bytes is not None
            if newest.size > max_bytes:
                raise TooLarge("")
        one.keep, one.max_bytes = keep, max_bytes

    def move(self, topic: str, name: str, place: StartPosition) -> int:
        group = self.topics[topic].groups[name]
        position = max(self.position_at(topic, place), self.topics[topic].trimmed)
        group.rows.clear()
        group.epoch += 1
        group.cursor = group.handed_out = position
        return position

    def _back(
        self, topic: str, name: str, position: int, since: int, delay: int | None, became: str
    ) -> None:
        group = self.topics[topic].groups[name]
        row = group.rows[position]
        if group.deliveries is not None and row.attempt >= group.deliveries:
            self._bury(topic, name, position, became)
            return
        if delay is None:
            steps = group.backoff
            delay = steps[min(row.attempt, len(steps)) - 1] if steps else 0
        row.state, row.due, row.member = WAITING, since + delay, ""

    def _bury(self, topic: str, name: str, position: int, became: str) -> None:
        group = self.topics[topic].groups[name]
        message, row = self.topics[topic].messages[position], group.rows[position]
        group.dead_lettered += 1
        if group.dead_letter is not None:
            said = (
                topic, name, str(position), str(row.attempt),
                row.error or became, format_datetime(moment(self.now)),
            )  # fmt: skip
            headers = {**message.headers, **dict(zip(DEAD, said, strict=True))}
            letter = HeldMessage(self.now, message.value, message.key, message.id, headers)
            self.append(group.dead_letter, letter)
        self._done(group, topic, position)

    def _done(self, group: GroupModel, topic: str, position: int) -> None:
        key = group.rows.pop(position).key
        behind = [n for n, row in group.rows.items() if key is not None and row.key == key]
        if behind and group.rows[min(behind)].state == PARKED:
            row = group.rows[min(behind)]
            row.state, row.due = WAITING, max(row.due, self.now)
