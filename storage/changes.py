"""What one statement makes of the records of a table: collected first, then written.

A statement reads the state as it was when it began. So whatever writes more than one record
computes all of them before it writes the first: until `Changes.write` nothing that it reads shows a
change.

UNIQUE is asked of the state after the statement. All records that change give up what they have in
the indexes before the first takes what it will have: one may take what another leaves, whatever the
order. So what is refused in `write` may have been written in part: the transaction ends with it, as
every transaction does in which a statement was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from protocol import binary, limits
from protocol.errors import AlreadyExists, Duplicate, Refusal
from protocol.values import Tick, ticking
from storage import keys, records
from storage.announcing import note
from storage.catalog import Table
from storage.indexes import Move
from storage.records import Stored
from storage.transactions import Transaction, too_large


class _Change(NamedTuple):
    """A record as it will be; `before` None: it is new."""

    number: int
    key: bytes
    packed: bytes
    before: Stored | None


class _Refused(NamedTuple):
    """A new record that does not fit, unless it turns out that it is there already."""

    id: Any
    fields: dict[str, Any]
    refusal: Refusal


IsPassed = Callable[[AlreadyExists | Duplicate], bool]
"""Whether a new record that is refused so is passed over."""


def _is_same(
    before: bytes, known: dict[str, Any], after: bytes, fields: dict[str, Any], tick: Tick | None
) -> bool:
    """True if a record keeps its fields, in whatever order, to the bit: 0.0 is not -0.0."""
    if before == after:
        return True
    # Most changes are told here, quickly. What Python takes for equal may not be: 1 and True.
    if len(before) != len(after) or known != fields:
        return False
    # `known` may share what it holds with `fields`.
    kept = _ordered(binary.unpack(before), tick)
    return binary.pack(kept) == binary.pack(_ordered(fields, tick))


def _ordered(value: Any, tick: Tick | None) -> Any:
    """A value with the fields of all its objects in the order of their names."""
    if type(value) is dict:
        names = ticking(sorted(value), len(value), tick)
        return {name: _ordered(value[name], tick) for name in names}
    if type(value) is list:
        return [_ordered(item, tick) for item in ticking(value, len(value), tick)]
    return value


class Changes:
    """The records of one table that a statement makes and changes, each at most once.

    :param skips_same: leave out records whose fields stay the same: for a caller who may read
        them, since the absence of a commit tells what they hold
    """

    def __init__(self, tx: Transaction, table: Table, *, skips_same: bool = False) -> None:
        self._tx = tx
        self._table = table
        self._skips_same = skips_same
        self._bytes = 0
        self._count = 0
        self._collected: list[_Change | _Refused] = []
        self._moves: dict[int, list[Move]] = {}

    def put(
        self,
        id: Any,
        fields: dict[str, Any],
        before: Stored | None,
        known: dict[str, Any] | None = None,
        tick: Tick | None = None,
    ) -> int:
        """Replace or make a record.

        :param fields: checked values, without the id
        :param before: what `records.stored` said of it
        :param known: the fields in there, which are compared where `skips_same` is set
        :returns: bytes that are held for it until they are written
        :raises TooLarge: the record, or all of them together, are over their limit
        """
        packed = records.packed(fields)
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
        # Each is another record: no transaction takes more of them, whatever it holds already.
        if self._bytes > limits.TRANSACTION_BYTES:
            raise too_large()
        self._collected.append(_Change(self._count, key, packed, before))
        self._count += 1
        return size if before is None else size + len(before.raw)

    def refuse(self, id: Any, fields: dict[str, Any], refusal: Refusal) -> None:
        """A new record that is refused when its turn comes, if nothing is in its way by then."""
        self._collected.append(_Refused(id, fields, refusal))

    def write(self, tick: Tick, is_passed: IsPassed = lambda taken: False) -> set[int]:
        """Write them in the order in which they came.

        :param is_passed: asked of new records that are there by now, or whose values another has
        :returns: which were passed over, of those that were `put`, counted from 0
        :raises AlreadyExists, Duplicate: a record that was to be new is there, or its values are
        :raises Duplicate: two records would have the same values
        :raises Refusal: what was given to `refuse`
        :raises TooLarge: the transaction is over its limit
        """
        self._leave(tick)
        passed: set[int] = set()
        collected = self._collected
        collected.reverse()
        while collected:
            tick()
            change = collected.pop()  # a million of them freed at once would hold the loop
            if isinstance(change, _Refused):
                self._refuse(change, is_passed, tick)
            elif change.before is not None:
                self._change(change, change.before, tick)
            elif not self._make(change, is_passed, tick):
                passed.add(change.number)
        return passed

    def _leave(self, tick: Tick) -> None:
        """Take from the indexes what the records that change will not have any more."""
        keeper = self._table.keeper
        if keeper is None:
            return
        for change in self._collected:
            tick()
            if isinstance(change, _Change) and change.before is not None:
                moves = keeper.leave(self._tx, change.key, change.before.raw, change.packed, tick)
                if moves:
                    self._moves[change.number] = moves

    def _change(self, change: _Change, before: Stored, tick: Tick) -> None:
        moves = self._moves.pop(change.number, None)
        if moves is not None and self._table.keeper is not None:
            self._table.keeper.enter(self._tx, change.key, change.packed, moves, tick)
        self._tx.put_record(change.key, change.packed, before.sequence)
        note(self._tx, self._table, change.key, before.raw, change.packed)

    def _make(self, change: _Change, is_passed: IsPassed, tick: Tick) -> bool:
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

    def _refuse(self, refused: _Refused, is_passed: IsPassed, tick: Tick) -> None:
        try:
            records.check_new(self._tx, self._table, refused.id, refused.fields, tick)
        except (AlreadyExists, Duplicate) as taken:
            if is_passed(taken):
                return
            raise
        raise refused.refusal
