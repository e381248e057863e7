"""Values of the language as Python objects, and the total order over them.

| type | in Python |
|---|---|
| none | `NONE` (absent: a field that is NONE is not stored) |
| null, bool, int, float, string, bytes | `None`, `bool`, `int`, `float`, `str`, `bytes` |
| decimal | `decimal.Decimal` |
| duration | `datetime.timedelta`, exact to the microsecond |
| datetime | `datetime.datetime`, aware, UTC, microseconds |
| uuid | `uuid.UUID` |
| array, object | `list`, `dict` with string keys |
| record | `RecordId` |

Order: none < null < bool < number < string < bytes < duration < datetime < uuid < array < object <
record. Numbers of the three types compare by numeric value, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import length_hint
from typing import Any, ClassVar, Final, TypeVar
from uuid import UUID

from protocol import limits
from protocol.errors import NumberTooLarge, TooLarge, TypeRefused

Tick = Callable[[], None]
"""Callback of long work for cooperative scheduling: may yield to other work, and may raise."""
PACE: Final = 1024
"""Items between two ticks: some tenths of a millisecond of work."""
FEW: Final = 64
LONG: Final = 65_536
"""Length in characters or bytes above which a string is long."""

HASH_SALT: Final = hash("storenode") | 1
"""Factor applied to integers before they are hashed. Python hashes an int to itself, so a client
could choose keys that collide (hash flooding). The hash of a string, used here, is secret to the
process."""

Item = TypeVar("Item")


def unpaced() -> None:
    """No-op tick, for work that blocks no other work, or that yields by itself."""


def paced(items: Iterable[Item], tick: Tick, every: int = PACE) -> Iterator[Item]:
    """Yield the items, with a tick at intervals.

    :param every: items between two ticks; fewer if each takes more than a fifth of a microsecond
    """
    for number, item in enumerate(items):
        if not number % every:
            tick()
        yield item


def ticking(items: Iterable[Item], count: int, tick: Tick | None) -> Iterable[Item]:
    """Return an iterable of the items with one tick before them, and more between them if `count`
    is large. For walks of nested values: ticks come at intervals however the parts are distributed.
    """
    if tick is None:
        return items
    if count > PACE:
        return paced(items, tick)
    tick()
    return items


def let_go(values: list[Any], tick: Tick) -> None:
    """Empty a list, and free its contents piece by piece. A million rows would otherwise be freed
    in one step when their last reference goes, which takes a tenth of a second. Parts with other
    references stay.

    Never raises by itself: it runs after the answer was sent.
    """
    # `values` is the stack: recursion per large part would exceed Python's limit.
    while values:
        tick()
        value = values.pop()
        kind = type(value)
        if (kind is not list and kind is not dict) or not is_large(value):
            continue
        items = list(value) if kind is list else list(value.values())
        del value  # from here on only `items` references the pieces
        while items:
            tick()
            piece = items[-PACE:]
            del items[-PACE:]
            values += [item for item in piece if not is_low(item)]
            del piece


def is_large(value: Any, most: int = PACE, longest: float = LONG) -> bool:
    """True if a value has more than `most` parts, or one of more than `longest` characters or
    bytes. Examines no more of them than that."""
    if isinstance(value, (str, bytes)):
        return len(value) > longest
    left, waiting = most, [value]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (list, dict)):
            continue  # a scalar has no parts
        left -= len(value)
        if left < 0:
            return True
        for part in value if isinstance(value, list) else value.values():
            kind = type(part)
            if kind is str or kind is bytes:
                if len(part) > longest:
                    return True
            elif kind is dict or kind is list:
                waiting.append(part)
    return False


def is_flat(value: Any) -> bool:
    """Return True if a value is small in its parts: a scalar, or an array or object of a few
    scalars, none of them longer than `LONG`."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not list:
        return length_hint(value) <= LONG
    return (
        len(value) <= FEW
        and _HOLDERS.isdisjoint(map(type, value))
        and max(map(length_hint, value), default=0) <= LONG
    )


def is_low(value: Any) -> bool:
    """Return True if a value has few parts, and all of them are flat; of one row, its fields."""
    kind = type(value)
    if kind is list and len(value) == 1 and type(value[0]) is dict:
        value, kind = value[0], dict
    if kind is not dict and kind is not list:
        return True
    parts = value.values() if kind is dict else value
    return (
        len(parts) <= FEW
        and max(map(length_hint, parts), default=0) <= LONG
        and all(is_flat(part) for part in parts if type(part) in _HOLDERS)
    )


class NoneValue:
    """The type of `NONE`. There is one instance."""

    __slots__ = ()
    _one: ClassVar[NoneValue | None] = None

    def __new__(cls) -> NoneValue:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "NONE"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "NONE"


NONE: Final = NoneValue()


class RecordId:
    """The address of a record: a table's name and an id (string, int, uuid, or array of these)."""

    __slots__ = ("id", "table")

    def __init__(self, table: str, id: Any) -> None:
        self.table = table
        self.id = id

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RecordId)
            and self.table == other.table
            and type(self.id) is type(other.id)
            and bool(self.id == other.id)
        )

    def __hash__(self) -> int:
        id = self.id
        kind = type(id)
        if kind is int:
            return hash((self.table, id * HASH_SALT))
        return hash((self.table, id if kind is str else id.bytes if kind is UUID else repr(id)))

    def __reduce__(self) -> tuple[type[RecordId], tuple[str, Any]]:
        # Without this, copy and pickle fail on a compiled class.
        return RecordId, (self.table, self.id)

    def __repr__(self) -> str:
        return f"RecordId({self.table!r}, {self.id!r})"


Value = (
    NoneValue | None | bool | int | float | Decimal | str | bytes | timedelta | datetime | UUID
    | list[Any] | dict[str, Any] | RecordId
)  # fmt: skip

_RANKS: Final[dict[type, int]] = {
    NoneValue: 0, type(None): 1, bool: 2, int: 3, float: 3, Decimal: 3, str: 4, bytes: 5,
    timedelta: 6, datetime: 7, UUID: 8, list: 9, dict: 10, RecordId: 11,
}  # fmt: skip

_NAMES: Final[dict[type, str]] = {
    NoneValue: "none", type(None): "null", bool: "bool", int: "int", float: "float",
    Decimal: "decimal", str: "string", bytes: "bytes", timedelta: "duration",
    datetime: "datetime", UUID: "uuid", list: "array", dict: "object", RecordId: "record",
}  # fmt: skip

_PLAIN: Final = frozenset({bool, int, str, bytes, timedelta, datetime})
"""Types for which `<` of Python is the order of the language, between two values of one type."""


def rank(value: Value) -> int:
    """Return the position of a value's type in the order of types."""
    return _RANKS[type(value)]


def type_name(value: Value) -> str:
    """Return the name of a value's type in the language."""
    return _NAMES[type(value)]


def compare(left: Any, right: Any, tick: Tick | None = None) -> int:
    """Return -1, 0 or 1 under the total order.

    `1`, `1.0` and `1dec` compare as 0; `identical` distinguishes them.

    :param tick: called at intervals while large values are compared
    """
    kind = type(left)
    if kind is type(right):
        if kind in _PLAIN or kind is float or kind is Decimal:
            if tick is not None and (kind is str or kind is bytes) and len(left) > LONG:
                tick()
            return int(left > right) - int(left < right)
        if kind is list:
            return _compare_arrays(left, right, tick)
        if kind is dict:
            return _compare_objects(left, right, tick)
        if kind is RecordId:
            return compare(left.table, right.table) or compare(left.id, right.id)
        if kind is UUID:
            return int(left.int > right.int) - int(left.int < right.int)
        return 0
    mine, other = _RANKS[kind], _RANKS[type(right)]
    if mine == other:
        return int(left > right) - int(left < right)
    return (mine > other) - (mine < other)


def _compare_arrays(left: list[Any], right: list[Any], tick: Tick | None) -> int:
    for one, two in ticking(zip(left, right, strict=False), len(left), tick):
        found = compare(one, two, tick)
        if found:
            return found
    return (len(left) > len(right)) - (len(left) < len(right))


def present_fields(fields: dict[str, Any], tick: Tick | None = None) -> dict[str, Any]:
    """Return an object without its NONE fields; the same object if it has none. A NONE field is
    absent.

    :param tick: called at intervals for a large object
    """
    if tick is None or len(fields) <= PACE:
        if NONE not in fields.values():
            return fields
        return {name: value for name, value in fields.items() if value is not NONE}
    found = {}
    for name, value in paced(fields.items(), tick):
        if value is not NONE:
            found[name] = value
    return fields if len(found) == len(fields) else found


def _compare_objects(left: dict[str, Any], right: dict[str, Any], tick: Tick | None) -> int:
    """Compare objects as their (name, value) pairs in name order."""
    left, right = present_fields(left, tick), present_fields(right, tick)
    names = zip(sorted(left), sorted(right), strict=False)
    for one, two in ticking(names, len(left), tick):
        if one != two:
            return -1 if one < two else 1
        found = compare(left[one], right[two], tick)
        if found:
            return found
    return (len(left) > len(right)) - (len(left) < len(right))


def equal(left: Any, right: Any, tick: Tick | None = None) -> bool:
    """Return the result of the language's `=`: numbers by numeric value, all else by type and
    value.

    :param tick: called at intervals while large values are compared
    """
    kind = type(left)
    if kind is type(right):
        if kind in _PLAIN:
            if tick is not None and (kind is str or kind is bytes) and len(left) > LONG:
                tick()
            return bool(left == right)
        if kind is list and len(left) != len(right):
            return False
    return compare(left, right, tick) == 0


def identical(left: Any, right: Any, tick: Tick | None = None) -> bool:
    """True if type and value are the same at every depth, as compare-and-swap requires. Decimals
    must agree in scale too.

    :param tick: called at intervals while large values are compared
    """
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is list:
        return len(left) == len(right) and all(
            identical(one, two, tick)
            for one, two in ticking(zip(left, right, strict=True), len(left), tick)
        )
    if kind is dict:
        left, right = present_fields(left, tick), present_fields(right, tick)
        return left.keys() == right.keys() and all(
            identical(left[name], right[name], tick) for name in ticking(left, len(left), tick)
        )
    if kind is Decimal:
        return bool(left.as_tuple() == right.as_tuple())
    if kind is RecordId:
        return left.table == right.table and identical(left.id, right.id)
    if tick is not None and (kind is str or kind is bytes) and len(left) > LONG:
        tick()
    return bool(left == right)


def check(value: Any, depth: int = 0, tick: Tick | None = None) -> None:
    """Refuse values that may not be stored or sent, at any depth.

    :param tick: called at intervals while a large value is checked
    :raises TypeRefused: not a type of the language, NaN or an infinity, a naive datetime, a string
        that is not Unicode, an object key that is not a string
    :raises NumberTooLarge: an integer beyond 64 bits, a decimal beyond 34 digits or 10^±6143
    :raises TooLarge: nested deeper than `limits.DEPTH`
    """
    kind = type(value)
    parts: Collection[Any]
    if kind is dict:
        try:
            names = "".join(value)
        except TypeError:
            raise _odd_name(value) from None
        if not names.isascii():
            for name in value:  # one by one: joined, two halves could form a valid pair
                check_unicode(name)
        parts = value.values()
    elif kind is list:
        parts = value
    else:
        _check_scalar(value, kind)
        return
    if depth >= limits.DEPTH:
        raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
    many = len(parts) > FEW
    for part in paced(parts, tick) if many and tick is not None else parts:
        # Fast path: most parts are plain, and a call for each would dominate.
        kind = type(part)
        if kind is str:
            if part.isascii():
                continue
        elif kind is int:
            if _INT_MIN <= part <= _INT_MAX:
                continue
        elif kind is float:
            if part - part == 0.0:
                continue
        elif kind in _ALWAYS_WELL:
            continue
        elif kind is RecordId:
            check_record_id(part.id)
            continue
        elif tick is not None and kind in _HOLDERS and (len(part) > _LITTLE or depth % 4 == 1):
            tick()  # also while descending: a tree of pairs has only small parts
        check(part, depth + 1, tick)


def is_rows(value: Any) -> bool:
    """True if a value is an array that begins with an object, such as the rows of an INSERT or of
    an answer. Each row is a value: `limits.DEPTH` does not count the array around them."""
    return type(value) is list and bool(value) and type(value[0]) is dict


def check_given(value: Any, tick: Tick | None = None) -> None:
    """Refuse invalid parameters of a script, like `check`; of an array of rows, each is checked by
    itself.

    :param tick: called at intervals while a large value is checked
    """
    check(value, -1 if is_rows(value) else 0, tick)


def check_parts(value: Any, tick: Tick | None = None) -> None:
    """Refuse an array or object with an invalid part. The outermost level is not counted: its parts
    are the values, which the caller checks one by one.

    :param tick: called at intervals while a large value is checked
    """
    check(value, -1, tick)


def check_body(body: Any, tick: Tick | None = None) -> None:
    """Refuse a message body that contains an invalid value. The body is not counted as a level.
    `params` and `values` contain values, each of which is checked by itself.

    :param tick: called at intervals while a large value is checked
    """
    if type(body) is not dict:
        check(body, 0, tick)
        return
    check(dict.fromkeys(body))
    for name, held in body.items():
        if name == "params" and type(held) is dict:
            check(dict.fromkeys(held), 0, tick)
            held = held.values()
        elif name != "values" or type(held) is not list:
            held = (held,)
        for value in held:
            check_given(value, tick)


def _check_scalar(value: Any, kind: type) -> None:
    if kind is str:
        if not value.isascii():
            check_unicode(value)
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise NumberTooLarge("an integer does not fit 64 bits")
    elif kind is float:
        if value - value != 0.0:
            raise TypeRefused("NaN and infinities are not values", found=str(value))
    elif kind is Decimal:
        check_decimal(value)
    elif kind is datetime:
        if value.tzinfo is not UTC:
            raise TypeRefused("a datetime is in UTC")
    elif kind is timedelta:
        if not _INT_MIN <= value // MICROSECOND <= _INT_MAX:
            raise NumberTooLarge("a duration does not fit 64 bits of microseconds")
    elif kind is RecordId:
        check_record_id(value.id)
    elif kind not in _RANKS:
        raise TypeRefused(f"{kind.__name__} is not a type of the language")


def _odd_name(fields: dict[Any, Any]) -> TypeRefused:
    odd = next(type(name) for name in fields if type(name) is not str)
    return TypeRefused(f"an object's keys are strings, not {odd.__name__}")


def without_none(fields: dict[str, Any], tick: Tick | None = None) -> dict[str, Any]:
    """Return a copy of an object without its NONE fields, at any depth: a NONE field is absent.
    Arrays keep NONE items, whose positions matter.

    :param tick: called at intervals for a large object
    """
    items: Iterable[tuple[str, Any]] = fields.items()
    if tick is not None and len(fields) > FEW:
        items = paced(items, tick)
    return {
        name: item if type(item) not in _HOLDERS else _deeper(item, tick)
        for name, item in items
        if item is not NONE
    }


def _deeper(value: Any, tick: Tick | None) -> Any:
    if type(value) is dict:
        return without_none(value, tick)
    return [
        item if type(item) not in _HOLDERS else _deeper(item, tick)
        for item in ticking(value, len(value), tick)
    ]


_HOLDERS: Final = frozenset({dict, list})
_LITTLE: Final = 8
"""Parts of an array or object that may be checked without a tick."""
_INT_MIN: Final = limits.INT_MIN
_INT_MAX: Final = limits.INT_MAX
_ALWAYS_WELL: Final = frozenset({bool, type(None), NoneValue, bytes, UUID})
"""Types of which `check` accepts every value."""
MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(nanoseconds: int) -> int:
    """Round nanoseconds to whole microseconds, half to even: the only rounding rule for times with
    more digits than a datetime has."""
    whole, rest = divmod(nanoseconds, 1000)
    return whole + (rest > 500 or (rest == 500 and whole % 2 == 1))


def moment(nanoseconds: int) -> datetime:
    """Return the datetime `nanoseconds` after 1970, rounded by `microseconds`.

    :raises OverflowError: outside the years 1 to 9999
    """
    return _EPOCH + microseconds(nanoseconds) * MICROSECOND


def instant(time_us: int) -> datetime:
    """Return the datetime `time_us` microseconds after 1970. :raises OverflowError: see `moment`"""
    return _EPOCH + time_us * MICROSECOND


def check_unicode(text: str) -> None:
    """Check that a string is valid Unicode. :raises TypeRefused: it has a lone surrogate"""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypeRefused("a string holds a lone surrogate, which is not Unicode") from None


def check_decimal(value: Decimal) -> None:
    """Check the range of a decimal.

    :raises NumberTooLarge: beyond 34 digits, or an exponent beyond ±6143
    :raises TypeRefused: NaN or an infinity
    """
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeRefused("NaN and infinities are not values", found=str(value))
    if len(digits) > limits.DECIMAL_DIGITS:
        raise NumberTooLarge(
            f"a decimal has at most {limits.DECIMAL_DIGITS} digits, this one has {len(digits)}"
        )
    if abs(exponent) > limits.DECIMAL_EXPONENT or abs(value.adjusted()) > limits.DECIMAL_EXPONENT:
        raise NumberTooLarge(f"a decimal's exponent lies within ±{limits.DECIMAL_EXPONENT}")


def check_record_id(value: Any) -> None:
    """Check the id of a record.

    :raises TypeRefused: not a string, int, uuid, or array of these
    :raises TooLarge: nested too deep, or with a string or more parts over `limits.RECORD_ID_BYTES`
    """
    _check_id(value, 0, limits.RECORD_ID_BYTES)


def _check_id(value: Any, depth: int, left: int) -> int:
    """Check an id. Return `left` less its parts, each of which takes at least a byte."""
    kind = type(value)
    if kind is str:
        size = len(value)
        if not value.isascii() and size <= limits.RECORD_ID_BYTES:
            check_unicode(value)
            size = len(value.encode())
        if not size:
            raise TypeRefused("a record's id must not be empty")
        if size > limits.RECORD_ID_BYTES:
            left = 0
    elif kind is int:
        if not limits.INT_MIN <= value <= limits.INT_MAX:
            raise NumberTooLarge("an integer does not fit 64 bits")
    elif kind is list:
        if depth >= limits.DEPTH:
            raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
        for item in value:
            left = _check_id(item, depth + 1, left)
    elif kind is not UUID:
        name = _NAMES.get(kind, kind.__name__)
        raise TypeRefused(f"a record's id is a string, int, uuid or array of these, not {name}")
    if left <= 0:
        raise TooLarge(
            f"a record's id has at most {limits.RECORD_ID_BYTES} bytes",
            limit=limits.RECORD_ID_BYTES,
        )
    return left - 1
