"""Derived index entries: rebuilt from the records when frames are replayed.

A frame contains no index entries; every reader of the log derives them from the records. This makes
a log a third as long for a table with three indexes, and leaves the entry format to the reader's
version. Where a frame is made, entries are writes like others: transactions see them, validation
compares them, and the engine stores them with the records. Only the frame omits them.

A changed record leaves the entries of its old version, read from the engine, and enters those of
its new version. All leaving entries are deleted before any is entered. A claim (see `entries.py`)
is deleted only by the record that holds it. Another record may have taken it in the
same frame, of which the engine may already hold a part (`Ledger.apply_next`). While an index is
being built, a record may also have values that another one has claimed. If the engine already shows
the new version of a record, its entries are there: a large commit writes all entries before the
first record.

Range deletes are part of the frame, also those of entries.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

from storage.formats import keys
from storage.formats.effects import Derive
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes import index_rows
from storage.indexes.entries import (
    BUILDING,
    FAILED,
    Index,
    IndexedFields,
    IndexEntries,
    entries_of,
)
from storage.indexes.fresh_markers import FreshMarkers
from storage.txn.replay import Get, RecordVersions
from storage.txn.steps import together
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet

_ID_AT = keys.RECORD_PREFIX_BYTES


class MaintainedIndexes:
    """The maintained indexes of one table, during replay: `replay.TableIndexes`."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._rows = IndexedFields(indexes)
        self._all = [entries_of(index, self._rows.heads) for index in indexes]

    def follow(
        self, changed: Sequence[RecordVersions], get: Get
    ) -> Generator[None, None, dict[bytes, bytes | None]]:
        """Return the index entries that change with some records, in the order to write them; None:
        delete. Runs in steps of one index each."""
        before = [(one.key, one.before) for one in changed if one.before is not None]
        after = [(one.key, one.after) for one in changed if one.after is not None]
        old_columns, old_ids = self._columns(before)
        new_columns, new_ids = self._columns(after)
        left: list[tuple[bytes, bytes]] = []
        entered: dict[bytes, bytes | None] = {}
        for entries in self._all:
            yield
            if isinstance(entries, FreshMarkers):
                for one in changed:
                    entered |= entries.moved(
                        self._row(one.before), self._row(one.after), one.key[_ID_AT:]
                    )
                continue
            old, old_count = entries.of_many(old_columns, old_ids)
            new, new_count = entries.of_many(new_columns, new_ids)
            if len(old) < old_count or len(new) < new_count:
                # Two records have the same claim, which at most one of them holds.
                for one in changed:
                    self._one(entries, one, left, entered)
                continue
            left += [(entry, holder) for entry, holder in old.items() if entry not in new]
            # By holder too: a claim keeps its key when it passes to another of these records.
            entered |= {entry: holder for entry, holder in new.items() if old.get(entry) != holder}
        # Deletions first: a claim may pass from one record to another in the same frame.
        gone = [entry for entry, holder in left if _holds(get, entry, holder)]
        return {**dict.fromkeys(gone), **entered}

    def of_range(self, tx: Transaction, derive: Derive) -> Iterator[None]:
        """Write the entries that an index build wrote: those of a range of records as they are
        after the frame. Runs in steps, as the build does."""
        for entries in self._all:
            if entries.index.entries == derive.prefix:
                for pairs in tx.scan(derive.start, derive.end):
                    for some in together(pairs):
                        yield from _put(tx.own, entries, *self._columns(some))

    def of_loaded(
        self, pairs: Sequence[tuple[bytes, bytes]], reached: Mapping[bytes, bytes]
    ) -> dict[bytes, bytes]:
        """Return the entries of records that are loaded into an empty state.

        For an index under construction, only of the records that its build has visited; it visits
        the others later.

        :param pairs: records in key order
        :param reached: by progress key of a build, the encoded id of the last record visited
        """
        found: dict[bytes, bytes] = {}
        for entries in self._all:
            index, visited = entries.index, pairs
            if index.state == BUILDING:
                last = reached.get(index.build)
                if last is None:
                    continue
                # Records behind it get their entries from the build, which checks their claims.
                border = pairs[0][0][: keys.RECORD_PREFIX_BYTES] + last
                visited = [pair for pair in pairs if pair[0] <= border]
            found |= entries.of_many(*self._columns(visited))[0]
        return found

    def _columns(
        self, pairs: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[list[object]], list[bytes]]:
        """Decode the arguments of `IndexEntries.of_many`."""
        columns = self._rows.of_stored([value for _, value in pairs])
        return columns, [key[keys.RECORD_PREFIX_BYTES :] for key, _ in pairs]

    def _row(self, value: bytes | None) -> list[object] | None:
        return None if value is None else self._rows.of_packed(value[SEQUENCE_BYTES:])

    def _one(
        self,
        entries: IndexEntries,
        one: RecordVersions,
        left: list[tuple[bytes, bytes]],
        entered: dict[bytes, bytes | None],
    ) -> None:
        old, new = (
            self._entries(entries, one.key, one.before),
            self._entries(entries, one.key, one.after),
        )
        left += [(entry, holder) for entry, holder in old.items() if entry not in new]
        # Both versions are of one record, so equal keys have equal values.
        entered |= {entry: holder for entry, holder in new.items() if entry not in old}

    def _entries(
        self, entries: IndexEntries, key: bytes, value: bytes | None
    ) -> dict[bytes, bytes]:
        if value is None:
            return {}
        row = self._rows.of_packed(value[SEQUENCE_BYTES:])
        return entries.of(row, key[keys.RECORD_PREFIX_BYTES :])


def _put(
    write_set: WriteSet,
    entries: IndexEntries | FreshMarkers,
    columns: list[list[object]],
    ids: list[bytes],
) -> Iterator[None]:
    for found, _ in entries.in_steps(columns, ids):
        # Not through the transaction and its limit: the commit has been accepted already.
        write_set.write_all(found)
        write_set.size += sum(map(len, found)) + sum(map(len, found.values()))
        yield


def _holds(get: Get, entry: bytes, holder: bytes) -> bool:
    """Return True if an entry is the record's own. Entries with the record id in their key always
    are."""
    # One byte is the length of an id. Every encoded id is longer, so this tells a claim.
    return len(holder) <= 1 or get(entry) == holder


def kept(tx: Transaction, prefix: bytes) -> MaintainedIndexes | None:
    """Return the maintained indexes of the table with this record prefix; None: it has none.

    A `replay.IndexesOf`.
    """
    declared = index_rows.each(tx, *keys.table_of(prefix))
    # Successors under construction are maintained from their declaration on.
    coming = [one for index in declared if (one := index_rows.successor(index)) is not None]
    found = [index for index in (*declared, *coming) if index.state != FAILED]
    return MaintainedIndexes(found) if found else None
