"""Scripts that wait: whose READ or TAKE has a WAIT and found nothing, or whose index is not built.

A wait holds no transaction and does no work. It ends by being woken, whereupon its statement runs
again from the beginning and finds something, waits on, or is refused because what it waited for is
gone. Who takes is woken by commits of this node (`Waits.published`, `Waits.may_take`) and by a
topic's actor: only who leads hands out. Who reads is woken by what goes in flight here, whichever
node has committed it (`Waits.heard`), and so is who waits for an index: for a change of its row.

Who takes from one group stands in one line:

- At most one of a line has the turn and runs its statement. One that comes to a line in which
  others stand goes to its end without having looked; if they have gone before it stands there, it
  looks after all.
- One that had the turn and found nothing goes back to the front. One that leaves, for whatever
  reason, passes the turn on: what it did not take may be for the next.
- One whose time is over looks once more, whether or not it has the turn: nobody answers that there
  is nothing without having looked.
- A wake while somebody has the turn is remembered, so none is lost.

Readers of a topic take nothing from each other: all that a new message is for are woken at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final, Protocol

from protocol import limits
from storage import keys
from storage.appends import unpack_counter
from storage.layers import Layer
from storage.topics import topic_of_reader

Hear = Callable[[Layer], None]
Of = tuple[int, int]
"""What one waits for: the ids of a topic and of its group, 0 for the topic itself."""
Named = dict[bytes, dict["Wait", None]]
"""Who reads by readers, by the keys under which their positions stand."""


class Queue(Protocol):
    """Where one waits."""

    of: Of

    def enter(self) -> None:
        """One more may come to stand in it."""

    def join(self, wait: Wait, overtaken: bool) -> None:
        """Stand in it. :param overtaken: as in `Wait.join`"""

    def leave(self, wait: Wait) -> None:
        """Be gone, once; also for one that never stood in it."""


class Wait:
    """The wait of one statement, from its first look to its answer.

    :param until_us: on the monotonic clock
    :param wake: makes the waiting script go on
    """

    __slots__ = ("_wake", "after", "over", "queue", "reader", "until_us", "woken")

    def __init__(self, queue: Queue, until_us: int, wake: Callable[[], None]) -> None:
        self.queue = queue
        self._wake = wake
        self.until_us = until_us
        self.over = False
        """Whether it takes what is there, be it nothing."""
        self.woken = False
        """Whether it is to look again; no wait begins while this is set."""
        self.after = 0
        """Of a reader: the position after which it wants messages."""
        self.reader = b""
        """The key under which that position stands; empty: it stands nowhere."""
        queue.enter()

    def join(self, overtaken: bool = False) -> None:
        """Begin to wait; `woken` says at once when there is no need.

        :param overtaken: whether anything was committed after what it has looked at, and may have
            woken nobody, for it was not waiting then
        """
        self.woken = self.over
        self.queue.join(self, overtaken)

    def leave(self) -> None:
        """The statement is done, or has been ended."""
        self.queue.leave(self)

    def wake(self) -> None:
        """Have it look again."""
        if not self.woken:
            self.woken = True
            self._wake()

    def end(self) -> None:
        """Have it look once more, and answer what it finds."""
        self.over = True
        self.wake()


class Line:
    """Those that wait to take from one group, first come first served."""

    def __init__(self, of: Of, emptied: Callable[[Of], None]) -> None:
        self.of = of
        self._standing: OrderedDict[Wait, None] = OrderedDict()
        self._turn: Wait | None = None
        self._again = False
        self._here = 0
        self._emptied = emptied
        self.closing = False
        """Whether nobody may wait here any more."""

    def __len__(self) -> int:
        return self._here

    def enter(self) -> None:
        """One more may come to stand in it."""
        self._here += 1

    def may_look(self, wait: Wait) -> bool:
        """Whether it is this one's turn, which it has from here on if nobody else is there."""
        if self._turn is None and not self._standing:
            self._turn = wait
        return self._turn is wait

    def join(self, wait: Wait, overtaken: bool) -> None:
        """To the end, or back to the front."""
        if self.closing:
            wait.end()
        if self._turn is not wait:
            self._standing[wait] = None
            if self._turn is None and len(self._standing) == 1:
                self.wake()  # those that it let look first have gone, and maybe without a look
            return
        self._turn = None
        self._standing[wait] = None
        self._standing.move_to_end(wait, last=False)
        if self._again or overtaken:
            self.wake()

    def leave(self, wait: Wait) -> None:
        """Out of the line; the turn goes to the next."""
        self._standing.pop(wait, None)
        if self._turn is wait:
            self._turn = None
            self.wake()
        self._here -= 1
        if not self._here:
            self._emptied(self.of)

    def wake(self) -> None:
        """There may be something: the first looks, and if it leaves the next one does."""
        if self._turn is not None:
            self._again = True
            return
        self._again = False
        if self._standing:
            self._turn, _ = self._standing.popitem(last=False)
            self._turn.wake()

    def look_again(self) -> None:
        """All are to look whether they may still be here; they come back in their order. One that
        is looking may have looked at that already, and looks once more."""
        if self._turn is not None:
            self._again = True
        standing, self._standing = self._standing, OrderedDict()
        for wait in standing:
            wait.wake()

    def end(self) -> None:
        """All are to answer with what there is."""
        for wait in list(self._standing):
            wait.end()
        if self._turn is not None:
            self._turn.end()


class Readers:
    """Those that wait to read a topic.

    :param last: the key under which its last position stands
    :param named: gets those who read by a reader
    """

    def __init__(
        self,
        of: Of,
        last: bytes,
        named: Named,
        emptied: Callable[[Of], None],
    ) -> None:
        self.of = of
        self.last = last
        self._waiting: dict[Wait, None] = {}
        self._named = named
        self._by_position: list[tuple[int, int, Wait]] = []
        self._joined = 0
        self._here = 0
        self._emptied = emptied
        self.closing = False
        """Whether nobody may wait here any more."""

    def __len__(self) -> int:
        return self._here

    def enter(self) -> None:
        """One more may come to wait."""
        self._here += 1

    def join(self, wait: Wait, overtaken: bool) -> None:
        """Wait for a message after `wait.after`."""
        if self.closing:
            wait.end()
            return
        if overtaken:
            wait.wake()
            return
        if wait.reader:
            self._named.setdefault(wait.reader, {})[wait] = None
        self._joined += 1
        self._waiting[wait] = None
        heappush(self._by_position, (wait.after, self._joined, wait))

    def leave(self, wait: Wait) -> None:
        """Be gone."""
        self._waiting.pop(wait, None)
        named = self._named.get(wait.reader)
        if named is not None:
            named.pop(wait, None)
            if not named:
                del self._named[wait.reader]
        self._here -= 1
        if not self._here:
            self._emptied(self.of)
        if len(self._by_position) > 2 * len(self._waiting) + FORGOTTEN:
            self._by_position = [each for each in self._by_position if each[2] in self._waiting]
            self._by_position.sort()

    def wake(self, last: int) -> None:
        """The topic holds messages up to this position: those that want less look again."""
        while self._by_position and self._by_position[0][0] < last:
            _, _, wait = heappop(self._by_position)
            if self._waiting.pop(wait, 0) is None:
                wait.wake()

    def moved(self, wait: Wait) -> None:
        """One waits for other messages than it did: it looks again."""
        if self._waiting.pop(wait, 0) is None:
            wait.wake()

    def look_again(self) -> None:
        """All are to look whether they may still be here."""
        waiting, self._waiting = self._waiting, {}
        self._by_position.clear()
        for wait in waiting:
            wait.wake()

    def end(self) -> None:
        """All are to answer with what there is."""
        for wait in list(self._waiting):
            wait.end()


class Row:
    """Those that wait for a change of one row of the catalog.

    :param key: the row's
    """

    def __init__(self, of: Of, key: bytes, emptied: Callable[[bytes], None]) -> None:
        self.of = of
        self.key = key
        self._waiting: dict[Wait, None] = {}
        self._here = 0
        self._emptied = emptied
        self.closing = False
        """True if nobody may wait here any more."""

    def __len__(self) -> int:
        return self._here

    def enter(self) -> None:
        """Count one more that may come to wait."""
        self._here += 1

    def join(self, wait: Wait, overtaken: bool) -> None:
        """Wait for the next change."""
        if self.closing:
            wait.end()
        elif overtaken:
            wait.wake()
        else:
            self._waiting[wait] = None

    def leave(self, wait: Wait) -> None:
        """Be gone."""
        self._waiting.pop(wait, None)
        self._here -= 1
        if not self._here:
            self._emptied(self.key)

    def look_again(self) -> None:
        """Wake all."""
        waiting, self._waiting = self._waiting, {}
        for wait in waiting:
            wait.wake()

    def end(self) -> None:
        """Have all answer, or be refused for what there is not."""
        for wait in list(self._waiting):
            wait.end()


FORGOTTEN: Final = 64
"""Entries of readers that have gone, kept before they are cleared away."""


class Waits:
    """All that wait, by topic and group; only those are here for which somebody waits.

    :param listen: has this function hear of each commit that goes in flight, or, given None, nobody
    """

    def __init__(self, listen: Callable[[Hear | None], None]) -> None:
        self._listen = listen
        self._lines: dict[int, dict[int, Line]] = {}
        self._readers: dict[int, Readers] = {}
        self._by_last: dict[bytes, Readers] = {}
        """The same, by the keys of their topics' last positions."""
        self._named: Named = {}
        self._rows: dict[bytes, Row] = {}
        """By key."""
        self.draining = False
        """Whether nobody waits any more: the node stops."""

    def __len__(self) -> int:
        lines = sum(len(line) for lines in self._lines.values() for line in lines.values())
        readers = sum(len(readers) for readers in self._readers.values())
        return lines + readers + sum(map(len, self._rows.values()))

    def line(self, topic: int, group: int) -> Line:
        """Where one waits to take from a group."""
        lines = self._lines.setdefault(topic, {})
        line = lines.get(group)
        if line is None:
            line = lines[group] = Line((topic, group), self._drop_line)
            line.closing = self.draining
        return line

    def readers(self, topic: int, last: bytes) -> Readers:
        """Where one waits to read a topic. :param last: as for `Readers`"""
        readers = self._readers.get(topic)
        if readers is None:
            of = topic, 0
            readers = self._readers[topic] = Readers(of, last, self._named, self._drop_readers)
            readers.closing = self.draining
            self._by_last[last] = readers
            self._listen(self.heard)
        return readers

    def row(self, of: Of, key: bytes) -> Row:
        """Where one waits for a change of a row of the catalog."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(of, key, self._drop_row)
            row.closing = self.draining
            self._listen(self.heard)
        return row

    def taken_from(self, topic: int) -> list[int]:
        """Groups of a topic for which somebody waits."""
        return list(self._lines.get(topic, ()))

    def is_taken_from(self, topic: int, group: int) -> bool:
        """Whether somebody waits for a group."""
        lines = self._lines.get(topic)
        return lines is not None and group in lines

    def is_awaited(self, topic: int) -> bool:
        """Whether somebody waits for messages of a topic, to read or to take them."""
        return topic in self._readers or topic in self._lines

    def heard(self, layer: Layer) -> None:
        """A commit is in flight: who reads a topic that has got messages by it, or that is gone
        with it, or one of whose readers is, looks again; who reads by a reader that it moves back
        does too, and who waits for a row that it changes."""
        by_last, writes, rows = self._by_last, layer.writes, self._rows
        if rows:
            changed = {key for start, end in layer.ranges for key in rows if start <= key < end} | (
                rows.keys() & writes.keys()
            )
            for key in changed:
                rows[key].look_again()
        for key in by_last.keys() & writes.keys():
            value = writes[key]
            by_last[key].wake(limits.INT_MAX if value is None else unpack_counter(value)[0])
        for key in self._named.keys() & writes.keys():
            value = writes[key]
            position = 0 if value is None else keys.unpack_counter(value)
            for wait in [each for each in self._named[key] if each.after > position]:
                self._readers[wait.queue.of[0]].moved(wait)
        for key, value in writes.items():
            topic = topic_of_reader(key) if value is None else None
            if topic in self._readers:
                self._readers[topic].wake(limits.INT_MAX)
        for start, end in layer.ranges:
            for key in [key for key in by_last if start <= key < end]:
                by_last[key].wake(limits.INT_MAX)

    def published(self, topic: int) -> None:
        """A topic has got messages: who takes from it looks again."""
        for line in list(self._lines.get(topic, {}).values()):
            line.wake()

    def may_take(self, topic: int, group: int) -> None:
        """A group may have something to hand out: redelivered, or there is room again."""
        line = self._lines.get(topic, {}).get(group)
        if line is not None:
            line.wake()

    def taken_back(self) -> None:
        """Commits were taken back: what they had taken or trimmed is there again."""
        for topic in list(self._lines):
            self.published(topic)
        for readers in list(self._readers.values()):
            readers.wake(limits.INT_MAX)
        for row in list(self._rows.values()):
            row.look_again()

    def look_again(self) -> None:
        """Topics, groups, rights or roles have changed: all look whether they may still wait."""
        for each in self._all():
            each.look_again()

    def end(self) -> None:
        """All answer with what there is."""
        for each in self._all():
            each.end()

    def drain(self) -> None:
        """The same, and nobody waits from here on."""
        self.draining = True
        for each in self._all():
            each.closing = True
            each.end()

    def _all(self) -> Iterator[Line | Readers | Row]:
        for lines in list(self._lines.values()):
            yield from list(lines.values())
        yield from list(self._readers.values())
        yield from list(self._rows.values())

    def _drop_line(self, of: Of) -> None:
        topic, group = of
        lines = self._lines.get(topic, {})
        lines.pop(group, None)
        if not lines:
            self._lines.pop(topic, None)

    def _drop_readers(self, of: Of) -> None:
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
