"""What there is to say of a store that was a file: whether its catalog can be read, and what time
has brought to it, which a node does something about as soon as it takes writes: old messages go,
keys that have expired are removed, hand-outs whose deadline has passed are handed out again.

Nothing is changed here. Whoever restores a store of last year looks at it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.values import unpaced
from storage import catalog, functions, replicas, revocations, topics, users, vaults
from storage.groups import groups
from storage.hand_outs import HandOuts
from storage.message_rows import MessageRows
from storage.spaces import Keys
from storage.topics import Place, Topic
from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Awaiting:
    """What is due in one topic or cache space."""

    path: str
    messages: int = 0
    """Older than the topic keeps them."""
    keys: int = 0
    """That have expired."""
    hand_outs: int = 0
    """Whose deadline has passed, of all groups of the topic."""

    def __bool__(self) -> bool:
        return bool(self.messages or self.keys or self.hand_outs)


def look_through(tx: Transaction) -> None:
    """Read the catalog, all of it, as a node does that looks something up. What can't be read
    raises as it comes."""
    for database in catalog.every_database(tx, unpaced):
        for topic in topics.each_topic(tx, database, unpaced):
            groups(tx, topic)
        for each in (catalog.tables, catalog.spaces, functions.each, vaults.each):
            for _ in each(tx, database, unpaced):
                pass
    for _ in users.everyone(tx):
        pass
    replicas.every(tx)
    for _ in revocations.every(tx):
        pass


def awaiting(tx: Transaction) -> Iterator[Awaiting]:
    """What is due by the log time of a transaction, for each topic and space in which there is
    anything."""
    for database in catalog.every_database(tx, unpaced):
        found = [
            Awaiting(space.path, keys=Keys(tx, space).count_due())
            for space in catalog.spaces(tx, database, unpaced)
        ]
        found += [_of_topic(tx, topic) for topic in topics.each_topic(tx, database, unpaced)]
        yield from filter(None, found)


def _of_topic(tx: Transaction, topic: Topic) -> Awaiting:
    hand_outs = sum(HandOuts(tx, group).overdue() for group in groups(tx, topic))
    return Awaiting(topic.path, _too_old(tx, topic), hand_outs=hand_outs)


def _too_old(tx: Transaction, topic: Topic) -> int:
    if topic.keep_us is None:
        return 0
    rows = MessageRows(tx, topic)
    kept = rows.position_at(Place("TIME", tx.now_us - topic.keep_us + 1))
    return kept - rows.trimmed()[0]
