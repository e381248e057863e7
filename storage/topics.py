"""The rules of topics: declared, looked up, dropped. Their messages: `messages.py`.

A topic is an append-only row of messages with dense positions from 1. A position is given at the
commit (`Transaction.append`), so transactions that publish into one topic don't conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from protocol import limits
from storage.catalog import Database, Taken
from storage.transactions import Transaction

Full = Literal["DROP", "REFUSE"]


@dataclass(frozen=True, slots=True)
class Topic:
    """A declared topic. `dataclasses.replace` and `alter_topic` change its settings."""

    id: int
    database: Database
    name: str
    keep_us: int | None = None
    """Older messages are trimmed; None: none is too old."""
    max_bytes: int | None = None
    """What its messages may take together; None: any amount."""
    largest: int = limits.MESSAGE_BYTES
    """Bytes that one message may take as it is stored."""
    dedup_us: int | None = None
    """For how long ids are remembered; None: they stand in messages and are not compared."""
    full: Full = "DROP"
    """What happens past `max_bytes`: the oldest are trimmed, or a publish is refused."""
    comment: str | None = None

    @property
    def path(self) -> str:
        """How people write it: `ns.db.topic`."""
        return f"{self.database.path}.{self.name}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader or a group begins."""

    kind: Literal["START", "END", "AFTER", "TIME"] = "START"
    """Before the first message held; at the last position; after position `value`; before the
    first message whose `at` is `value` or later."""
    value: int = 0
    """A position, or microseconds since 1970."""


START: Final = Place("START")
END: Final = Place("END")


# --- looking up, declaring, dropping --------------------------------------------------------------


def topic(tx: Transaction, database: Database, name: str) -> Topic:
    """The topic of that name in a database. :raises Unknown:"""
    raise NotImplementedError


def find_topic(tx: Transaction, database: Database, name: str) -> Topic | None:
    """The topic of that name in a database, if there is one."""
    raise NotImplementedError


def topics(tx: Transaction, database: Database) -> list[Topic]:
    """The topics of a database, by name."""
    raise NotImplementedError


def define_topic(
    tx: Transaction,
    database: Database,
    name: str,
    *,
    keep_us: int | None = None,
    max_bytes: int | None = None,
    largest: int = limits.MESSAGE_BYTES,
    dedup_us: int | None = None,
    full: Full = "DROP",
    comment: str | None = None,
    taken: Taken = Taken.REFUSE,
) -> Topic:
    """Declare a topic, as `catalog.define_namespace` does. One that is overwritten keeps its
    messages, readers and groups.

    :raises BadRequest: a duration or a size out of its range
    """
    raise NotImplementedError


def alter_topic(tx: Transaction, changed: Topic) -> None:
    """Declare a topic that there is as it is here. :raises BadRequest, TooLarge: of its settings"""
    raise NotImplementedError


def drop_topic(tx: Transaction, topic: Topic) -> None:
    """Drop a topic with its messages, readers and groups.

    :raises StillHeld: a group of another topic has it as DEAD LETTER
    """
    raise NotImplementedError
