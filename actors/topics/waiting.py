"""Waiting scripts: a READ or TAKE with WAIT that found nothing, or a wait for an index build.

A wait holds no transaction and does no work (long polling). Once woken, its statement runs again
from the beginning: it finds messages, waits on, or is refused because its topic is gone. Takers are
woken by commits of this node (`TopicWaits.published`, `TopicWaits.may_take`) and by a topic's
actor: only the leader delivers. Readers are woken by commits pending here, of whichever leader
(`TopicWaits.on_pending_commit`). So are waits for an index: by a change of its catalog row.

Takers of one group stand in one line:

- At most one of a line has the turn and runs its statement. One that joins a non-empty line goes to
  its end without a look. If the others have left before it stands there, it looks after all.
- One that had the turn and found nothing goes back to the front. One that leaves, for whatever
  reason, passes the turn on: messages it did not take may be for the next.
- One whose time is over looks once more, with or without the turn: no statement answers "nothing"
  without a look.
- A wake while one has the turn is remembered, so none is lost.

Readers of a topic take nothing from each other: a new message wakes all that it is for at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from actors.execution.blocking import Line, NumberedQueue, Wait, raise_error
from protocol import limits
from storage.formats import keys
from storage.topics.groups import Group
from storage.topics.topics import find_topic, topic_of_reader
from storage.txn.appends import unpack_counter
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet

OnPendingCommit = Callable[[WriteSet], None]
WaitTarget = tuple[int, int]
"""Object of a wait: the ids of a topic and of its group, 0 for the topic itself."""
Named = dict[bytes, dict["StatementWait", None]]
"""Waits that read by a named reader, by the keys of the readers' positions."""


class WaitQueue(ABC):
    """Place where waits stand: a line of takers, readers of a topic, or a catalog row."""

    of: WaitTarget
    closing = False
    """True if no wait may begin here any more."""
    _here = 0

    def __len__(self) -> int:
        return self._here

    def enter(self) -> None:
        """Count one more that may come to stand in it."""
        self._here += 1

    @abstractmethod
    def join(self, wait: StatementWait, overtaken: bool) -> None:
        """Stand in the queue. :param overtaken: as in `StatementWait.join`"""

    @abstractmethod
    def leave(self, wait: StatementWait) -> None:
        """Leave it, once; also for a wait that never stood in it."""

    @abstractmethod
    def look_again(self) -> None:
        """Have all check if they may still wait here."""

    @abstractmethod
    def end(self) -> None:
        """Have all answer with the messages there are."""


class StatementWait(Wait):
    """Wait of one statement, from its first look to its answer.

    :param until_us: end, on the monotonic clock
    :param wake: resumes the waiting script
    """

    def __init__(self, place: WaitQueue, until_us: int, wake: Callable[[], None]) -> None:
        self.place = place
        """Place that it stands in, whenever its statement waits."""
        self._wake = wake
        self.until_us = until_us
        self.over = False
        """True if the statement answers with the messages it finds, even none."""
        self.woken = False
        """True if the statement is to run again; no wait begins while this is set."""
        self.after = 0
        """For a reader: the position after which it wants messages."""
        self.reader = b""
        """Key of that reader's stored position; empty: it has none."""
        place.enter()

    def join(self, overtaken: bool = False) -> None:
        """Begin to wait; `woken` is set at once when there is no need.

        :param overtaken: True if a commit came after the statement's look: its wake-up may be lost,
            since this wait did not stand there
        """
        # A wake from here on counts. One that is over does not wait.
        self.woken = self.over
        self.place.join(self, overtaken)

    def leave(self) -> None:
        """End the wait: the statement is done, or has been ended."""
        self.place.leave(self)

    def resume(self, lost: BaseException | None) -> None:
        """Have the statement look again."""
        if not self.woken:
            self.woken = True
            self._wake()

    def on_deadline(self) -> None:
        self.end()

    def wake(self) -> None:
        """Have the statement look again, wherever it stands."""
        self.resume(None)

    def end(self) -> None:
        """Have the statement look once more, and answer with the messages it finds."""
        self.over = True
        self.wake()


class TakeLine(WaitQueue):
    """Waits to take from one group, first come first served."""

    def __init__(self, of: WaitTarget, emptied: Callable[[WaitTarget], None]) -> None:
        self.of = of
        self._blocked = Line(raise_error)
        self._turn: Wait | None = None
        """The wait that looks."""
        self._again = False
        self._emptied = emptied

    def may_look(self, wait: StatementWait) -> bool:
        """True if the wait has the turn; it gets the turn here if no other wait is present."""
        # An empty line: the turn goes to any that asks, and none is passed over.
        if self._turn is None and not self._blocked:
            self._turn = wait
        return self._turn is wait

    def join(self, wait: StatementWait, overtaken: bool) -> None:
        """Join at the end, or return to the front after a turn without messages."""
        if self.closing:
            wait.end()
        if self._turn is not wait:
            # It has not looked in its turn: to the end of the line.
            self._blocked.block(wait)
            if self._turn is None and len(self._blocked) == 1:
                self.wake()  # the waits before it have left, maybe without a look
            return
        # It has looked and found nothing: first again, since it has waited longest.
        self._turn = None
        self._blocked.block(wait, first=True)
        # A wake during its turn may concern messages that its look has missed.
        if self._again or overtaken:
            self.wake()

    def leave(self, wait: StatementWait) -> None:
        """Leave the line; the turn goes to the next."""
        self._blocked.remove(wait)
        if self._turn is wait:
            # Messages that woke it may be left for the next.
            self._turn = None
            self.wake()
        # Waits that never stood count too: the line lives as long as their statements.
        self._here -= 1
        if not self._here:
            self._emptied(self.of)

    def wake(self) -> None:
        """Wake the first: there may be messages. If it leaves, the next one looks."""
        # One look at a time: the holder of the turn looks again, or passes the turn on.
        if self._turn is not None:
            self._again = True
            return
        self._again = False
        wait = self._turn = self._blocked.take_first()
        if wait is not None:
            wait.resume(None)

    def look_again(self) -> None:
        """Have all check if they may still wait here; they return in their order. One with the turn
        may have checked that already, and looks once more."""
        if self._turn is not None:
            self._again = True
        self._blocked.unblock()

    def end(self) -> None:
        """Have all answer with the messages there are."""
        for wait in self._blocked:
            wait.on_deadline()
        if self._turn is not None:
            self._turn.on_deadline()


class ReadWaits(WaitQueue):
    """Waits to read a topic.

    :param last: key of the topic's last position
    :param named: index of the waits by named reader
    """

    def __init__(
        self,
        of: WaitTarget,
        last: bytes,
        named: Named,
        emptied: Callable[[WaitTarget], None],
    ) -> None:
        self.of = of
        self.last = last
        self._blocked = NumberedQueue(raise_error)
        """By the position after which a wait wants messages."""
        self._named = named
        self._emptied = emptied

    def join(self, wait: StatementWait, overtaken: bool) -> None:
        """Wait for a message after `wait.after`."""
        if self.closing:
            wait.end()
            return
        # A lost wake-up: the commit came when the wait did not stand here yet.
        if overtaken:
            wait.wake()
            return
        if wait.reader:
            self._named.setdefault(wait.reader, {})[wait] = None
        self._blocked.block(wait, wait.after)

    def leave(self, wait: StatementWait) -> None:
        """Remove the wait."""
        self._blocked.remove(wait)
        named = self._named.get(wait.reader)
        if named is not None:
            named.pop(wait, None)
            if not named:
                del self._named[wait.reader]
        self._here -= 1
        if not self._here:
            self._emptied(self.of)

    def wake(self, last: int) -> None:
        """Wake the waits for messages up to this position, the topic's last."""
        self._blocked.unblock_upto(last - 1)

    def moved(self, wait: StatementWait) -> None:
        """Wake a wait whose reader's position was moved back."""
        self._blocked.unblock_one(wait)

    def look_again(self) -> None:
        """Have all check if they may still wait here."""
        self._blocked.unblock()

    def end(self) -> None:
        """Have all answer with the messages there are."""
        for wait in self._blocked:
            wait.on_deadline()


class CatalogRowWaits(WaitQueue):
    """Waits for a change of one row of the catalog.

    :param key: key of the row
    """

    def __init__(self, of: WaitTarget, key: bytes, emptied: Callable[[bytes], None]) -> None:
        self.of = of
        self.key = key
        self._blocked = Line(raise_error)
        self._emptied = emptied

    def join(self, wait: StatementWait, overtaken: bool) -> None:
        """Wait for the next change."""
        if self.closing:
            wait.end()
        elif overtaken:
            wait.wake()
        else:
            self._blocked.block(wait)

    def leave(self, wait: StatementWait) -> None:
        """Remove the wait."""
        self._blocked.remove(wait)
        self._here -= 1
        if not self._here:
            self._emptied(self.key)

    def look_again(self) -> None:
        """Wake all."""
        self._blocked.unblock()

    def end(self) -> None:
        """Have all answer, or be refused where the row is not as they need it."""
        for wait in self._blocked:
            wait.on_deadline()


class TopicWaits:
    """All waits, by topic and group; only queues with waits are kept.

    :param listen: registers a callback for each pending commit; None: unregisters it
    """

    def __init__(self, listen: Callable[[OnPendingCommit | None], None]) -> None:
        self._listen = listen
        self._lines: dict[int, dict[int, TakeLine]] = {}
        self._readers: dict[int, ReadWaits] = {}
        self._by_last: dict[bytes, ReadWaits] = {}
        """The same, by the keys of their topics' last positions."""
        self._named: Named = {}
        self._rows: dict[bytes, CatalogRowWaits] = {}
        """Rows by key."""
        self.draining = False
        """True if no wait begins any more: the node stops."""

    def __len__(self) -> int:
        lines = sum(len(line) for lines in self._lines.values() for line in lines.values())
        readers = sum(len(readers) for readers in self._readers.values())
        return lines + readers + sum(map(len, self._rows.values()))

    def line(self, topic: int, group: int) -> TakeLine:
        """Return the line of takers of a group."""
        lines = self._lines.setdefault(topic, {})
        line = lines.get(group)
        if line is None:
            line = lines[group] = TakeLine((topic, group), self._drop_line)
            line.closing = self.draining
        return line

    def readers(self, topic: int, last: bytes) -> ReadWaits:
        """Return the readers of a topic. :param last: as for `ReadWaits`"""
        readers = self._readers.get(topic)
        if readers is None:
            of = topic, 0
            readers = self._readers[topic] = ReadWaits(of, last, self._named, self._drop_readers)
            readers.closing = self.draining
            self._by_last[last] = readers
            # Only while readers or rows wait: other commits pay nothing for it.
            self._listen(self.on_pending_commit)
        return readers

    def row(self, of: WaitTarget, key: bytes) -> CatalogRowWaits:
        """Return the waits for a row of the catalog."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = CatalogRowWaits(of, key, self._drop_row)
            row.closing = self.draining
            self._listen(self.on_pending_commit)
        return row

    def taken_from(self, topic: int) -> list[int]:
        """Return the groups of a topic with waiting takers."""
        return list(self._lines.get(topic, ()))

    def is_taken_from(self, topic: int, group: int) -> bool:
        """True if a taker waits for a group."""
        lines = self._lines.get(topic)
        return lines is not None and group in lines

    def is_awaited(self, topic: int) -> bool:
        """True if a script waits for messages of a topic, to read or to take them."""
        return topic in self._readers or topic in self._lines

    def is_expiry_awaited(self, tx: Transaction, group: Group) -> bool:
        """True if a consumer waits for expiry in a group, as a taker or for dead letters."""
        if self.is_taken_from(group.topic.id, group.id):
            return True
        if group.dead_letter is None or group.deliveries is None:
            return False
        dead = find_topic(tx, group.topic.database, group.dead_letter)
        return dead is not None and self.is_awaited(dead.id)

    def on_pending_commit(self, write_set: WriteSet) -> None:
        """Wake waits that a pending commit concerns.

        Readers of a topic look again when the topic gets messages, is dropped, or loses a named
        reader. So do waits by a named reader that is moved back, and waits for a changed row.
        """
        by_last, writes, rows = self._by_last, write_set.writes, self._rows
        if rows:
            # By a write of the row itself, or by a drop that covers its range.
            changed = {
                key for start, end in write_set.ranges for key in rows if start <= key < end
            } | (rows.keys() & writes.keys())
            for key in changed:
                rows[key].look_again()
        for key in by_last.keys() & writes.keys():
            value = writes[key]
            # A deleted counter is a dropped topic: all readers look, and are refused.
            by_last[key].wake(limits.INT_MAX if value is None else unpack_counter(value)[0])
        for key in self._named.keys() & writes.keys():
            value = writes[key]
            position = 0 if value is None else keys.unpack_counter(value)
            # A reader that is moved back wants messages that it has passed. A copy: the woken may
            # leave.
            for wait in [each for each in self._named[key] if each.after > position]:
                self._readers[wait.place.of[0]].moved(wait)
        for key, value in writes.items():
            topic = topic_of_reader(key) if value is None else None
            if topic in self._readers:
                self._readers[topic].wake(limits.INT_MAX)
        for start, end in write_set.ranges:
            # The drop of a database covers the counters of all its topics.
            for key in [key for key in by_last if start <= key < end]:
                by_last[key].wake(limits.INT_MAX)

    def published(self, topic: int) -> None:
        """Wake the takers of a topic that has got messages."""
        # A copy: the last wait that leaves removes its line.
        for line in list(self._lines.get(topic, {}).values()):
            line.wake()

    def may_take(self, topic: int, group: int) -> None:
        """Wake a taker of a group: a message is redelivered, or there is room in flight."""
        line = self._lines.get(topic, {}).get(group)
        if line is not None:
            line.wake()

    def trimmed(self, topic: int) -> None:
        """Wake the takers of a topic: a commit has removed messages, and maybe deliveries in
        flight."""
        for group in self.taken_from(topic):
            self.may_take(topic, group)

    def on_roll_back(self) -> None:
        """Wake all: commits were rolled back, and messages they had taken or trimmed are there
        again."""
        for topic in list(self._lines):
            self.published(topic)
        for readers in list(self._readers.values()):
            readers.wake(limits.INT_MAX)
        for row in list(self._rows.values()):
            row.look_again()

    def look_again(self) -> None:
        """Have all check if they may still wait: declarations or roles of the node changed."""
        for each in self._all():
            each.look_again()

    def end(self) -> None:
        """Have all answer with the messages there are."""
        for each in self._all():
            each.end()

    def drain(self) -> None:
        """Like `end`, and no wait begins from here on."""
        self.draining = True
        for each in self._all():
            each.closing = True
            each.end()

    def _all(self) -> Iterator[WaitQueue]:
        for lines in list(self._lines.values()):
            # Copies: a woken wait may leave, and its queue with it.
            yield from list(lines.values())
        yield from list(self._readers.values())
        yield from list(self._rows.values())

    def _drop_line(self, of: WaitTarget) -> None:
        topic, group = of
        lines = self._lines.get(topic, {})
        lines.pop(group, None)
        if not lines:
            self._lines.pop(topic, None)

    def _drop_readers(self, of: WaitTarget) -> None:
        readers = self._readers.pop(of[0], None)
        if readers is not None:
            del self._by_last[readers.last]
            self._listen_no_more()

    def _drop_row(self, key: bytes) -> None:
        if self._rows.pop(key, None) is not None:
            self._listen_no_more()

    def _listen_no_more(self) -> None:
        if not (self._readers or self._rows):
            self._listen(None)
