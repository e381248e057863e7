"""Topics in GET /metrics: the oldest topics each by name, all others as one sum.

A monitoring system keeps each series for weeks, so a scrape has a bounded number of series, and
always the same: those declared first. The sum does not read each of the others: their counters
stand side by side in the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import islice
from typing import Final

from protocol import limits
from protocol.values import Tick, paced
from storage.catalog.places import Database
from storage.topics import groups
from storage.topics.deliveries import expiry
from storage.topics.deliveries import group as group_deliveries
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.message_rows import NOTHING_HELD, TopicContents, held_by_all
from storage.topics.messages import TopicMessages, readers_of_all
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction

OTHERS: Final = "(others)"
"""Name of the summed series; no declaration can have it."""


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Figures of a consumer group for /metrics."""

    name: str
    lag: int
    pending: int
    waiting: int
    in_flight: int
    redelivered: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """Figures of a topic for /metrics."""

    namespace: str
    database: str
    name: str
    messages: int
    last_position: int
    readers: tuple[tuple[str, int], ...]
    """Names and lags."""
    groups: tuple[GroupFigures, ...]
    refused: int
    """Refusals of its due work."""


class Scrape:
    """Figures of topics, as one transaction reads them.

    :param refused: returns the refusals of due work of a topic, by its id
    :param tick: called for each item read: others may commit meanwhile
    """

    def __init__(self, tx: Transaction, refused: Callable[[int], int], tick: Tick) -> None:
        self._tx = tx
        self._refused = refused
        self._tick = tick
        # Budgets of the whole scrape, not of one topic.
        self._readers_left = self._groups_left = limits.METRICS_NAMED
        self._others = _Others()

    def figures(self, places: Iterable[tuple[Database, Iterable[Topic]]]) -> list[TopicFigures]:
        """Return the figures of the topics that may be shown, by database."""
        first: list[tuple[int, Topic]] = []  # a heap: the one that was declared last on top
        ids: list[tuple[Database, set[int]]] = []
        for database, topics in places:
            here: set[int] = set()
            for topic in topics:
                here.add(topic.id)
                # Ids grow with declarations. So the smallest are the oldest, and the names stay the
                # same.
                if len(first) < limits.METRICS_NAMED:
                    heappush(first, (-topic.id, topic))
                else:
                    heappushpop(first, (-topic.id, topic))
            ids.append((database, here))
        named = {topic.id: topic for _, topic in sorted(first, key=_by_id)}
        found = [self._of(topic) for topic in named.values()]
        for database, here in ids:
            here.difference_update(named)
            if here:
                self._add(database, here)
        return found + self._others.figures()

    def _of(self, topic: Topic) -> TopicFigures:
        tx, tick = self._tx, self._tick
        messages = TopicMessages(tx, topic)
        held = messages.held
        # Lazy: `islice` takes the named ones, and the loop behind it sums the rest.
        readers = ((name, held.lag(position)) for name, position in messages.readers(tick))
        shown = tuple(islice(readers, self._readers_left))
        self._readers_left -= len(shown)
        for _, lag in readers:
            self._others.add_reader(lag)
        every = (_of_group(DeliveryIndex(tx, one, tick)) for one in groups.each(tx, topic, tick))
        shared = tuple(islice(every, self._groups_left))
        self._groups_left -= len(shared)
        for figures in every:
            self._others.add_group(figures)
        return TopicFigures(
            topic.database.namespace.name,
            topic.database.name,
            topic.name,
            held.messages,
            held.last,
            shown,
            shared,
            self._refused(topic.id),
        )

    def _add(self, database: Database, ids: set[int]) -> None:
        """Add topics of a database to the sum."""
        tx, tick, others = self._tx, self._tick, self._others
        # One scan for each kind of counter, not one for each topic.
        held = held_by_all(tx, database, tick)
        for id in paced(ids, tick):
            others.add_topic(held.get(id, NOTHING_HELD), self._refused(id))
        for id, position in readers_of_all(tx, database, tick):
            if id in ids:
                others.add_reader(held.get(id, NOTHING_HELD).lag(position))
        for id, group, state in groups.standing_of_all(tx, database, tick):
            # The scan also meets groups of topics with series of their own.
            if id not in ids:
                continue
            overdue = 0
            # Only a deadline that has passed makes the stored count too high.
            if state.out and state.deadlines_from_us <= tx.now_us:
                index = DeliveryIndex(tx, groups.numbered(database, id, group), tick)
                overdue = expiry.overdue(index)
            last = held.get(id, NOTHING_HELD).last
            pending, out = state.pending(last), state.out - overdue
            others.add_group(
                GroupFigures(
                    OTHERS,
                    last - state.committed,
                    pending,
                    pending - out,
                    out,
                    state.redelivered,
                    state.dead_lettered,
                )
            )


def _by_id(entry: tuple[int, Topic]) -> int:
    return entry[1].id


def _of_group(index: DeliveryIndex) -> GroupFigures:
    figures = group_deliveries.figures(index)
    return GroupFigures(
        figures["name"],
        figures["lag"],
        figures["pending"],
        figures["waiting"],
        figures["in_flight"],
        figures["redelivered"],
        figures["dead_lettered"],
    )


_SUMMED: Final = ("lag", "pending", "waiting", "in_flight", "redelivered", "dead_lettered")


class _Others:
    """Sum of the topics, readers and groups without a series of their own."""

    def __init__(self) -> None:
        self._topics = self._messages = self._last = self._refused = 0
        self._readers = self._lag = self._groups = 0
        self._of_groups = Counter[str]()

    def add_topic(self, held: TopicContents, refused: int) -> None:
        self._topics += 1
        self._messages += held.messages
        self._last += held.last
        self._refused += refused

    def add_reader(self, lag: int) -> None:
        self._readers += 1
        self._lag += lag

    def add_group(self, figures: GroupFigures) -> None:
        self._groups += 1
        for name in _SUMMED:
            self._of_groups[name] += getattr(figures, name)

    def figures(self) -> list[TopicFigures]:
        """Return the sum as one entry; none where every item has its own series."""
        if not (self._topics or self._readers or self._groups):
            return []
        readers = ((OTHERS, self._lag),) if self._readers else ()
        summed = GroupFigures(OTHERS, *(self._of_groups[name] for name in _SUMMED))
        return [
            TopicFigures(
                OTHERS, OTHERS, OTHERS, self._messages, self._last,
                readers, (summed,) if self._groups else (), self._refused,
            )
        ]  # fmt: skip
