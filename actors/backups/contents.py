"""Script contents: renders the data of a store as statements that recreate it.

Text is produced in parts, each about a millisecond's work. Small values are written as readable
literals. A large or deeply nested value is written in its stored binary form, as base64: that costs
no more than its bytes and meets no limit of a text.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from language.keywords import quote
from protocol import limits
from protocol.binary import check_counts, unpack, unpack_object
from protocol.errors import TooLarge
from protocol.text import format_record, format_value, quote_string
from protocol.values import instant
from storage.catalog.spaces import Space
from storage.catalog.tables import Table
from storage.keyspace.keyspace import LiveKey
from storage.records import records
from storage.topics.message_rows import MessageContent

READABLE_BYTES: Final = 16 * limits.KIB
"""Size, in bytes, above which a value is written in its stored form."""
READABLE_DEPTH: Final = 16
BATCH_BYTES: Final = 8 * limits.KIB
"""Packed size, in bytes, of the rows of an INSERT or the values of a PUBLISH, which are compiled in
one go."""
BATCH_ROWS: Final = 64
_PART_BYTES: Final = 192 * limits.KIB
"""Packed size, in bytes, of a part of a large value. A multiple of three, so that the base64 of the
parts can be concatenated."""
assert _PART_BYTES % 3 == 0


# --- records --------------------------------------------------------------------------------------


class RecordStatements:
    """Renders the records of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._address = records.record_id(table)
        self._rows: list[str] = []
        self._bytes = 0

    def add(self, key: bytes, raw: bytes) -> Iterator[str]:
        """Add a record. Yield the statements that are complete. :raises TooLarge: it can't be
        written"""
        record = self._address(key)
        if len(raw) <= READABLE_BYTES:
            fields = unpack_object(raw)
            if not _is_deep(fields):
                self._rows.append(format_value({"id": record.id, **fields}))
                self._bytes += len(raw)
                if self._bytes > BATCH_BYTES or len(self._rows) == BATCH_ROWS:
                    yield from self.remaining_statements()
                return
        yield from self.remaining_statements()
        name = format_record(record)
        yield from _check_loadable(raw, f"record {self._table.database.path}.{name}")
        yield f"CREATE {name} CONTENT "
        yield from _packed(raw)
        yield " RETURN NONE;\n"

    def remaining_statements(self) -> Iterator[str]:
        """Yield the statement of the remaining rows, if any."""
        if self._rows:
            rows = ",\n  ".join(self._rows)
            self._rows, self._bytes = [], 0
            yield f"INSERT INTO {quote(self._table.name)} [\n  {rows}\n] RETURN NONE;\n"


# --- messages -------------------------------------------------------------------------------------


class PublishStatements:
    """Renders the messages of a topic.

    :param topic: its name
    :param now_us: log time; due times before it are omitted
    """

    def __init__(self, topic: str, now_us: int) -> None:
        self._topic = quote(topic)
        self._now_us = now_us
        self._values: list[str] = []
        self._bytes = 0
        self._clauses = ""

    def add(self, content: MessageContent) -> Iterator[str]:
        """Add a message. Yield the statements that are complete. :raises TooLarge: it can't be
        written"""
        clauses = self._of(content)
        raw = content.value
        if len(raw) <= READABLE_BYTES and content.id is None:
            value = unpack(raw)
            if not _is_deep(value):
                if clauses != self._clauses:
                    yield from self.remaining_statements()
                self._clauses = clauses
                self._values.append(format_value(value))
                self._bytes += len(raw)
                if self._bytes > BATCH_BYTES or len(self._values) == BATCH_ROWS:
                    yield from self.remaining_statements()
                return
        yield from self.remaining_statements()
        yield from _check_loadable(raw, f"a message of topic {self._topic}")
        yield f"PUBLISH INTO {self._topic} VALUE "
        yield from _literal(raw)
        yield f"{clauses};\n"

    def remaining_statements(self) -> Iterator[str]:
        """Yield the statement of the remaining messages, if any."""
        if self._values:
            values = ",\n  ".join(self._values)
            said = f"VALUE {values}" if len(self._values) == 1 else f"VALUES [\n  {values}\n]"
            self._values, self._bytes = [], 0
            yield f"PUBLISH INTO {self._topic} {said}{self._clauses};\n"

    def _of(self, content: MessageContent) -> str:
        text = ""
        if content.key is not None:
            text += f" KEY {quote_string(content.key)}"
        if content.id is not None:
            text += f" ID {quote_string(content.id)}"
        if content.headers:
            text += f" HEADERS {format_value(content.headers)}"
        if content.due_us > self._now_us:
            text += f" AT {format_value(instant(content.due_us))}"
        return text


# --- keys -----------------------------------------------------------------------------------------


def set_key(space: Space, held: LiveKey) -> Iterator[str]:
    """Yield the statement that sets a key. :raises TooLarge: it can't be written"""
    yield from _check_loadable(held.content, f"key {quote_string(held.key)} of space {space.path}")
    yield f"SET {quote_string(held.key)} IN {quote(space.name)} VALUE "
    yield from _literal(held.content)
    if held.expires_us:
        yield f" EXPIRE AT {format_value(instant(held.expires_us))}"
    yield ";\n"


# --- values ---------------------------------------------------------------------------------------


def _literal(raw: bytes) -> Iterator[str]:
    if len(raw) <= READABLE_BYTES:
        value = unpack(raw)
        if not _is_deep(value):
            yield format_value(value)
            return
    yield from _packed(raw)


def _packed(raw: bytes) -> Iterator[str]:
    yield "m'"
    for start in range(0, len(raw), _PART_BYTES):
        yield base64.b64encode(raw[start : start + _PART_BYTES]).decode()
    yield "'"


def _is_deep(value: Any, depth: int = 0) -> bool:
    """True if a value nests deeper than readable text should."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return False
    if depth == READABLE_DEPTH:
        return True
    parts = value.values() if kind is dict else value
    return any(_is_deep(part, depth + 1) for part in parts)


def _check_loadable(raw: bytes, what: str) -> Iterator[str]:
    """Check that a request may hold a value this complex. :raises TooLarge: it may not"""
    try:
        for _ in check_counts(raw):
            yield ""
    except (TooLarge, ValueError) as error:
        raise TooLarge(
            f"{what} holds more arrays, objects or elements than a script can carry: take a"
            " snapshot instead",
            limit=limits.CONTAINERS,
        ) from error
