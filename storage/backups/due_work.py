"""Report of pending work in a restored store, without changing it.

Reads the whole catalog, then counts the work that a node does as soon as it takes writes. It trims
messages past their retention, expires cache keys, and redelivers messages past their ack deadline.
The backup of an old store has much of it, so operators read this report first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.values import unpaced
from storage.catalog import analyzers, functions, places, replicas, spaces, tables, users
from storage.keyspace.keyspace import SpaceKeys
from storage.topics import topics
from storage.topics.deliveries.expiry import overdue
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import groups
from storage.topics.message_rows import MessageRows
from storage.topics.topics import StartPosition, Topic
from storage.txn.transaction import Transaction
from storage.vaults import vaults


@dataclass(frozen=True, slots=True)
class PendingExpiry:
    """Counts of expired items in one topic or cache space."""

    path: str
    messages: int = 0
    """Messages past the topic's retention."""
    keys: int = 0
    """Cache keys past their expiry."""
    hand_outs: int = 0
    """Deliveries past their ack deadline, over all groups of the topic."""

    def __bool__(self) -> bool:
        return bool(self.messages or self.keys or self.hand_outs)


def read_whole_catalog(tx: Transaction) -> None:
    """Read the whole catalog as a serving node would. Errors of unreadable rows propagate."""
    for database in places.every_database(tx, unpaced):
        for topic in topics.each_topic(tx, database, unpaced):
            groups(tx, topic)
        # Generators: a row is read and decoded by the loop alone.
        for each in (tables.tables, spaces.spaces, functions.each, analyzers.each, vaults.each):
            for _ in each(tx, database, unpaced):
                pass
    for _ in users.everyone(tx):
        pass
    replicas.every(tx)
    for _ in replicas.each_revocation(tx):
        pass


def awaiting(tx: Transaction) -> Iterator[PendingExpiry]:
    """Yield the topics and cache spaces with expired items, as of the transaction's log time."""
    for database in places.every_database(tx, unpaced):
        found = [
            PendingExpiry(space.path, keys=SpaceKeys(tx, space).count_due())
            for space in spaces.spaces(tx, database, unpaced)
        ]
        found += [_of_topic(tx, topic) for topic in topics.each_topic(tx, database, unpaced)]
        # One database at a time bounds the list. A `PendingExpiry` without work is false.
        yield from filter(None, found)


def _of_topic(tx: Transaction, topic: Topic) -> PendingExpiry:
    hand_outs = sum(overdue(DeliveryIndex(tx, group)) for group in groups(tx, topic))
    return PendingExpiry(topic.path, _too_old(tx, topic), hand_outs=hand_outs)


def _too_old(tx: Transaction, topic: Topic) -> int:
    if topic.keep_us is None:
        return 0
    rows = MessageRows(tx, topic)
    # A message goes when its age reaches KEEP, so the first to stay is a µs younger.
    kept = rows.position_at(StartPosition("TIME", tx.now_us - topic.keep_us + 1))
    return kept - rows.trimmed()[0]
