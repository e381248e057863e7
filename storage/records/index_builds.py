"""Index builds: declares, builds, rebuilds and drops indexes.

An index is maintained from the commit that declares it: every record written since has its entries.
Older records are visited in id order by a background build, a bounded number per commit. The commit
that visits the last one makes the index ready. Each commit records the progress, so a killed node
resumes from there.

A UNIQUE index under construction refuses values that it knows to be taken. If the build meets a
record whose values another record has claimed, the index fails. Its entries are deleted, it is
neither maintained nor read, and it reports the reason until it is rebuilt or dropped.

Rebuilding a ready index keeps it in force. A successor with an id of its own is built beside it,
and both are maintained. The commit that visits the last record replaces the old index with its
successor. So UNIQUE holds throughout.
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
from storage.catalog import places
from storage.catalog.places import IfExists
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES, Pair
from storage.indexes import entries, index_rows
from storage.indexes.entries import (
    BUILDING,
    FAILED,
    READY,
    REBUILDING,
    Index,
    IndexedFields,
    IndexEntries,
    entries_of,
)
from storage.indexes.text_options import TextOptions
from storage.indexes.vector_options import DIMENSIONS, VectorOptions
from storage.records import records
from storage.txn.ids import next_id
from storage.txn.steps import together
from storage.txn.transaction import Transaction

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
    text: TextOptions | None = None,
    vector: VectorOptions | None = None,
    taken: IfExists = IfExists.REFUSE,
    tick: Callable[[], None] = lambda: None,
) -> Index:
    """Declare an index. On a table of at most `limits.INDEX_AT_ONCE` records it is built here,
    unless it would have too many entries for one transaction.

    Replacing an index with the same fields keeps its entries.

    :param tick: called while records are visited
    :raises AlreadyExists: the table has an index of that name
    :raises BadRequest: a field twice, or the id, which needs no index
    :raises Duplicate: it is UNIQUE and built here, and two records have the same values
    :raises NameRefused: the name is not valid
    :raises TooLarge: too many fields or none, or the comment is too long
    :raises TypeRefused: it is a VECTOR index built here, and a record has another value
    """
    check_name(name, "index")
    places.check_comment(comment)
    _check_paths(paths)
    present = next((one for one in table.indexes if one.name == name), None)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(f"table {table.path} has an index {name}", kind="index", name=name)
        if taken is IfExists.SKIP:
            return present
        # Also while it is under construction: its build goes on.
        same = (present.paths, present.unique, present.text) == (tuple(paths), unique, text)
        same = same and _form(present.vector) == _form(vector)
        if same and present.state != FAILED:
            kept = replace(present, comment=comment, vector=vector)
            index_rows.put(tx, kept)
            return kept
        drop_index(tx, present)
    if text is not None:
        _check_text(table, name, paths, unique=unique)
    if vector is not None:
        _check_vector(table, name, paths, vector)
    database = table.database
    key = keys.index(database.namespace.id, database.id, table.id, name)
    # A new id gives its entries a prefix apart from those that are deleted.
    id = next_id(tx, keys.INDEX_IDS)
    made = Index(id, name, table.name, tuple(paths), unique, comment, BUILDING)
    made = replace(made, text=text, vector=vector)
    return _declare_build(tx, table, index_rows.placed(key, made), tick)


def rebuild_index(
    tx: Transaction, table: Table, index: Index, tick: Callable[[], None] = lambda: None
) -> Index:
    """Rebuild an index. One that is ready stays in force until its successor is complete.

    :raises Duplicate: as `define_index`
    """
    # Nothing reads it, so its own entries are made again, without a successor. An index of
    # segments answers meanwhile by the records themselves.
    if not index.is_complete or index.segmented:
        _clear(tx, index)
        # A fold under way must not write below the new entries: these get a prefix of their own.
        id = next_id(tx, keys.INDEX_IDS) if index.segmented else index.id
        anew = replace(index, id=id, state=BUILDING, problem=None, anew=None)
        return _declare_build(tx, table, index_rows.placed(index.key, anew), tick)
    coming = index_rows.successor(index)
    # A rebuild that is under way begins again.
    if coming is not None:
        _clear(tx, coming)
    number = next_id(tx, keys.INDEX_IDS)
    return _declare_build(tx, table, replace(index, state=REBUILDING, anew=number), tick)


def _check_text(table: Table, name: str, paths: Sequence[Path], *, unique: bool) -> None:
    assert not unique, "the grammar has one or the other"
    for other in table.indexes:
        # `@@` names fields, not an index: two of them would be ambiguous.
        if other.name != name and other.text is not None and set(other.paths) == set(paths):
            raise AlreadyExists(
                f"table {table.path} has a FULLTEXT index over these fields: {other.name}",
                kind="index",
                name=other.name,
            )


def _check_vector(table: Table, name: str, paths: Sequence[Path], vector: VectorOptions) -> None:
    if vector.dimension > DIMENSIONS:
        raise TooLarge(
            f"a VECTOR index has at most {DIMENSIONS} dimensions, not {vector.dimension}",
            limit=DIMENSIONS,
        )
    if vector.dimension < 1:
        raise BadRequest("a VECTOR index has at least one dimension")
    if not 0 < vector.recall <= 1:
        raise BadRequest("RECALL takes a number above 0, at most 1")
    for other in table.indexes:
        # NEAREST names a field, not an index: two of them would be ambiguous.
        if other.name != name and other.vector is not None and other.paths == tuple(paths):
            raise AlreadyExists(
                f"table {table.path} has a VECTOR index over this field: {other.name}",
                kind="index",
                name=other.name,
            )


def _form(options: VectorOptions | None) -> VectorOptions | None:
    """Return options without the recall, on which no entry depends."""
    return None if options is None else replace(options, recall=1.0)


def analyzer_changed(tx: Transaction, index: Index, text: TextOptions) -> None:
    """Have an index use another definition of its analyzer. Its segments are made again."""
    index_rows.put(tx, replace(index, text=text))


def drop_index(tx: Transaction, index: Index) -> None:
    """Drop an index with its entries."""
    _clear(tx, index)
    tx.delete(index.key)


def _clear(tx: Transaction, index: Index) -> None:
    """Delete the entries and build progress of an index and of its successor."""
    for one in (index, index_rows.successor(index)):
        if one is not None:
            tx.delete_range(*keys.within(one.entries))
            tx.delete(one.build)
            if one.vector is not None:
                tx.delete_range(*keys.within(one.centroids))
                tx.delete_range(*keys.within(one.recall))


def _declare_build(
    tx: Transaction, table: Table, declared: Index, tick: Callable[[], None]
) -> Index:
    """Declare an index as BUILDING or REBUILDING. Build it here if it is small, or leave it to the
    builder."""
    index_rows.put(tx, declared)
    index = _to_build(declared)
    assert index is not None
    # An exact count: a record that another commit creates meanwhile is a conflict.
    if records.count(tx, table) > limits.INDEX_AT_ONCE or not _at_once(tx, table, index, tick):
        return declared
    # The frame names only the records; a replay derives their entries.
    tx.derive(index.entries, *keys.within(table.prefix))
    return _complete(tx, declared, index)


def _at_once(tx: Transaction, table: Table, index: Index, tick: Callable[[], None]) -> bool:
    """Visit all records. Return False if they make too many entries; then none was kept."""
    # The bound is for these entries, beside what the transaction has changed before.
    visit, most = _Visit(tx, index), tx.size + limits.INDEX_AT_ONCE_BYTES
    for pairs in tx.scan(*keys.within(table.prefix)):
        for _ in visit.records(pairs):
            tick()
            if tx.size > most:
                tx.undo_writes(*keys.within(index.entries))
                return False
    return True


def _complete(tx: Transaction, declared: Index, index: Index) -> Index:
    """Make an index ready, since all records were visited. :param index: `declared` or its
    successor"""
    if index.id != declared.id:
        # Without `anew`, since `_clear` deletes the entries of a successor as well.
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
        raise BadRequest("the field id needs no index: records are found by id without one")


# --- building -------------------------------------------------------------------------------------


class _Visit:
    """Writes the index entries of records that are older than the index."""

    def __init__(self, tx: Transaction, index: Index) -> None:
        self._tx = tx
        self._rows = IndexedFields((index,))
        self._entries = entries_of(index, self._rows.heads)

    def records(self, pairs: list[Pair]) -> Iterator[tuple[int, bytes]]:
        """Visit some records, column by column if all are simple. Yield after every few of them
        their number and the key of the last.

        :raises Duplicate, TooLarge: the next record can't have its entries
        """
        for some in together(pairs):
            if self._together(some):
                yield len(some), some[-1][0]
                continue
            for key, value in some:
                self._alone(key, value)
                yield 1, key

    def _together(self, pairs: list[Pair]) -> bool:
        """Visit these records column by column. Return False, unchanged, if one is not simple."""
        ids = list(map(_id, map(_key, pairs)))
        made = self._entries.of_alike(self._rows.of_stored(list(map(_value, pairs))), ids)
        if made is None:
            return False
        found, count = made
        if self._entries.index.unique:
            # If a claim may be taken, `_alone` finds the two records that collide.
            claims = [entry for entry, value in found.items() if len(value) > 1]
            if len(found) < count or (claims and not self._tx.none_of(claims)):
                return False
        self._tx.put_new(found)
        return True

    def _alone(self, key: bytes, value: bytes) -> None:
        """Visit one record. :raises Duplicate, TooLarge: it can't have its entries"""
        row, id = self._rows.of_packed(value[SEQUENCE_BYTES:]), key[keys.RECORD_PREFIX_BYTES :]
        found = self._entries.of(row, id)
        if isinstance(self._entries, IndexEntries) and self._entries.index.unique:
            entries.check_claims(self._tx, self._entries, row, found, id, stored=True)
        for entry, kept in found.items():
            self._tx.put(entry, kept)


def refusal_of(index: Index) -> Refusal:
    """Recreate the error with which an index FAILED."""
    assert index.problem is not None, "it has not failed"
    code, _, message = index.problem.partition(": ")
    return CATALOGUE[code](
        f"{message}; index {index.name} has failed: correct the records and REBUILD it, or DROP it",
        index=index.name,
        table=index.table,
    )


def unfinished(
    tx: Transaction, after: bytes, enough: Callable[[], bool]
) -> tuple[list[bytes], bytes | None]:
    """Return the keys of the declarations of indexes under construction, and the last key that was
    searched, or None at the end.

    :param after: the last key of the slice before; empty at the beginning
    :param enough: True if the slice has taken long enough; at least one declaration is searched
    """
    found: list[bytes] = []
    start, end = keys.all_indexes()
    # The first key behind `after`; from an empty one it sorts before the range.
    for pairs in tx.scan(max(start, after + b"\0"), end):
        for key, value in pairs:
            if _to_build(index_rows.read(key, value)) is not None:
                found.append(key)
            if enough():
                return found, key
    return found, None


def _to_build(index: Index) -> Index | None:
    """Return the index to visit records for: this one, its successor, or None."""
    return index if index.state == BUILDING else index_rows.successor(index)


def visited(tx: Transaction, index: Index) -> int:
    """Return the number of records that the build of an index has visited."""
    return _progress(tx, _to_build(index) or index)[0]


def _progress(tx: Transaction, index: Index) -> tuple[int, bytes]:
    """Return the number of records visited, and the encoded id of the last one."""
    value = tx.get(index.build)
    if value is None:
        return 0, b""
    fields = binary.unpack_object(value)
    return fields["visited"], fields["last"]


def build_slice(tx: Transaction, key: bytes, enough: Callable[[], bool]) -> bool:
    """Visit more records of an index under construction, at least one. Return True if any remain.

    :param key: key of its declaration
    :param enough: returns True when the time slice is used up
    """
    declared = index_rows.find(tx, key)
    index = None if declared is None else _to_build(declared)
    # Dropped or completed since a search found it.
    if declared is None or index is None:
        return False
    # In the same transaction as the entries: a crash repeats a slice or keeps it whole.
    done, last = _progress(tx, index)
    prefix = keys.record_prefix(*keys.index_table(key))
    start, end = keys.within(prefix)
    if last:
        start = prefix + last + b"\0"  # the first key after that record
    visit = _Visit(tx, index)
    try:
        for pairs in tx.scan(start, end):
            for more, record in visit.records(pairs):
                done += more
                if tx.size > limits.INDEX_SLICE_BYTES or enough():
                    reached = {"visited": done, "last": record[keys.RECORD_PREFIX_BYTES :]}
                    tx.put(index.build, binary.pack(reached))
                    # The end is exclusive: the first key behind the last record visited.
                    tx.derive(index.entries, start, record + b"\0")
                    return True
    except Refusal as problem:  # the index fails; the transaction commits that
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
