"""The statement log and the audit trail: who changed what and why, who was refused what, who came.

Entries are no effects. A frame says who made it, how and why, and as its `Entry` what is to be kept
of that; the rows are folded from the frame, at its commit and at each replay alike. Refused rights
and sign-ins change nothing: theirs are frames without effects.

A row stands under the sequence of its commit. The two have ranges of their own, so that what is
changed by the thousand does not push out who was let in.

What happened at a node that could not commit it, a follower say, is committed later, mostly by
another. How it came then says where and when as well: `elsewhere`. It stands in that text, and in
no field of its own, so that every version folds the same row of it: nodes of two versions hold one
store while they are upgraded, and their states are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from protocol import limits
from protocol.values import instant
from storage import keys
from storage.effects import Attribution
from storage.entries import Entry
from storage.transactions import Transaction

STATEMENTS: Final = 1
AUDIT: Final = 2
"""Where an entry is kept; `Entry.kept` is a sum of them."""
_TAGS: Final = {STATEMENTS: keys.STATEMENT, AUDIT: keys.AUDIT}


class _Row(msgspec.Struct, frozen=True, array_like=True):
    time_us: int
    by: str
    how: str
    statement: str | None
    reason: str | None
    entry: Entry


class _Came(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a `_Row`: the rest, which has the text, is passed over."""

    time_us: int
    by: str
    how: str


class Kept(msgspec.Struct, frozen=True):
    """An entry as it is read back."""

    sequence: int
    """Of its commit."""
    at: datetime
    """Log time."""
    user: str
    surface: str
    node: str | None
    """The id of the node that it happened at; None: that committed it, at that moment."""
    happened: datetime | None
    """When, by that node's clock; None likewise."""
    statement: str | None
    """Its text with secrets taken out; None where there was none."""
    reason: str | None
    entry: Entry

    def without_place(self) -> Kept:
        """The same without the place that it stood in."""
        return structs.replace(
            self, entry=structs.replace(self.entry, namespace=None, database=None)
        )


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Row)
_came_decoder: Final = msgspec.msgpack.Decoder(_Came)


def rows(sequence: int, time_us: int, who: Attribution) -> dict[bytes, bytes]:
    """What a frame leaves in the statement log and the audit trail."""
    entry = who.entry
    if entry is None:
        return {}
    # The fields of a `_Row`, which nobody else needs: every change of the store passes here.
    row = _encoder.encode((time_us, who.by, who.how, who.statement, who.reason, entry))
    if entry.kept == STATEMENTS:
        return {keys.kept(keys.STATEMENT, sequence): row}
    return {keys.kept(tag, sequence): row for kept, tag in _TAGS.items() if entry.kept & kept}


def elsewhere(surface: str, node: str, at_us: int) -> str:
    """How something came that happened at another node, or earlier, than it is committed.

    :param at_us: by the wall clock of that node
    """
    return f"{surface} {node} {at_us}"


def after(entry: Entry, more: int) -> Entry:
    """An entry before which so many like it were not kept."""
    return structs.replace(entry, more=more)


def of_store(entry: Entry) -> Entry:
    """An entry that touched the store itself, as far as is shown: its owner's to see."""
    return structs.replace(entry, places=((),))


def bounded(entry: Entry) -> Entry:
    """An entry no longer than a node takes it from another."""
    most = limits.ENTRY_NAME_CHARACTERS
    if len(entry.places) > limits.ENTRY_PLACES:
        entry = of_store(entry)
    return structs.replace(
        entry,
        request=entry.request[:most],
        address=entry.address[:most],
        namespace=cut(entry.namespace, most),
        database=cut(entry.database, most),
        needs=cut(entry.needs, most),
    )


def cut(text: str | None, most: int) -> str | None:
    """A text of so many characters at most."""
    return None if text is None else text[:most]


def newest(tx: Transaction, where: int, before: int | None = None) -> Iterator[list[Kept]]:
    """Entries with the newest first, some at a time.

    :param where: STATEMENTS or AUDIT
    :param before: only those of commits before that one
    """
    start, end = keys.all_kept(_TAGS[where])
    if before is not None:
        end = min(end, keys.kept(_TAGS[where], before))
    for pairs in tx.scan(start, end, reverse=True):
        yield [_kept(key, value) for key, value in pairs]


def _kept(key: bytes, value: bytes) -> Kept:
    row = _decoder.decode(value)
    surface, node, happened = _how(row)
    return Kept(
        keys.kept_sequence(key),
        instant(row.time_us),
        row.by,
        surface,
        node,
        happened,
        row.statement,
        row.reason,
        row.entry,
    )


def _how(row: _Row | _Came) -> tuple[str, str | None, datetime | None]:
    """The surface, and what `elsewhere` says beside it."""
    if " " not in row.how:
        return row.how, None, None
    surface, node, at_us = row.how.split(" ")
    return surface, node, instant(int(at_us))


def oldest(tx: Transaction, where: int, after: int, upto: int) -> Iterator[list[int]]:
    """The sequences of entries with the oldest first, some at a time.

    :param where: as above
    :param after: only those of commits after that one, and up to `upto`
    """
    tag = _TAGS[where]
    for pairs in tx.scan(keys.kept(tag, after + 1), keys.kept(tag, upto + 1)):
        yield [keys.kept_sequence(key) for key, _ in pairs]


class Maker(NamedTuple):
    """Whose an entry is, from the outermost on: how the room for the two is shared out. That of the
    statement log is shared out between nodes alone: the rest is empty there."""

    node: str
    """Where it happened; empty: where it was committed. A node that makes up entries has the room
    of one node, and takes none of the others'."""
    namespace: int
    database: int
    """Ids of the place that all it touched lies in; 0: none is around all of that."""
    turned_away: bool
    """Whether it is of somebody who was not let in, under the name of a user."""
    user: str


def makers(tx: Transaction, where: int, upto: int) -> Iterator[list[tuple[Maker, int]]]:
    """Whose the entries are, and their sequences, with the oldest first, some at a time.

    :param where: as above
    :param upto: only those of commits up to that one
    """
    tag, maker = _TAGS[where], _maker if where == AUDIT else _node_alone
    start, _ = keys.all_kept(tag)
    for pairs in tx.scan(start, keys.kept(tag, upto + 1)):
        yield [(maker(value), keys.kept_sequence(key)) for key, value in pairs]


def _node_alone(value: bytes) -> Maker:
    return Maker(_how(_came_decoder.decode(value))[1] or "", 0, 0, turned_away=False, user="")


def _maker(value: bytes) -> Maker:
    row = _decoder.decode(value)
    entry = row.entry
    first = entry.places[0]
    depth = len(first)
    for place in entry.places[1:]:
        while place[:depth] != first[:depth]:
            depth -= 1
    namespace, database = (*first[:depth], 0, 0)[:2]
    turned_away = entry.action is not None and entry.refused is not None
    return Maker(_how(row)[1] or "", namespace, database, turned_away, row.by)


def forget_each(tx: Transaction, where: int, sequences: Iterable[int]) -> None:
    """Remove the entries of these commits. :param where: as above"""
    for sequence in sequences:
        tx.delete(keys.kept(_TAGS[where], sequence))


def forget(tx: Transaction, where: int, first: int, last: int) -> None:
    """Remove the entries of all commits from one to another. :param where: as above"""
    tx.delete_range(keys.kept(_TAGS[where], first), keys.kept(_TAGS[where], last + 1))
