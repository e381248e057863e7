"""A book with topics in it, for tests of their rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.values import unpaced
from storage.catalog import places
from storage.formats import keys
from storage.topics import groups, topics
from storage.topics.deliveries import acks, expiry, fetch
from storage.topics.deliveries import group as group_deliveries
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group
from storage.topics.messages import TopicMessages
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction
from tests.storage.books import Book
from tests.storage.queue_story import check_topic

SECOND = 1_000_000


def operate(index: DeliveryIndex, name: str, *arguments: Any, **named: Any) -> Any:
    """What an operation on hand-outs answers, by its name."""
    if name == "next_due_us":
        return index.next_due_us(*arguments, **named)
    modules = (fetch, acks, expiry, group_deliveries)
    (module,) = [module for module in modules if vars(module).get(name)]
    return getattr(module, name)(index, *arguments, **named)


class Queues:
    """Every call is a transaction; all that is stored is checked after each."""

    def __init__(self) -> None:
        self.book = Book()
        with self.book.begin_transaction() as tx:
            self.namespace = places.define_namespace(tx, "n")
            self.database = places.define_database(tx, self.namespace, "d")
            self.book.commit(tx)

    def do(self, work: Callable[[Transaction], Any]) -> Any:
        """What some work answers, committed."""
        with self.book.begin_transaction() as tx:
            answer = work(tx)
            if tx.size:
                self.book.commit(tx)
        self.book.durable()
        self.check()
        return answer

    def check(self) -> None:
        """What is stored fits together."""
        with self.book.begin_transaction() as tx:
            database = places.find_namespace(tx, "n") and places.find_database(
                tx, self.namespace, "d"
            )
            for topic in topics.each_topic(tx, self.database, unpaced) if database else ():
                check_topic(tx, topic)

    def topic(self, name: str = "t", **settings: Any) -> Topic:
        made: Topic = self.do(lambda tx: topics.define_topic(tx, self.database, name, **settings))
        return made

    def group(self, topic: Topic, name: str = "g", **settings: Any) -> Group:
        settings.setdefault("deadline_us", 10 * SECOND)
        made: Group = self.do(lambda tx: groups.define_group(tx, topic, name, **settings))
        return made

    def publish(self, topic: Topic, *values: Any, **named: Any) -> int:
        """The first position."""
        published = self.do(lambda tx: TopicMessages(tx, topic).publish(values, **named))
        first: int = published.first
        return first

    def read(self, topic: Topic, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.do(
            lambda tx: TopicMessages(tx, topic).read(after, limit)
        )
        return found

    def values(self, topic: Topic) -> list[Any]:
        return [message["value"] for message in self.read(topic)]

    def call(self, group: Group, method: str, *arguments: Any, **named: Any) -> Any:
        """What an operation on the group's hand-outs answers."""
        return self.do(lambda tx: operate(DeliveryIndex(tx, group), method, *arguments, **named))

    def take(self, group: Group, count: int = 1, member: str | None = None) -> list[Any]:
        """Values and receipts."""
        taken = self.call(group, "take", count, member)
        return [(message["value"], message["receipt"]) for message in taken]

    def figures(self, group: Group) -> tuple[int, ...]:
        """Handed out, committed, in flight, redelivered, dead lettered."""
        found = self.call(group, "figures")
        names = ("handed_out", "committed", "in_flight", "redelivered", "dead_lettered")
        return tuple(found[name] for name in names)

    def advance(self, seconds: float) -> None:
        self.book.clock.advance(int(seconds * SECOND))

    def stored(self) -> int:
        """How many keys the state holds."""
        with self.book.begin_transaction() as tx:
            return sum(len(pairs) for pairs in tx.scan(*keys.EVERYTHING))
