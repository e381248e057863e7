"""Indexes declared, built, rebuilt and dropped.

An index is kept from the commit that declares it: every record written since has its entries. What
was there before is visited in the order of ids, a bounded number of records a commit, and the
commit that visits the last one makes the index ready. Each commit also says how far it came, so a
node that was killed goes on from there.

A UNIQUE index under construction refuses what it already knows to be taken. When the build meets a
record whose values another one has claimed, the index fails: its entries go, it is neither kept nor
read, and it says why until it is rebuilt or dropped.

An index that is in force and rebuilt stays in force: another one with a number of its own is built
beside it, both are kept, and the commit that visits the last record puts the new one in the place
of the old one. So what UNIQUE promised holds all the while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from protocol import binary, limits
from protocol.errors import CATALOGUE, AlreadyExists, BadRequest, Refusal, TooLarge
from protocol.paths import Path
from protocol.text import check_name
from storage import catalog, index_rows, indexes, keys, records
from storage.catalog import Table, Taken
from storage.effects import SEQUENCE_BYTES
from storage.engine import Pair
from storage.ids import next_id
from storage.index_steps import together
from storage.indexes import BUILDING, FAILED, READY, REBUILDING, Entries, Index, Rows
from storage.transactions import Transaction

_key: Final = itemgetter(0)
_value: Final = itemgetter(1)
_id: Final = itemgetter(slice(keys.RECORD_PREFIX_BYTES, None))


def define_index(
    tx: Transaction,
    table: Table,
    name: str,
    paths: Sequence[Path],
    *,
    unique: bool = False,
    comment: str | None = None,
    taken: Taken = Taken.REFUSE,
    tick: Callable[[], None] = lambda: None,
) -> Index:
    """Declare an index. On a table of at most `limits.INDEX_AT_ONCE` records it is built here,
    unless they make too much for that.

    One that is overwritten with the same fields keeps its entries.

    :raises AlreadyExists: the table has an index of that name
    :raises BadRequest: no field, a field twice, or the id, which needs no index
    :raises Duplicate: it is UNIQUE, and built here, and two records have the same values
    :raises NameRefused, TooLarge:
    """
    check_name(name, "index")
    catalog.check_comment(comment)
    _check_paths(paths)
    present = next((one for one in table.indexes if one.name == name), None)
    if present is not None:
        if taken is Taken.REFUSE:
            raise AlreadyExists(f"table {table.path} has an index {name}", kind="index", name=name)
        if taken is Taken.SKIP:
            return present
        if present.paths == tuple(paths) and present.unique == unique and present.state != FAILED:
            kept = replace(present, comment=comment)
            index_rows.put(tx, kept)
            return kept
        drop_index(tx, present)
    database = table.database
    key = keys.index(database.namespace.id, database.id, table.id, name)
    id = next_id(tx, keys.INDEX_IDS)
    made = Index(id, name, table.name, tuple(paths), unique, comment, BUILDING)
    return _begin(tx, table, index_rows.placed(key, made), tick)


def rebuild_index(
    tx: Transaction, table: Table, index: Index, tick: Callable[[], None] = lambda: None
) -> Index:
    """Begin an index anew. One that is in force stays so until the new one is complete.

    :raises Duplicate: as `define_index`
    """
    if not index.usable:
        _clear(tx, index)
        anew = replace(index, state=BUILDING, problem=None, anew=None)
        return _begin(tx, table, anew, tick)
    coming = index_rows.successor(index)
    if coming is not None:
        _clear(tx, coming)
    number = next_id(tx, keys.INDEX_IDS)
    return _begin(tx, table, replace(index, state=REBUILDING, anew=number), tick)


def drop_index(tx: Transaction, index: Index) -> None:
    """Drop an index with its entries."""
    _clear(tx, index)
    tx.delete(index.key)


def _clear(tx: Transaction, index: Index) -> None:
    """Its entries and how far it is built, and those of the one that was to take its place."""
    for one in (index, index_rows.successor(index)):
        if one is not None:
            tx.delete_range(*keys.within(one.entries))
            tx.delete(one.build)


def _begin(tx: Transaction, table: Table, declared: Index, tick: Callable[[], None]) -> Index:
    """Build an index that is BUILDING or REBUILDING, or leave that to the builder."""
    index_rows.put(tx, declared)
    index = _to_build(declared)
    assert index is not None
    if records.count(tx, table) > limits.INDEX_AT_ONCE or not _at_once(tx, table, index, tick):
        return declared
    tx.derive(index.entries, *keys.within(table.prefix))
    return _complete(tx, declared, index)


def _at_once(tx: Transaction, table: Table, index: Index, tick: Callable[[], None]) -> bool:
    """Visit all records; False: they make too many entries, and nothing was put."""
    visit, most = _Visit(tx, index), tx.size + limits.INDEX_AT_ONCE_BYTES
    for pairs in tx.scan(*keys.within(table.prefix)):
        for _ in visit.records(pairs):
            tick()
            if tx.size > most:
                tx.take_back(*keys.within(index.entries))
                return False
    return True


def _complete(tx: Transaction, declared: Index, index: Index) -> Index:
    """All records are visited. :param index: `declared` itself, or what takes its place"""
    if index.id != declared.id:
        _clear(tx, replace(declared, anew=None))
    ready = replace(index, state=READY)
    index_rows.put(tx, ready)
    return ready


def _check_paths(paths: Sequence[Path]) -> None:
    if not 1 <= len(paths) <= limits.INDEX_FIELDS:
        raise TooLarge(
            f"an index has 1 to {limits.INDEX_FIELDS} fields, not {len(paths)}",
            limit=limits.INDEX_FIELDS,
        )
    if len(set(paths)) < len(paths):
        raise BadRequest("an index names each field once")
    if any(path[0] == "id" for path in paths):
        raise BadRequest("records are found by their id without an index")


# --- building -------------------------------------------------------------------------------------


class _Visit:
    """Gives records that were there before an index their entries."""

    def __init__(self, tx: Transaction, index: Index) -> None:
        self._tx = tx
        self._rows = Rows((index,))
        self._entries = Entries(index, self._rows.heads)

    def records(self, pairs: list[Pair]) -> Iterator[tuple[int, bytes]]:
        """Visit some, column by column where nothing stands in the way. Says after every few how
        many they were, and the key of the last.

        :raises Duplicate, TooLarge: the next one can't have its entries
        """
        for some in together(pairs):
            if self._together(some):
                yield len(some), some[-1][0]
                continue
            for key, value in some:
                self._alone(key, value)
                yield 1, key

    def _together(self, pairs: list[Pair]) -> bool:
        """Visit these if all is simple; whether it was."""
        ids = list(map(_id, map(_key, pairs)))
        made = self._entries.of_alike(self._rows.of_stored(list(map(_value, pairs))), ids)
        if made is None:
            return False
        found, count = made
        if self._entries.index.unique:
            claims = [entry for entry, value in found.items() if len(value) > 1]
            if len(found) < count or (claims and not self._tx.none_of(claims)):
                return False
        self._tx.put_new(found)
        return True

    def _alone(self, key: bytes, value: bytes) -> None:
        """:raises Duplicate, TooLarge: it can't have its entries"""
        row, id = self._rows.of_packed(value[SEQUENCE_BYTES:]), key[keys.RECORD_PREFIX_BYTES :]
        found = self._entries.of(row, id)
        if self._entries.index.unique:
            indexes.check_claims(self._tx, self._entries, row, found, id, stored=True)
        for entry, kept in found.items():
            self._tx.put(entry, kept)


def refusal_of(index: Index) -> Refusal:
    """Make the refusal again that an index FAILED with."""
    assert index.problem is not None, "it has not failed"
    code, _, message = index.problem.partition(": ")
    return CATALOGUE[code](
        f"{message}; index {index.name} has failed: mend that and REBUILD it, or DROP it",
        index=index.name,
        table=index.table,
    )


def unfinished(tx: Transaction) -> list[bytes]:
    """Where indexes are declared that are being built."""
    return [
        key
        for pairs in tx.scan(*keys.all_indexes())
        for key, _ in pairs
        if (index := index_rows.find(tx, key)) is not None and _to_build(index) is not None
    ]


def _to_build(index: Index) -> Index | None:
    """The one to visit records for: itself, or what is to take its place."""
    return index if index.state == BUILDING else index_rows.successor(index)


def visited(tx: Transaction, index: Index) -> int:
    """How many records the build of an index has visited."""
    return _progress(tx, _to_build(index) or index)[0]


def _progress(tx: Transaction, index: Index) -> tuple[int, bytes]:
    """How many records were visited, and the id of the last one, encoded."""
    value = tx.get(index.build)
    if value is None:
        return 0, b""
    fields = binary.unpack_object(value)
    return fields["visited"], fields["last"]


def build_slice(tx: Transaction, key: bytes, enough: Callable[[], bool]) -> bool:
    """Visit some more records of an index that is being built, at least one; whether any remain.

    :param key: where it is declared
    :param enough: whether the slice has been at it for long enough
    """
    declared = index_rows.find(tx, key)
    index = None if declared is None else _to_build(declared)
    if declared is None or index is None:
        return False
    done, last = _progress(tx, index)
    prefix = keys.record_prefix(*keys.index_table(key))
    start, end = keys.within(prefix)
    if last:
        start = prefix + last + b"\0"
    visit = _Visit(tx, index)
    try:
        for pairs in tx.scan(start, end):
            for more, record in visit.records(pairs):
                done += more
                if tx.size > limits.INDEX_SLICE_BYTES or enough():
                    reached = {"visited": done, "last": record[keys.RECORD_PREFIX_BYTES :]}
                    tx.put(index.build, binary.pack(reached))
                    tx.derive(index.entries, start, record + b"\0")
                    return True
    except Refusal as problem:
        _fail(tx, declared, problem)
        return False
    tx.derive(index.entries, start, end)
    tx.delete(index.build)
    _complete(tx, declared, index)
    return False


def _fail(tx: Transaction, index: Index, problem: Refusal) -> None:
    _clear(tx, index)
    told = f"{problem.code}: {problem.message}"
    index_rows.put(tx, replace(index, state=FAILED, problem=told, anew=None))
