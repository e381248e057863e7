"""What indexes hold, made of the records where frames are replayed.

A frame says nothing of index entries. They follow from the records, so whoever reads the log makes
them: a log is a third as long where a table has three indexes, and what an entry looks like is the
business of the version that reads it. Where the frame was made they are changes like others, which
transactions see and are compared by, and which go to the engine with the records; the ledger leaves
them out of the frame, and nothing else.

A record that changes leaves the entries of what it was, as the engine has it, and enters those of
what it is. All that is left goes before anything enters. A claim is only left by the record that
holds it: another one may have taken it in the same frame, of which the engine may hold a part
already (`Ledger.settle`), and while an index is being built a record may have values that another
one has claimed. A record that the engine shows as it is after the frame has its entries there: of a
large commit all of them go to the engine before the first record does.

Ranges that are deleted stand in the frame, those of entries too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from storage import index_rows, keys
from storage.effects import SEQUENCE_BYTES, Derive
from storage.index_steps import together
from storage.indexes import BUILDING, FAILED, Entries, Index, Rows
from storage.layers import Layer
from storage.transactions import Transaction

Get = Callable[[bytes], bytes | None]
"""The value of a key as it was."""


Answer = TypeVar("Answer")


class Followed(NamedTuple):
    """A record before and after, with the stamps of its values; None: it is not there."""

    key: bytes
    before: bytes | None
    after: bytes | None


class Kept:
    """The indexes of a table that are kept."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._rows = Rows(indexes)
        self._all = [Entries(index, self._rows.heads) for index in indexes]

    def follow(
        self, changed: Sequence[Followed], get: Get
    ) -> Generator[None, None, dict[bytes, bytes | None]]:
        """Answers the entries that change with some records, in the order in which they are to be
        written; None: it goes. In steps, of one index each."""
        before = [(one.key, one.before) for one in changed if one.before is not None]
        after = [(one.key, one.after) for one in changed if one.after is not None]
        old_columns, old_ids = self._columns(before)
        new_columns, new_ids = self._columns(after)
        left: list[tuple[bytes, bytes]] = []
        entered: dict[bytes, bytes | None] = {}
        for entries in self._all:
            yield
            old, old_count = entries.of_many(old_columns, old_ids)
            new, new_count = entries.of_many(new_columns, new_ids)
            if len(old) < old_count or len(new) < new_count:
                # Two of them have the same claim: one of them holds it, or neither.
                for one in changed:
                    self._one(entries, one, left, entered)
                continue
            left += [(entry, holder) for entry, holder in old.items() if entry not in new]
            entered |= {entry: holder for entry, holder in new.items() if old.get(entry) != holder}
        gone = [entry for entry, holder in left if _holds(get, entry, holder)]
        return {**dict.fromkeys(gone), **entered}

    def of_range(self, tx: Transaction, derive: Derive) -> Iterator[None]:
        """Put what the build of an index had put: the entries of a range of records as they are
        after the frame. In steps, as the build does."""
        for entries in self._all:
            if entries.index.entries == derive.prefix:
                for pairs in tx.scan(derive.start, derive.end):
                    for some in together(pairs):
                        yield from _put(tx.own, entries, *self._columns(some))

    def of_loaded(
        self, pairs: Sequence[tuple[bytes, bytes]], reached: Mapping[bytes, bytes]
    ) -> dict[bytes, bytes]:
        """The entries of records that are put into an empty state.

        Of an index that is being built, those that its build has visited: it visits the others.

        :param pairs: records in the order of their keys
        :param reached: by where builds note how far they are: the id of the last record visited
        """
        found: dict[bytes, bytes] = {}
        for entries in self._all:
            index, visited = entries.index, pairs
            if index.state == BUILDING:
                last = reached.get(index.build)
                if last is None:
                    continue
                border = pairs[0][0][: keys.RECORD_PREFIX_BYTES] + last
                visited = [pair for pair in pairs if pair[0] <= border]
            found |= entries.of_many(*self._columns(visited))[0]
        return found

    def _columns(
        self, pairs: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[list[object]], list[bytes]]:
        """What `Entries.of_many` asks for."""
        columns = self._rows.of_stored([value for _, value in pairs])
        return columns, [key[keys.RECORD_PREFIX_BYTES :] for key, _ in pairs]

    def _one(
        self,
        entries: Entries,
        one: Followed,
        left: list[tuple[bytes, bytes]],
        entered: dict[bytes, bytes | None],
    ) -> None:
        old, new = (
            self._entries(entries, one.key, one.before),
            self._entries(entries, one.key, one.after),
        )
        left += [(entry, holder) for entry, holder in old.items() if entry not in new]
        entered |= {entry: holder for entry, holder in new.items() if entry not in old}

    def _entries(self, entries: Entries, key: bytes, value: bytes | None) -> dict[bytes, bytes]:
        if value is None:
            return {}
        row = self._rows.of_packed(value[SEQUENCE_BYTES:])
        return entries.of(row, key[keys.RECORD_PREFIX_BYTES :])


def at_once(steps: Generator[None, None, Answer]) -> Answer:
    """What steps answer where nobody waits meanwhile."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def _put(
    layer: Layer, entries: Entries, columns: list[list[object]], ids: list[bytes]
) -> Iterator[None]:
    for found, _ in entries.in_steps(columns, ids):
        layer.write_all(found)
        layer.size += sum(map(len, found)) + sum(map(len, found.values()))
        yield


def _holds(get: Get, entry: bytes, holder: bytes) -> bool:
    """Whether an entry is the record's own: all are that have its id in their key."""
    return len(holder) <= 1 or get(entry) == holder


def kept(tx: Transaction, prefix: bytes) -> Kept | None:
    """The indexes that are kept of the table whose records have keys with this prefix; None: it has
    none."""
    declared = index_rows.each(tx, *keys.table_of(prefix))
    coming = [one for index in declared if (one := index_rows.successor(index)) is not None]
    found = [index for index in (*declared, *coming) if index.state != FAILED]
    return Kept(found) if found else None
