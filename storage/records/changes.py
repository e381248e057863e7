"""Changes: the record writes of one statement, collected first and then applied.

A statement reads the state as of its start. Therefore a statement that writes several records
computes all of them before it writes the first. Until `RecordChanges.write`, its own reads see none
of its changes.

UNIQUE is checked against the state after the statement. All changed records leave their index
entries before the first one enters its new ones. So one record may take over a value that another
gives up, in any order. A `write` that fails may have been applied in part; the transaction ends
then, as after any refused statement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from protocol import binary, limits
from protocol.errors import AlreadyExists, Duplicate, Refusal
from protocol.values import Tick, ticking
from storage.catalog.catalog import Table
from storage.formats import keys
from storage.indexes.entries import EntryMove
from storage.records import records
from storage.records.change_notes import note
from storage.records.records import Stored
from storage.txn.transaction import Transaction, too_large


class _RecordWrite(NamedTuple):
    """A record to write; `before` None: it is new."""

    number: int
    key: bytes
    packed: bytes
    before: Stored | None


class _RefusedRecord(NamedTuple):
    """An invalid new record. Its refusal is reported unless the record exists already."""

    id: Any
    fields: dict[str, Any]
    refusal: Refusal


IsPassed = Callable[[AlreadyExists | Duplicate], bool]
"""Predicate: skip a new record that was refused with this error."""


def _is_same(
    before: bytes, known: dict[str, Any], after: bytes, fields: dict[str, Any], tick: Tick | None
) -> bool:
    """True if the fields are bitwise equal in any order; 0.0 differs from -0.0."""
    if before == after:
        return True
    # Fast path for most changes. Values equal in Python may still differ, as 1 and True do.
    if len(before) != len(after) or known != fields:
        return False
    # Decode again: `known` may share nested objects with `fields`, which hides a change.
    kept = _ordered(binary.unpack(before), tick)
    return binary.pack(kept) == binary.pack(_ordered(fields, tick))


def _ordered(value: Any, tick: Tick | None) -> Any:
    """Return a value with the fields of all nested objects sorted by name."""
    if type(value) is dict:
        names = ticking(sorted(value), len(value), tick)
        return {name: _ordered(value[name], tick) for name in names}
    if type(value) is list:
        return [_ordered(item, tick) for item in ticking(value, len(value), tick)]
    return value


class RecordChanges:
    """The records of one table that a statement creates and changes, each at most once.

    :param skips_same: skip records whose fields do not change. Only for callers that may read them:
        the absence of a commit reveals their values
    """

    def __init__(self, tx: Transaction, table: Table, *, skips_same: bool = False) -> None:
        self._tx = tx
        self._table = table
        self._skips_same = skips_same
        self._bytes = 0
        self._count = 0
        self._collected: list[_RecordWrite | _RefusedRecord] = []
        self._moves: dict[int, list[EntryMove]] = {}

    def put(
        self,
        id: Any,
        fields: dict[str, Any],
        before: Stored | None,
        known: dict[str, Any] | None = None,
        tick: Tick | None = None,
    ) -> int:
        """Collect a record to create or replace.

        :param fields: checked values, without the id
        :param before: result of `records.stored`; None: the record is new
        :param known: decoded fields of `before`, compared if `skips_same` is set
        :returns: bytes held in memory for it until `write`
        :raises TooLarge: the record, or all of them together, exceed their limit
        """
        packed = records.packed(fields, tick)
        if (
            self._skips_same
            and before is not None
            and known is not None
            and _is_same(before.raw, known, packed, fields, tick)
        ):
            self._count += 1
            return 0
        key = keys.record(self._table.prefix, id)
        size = len(key) + len(packed)
        self._bytes += size
        # Fail early: each is a different record, so the transaction could not take them all.
        if self._bytes > limits.TRANSACTION_BYTES:
            raise too_large()
        self._collected.append(_RecordWrite(self._count, key, packed, before))
        self._count += 1
        return size if before is None else size + len(before.raw)

    def refuse(self, id: Any, fields: dict[str, Any], refusal: Refusal) -> None:
        """Collect a refused new record; `write` raises the refusal unless the record exists by
        then."""
        self._collected.append(_RefusedRecord(id, fields, refusal))

    def write(self, tick: Tick, is_passed: IsPassed = lambda taken: False) -> set[int]:
        """Write the collected records in order.

        :param is_passed: decides about a new record that exists already, or whose UNIQUE values are
            taken
        :returns: the indexes of the skipped records among those that were `put`, from 0
        :raises AlreadyExists, Duplicate: a new record exists, or its UNIQUE values are taken
        :raises Duplicate: two records would have the same UNIQUE values
        :raises Refusal: a refusal given to `refuse`
        :raises TooLarge: the transaction exceeds its limit
        """
        self._leave(tick)
        passed: set[int] = set()
        collected = self._collected
        collected.reverse()
        while collected:
            tick()
            change = collected.pop()  # freeing a million at once would block the loop
            if isinstance(change, _RefusedRecord):
                self._refuse(change, is_passed, tick)
            elif change.before is not None:
                self._change(change, change.before, tick)
            elif not self._make(change, is_passed, tick):
                passed.add(change.number)
        return passed

    def _leave(self, tick: Tick) -> None:
        """Remove the index entries that the changed records lose."""
        keeper = self._table.keeper
        if keeper is None:
            return
        for change in self._collected:
            tick()
            if isinstance(change, _RecordWrite) and change.before is not None:
                moves = keeper.leave(self._tx, change.key, change.before.raw, change.packed, tick)
                if moves:
                    self._moves[change.number] = moves

    def _change(self, change: _RecordWrite, before: Stored, tick: Tick) -> None:
        moves = self._moves.pop(change.number, None)
        if moves is not None and self._table.keeper is not None:
            self._table.keeper.enter(self._tx, change.key, change.packed, moves, tick)
        self._tx.put_record(change.key, change.packed, before.sequence)
        note(self._tx, self._table, change.key, before.raw, change.packed)

    def _make(self, change: _RecordWrite, is_passed: IsPassed, tick: Tick) -> bool:
        tx, table = self._tx, self._table
        try:
            records.check_absent(tx, table, change.key)
            if table.keeper is not None:
                table.keeper.enter(tx, change.key, change.packed, None, tick)
        except (AlreadyExists, Duplicate) as taken:
            if is_passed(taken):
                return False
            raise
        tx.put_record(change.key, change.packed, 0)
        note(tx, table, change.key, None, change.packed)
        tx.add(table.count_key, 1)
        return True

    def _refuse(self, refused: _RefusedRecord, is_passed: IsPassed, tick: Tick) -> None:
        try:
            records.check_new(self._tx, self._table, refused.id, refused.fields, tick)
        except (AlreadyExists, Duplicate) as taken:
            if is_passed(taken):
                return
            raise
        raise refused.refusal
