"""Statement log and audit trail: changes with their authors and reasons, refusals, and sign-ins.

Entries are no effects. A frame records its author, surface and reason, and as `Entry` the parts to
keep. The rows are derived from the frame (`trail_rows.py`). Refused privileges and sign-ins change
nothing, so they are frames without effects.

A row's key is the sequence of its commit. The two logs have separate ranges, so that thousands of
changes do not push out sign-ins.

An event at a node that can't commit it, for instance a follower, is committed later, mostly by
another node. Its `how` then includes node and time as well: `elsewhere`. That is a part of
the text, not a field, so that all versions derive the same row. During an upgrade nodes of two
versions share one store, and their states are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from protocol import limits
from protocol.values import instant
from storage.formats import keys
from storage.formats.entries import AUDIT, Entry
from storage.txn.trail_rows import TAGS
from storage.txn.transaction import Transaction


class _Row(msgspec.Struct, frozen=True, array_like=True):
    time_us: int
    by: str
    how: str
    statement: str | None
    reason: str | None
    entry: Entry


class _Came(msgspec.Struct, frozen=True, array_like=True):
    """First fields of a `_Row`, to decode without the text."""

    time_us: int
    by: str
    how: str


class LoggedEntry(msgspec.Struct, frozen=True):
    """Decoded entry."""

    sequence: int
    """Sequence of its commit."""
    at: datetime
    """Log time of the commit."""
    user: str
    surface: str
    node: str | None
    """Id of the node where it happened; None: the committing node, at the commit."""
    happened: datetime | None
    """Time by that node's clock; None: at the commit."""
    statement: str | None
    """Text of the statement without secrets; None: there was none."""
    reason: str | None
    entry: Entry

    def without_place(self) -> LoggedEntry:
        """Return the entry without its namespace and database."""
        return structs.replace(
            self, entry=structs.replace(self.entry, namespace=None, database=None)
        )


_decoder: Final = msgspec.msgpack.Decoder(_Row)
_came_decoder: Final = msgspec.msgpack.Decoder(_Came)


def elsewhere(surface: str, node: str, at_us: int) -> str:
    """Return the `how` of an event that is committed by another node, or later.

    :param at_us: time by that node's wall clock
    """
    return f"{surface} {node} {at_us}"


def after(entry: Entry, more: int) -> Entry:
    """Return an entry that reports `more` similar ones before it that were not kept."""
    return structs.replace(entry, more=more)


def of_store(entry: Entry) -> Entry:
    """Return an entry marked as concerning the store itself, visible to its owner only."""
    return structs.replace(entry, places=((),))


def bounded(entry: Entry) -> Entry:
    """Shorten an entry to the limits that nodes accept from each other."""
    most = limits.ENTRY_NAME_CHARACTERS
    # A shortened list would widen the circle of readers, so only store owners see the entry.
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
    """Cut a text to at most `most` characters."""
    return None if text is None else text[:most]


def newest(tx: Transaction, where: int, before: int | None = None) -> Iterator[list[LoggedEntry]]:
    """Yield entries, newest first, in batches.

    :param where: STATEMENTS or AUDIT
    :param before: only entries of commits before this one
    """
    start, end = keys.all_kept(TAGS[where])
    if before is not None:
        end = min(end, keys.kept(TAGS[where], before))
    for pairs in tx.scan(start, end, reverse=True):
        yield [_kept(key, value) for key, value in pairs]


def _kept(key: bytes, value: bytes) -> LoggedEntry:
    row = _decoder.decode(value)
    surface, node, happened = _how(row)
    return LoggedEntry(
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
    """Split a `how` into surface, node and time, the latter two from `elsewhere`."""
    # A surface and a node id contain no space, so `elsewhere` splits without escapes.
    if " " not in row.how:
        return row.how, None, None
    surface, node, at_us = row.how.split(" ")
    return surface, node, instant(int(at_us))


def oldest(tx: Transaction, where: int, after: int, upto: int) -> Iterator[list[int]]:
    """Yield the sequences of entries, oldest first, in batches.

    :param where: STATEMENTS or AUDIT
    :param after: only entries of commits after this one, up to `upto`
    """
    tag = TAGS[where]
    for pairs in tx.scan(keys.kept(tag, after + 1), keys.kept(tag, upto + 1)):
        yield [keys.kept_sequence(key) for key, _ in pairs]


class EntryOrigin(NamedTuple):
    """Origin of an entry, from the outermost level on, by which the retained space is shared out.

    In the statement log only `node` is used; the other fields are empty.
    """

    node: str
    """Node of the event; empty: the committing node. A node that forges entries uses up its own
    share only."""
    namespace: int
    database: int
    """Ids of the database, or of the namespace, that contains everything it touched; 0: none."""
    turned_away: bool
    """True if the client was refused sign-in under this user name."""
    user: str


def makers(tx: Transaction, where: int, upto: int) -> Iterator[list[tuple[EntryOrigin, int]]]:
    """Yield origins and sequences of entries, oldest first, in batches.

    :param where: STATEMENTS or AUDIT
    :param upto: only entries of commits up to this one
    """
    tag, maker = TAGS[where], _maker if where == AUDIT else _node_alone
    start, _ = keys.all_kept(tag)
    for pairs in tx.scan(start, keys.kept(tag, upto + 1)):
        yield [(maker(value), keys.kept_sequence(key)) for key, value in pairs]


def _node_alone(value: bytes) -> EntryOrigin:
    return EntryOrigin(_how(_came_decoder.decode(value))[1] or "", 0, 0, turned_away=False, user="")


def _maker(value: bytes) -> EntryOrigin:
    row = _decoder.decode(value)
    entry = row.entry
    first = entry.places[0]
    # The innermost place that contains all touched ones: their longest common prefix of ids.
    depth = len(first)
    for place in entry.places[1:]:
        while place[:depth] != first[:depth]:
            depth -= 1
    # Ids begin at 1, so 0 can stand for a level that no place is common to.
    namespace, database = (*first[:depth], 0, 0)[:2]
    # Without a proven password the user name is a claim, so it must not use up that user's share.
    turned_away = entry.action is not None and entry.refused is not None
    return EntryOrigin(_how(row)[1] or "", namespace, database, turned_away, row.by)


def forget_each(tx: Transaction, where: int, sequences: Iterable[int]) -> None:
    """Remove the entries of the given commits.

    :param where: STATEMENTS or AUDIT
    """
    for sequence in sequences:
        tx.delete(keys.kept(TAGS[where], sequence))


def forget(tx: Transaction, where: int, first: int, last: int) -> None:
    """Remove the entries of all commits in a range, both ends included.

    :param where: STATEMENTS or AUDIT
    """
    # One effect in the log for the whole run, however many entries it has.
    tx.delete_range(keys.kept(TAGS[where], first), keys.kept(TAGS[where], last + 1))
