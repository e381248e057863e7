"""Blocks: the values of one field in one segment, as an array of one kind.

| kind | array | of |
|---|---|---|
| int | narrowed integers | int |
| float | doubles | float |
| time | narrowed microseconds since 1970 | datetime |
| decimal | narrowed integers and one scale | decimals of one scale within 64 bits |
| coded | codes into the dictionary of the column | small scalars in any mix, NONE and NULL too |
| mixed | nothing: the segment is read by row | everything else |

In the first four, `state` tells NONE (0), NULL (1) and a value (2) apart; None: all are values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np

from protocol.order import encode
from protocol.values import NONE, PACE, NoneValue, RecordId, Tick, unpaced
from storage.columns.ids import Ids, make_ids, merged
from storage.columns.narrow import Array, Ints, narrowed, widened
from storage.columns.projections import ColumnSegment

BLOCK_ROWS: Final = 4_096
"""Records of a segment when it is built. A patched one is divided at twice as many."""
ENTRIES: Final = 16_384
"""Different values in the dictionary of a column."""
ENTRY_CHARACTERS: Final = 256
"""Longest string or bytes in a dictionary."""
SCALES: Final = 18
"""Most decimal places of a block of decimals."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INT, FLOAT, TIME, DECIMAL, CODED, MIXED = "int", "float", "time", "decimal", "coded", "mixed"
_EXACT: Final = Context(prec=999, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MICROSECOND: Final = timedelta(microseconds=1)
_ENTRY_BYTES: Final = 150
"""Memory of a dictionary entry beside its characters, about."""


class Dictionary:
    """Different values of one column, numbered as they come. It only grows."""

    __slots__ = ("_codes", "size", "values")

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self.values: list[Any] = []
        """Values by their codes."""
        self.size = 0
        """Memory in bytes, about."""

    def encode(self, values: Sequence[Any], tick: Tick = unpaced) -> Array | None:
        """Return the codes of values; None if one does not fit."""
        found: list[Array] = []
        for at in range(0, len(values), PACE):
            tick()
            codes = self._encode(values[at : at + PACE])
            if codes is None:
                return None
            found.append(codes)
        return np.concatenate(found)

    def _encode(self, values: Sequence[Any]) -> Array | None:
        known = self._codes
        if set(map(type, values)) == _STRINGS:
            keys: Sequence[Any] = values
        else:
            keys = list(map(_identity, values))
            if None in keys:
                return None
        codes = list(map(known.get, keys))
        if None in codes:
            for at, code in enumerate(codes):
                if code is None:
                    code = known.get(keys[at])
                    codes[at] = self._add(keys[at], values[at]) if code is None else code
                    if codes[at] is None:
                        return None
        return np.array(codes, np.uint16)

    def _add(self, key: Any, value: Any) -> int | None:
        long = len(value) if type(value) is str or type(value) is bytes else 0
        if len(self.values) >= ENTRIES or long > ENTRY_CHARACTERS:
            return None
        code = self._codes[key] = len(self.values)
        self.values.append(value)
        self.size += _ENTRY_BYTES + long
        return code


_STRINGS: Final = {str}
_Maker = Callable[[Sequence[Any], Tick], "Block | None"]


def _identity(value: Any) -> Any:
    """Return a key that is equal for identical values only, with a hash that no caller can choose;
    None for a value that no dictionary holds."""
    kind = type(value)
    if kind is str or kind is NoneValue:
        return value
    if kind is RecordId:
        return value if type(value.id) is not list else None
    if value is None or kind is bool:
        return (kind, str(value))
    if kind is int or kind is float or kind is Decimal:
        return (kind, repr(value))
    if kind is datetime or kind is timedelta or kind is UUID or kind is bytes:
        return (kind, value if kind is bytes else encode(value))
    return None


@dataclass(frozen=True, slots=True)
class Block:
    """Values of one field in one segment. Immutable."""

    kind: str
    data: Array
    base: int = 0
    """Number that narrowed integers are offsets from."""
    state: Array | None = None
    scale: int = 0
    """Decimal places of a block of decimals."""
    dictionary: Dictionary | None = None
    low: Any = None
    high: Any = None
    """Least and greatest of the array's numbers."""

    @property
    def size(self) -> int:
        """Memory in bytes, without the dictionary."""
        return int(self.data.nbytes) + (0 if self.state is None else int(self.state.nbytes))

    @property
    def numbers(self) -> Array:
        """The array with integers of 64 bits."""
        return self.data if self.kind in (FLOAT, CODED) else widened(self.data, self.base)

    def items(self) -> list[Any]:
        """Return the values as Python objects."""
        if self.kind == CODED:
            assert self.dictionary is not None
            return list(map(self.dictionary.values.__getitem__, self.data.tolist()))
        found = [python_value(self.kind, self.scale, one) for one in self.numbers.tolist()]
        if self.state is not None:
            for at, state in enumerate(self.state.tolist()):
                if state < 2:
                    found[at] = None if state else NONE
        return found


def python_value(kind: str, scale: int, number: Any) -> Any:
    """Return the value that a number of a block stands for."""
    if kind == TIME:
        return EPOCH + timedelta(microseconds=number)
    if kind == DECIMAL:
        return Decimal(number).scaleb(-scale, _EXACT)
    return number


def make_block(values: Sequence[Any], dictionary: Dictionary, tick: Tick = unpaced) -> Block:
    """Make a block of the narrowest kind that holds these values exactly.

    :param values: at least one
    :param tick: called at intervals
    """
    kinds = set(map(type, values))
    present = kinds - _MISSING
    if len(present) == 1:
        (kind,) = present
        make = _MAKERS.get(kind)
        if make is not None:
            found = _of_one_kind(values, kind, make, len(present) < len(kinds), tick)
            if found is not None:
                return found
    codes = dictionary.encode(values, tick)
    if codes is None:
        return Block(MIXED, np.zeros(0, np.uint8))
    return Block(CODED, codes, dictionary=dictionary)


def _of_one_kind(
    values: Sequence[Any], kind: type, make: _Maker, missing: bool, tick: Tick
) -> Block | None:
    if not missing:
        return make(values, tick)
    filler = next(value for value in values if type(value) is kind)
    found = make([value if type(value) is kind else filler for value in values], tick)
    if found is None:
        return None
    states = [2 if type(one) is kind else 1 if one is None else 0 for one in values]
    return _with_state(found, np.array(states, np.uint8))


def _with_state(block: Block, state: Array) -> Block:
    return Block(
        block.kind, block.data, block.base, state, block.scale, block.dictionary, block.low,
        block.high,
    )  # fmt: skip


def _integers(kind: str, values: Ints, scale: int = 0, state: Array | None = None) -> Block:
    data, base = narrowed(values)
    low, high = int(values.min()), int(values.max())
    return Block(kind, data, base, state, scale, None, low, high)


def _ints(values: Sequence[Any], tick: Tick) -> Block:
    return _integers(INT, np.array(values, np.int64))


def _floats(values: Sequence[Any], tick: Tick) -> Block | None:
    found = np.array(values, np.float64)
    return _doubles(found) if np.isfinite(found).all() else None


def _doubles(values: Array, state: Array | None = None) -> Block:
    return Block(FLOAT, values, state=state, low=float(values.min()), high=float(values.max()))


def _times(values: Sequence[Any], tick: Tick) -> Block:
    found: list[int] = []
    for at in range(0, len(values), PACE):
        tick()
        found += [(one - EPOCH) // _MICROSECOND for one in values[at : at + PACE]]
    return _integers(TIME, np.array(found, np.int64))


def _decimals(values: Sequence[Any], tick: Tick) -> Block | None:
    exponent = values[0].as_tuple().exponent
    if not isinstance(exponent, int) or not -SCALES <= exponent <= 0:
        return None
    if not all(map(values[0].same_quantum, values)):
        return None
    found: list[int] = []
    for at in range(0, len(values), PACE):
        tick()
        found += [int(one.scaleb(-exponent, _EXACT)) for one in values[at : at + PACE]]
    # A negative zero would lose its sign.
    if 0 in found and any(one.is_signed() for one in values if not one):
        return None
    try:
        return _integers(DECIMAL, np.array(found, np.int64), -exponent)
    except OverflowError:
        return None


_MISSING: Final[set[type]] = {type(None), NoneValue}
_MAKERS: Final[dict[type, _Maker]] = {
    int: _ints, float: _floats, datetime: _times, Decimal: _decimals,
}  # fmt: skip


# --- segments -------------------------------------------------------------------------------------


def patch(
    segment: ColumnSegment,
    changes: Sequence[tuple[bytes, dict[str, Any] | None]],
    dictionaries: dict[str, Dictionary],
) -> list[ColumnSegment]:
    """Return segments in the place of one, with some of its records written or deleted.

    Columns without values in a block, because it is mixed, are left out: they have to be built.

    :param changes: encoded ids in order, each with the values of all columns; None: deleted
    """
    ids: Ids = segment.ids
    kept = np.ones(ids.count, bool)
    added: list[bytes] = []
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    for id, row in changes:
        at, found = ids.find(id)
        if found:
            kept[at] = False
        if row is not None:
            added.append(id)
            rows.append(row)
            # Odd: a record in its own place. Even: a new one before the next.
            places.append(2 * at + 1 if found else 2 * at)
    old = np.flatnonzero(kept)
    take = np.argsort(np.concatenate([2 * old + 1, np.array(places, np.int64)]), kind="stable")
    if not len(take):
        return [ColumnSegment(segment.start, make_ids([]), {})]
    columns = {
        name: _patched(block, old, [row[name] for row in rows], take, dictionaries[name])
        for name, block in segment.columns.items()
        if block.kind != MIXED and name in dictionaries
    }
    found_ids = merged(ids, old, added, take)
    return _divided(ColumnSegment(segment.start, found_ids, columns))


def _patched(
    block: Block, old: Array, values: list[Any], take: Array, dictionary: Dictionary
) -> Block:
    if not values:
        return _taken(block, old[take])
    more = make_block(values, dictionary)
    if more.kind == block.kind == CODED and more.dictionary is block.dictionary:
        codes = np.concatenate([block.data[old], more.data])[take]
        return Block(CODED, codes, dictionary=dictionary)
    if more.kind == block.kind != CODED and more.scale == block.scale and more.kind != MIXED:
        return _rebuilt(block, _joined(block, more, old)[take], _states(block, more, old, take))
    items = block.items()
    together = [items[at] for at in old.tolist()] + values
    return make_block([together[at] for at in take.tolist()], dictionary)


def _joined(one: Block, other: Block, kept: Array) -> Array:
    return np.concatenate([one.numbers[kept], other.numbers])


def _states(one: Block, other: Block, kept: Array, take: Array) -> Array | None:
    if one.state is None and other.state is None:
        return None
    first = np.full(len(kept), 2, np.uint8) if one.state is None else one.state[kept]
    second = np.full(len(other.data), 2, np.uint8) if other.state is None else other.state
    return np.concatenate([first, second])[take]


def _rebuilt(block: Block, numbers: Array, state: Array | None) -> Block:
    if state is not None and (state == 2).all():
        state = None
    if block.kind == FLOAT:
        return _doubles(numbers, state)
    return _integers(block.kind, numbers, block.scale, state)


def _taken(block: Block, positions: Array) -> Block:
    if block.kind == MIXED:
        return block
    state = None if block.state is None else block.state[positions]
    if block.kind == CODED:
        return Block(CODED, block.data[positions], dictionary=block.dictionary)
    return _rebuilt(block, block.numbers[positions], state)


def _divided(segment: ColumnSegment) -> list[ColumnSegment]:
    """Return a segment in parts if it is long."""
    if segment.count <= 2 * BLOCK_ROWS:
        return [segment]
    found = []
    for at in range(0, segment.count, BLOCK_ROWS):
        places = np.arange(at, min(at + BLOCK_ROWS, segment.count))
        start = segment.start if not at else segment.ids.encoded(at)
        found.append(
            ColumnSegment(
                start,
                merged(segment.ids, places, [], np.arange(len(places))),
                {name: _taken(block, places) for name, block in segment.columns.items()},
            )
        )
    return found


def together(one: ColumnSegment, other: ColumnSegment) -> ColumnSegment | None:
    """Return two neighbouring segments as one; None if that would be long, or their columns
    differ."""
    if one.count + other.count > BLOCK_ROWS or one.columns.keys() != other.columns.keys():
        return None
    places, take = np.arange(one.count), np.arange(one.count + other.count)
    columns = {
        name: _appended(block, other.columns[name], places, take)
        for name, block in one.columns.items()
    }
    more = [other.ids.encoded(at) for at in range(other.count)]
    return ColumnSegment(one.start, merged(one.ids, places, more, take), columns)


def _appended(one: Block, other: Block, places: Array, take: Array) -> Block:
    if MIXED in (one.kind, other.kind):
        return Block(MIXED, np.zeros(0, np.uint8))
    if one.kind == other.kind == CODED and one.dictionary is other.dictionary:
        codes = np.concatenate([one.data, other.data])
        return Block(CODED, codes, dictionary=one.dictionary)
    if one.kind == other.kind != CODED and one.scale == other.scale:
        return _rebuilt(one, _joined(one, other, places), _states(one, other, places, take))
    dictionary = one.dictionary or other.dictionary or Dictionary()
    return make_block(one.items() + other.items(), dictionary)
