"""ON CHANGE: publishes the changes of a table as messages, in the same transaction (outbox).

The messages exist exactly when the change does. They are published with the privileges of the
writer, who needs WRITE on the topic too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from actors.redaction import redacted
from actors.scripts.authorizer import Authorizer
from language import tree
from language.error_places import add_remark, of_record
from protocol import limits
from protocol.binary import unpack_object
from protocol.errors import BadRequest, Refusal, TooLarge
from protocol.rights import WRITE
from protocol.text import format_record
from protocol.values import RecordId, Tick, Value, identical
from storage.catalog.on_change import OnChange
from storage.catalog.tables import Table
from storage.records import records
from storage.records.change_notes import Noted, take_noted
from storage.topics.messages import TopicMessages


def declared(node: tree.OnChange | None) -> OnChange | None:
    """Return the catalog form of an ON CHANGE clause.

    :raises BadRequest: a field is named twice, or `id` is, which never changes
    """
    if node is None or node.topic is None:
        return None
    for at, name in enumerate(node.fields):
        if name == "id":
            raise BadRequest("the id of a record never changes: ON CHANGE OF takes other fields")
        if name in node.fields[:at]:
            raise BadRequest(f"ON CHANGE OF names field {name} twice")
    return OnChange(node.topic, node.fields)


def announce(authorizer: Authorizer, tick: Tick) -> Iterator[TopicMessages]:
    """Publish the changes of the current statement, in the order in which they were written. Yield
    the messages of each table.

    :raises Unknown, NotAllowed: the caller may not publish into the topic
    :raises TooLarge, Full: the topic does not accept it
    """
    noted = take_noted(authorizer.tx)
    # Popped from the end: each change is freed as soon as it is published.
    noted.reverse()
    open_topics: dict[int, _Announcer] = {}
    while noted:
        tick()
        change = noted.pop()
        announcer = open_topics.get(change.table.id)
        if announcer is None:
            announcer = open_topics[change.table.id] = _Announcer(authorizer, change.table, tick)
        announcer.publish_change(change)
    for announcer in open_topics.values():
        if announcer.messages is not None:
            yield announcer.messages


class _Announcer:
    """Publishes the changes of one table."""

    def __init__(self, authorizer: Authorizer, table: Table, tick: Tick) -> None:
        assert table.on_change is not None, "what is noted is to be told"
        self._authorizer, self._table, self._on, self._tick = (
            authorizer, table, table.on_change, tick,
        )  # fmt: skip
        self._record = records.record_id(table)
        self.messages: TopicMessages | None = None
        """Messages in its topic; None: none so far."""

    def publish_change(self, change: Noted) -> None:
        """Publish one change, if it is one that ON CHANGE covers."""
        before = _unpacked(change.before)
        self._tick()  # either may be a megabyte and more
        after = _unpacked(change.after)
        comes_or_goes = before is None or after is None
        if self._on.fields:
            before, after = _parts(before, self._on), _parts(after, self._on)
        # Without OF each creation and deletion counts. With OF, one without those fields does not.
        may_be_same = bool(self._on.fields) or not comes_or_goes
        if may_be_same and identical(before or {}, after or {}, self._tick):
            return  # the same, perhaps in another order
        record = self._record(change.key)
        try:
            # Opened at the first change to publish: until then no WRITE on the topic is needed.
            if self.messages is None:
                topic = self._authorizer.topic(self._on.topic, WRITE)
                self.messages = TopicMessages(self._authorizer.tx, topic)
            told_of = [_value(record, before, after)]
            self.messages.publish(told_of, key=_key(record), tick=self._tick)
        except Refusal as refusal:
            add_remark(refusal, f"ON CHANGE of {self._table.name}")
            # Without READ the refusal names no record: WHERE may have selected it by content.
            if not self._authorizer.may_read(self._table):
                if isinstance(refusal, TooLarge):  # its size would disclose the record's old size
                    raise redacted(refusal, self._table.name, self._table.fields) from None
                raise
            raise of_record(refusal, record) from refusal.__cause__


def _unpacked(raw: bytes | None) -> dict[str, Any] | None:
    return None if raw is None else unpack_object(raw)


def _parts(fields: dict[str, Any] | None, on: OnChange) -> dict[str, Any] | None:
    if fields is None:
        return None
    return {name: fields[name] for name in on.fields if name in fields}


def _value(
    record: RecordId, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> dict[str, Value]:
    action = "create" if before is None else "delete" if after is None else "update"
    return {"action": action, "record": record, "before": before, "after": after}


def _key(record: RecordId) -> str:
    """Return the message key: equal for all changes of a record, so that a group ORDERED BY KEY has
    them in order."""
    name = format_record(record)
    if len(name.encode()) <= limits.MESSAGE_NAME_BYTES and "\0" not in name:
        return name  # else it can't be the key of a message
    return hashlib.sha256(name.encode()).hexdigest()
