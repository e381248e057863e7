"""Logical dump: a store as a script, text of the language that creates it again.

The order is: namespaces and databases; then for each database its analyzers, tables, topics, spaces
and functions, without rules, bounds and feeds that would act on loaded data. Records follow, with
the fields and indexes of each table after them; then messages, readers and groups; keys; and the
final options of tables. A script of the whole store ends with users and grants. Everything is
declared IF NOT EXISTS, except statements that overwrite a declaration of the same script.

The head of the script lists the parts of the store that it can't carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from actors.backups import declarations
from actors.backups.contents import PublishStatements, RecordStatements, set_key
from actors.rights import Rights
from language import tree
from language.printing import print_statement
from protocol import limits
from protocol.binary import pack
from protocol.text import format_datetime
from protocol.values import Tick, paced
from protocol.version import VERSION
from storage.backups.scripts import BEGINS, ScriptEncoder
from storage.catalog import analyzers, functions, restores, users
from storage.catalog import places as catalog_places
from storage.catalog import spaces as catalog_spaces
from storage.catalog import tables as catalog_tables
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.catalog.tables import Table
from storage.indexes.entries import FAILED
from storage.keyspace.keyspace import SpaceKeys
from storage.records import records
from storage.topics import groups, topics
from storage.topics.deliveries.expiry import DEAD_HEADERS
from storage.topics.message_rows import MessageContent, MessageRows, content
from storage.topics.messages import TopicMessages
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction
from storage.vaults import vaults

CHUNK_BYTES: Final = 64 * limits.KIB
"""Size of one chunk, characters, approximate: one or two milliseconds of work."""

Places = Sequence[Namespace | Database]
Text = Iterator[str]
"""Script text in parts, with a tick at each; empty parts exist only for their tick."""

NOT_CARRIED: Final = (
    "vaults and their secrets",
    "unacknowledged deliveries of groups: these messages are delivered again",
    "positions and times of messages: positions count from 1, and times are those of the load",
    "ids of earlier messages: one that is sent again is not recognised as a duplicate",
    "cluster topology: replicas, and revoked certificates",
    "held locks",
    "histories of records, the statement log and the audit trail",
    "roles and endpoints of the node",
)
"""Content that no script carries, as listed in its head."""
NOT_OF_PLACES: Final = "users and grants"
"""Content that a script of some namespaces or databases does not carry either."""


@dataclass(frozen=True, slots=True)
class About:
    """Origin of a script, as printed in its head."""

    store: str
    sequence: int
    """Last commit that the script contains."""


class StoreScript:
    """A script of one snapshot of the store.

    :param tx: reads that snapshot, until the last chunk
    :param tick: called for each declaration or entry, and each part of its text
    :param places: its content, for which the requester was authorized; None: the whole store
    """

    def __init__(
        self, tx: Transaction, about: About, tick: Tick, places: Places | None = None
    ) -> None:
        self._tx = tx
        self._about = about
        self._tick = tick
        self._each = partial(paced, tick=tick, every=1)
        self._places = places
        self._rights = Rights()
        self._bytes = ScriptEncoder()
        self.statements = 0
        """Statements written so far."""

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._bytes.size

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes in chunks of about `CHUNK_BYTES`.

        :raises TooLarge: the store holds something that no script can carry; a snapshot can
        """
        parts: list[str] = []
        size = 0
        for part in self._each(self._text()):
            parts.append(part)
            size += len(part)
            if size >= CHUNK_BYTES:
                yield self._bytes.add("".join(parts))
                parts.clear()
                size = 0
        yield self._bytes.add("".join(parts))
        yield self._bytes.end(self.statements)

    def _text(self) -> Text:
        every, left_out = self._databases()
        yield self._head(every, left_out)
        of_all = self._places is None
        spaces = (
            catalog_places.namespaces(self._tx, self._tick)
            if of_all
            else _namespaces(every, self._places or ())
        )
        for namespace in spaces:
            yield self._said(declarations.namespace(namespace))
        for database in every:
            yield self._said(declarations.database(database))
        for database in every:
            yield from self._database(database)
        if of_all:
            yield from self._users()

    # --- head of the script -----------------------------------------------------------------------

    def _databases(self) -> tuple[list[Database], list[Database]]:
        """Return the databases that the script contains, and those left out because a restore has
        not finished them."""
        tx = self._tx
        places = catalog_places.namespaces(tx, self._tick) if self._places is None else self._places
        found: dict[int, Database] = {}
        for place in places:
            some = (
                catalog_places.databases(tx, place, self._tick)
                if isinstance(place, Namespace)
                else [place]
            )
            found |= {one.id: one for one in some}
        finished: list[Database] = []
        unfinished: list[Database] = []
        for one in self._each(found.values()):
            (unfinished if restores.is_unfinished(tx, one) else finished).append(one)
        return finished, unfinished

    def _secrets(self, every: list[Database]) -> Iterator[str]:
        """Yield each vault, with the number of its secrets, which the script does not carry."""
        for database in every:
            for vault in vaults.each(self._tx, database, self._tick):
                yield f"vault {vault.path}, with {vaults.count(self._tx, vault)} secrets"

    def _head(self, every: list[Database], left_out: list[Database]) -> str:
        about = self._about
        lines = [
            f"version {VERSION}",
            f"store {about.store}",
            f"sequence {about.sequence}",
            f"time {format_datetime(self._tx.now)}",
            f"places: {_named(self._places)}",
            *(f"left out, because it was being restored: {one.path}" for one in left_out),
            *(f"not carried: {what}" for what in NOT_CARRIED),
            *(f"not carried: {held}" for held in self._secrets(every)),
        ]
        if self._places is not None:
            lines.append(f"not carried: {NOT_OF_PLACES}")
        return BEGINS + "".join(f"-- {line}\n" for line in lines)

    def _said(self, statement: tree.Statement) -> str:
        return self._written(f"{print_statement(statement)};\n")

    def _written(self, statement: str) -> str:
        self.statements += 1
        return statement

    def _counted(self, parts: Iterable[str]) -> Text:
        """Count statements that come in parts: the last part of each ends its line."""
        for part in parts:
            if part.endswith(";\n"):
                self.statements += 1
            yield part

    # --- databases --------------------------------------------------------------------------------

    def _database(self, database: Database) -> Text:
        tx = self._tx
        yield self._said(tree.Use(database.namespace.name, database.name))
        tables = list(catalog_tables.tables(tx, database, self._tick))
        spaces = list(catalog_spaces.spaces(tx, database, self._tick))
        every = list(topics.each_topic(tx, database, self._tick))
        # First: expressions of fields and functions may name them.
        for analyzer in analyzers.each(tx, database, self._tick):
            yield self._said(declarations.analyzer(analyzer))
        for table in tables:
            yield self._said(declarations.table(table))
        for topic in every:
            yield self._said(declarations.topic(topic))
        for space in spaces:
            yield self._said(declarations.space(space))
        for function in declarations.functions(functions.each(tx, database, self._tick)):
            yield self._said(function)
        # What is empty has no text, so that there is a tick for each.
        for table in self._each(tables):
            yield from self._table(table)
        for topic in self._each(every):
            yield from self._topic(topic)
        for space in self._each(spaces):
            yield from self._space(space)
        for table in self._each(tables):
            made = declarations.table_as_it_is(table)
            if made is not None:
                yield self._said(made)

    def _table(self, table: Table) -> Text:
        rows = RecordStatements(table)
        for pairs in records.scan(self._tx, table):
            for key, raw in pairs:
                yield from self._counted(rows.add(key, raw))
                yield ""
        yield from self._counted(rows.remaining_statements())
        for field in table.fields:
            yield self._said(declarations.field(table, field))
        for index in table.indexes:
            if index.state == FAILED:
                yield f"-- left out, because it failed: index {index.name} on {table.name}\n"
            else:
                yield self._said(declarations.index(table, index))

    def _topic(self, topic: Topic) -> Text:
        tx, name = self._tx, topic.name
        rows, publishes = MessageRows(tx, topic), PublishStatements(name, tx.now_us)
        trimmed, newest = rows.trimmed()[0], 0
        for some in rows.each():
            for row in some:
                newest = len(row)
                whole = content(row)
                kept = _publishable(whole)
                if kept is not whole:
                    yield from self._counted(publishes.remaining_statements())
                    yield f"-- without dead-letter headers, which do not fit: message of {name}\n"
                yield from self._counted(publishes.add(kept))
                yield ""
        yield from self._counted(publishes.remaining_statements())
        bounded = topic.max_bytes is None or newest <= topic.max_bytes
        if not bounded:
            yield f"-- left out, because the newest message is larger: BYTES of {name}\n"
        made = declarations.topic_as_it_is(topic, bounded=bounded)
        if made is not None:
            yield self._said(made)
        for reader, position in TopicMessages(tx, topic).readers(self._tick):
            yield self._said(declarations.reader(topic, reader, max(position - trimmed, 0)))
        for group in groups.each(tx, topic, self._tick):
            done = groups.state_of(tx, group)[0].committed
            yield self._said(declarations.group(topic, group, max(done - trimmed, 0)))

    def _space(self, space: Space) -> Text:
        for held in SpaceKeys(self._tx, space).held():
            if held is not None:
                yield from self._counted(set_key(space, held))
            yield ""
        made = declarations.space_as_it_is(space)
        if made is not None:
            yield self._said(made)

    # --- users ------------------------------------------------------------------------------------

    def _users(self) -> Text:
        for user in users.everyone(self._tx, self._tick):
            yield self._said(declarations.user(user))
        for user in users.everyone(self._tx, self._tick):
            gone = self._rights.gone(self._tx, user)
            there = [grant for grant in user.grants if grant.securable not in gone]
            for made in declarations.grants(user, there):
                yield self._said(made)


def _named(places: Places | None) -> str:
    if places is None:
        return "the whole store"
    kinds = ("NAMESPACE " if isinstance(place, Namespace) else "" for place in places)
    return ", ".join(kind + place.path for kind, place in zip(kinds, places, strict=True))


def _namespaces(databases: list[Database], places: Places) -> list[Namespace]:
    """Return the namespaces of a script's content, those without any database among them."""
    every = [place for place in places if isinstance(place, Namespace)]
    every += [database.namespace for database in databases]
    return list({one.id: one for one in every}.values())


def _publishable(held: MessageContent) -> MessageContent:
    """Return a message that can be published: without dead-letter headers if they exceed the
    limits.

    A message whose own headers are at the limit has more of them once it is a dead letter.
    """
    headers = held.headers
    if len(headers) <= limits.HEADERS and len(pack(headers)) <= limits.HEADERS_BYTES:
        return held
    own = {name: text for name, text in headers.items() if name not in DEAD_HEADERS}
    return held._replace(headers=own)
