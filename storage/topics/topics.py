"""Topics: declaration, look-up, removal. `messages.py` has their messages.

A topic is a sequence of messages with dense positions from 1. Positions are assigned at the commit
(see `appends.py`), so transactions that publish to the same topic don't conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from protocol import binary, limits
from protocol.errors import AlreadyExists, BadRequest, StillHeld, TooLarge
from protocol.text import check_name
from protocol.values import Tick, unpaced
from storage.catalog.on_change import unpack_on_change
from storage.catalog.places import (
    Database,
    IfExists,
    absent,
    check_comment,
    declared_of,
    each_named,
)
from storage.formats import keys
from storage.txn.appends import NUMBER, unpack_counter
from storage.txn.ids import next_id

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction

Full = Literal["DROP", "REFUSE"]


@dataclass(frozen=True, slots=True)
class Topic:
    """A declared topic. `dataclasses.replace` and `alter_topic` change its settings."""

    id: int
    database: Database
    name: str
    keep_us: int | None = None
    """Age (µs) after which messages are trimmed; None: never."""
    max_bytes: int | None = None
    """Maximum bytes of all messages together, and so of each; None: unbounded.

    Dead letters are accepted at any size, and the newest message is never trimmed for its size.
    """
    largest: int = limits.MESSAGE_BYTES
    """Maximum bytes of one message as stored."""
    dedup_us: int | None = None
    """Deduplication window (µs) for message ids; None: ids are stored but not compared."""
    full: Full = "DROP"
    """Behaviour past `max_bytes`: trim the oldest messages, or refuse the publish."""
    comment: str | None = None
    messages: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its messages."""
    last: bytes = field(default=b"", repr=False, compare=False)
    """Key of its position counter."""
    trimmed: bytes = field(default=b"", repr=False, compare=False)
    """Key of its last trimmed position."""
    ids: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of remembered message ids."""
    id_times: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of the same ids by time."""
    readers: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its readers."""

    @property
    def path(self) -> str:
        """Path as users write it: `ns.db.topic`."""
        return f"{self.database.path}.{self.name}"

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Ids of namespace, database and topic."""
        return self.database.namespace.id, self.database.id, self.id


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Start position of a reader or a group."""

    kind: Literal["START", "END", "AFTER", "TIME"] = "START"
    """Before the first message held; at the last position; after position `value`; before the first
    message whose `at` is `value` or later."""
    value: int = 0
    """Position, or microseconds since 1970."""


START: Final = StartPosition("START")
END: Final = StartPosition("END")


# --- looking up ---------------------------------------------------------------------------------


def topic(tx: Transaction, database: Database, name: str) -> Topic:
    """Return the topic of that name in a database.

    :raises Unknown:
    """
    found = find_topic(tx, database, name)
    if found is None:
        raise absent("topic", f"{database.path}.{name}")
    return found


def find_topic(tx: Transaction, database: Database, name: str) -> Topic | None:
    """Return the topic of that name in a database, or None."""
    at = ("topic", database.id, name)
    found: Topic | None = tx.known(at)
    if found is None:
        value = tx.get(keys.topic(database.namespace.id, database.id, name))
        if value is not None:
            found = _unpacked(database, name, value)
            # An absent topic is not cached; its key is in the read set.
            tx.remember(at, found, *declared_of_topic(found))
    return found


def declared_of_topic(topic: Topic) -> tuple[bytes, ...]:
    """Return the declared keys that a topic depends on; see `catalog_cache.py`."""
    database = topic.database
    key = keys.topic(database.namespace.id, database.id, topic.name)
    return key, *declared_of(database)


def each_topic(tx: Transaction, database: Database, tick: Tick) -> Iterator[Topic]:
    """Yield the topics of a database by name, lazily, since there may be very many.

    :param tick: called for each
    """
    for name, value in each_named(tx, *keys.topics(database.namespace.id, database.id), tick):
        yield _unpacked(database, name, value)


# --- declaring ----------------------------------------------------------------------------------


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
    taken: IfExists = IfExists.REFUSE,
) -> Topic:
    """Declare a topic, as `places.define_namespace` does.

    An overwritten topic keeps its messages, readers and groups.

    :raises BadRequest: a duration or a size is out of range
    :raises TooLarge: as `alter_topic`
    """
    check_name(name, "topic")
    present = find_topic(tx, database, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(f"topic {present.path} exists", kind="topic", name=present.path)
        if taken is IfExists.SKIP:
            return present
    made = Topic(
        0 if present is None else present.id,
        database, name, keep_us, max_bytes, largest, dedup_us, full, comment,
    )  # fmt: skip
    _check(made)
    if present is None:
        made = replace(made, id=next_id(tx, keys.TOPIC_IDS))
    made = _placed(made)
    if present is None:
        _put(tx, made)
    else:
        alter_topic(tx, made)
    return made


def alter_topic(tx: Transaction, changed: Topic) -> None:
    """Store changed settings of a topic.

    :raises BadRequest: a duration or a size is out of range
    :raises TooLarge: the newest message exceeds BYTES: it was acknowledged, and would be trimmed
    """
    _check(changed)
    present = find_topic(tx, changed.database, changed.name)
    # A look at the newest message conflicts with publishers, so only when BYTES changes.
    if present is None or present.max_bytes != changed.max_bytes:
        _check_newest(tx, changed)
    _put(tx, changed)


def _check_newest(tx: Transaction, topic: Topic) -> None:
    if topic.max_bytes is None:
        return
    # Exact: a concurrent publish of a larger message must conflict.
    last, _ = unpack_counter(tx.appended(topic.last))
    newest = tx.get(topic.messages + NUMBER.pack(last))
    if newest is not None and len(newest) > topic.max_bytes:
        raise TooLarge(
            f"the newest message of topic {topic.path} takes {len(newest)} bytes, more than BYTES"
            f" {topic.max_bytes}",
            limit=topic.max_bytes,
            size=len(newest),
        )


def drop_topic(tx: Transaction, topic: Topic, tick: Tick = unpaced) -> None:
    """Drop a topic with its messages, readers and groups.

    :param tick: called for each table and group of its database
    :raises StillHeld: a group of another topic has it as DEAD LETTER, or a table as its ON CHANGE
    """
    database = topic.database
    # Both scans enter the read set: a concurrent declaration that names the topic conflicts.
    table = _published_by(tx, topic, tick)
    if table is not None:
        raise StillHeld(f"table {table} has {topic.name} as its ON CHANGE", table=table)
    holder = _dead_letters_of(tx, topic, tick)
    if holder is not None:
        raise StillHeld(
            f"group {holder[1]} on topic {holder[0]} has {topic.name} as its DEAD LETTER",
            topic=holder[0], group=holder[1],
        )  # fmt: skip
    # Range deletes: the size of the commit does not depend on the number of messages.
    for start, end in keys.in_topic(*topic.numbers):
        tx.delete_range(start, end)
    tx.delete(keys.topic(database.namespace.id, database.id, topic.name))


def _published_by(tx: Transaction, topic: Topic, tick: Tick) -> str | None:
    """Return the name of a table that publishes its changes to this topic, or None."""
    database = topic.database
    for name, value in each_named(tx, *keys.tables(database.namespace.id, database.id), tick):
        told = unpack_on_change(binary.unpack_object(value).get("on_change"))
        if told is not None and told.topic == topic.name:
            return name
    return None


def _dead_letters_of(tx: Transaction, topic: Topic, tick: Tick) -> tuple[str, str] | None:
    """Return the names of a topic and its group whose dead letter topic this is, or None."""
    database = topic.database
    numbers = (database.namespace.id, database.id)
    for key, value in tx.rows(*keys.of_all(keys.GROUP, *numbers), tick):
        number, name = keys.group_at(key)
        # A group of this topic goes with it, so it holds nothing back.
        if number != topic.id and binary.unpack_object(value)["dead_letter"] == topic.name:
            found = next(one for one in each_topic(tx, database, tick) if one.id == number)
            return found.name, name
    return None


def check_span(span_us: int | None, what: str) -> None:
    """Check a duration.

    :raises BadRequest: it is not positive, or over 1000 years
    """
    if span_us is not None and not 0 < span_us <= limits.SPAN_SECONDS * 1_000_000:
        raise BadRequest(f"{what} takes a duration over 0 and up to 1000 years")


def _check(topic: Topic) -> None:
    check_comment(topic.comment)
    check_span(topic.keep_us, "KEEP")
    check_span(topic.dedup_us, "DEDUP")
    if topic.max_bytes is not None and not 0 < topic.max_bytes <= limits.INT_MAX:
        raise BadRequest("BYTES takes a size over 0")
    if not 0 < topic.largest <= limits.MESSAGE_BYTES:
        raise BadRequest(
            f"LARGEST takes a size from 1 to {limits.MESSAGE_BYTES}", limit=limits.MESSAGE_BYTES
        )


def _put(tx: Transaction, topic: Topic) -> None:
    database = topic.database
    settings: dict[str, Any] = {
        "id": topic.id,
        "comment": topic.comment,
        "keep": topic.keep_us,
        "bytes": topic.max_bytes,
        "largest": topic.largest,
        "dedup": topic.dedup_us,
        "full": topic.full,
    }
    tx.put(keys.topic(database.namespace.id, database.id, topic.name), binary.pack(settings))


def _unpacked(database: Database, name: str, value: bytes) -> Topic:
    kept = binary.unpack_object(value)
    id = kept["id"]
    return Topic(
        id, database, name, kept["keep"], kept["bytes"], kept["largest"], kept["dedup"],
        kept["full"], kept["comment"], *_keys(database, id),
    )  # fmt: skip


def _placed(topic: Topic) -> Topic:
    """Return a topic with its key prefixes filled in."""
    messages, last, trimmed, ids, id_times, readers = _keys(topic.database, topic.id)
    return replace(
        topic, messages=messages, last=last, trimmed=trimmed, ids=ids, id_times=id_times,
        readers=readers,
    )  # fmt: skip


def numbered(database: Database, id: int) -> Topic:
    """Return the topic of that id, without name and settings, for access to its rows."""
    return _placed(Topic(id, database, ""))


def _keys(database: Database, id: int) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """Return the keys and key prefixes of a topic, in the order of its fields."""
    numbers = (database.namespace.id, database.id, id)
    return (
        keys.of_topic(keys.MESSAGE, *numbers),
        keys.of_topic(keys.TOPIC_LAST, *numbers),
        keys.of_topic(keys.TOPIC_TRIMMED, *numbers),
        keys.of_topic(keys.MESSAGE_ID, *numbers),
        keys.of_topic(keys.MESSAGE_ID_TIME, *numbers),
        keys.of_topic(keys.READER, *numbers),
    )


def topic_of_reader(key: bytes) -> int | None:
    """Return the topic id in the key of a reader's position; None for other keys."""
    # Keys of readers and of groups have the same fields before the name.
    return keys.group_at(key)[0] if key[keys.TAG_AT] == keys.READER else None
